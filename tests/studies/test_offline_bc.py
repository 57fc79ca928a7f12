"""BinaryConnect offline: the comparison that learning on a device is held against."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from flipbit.runtime.commands.cli import main
from flipbit.runtime.core.model import Model
from flipbit.runtime.data.drift import apply_drift
from flipbit.runtime.data.load import load_data
from flipbit.runtime.errors import ArgumentError
from flipbit.runtime.image.reader import read_image
from flipbit.studies.offline_bc import RECIPE, tune_offline
from tests.checkout import ROOT

H5 = ROOT / "models" / "digits-vgg-small" / "model.h5"
SHORT = replace(RECIPE, epochs=3)


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    """Dark ones."""
    pytest.importorskip("flipbit.train.keras_larq")
    data = load_data("digits", (8, 8, 1), [])
    return apply_drift(data.x, "dim:3"), data.y


@pytest.fixture(scope="module")
def image(digits) -> bytes:
    """Of the model, untuned."""
    from flipbit.export import convert
    from flipbit.export.write.fbit import fbit_bytes

    return fbit_bytes(convert(H5, calibrate="digits"), "(pixel - 128) * 0.0078125")


@pytest.fixture(scope="module")
def tuned(digits) -> bytes:
    x, y = digits
    return tune_offline(H5, x[:200], y[:200], 1, SHORT)


def accuracy(image: bytes, x: np.ndarray, y: np.ndarray) -> float:
    return float(np.mean(Model(image).predict(x, raw=True).argmax(1) == y))


def test_it_learns_what_changed_and_gives_an_image_of_the_same_net(digits, image: bytes, tuned: bytes) -> None:
    x, y = digits
    assert accuracy(tuned, x[200:], y[200:]) > accuracy(image, x[200:], y[200:]) + 0.1
    shapes = [[(op.name, op.binary, np.shape(op.weights)) for op in read_image(i).operations] for i in (image, tuned)]
    assert shapes[0] == shapes[1]


def test_the_same_seed_gives_the_same_image(digits, tuned: bytes) -> None:
    x, y = digits
    assert tune_offline(H5, x[:200], y[:200], 1, SHORT) == tuned


def test_compare_has_it_as_the_last_row(digits, image: bytes, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    x, y = digits
    np.savez(tmp_path / "dark.npz", x=x, y=y)
    (tmp_path / "net.fbit").write_bytes(image)
    asked = ["finetune", str(tmp_path / "net.fbit"), "--data", str(tmp_path / "dark.npz"), "--target", "sim:pico",
             "--compare", "--bc", str(H5), "--steps", "1", "--samples", "20"]  # fmt: skip
    assert main(asked) == 0
    rows = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()[2:]]
    assert rows == ["none", "bias", "sr", "buffer", "BC offline"]


def test_what_is_missing_is_said(digits, tmp_path: Path) -> None:
    x, y = digits
    with pytest.raises(ArgumentError, match="no such file"):
        tune_offline(tmp_path / "model.h5", x, y, 1)
    shutil.copy(H5, tmp_path / "model.h5")
    with pytest.raises(ArgumentError, match=r"run\.json"):
        tune_offline(tmp_path / "model.h5", x, y, 1)
    with pytest.raises(ArgumentError, match="uint8"):
        tune_offline(H5, x.astype(np.float32), y, 1)


def test_nothing_of_a_training_framework_is_imported_unasked() -> None:
    program = "import sys, flipbit.studies.learning; sys.exit('tensorflow' in sys.modules or 'larq' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
