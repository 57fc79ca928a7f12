"""Nets at the bounds of learning are trained, nets beyond them are refused: no sum of gradients exceeds 32 bits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from flipbit.runtime.core.learner import Learner, LearnerConfig
from flipbit.runtime.core.library import ENVIRONMENT
from flipbit.runtime.errors import OffsetError, SumOverflowError
from flipbit.runtime.image.reader import read_image
from tests.checkout import ROOT
from tests.nets.raw_image import AVERAGE, BINARY, CONV, DENSE, FLATTEN, TRAINABLE, Layer, Shape, image
from tests.samples import sample

CORE = ROOT / "firmware/core"
BOTH = LearnerConfig(bits=True, bias=True)
BITS = BINARY | TRAINABLE


def many_outputs(channels: int) -> bytes:
    """256×256 outputs per channel."""
    return image([Shape(256, 256, 1), Shape(256, 256, channels)], [Layer(CONV, (1, 1), BITS, shift=1)])


def many_filters(filters: int, flags: int, kernel: tuple[int, int]) -> bytes:
    """The gradient of the second layer's input sums up filters × kernel products."""
    h, w = kernel
    shapes = [Shape(h, w, 1), Shape(h, w, 1), Shape(h, w, filters), Shape(1, 1, filters), Shape(1, 1, 2)]
    layers = [
        Layer(CONV, (1, 1), BITS, shift=1),
        Layer(CONV, kernel, flags, shift=1 if flags else 17, fill=0xFF if flags else 127),
        Layer(AVERAGE, kernel, shift=10, factor=64),
        Layer(CONV, (1, 1), BITS, shift=1, fill=0x55),
    ]
    return image(shapes, layers)


AT_THE_BOUND = {
    "65,536 equal outputs": many_outputs(1),
    "98,298 int8 products": many_filters(10922, 0, (3, 3)),
    "6,291,171 binary products": many_filters(22549, BITS, (9, 31)),
}
BEYOND = {
    "131,072 equal outputs": many_outputs(2),
    "98,307 int8 products": many_filters(10923, 0, (3, 3)),
    "6,291,729 binary products": many_filters(22551, BITS, (9, 31)),
    "a channel of 65,792 pixels": image(
        [Shape(257, 256, 1), Shape(257, 256, 1), Shape(3, 2, 1)],
        [Layer(CONV, (1, 1), BITS, shift=1), Layer(CONV, (255, 255), BITS, shift=20)],
    ),
}


@pytest.mark.parametrize("name", BEYOND)
def test_a_net_whose_gradients_could_overflow_is_refused(name: str) -> None:
    read_image(BEYOND[name])  # it runs
    with pytest.raises(SumOverflowError, match="exceed 32 bits"):
        Learner(BEYOND[name], BOTH)


TRAIN = """
import sys
import numpy as np
from flipbit.runtime.core.learner import Learner, LearnerConfig
learner = Learner(sys.argv[1], LearnerConfig(bits=True, bias=True))
inputs = np.full((2, learner.input_size), -128, np.int8)
inputs[1] = 127
for _ in range(2):
    learner.step(inputs, [0, learner.output_size - 1], 1.0, 1.0)
print(learner.steps, "steps")
"""


@pytest.fixture(scope="module")
def trapping_core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The core, compiled so that undefined behaviour ends the process."""
    built = tmp_path_factory.mktemp("core") / "core.so"
    flags = ["-std=gnu99", "-O1", "-fPIC", "-shared", "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"]
    subprocess.run(["cc", *flags, *map(str, CORE.rglob("*.c")), "-o", str(built)], check=True)
    return built


@pytest.mark.parametrize("name", sample(AT_THE_BOUND, list(AT_THE_BOUND)[:2]))
def test_a_net_at_the_bound_is_trained_without_overflow(trapping_core: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "net.fbit").write_bytes(AT_THE_BOUND[name])
    command = [sys.executable, "-c", TRAIN, str(tmp_path / "net.fbit")]
    environment = {**os.environ, ENVIRONMENT: str(trapping_core)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "2 steps\n"


def test_weights_that_overlap_the_metadata_are_not_trained() -> None:
    """Flips would change the metadata, and leave an image that no reader of it opens."""
    shapes = [Shape(1, 1, 64, 1), Shape(1, 1, 2, 1)]
    layers = [Layer(DENSE, flags=BITS, shift=1)]
    text = b'{"labels": ["a", "b"]}'
    apart = image(shapes, layers, text)
    at = int.from_bytes(apart[24:28], "little")
    overlapping = image(shapes, layers, text, weights_at=at)
    assert read_image(overlapping).labels == ["a", "b"]
    inputs = np.random.default_rng(0).integers(-128, 128, (4, 64)).astype(np.int8)
    learner = Learner(apart, BOTH)
    learner.step(inputs, np.array([0, 1, 0, 1]), 1.0, 1.0)
    assert read_image(learner.image).labels == ["a", "b"]
    with pytest.raises(OffsetError, match="metadata"):
        Learner(overlapping, BOTH)


def test_a_flattened_map_still_learns() -> None:
    """The builder of these images makes whole nets, too."""
    shapes = [Shape(4, 4, 2), Shape(4, 4, 3), Shape(1, 1, 48, 1), Shape(1, 1, 5, 1)]
    layers = [Layer(CONV, (3, 3), BITS, shift=4), Layer(FLATTEN), Layer(DENSE, flags=BITS, shift=4)]
    learner = Learner(image(shapes, layers), BOTH)
    inputs = np.random.default_rng(0).integers(-128, 128, (4, 32)).astype(np.int8)
    assert learner.step(inputs, np.arange(4), 0.5, 0.5).flips > 0
