"""What an image and run.json say of a net's front end: the same to the writer, the reader and the C core."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipbit.export.graph import ExportError
from flipbit.export.write.fbit import fbit_bytes
from flipbit.runtime.audio.config import AudioConfig
from flipbit.runtime.core.library import Opened
from flipbit.runtime.errors import ArgumentError, FlipbitError, ImageError, InputError
from flipbit.runtime.image.reader import FRONT_END, HEADER, OP, TENSOR, read_image
from flipbit.runtime.recordings.core_front_end import core_front_end, core_values
from flipbit.runtime.recordings.front_ends import AudioInput, FrontEndInput, SignalInput, front_end_of_json
from tests.nets.recorded_nets import recorded_graph
from tests.nets.small_nets import repaired, small_image

AUDIO = AudioInput(AudioConfig(bands=4, high_hz=4000), 5, 2)
ONE_SCALE = SignalInput.scaled(12_000, 6, 3, [-2.0], [2.0], channels=2)
OWN_SCALES = SignalInput.scaled(50, 6, 2, [-1.0, -2.0, 0.0], [1.0, 2.0, 9.81])
NET = recorded_graph(OWN_SCALES, (6, 1, 3))
CASES = [
    pytest.param(AUDIO, (5, 4, 1), id="audio"),
    pytest.param(ONE_SCALE, (6, 1, 2), id="one-scale-down"),
    pytest.param(ONE_SCALE, (1, 6, 2), id="one-scale-across"),
    pytest.param(OWN_SCALES, (6, 3, 1), id="own-scales-interleaved"),
    pytest.param(OWN_SCALES, (6, 1, 3), id="own-scales-planes"),
]


def image_of(front_end: FrontEndInput, shape: tuple[int, int, int]) -> bytes:
    return fbit_bytes(recorded_graph(front_end, shape))


def place(image: bytes) -> int:
    tensors, ops = struct.unpack_from("<HH", image, 16)
    return HEADER.size + tensors * TENSOR.size + ops * OP.size


@pytest.mark.parametrize(("front_end", "shape"), CASES)
def test_writer_reader_and_core_agree(front_end: FrontEndInput, shape: tuple[int, int, int]) -> None:
    image = image_of(front_end, shape)
    assert struct.unpack_from("<HH", image, 4) == (2, 1)
    assert read_image(image).front_end == front_end
    assert core_front_end(Opened(image)) == front_end


@pytest.mark.parametrize("front_end", [AUDIO, AudioInput(), ONE_SCALE, OWN_SCALES])
def test_json_there_and_back_is_the_same(front_end: FrontEndInput) -> None:
    assert front_end_of_json(front_end.to_json()) == front_end


def test_an_image_without_a_front_end_is_of_version_1_and_has_none() -> None:
    image = small_image()
    assert struct.unpack_from("<HH", image, 4) == (1, 0)
    assert read_image(image).front_end is None and core_front_end(Opened(image)) is None


def test_version_1_cannot_have_a_front_end() -> None:
    image = bytearray(image_of(AUDIO, (5, 4, 1)))
    image[4] = 1
    assert statuses(repaired(image)) == ("FB_ERR_RESERVED", "FB_ERR_RESERVED")


def statuses(image: bytes) -> tuple[str, str]:
    """Of the Python reader and of the C core."""
    found = []
    for read in (read_image, Opened):
        try:
            read(image)
            found.append("FB_OK")
        except FlipbitError as error:
            found.append(error.status)
    return found[0], found[1]


def mutants(image: bytes) -> Iterator[bytes]:
    """One byte wrong, two bytes wrong, and two bytes exchanged for the ends of their range."""
    at, random = place(image), np.random.default_rng(7)
    for i in range(FRONT_END.size):
        for value in (*range(8), 29, 30, 31, 48, 49, 64, 65, 127, 128, 255):
            yield _with(image, at + i, bytes([value]))
    for i in range(0, FRONT_END.size, 2):
        for number in (0, 1, 31, 32, 63, 64, 1023, 1024, 1025, 2048, 7600, 7999, 8000, 8001, 32767, 32768, 65535):
            yield _with(image, at + i, number.to_bytes(2, "little"))
    for _ in range(1500):
        where = random.integers(0, FRONT_END.size, 2)
        changed = bytearray(image)
        for i in where:
            changed[at + int(i)] = int(random.integers(0, 256))
        yield repaired(changed)


def _with(image: bytes, at: int, value: bytes) -> bytes:
    changed = bytearray(image)
    changed[at : at + len(value)] = value
    return repaired(changed)


def test_c_and_python_judge_every_wrong_record_alike_and_read_every_right_one_alike() -> None:
    seen: Counter[str] = Counter()
    for case in CASES:
        for mutant in mutants(image_of(*case.values)):  # type: ignore[arg-type]
            mine, theirs = statuses(mutant)
            assert mine == theirs, mutant[place(mutant) : place(mutant) + 32].hex()
            seen[mine] += 1
            if mine == "FB_OK":
                assert read_image(mutant).front_end == core_front_end(Opened(mutant))
    expected = ("OK", "ERR_KIND", "ERR_WINDOW", "ERR_RESERVED", "ERR_SHAPE", "ERR_FLAGS", "ERR_SHIFT", "ERR_MULTIPLIER")
    assert set(seen) == {f"FB_{status}" for status in expected}
    assert min(seen.values()) >= 10


def test_a_record_beyond_the_end_of_the_image_is_refused() -> None:
    image = image_of(AUDIO, (5, 4, 1))
    for missing, status in ((4, "FB_ERR_TABLE"), (0, "FB_ERR_OFFSET")):  # without it, the metadata is what is missing
        cut = bytearray(image[: place(image) + FRONT_END.size - missing])
        struct.pack_into("<I", cut, 8, len(cut))
        assert statuses(repaired(cut)) == (status, status)


@pytest.mark.parametrize(("front_end", "shape"), [(AUDIO, (5, 5, 1)), (ONE_SCALE, (6, 2, 2)), (OWN_SCALES, (7, 3, 1))])
def test_a_net_of_another_shape_is_not_written(front_end: FrontEndInput, shape: tuple[int, int, int]) -> None:
    with pytest.raises(ExportError, match="does not fit its front end"):
        image_of(front_end, shape)


@given(st.integers(0, 2**32), st.integers(-32768, 32767))
def test_scaling_is_the_same_in_numpy_and_c(seed: int, sample: int) -> None:
    random = np.random.default_rng(seed)
    multipliers, zeros = random.integers(1, 32768, 3).tolist(), random.integers(-128, 128, 3).tolist()
    front_end = SignalInput(
        50, 6, 2, 3, int(random.integers(-16, 31)), int(random.integers(1, 31)), tuple(multipliers), tuple(zeros)
    )
    opened = Opened(fbit_bytes(replace(NET, front_end=front_end)))
    samples = np.array([[sample] * 3, [-32768] * 3, [32767] * 3, [0] * 3], np.int16)
    np.testing.assert_array_equal(core_values(opened, samples), front_end.int8(samples))


def test_scales_made_from_a_range_use_the_whole_of_int8() -> None:
    low, high = np.array([-1.0, -2.0, 0.0]), np.array([1.0, 2.0, 9.81])
    front_end = SignalInput.scaled(50, 128, 64, low, high)
    ends = front_end.int8(front_end.samples(np.stack([low, high])))
    assert (np.abs(ends.astype(int) - [[-127] * 3, [127] * 3]) <= 1).all()
    far = front_end.int8(front_end.samples(np.stack([low - 1e6, high + 1e6])))
    assert (far == [[-128] * 3, [127] * 3]).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "video"}, "expected audio or signal"),
        ({"kind": None}, "expected audio or signal"),
        ({"length": 0}, "length is 0"),
        ({"hop": "5"}, "hop is '5'"),
        ({"bands": 65}, "bands is 65"),
        ({"colour": 1}, "lacks or does not know: colour"),
    ],
)
def test_what_is_wrong_in_run_json_is_named(change: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        front_end_of_json({**AUDIO.to_json(), **change})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rate": 0}, "rate is 0"),
        ({"rate": "fast"}, "rate is 'fast'"),
        ({"rate": float("nan")}, "rate is nan"),
        ({"multipliers": [1, 2]}, "one of each, or one per channel"),
        ({"multipliers": [0, 1, 1]}, "multipliers is 0"),
        ({"zeros": 3}, "signal"),
        ({"channels": 256}, "channels is 256"),
    ],
)
def test_what_is_wrong_with_a_signal_is_named(change: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        front_end_of_json({**OWN_SCALES.to_json(), **change})


def test_more_channels_than_the_record_has_scales_for_are_refused() -> None:
    with pytest.raises(ArgumentError, match="at most 6"):
        SignalInput.scaled(50, 128, 64, [-1.0] * 7, [1.0] * 7)
    assert SignalInput.scaled(50, 128, 64, [-1.0], [1.0], channels=7).channels == 7


def test_image_error_is_what_a_bad_record_raises() -> None:
    image = image_of(AUDIO, (5, 4, 1))
    with pytest.raises(ImageError, match="unknown kind 9"):
        read_image(_with(image, place(image), b"\x09"))
