"""The C front end as a stream: pieces of any size, refusals, and the memory it was given."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_size_t

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipbit.runtime.audio.config import AudioConfig
from flipbit.runtime.audio.front_end import FrontEnd, _CAudio, _CAudioConfig, _core, core_status
from flipbit.runtime.core.library import aligned, status_name
from flipbit.runtime.errors import ArgumentError

SMALL = AudioConfig(window=100, hop=37, fft=128, bands=12)
KEYWORDS = (480, 320, 512, 40, 20, 7600, 8, 128)


def noise(size: int) -> np.ndarray:
    return np.random.default_rng(1).integers(-32768, 32768, size).astype(np.int16)


@given(st.lists(st.integers(0, 400), max_size=30))
def test_pieces_of_any_size_give_the_same_rows(sizes: list[int]) -> None:
    samples, stream = noise(sum(sizes)), FrontEnd(SMALL)
    at, rows = 0, []
    for size in sizes:
        rows.append(stream.push(samples[at : at + size]))
        at += size
    found = np.concatenate([np.empty((0, SMALL.bands), np.int8), *rows])
    np.testing.assert_array_equal(found, FrontEnd(SMALL).push(samples))


def test_after_a_reset_nothing_of_the_old_recording_is_left() -> None:
    stream, samples = FrontEnd(SMALL), noise(1000)
    stream.push(noise(555)[::-1].copy())
    stream.reset()
    np.testing.assert_array_equal(stream.push(samples), FrontEnd(SMALL).push(samples))


def test_samples_that_are_not_contiguous_are_taken_as_they_are_seen() -> None:
    samples = noise(2000)
    np.testing.assert_array_equal(FrontEnd(SMALL).push(samples[::2]), FrontEnd(SMALL).push(samples[::2].copy()))


def test_the_memory_for_keywords_is_what_the_header_says() -> None:
    assert FrontEnd().size == 3036


@pytest.mark.parametrize("bad", [np.zeros(10, np.int32), np.zeros((2, 5), np.int16)])
def test_other_samples_are_refused(bad: np.ndarray) -> None:
    with pytest.raises(ArgumentError, match="expected int16"):
        FrontEnd().push(bad)


def test_bands_without_a_bin_are_refused_by_the_core_and_by_a_line_that_says_what_to_do() -> None:
    config = AudioConfig(window=64, hop=64, fft=64, bands=64)
    assert core_status(config) == "FB_ERR_SHAPE"
    with pytest.raises(ArgumentError, match="use fewer bands"):
        FrontEnd(config)


# window, hop, fft, bands, low_hz, high_hz, floor, gain
@pytest.mark.parametrize(
    "wrong",
    [
        {0: 31}, {0: 513}, {0: 0}, {1: 0}, {1: 481}, {2: 0}, {2: 32, 0: 32}, {2: 2048}, {2: 511}, {2: 65535},
        {3: 0}, {3: 65}, {3: 65535}, {4: 7600}, {4: 65535}, {5: 8001}, {5: 0}, {6: 49}, {6: 255}, {7: 0},
    ],
)  # fmt: skip
def test_the_core_refuses_what_is_out_of_its_limits(wrong: dict[int, int]) -> None:
    config = _CAudioConfig(*(wrong.get(i, value) for i, value in enumerate(KEYWORDS)))
    assert status_name(_core().fb_audio_check(byref(config))) == "FB_ERR_ARGUMENT"
    assert _core().fb_audio_size(byref(config)) == 0


def test_every_misuse_has_its_status_and_changes_nothing() -> None:
    core, config, audio, used = _core(), _CAudioConfig(*KEYWORDS), _CAudio(), c_size_t(7)
    size = core.fb_audio_size(byref(config))
    memory, row, samples = aligned(size + 8), np.zeros(40, np.int8), noise(100)
    at = memory.ctypes.data

    def opened(*arguments: object) -> str:
        return status_name(core.fb_audio_open(*arguments))

    assert opened(byref(audio), byref(config), at, size - 1) == "FB_ERR_ARENA"
    assert opened(byref(audio), byref(config), at + 4, size) == "FB_ERR_ALIGN"
    assert opened(None, byref(config), at, size) == "FB_ERR_ARGUMENT"
    assert opened(byref(audio), None, at, size) == "FB_ERR_ARGUMENT"
    assert opened(byref(audio), byref(config), None, size) == "FB_ERR_ARGUMENT"
    assert opened(byref(audio), byref(config), at, size) == "FB_OK"
    for arguments in (
        (None, samples.ctypes.data, 5, byref(used), row.ctypes.data),
        (byref(audio), None, 5, byref(used), row.ctypes.data),
        (byref(audio), samples.ctypes.data, 5, None, row.ctypes.data),
        (byref(audio), samples.ctypes.data, 5, byref(used), None),
    ):
        assert status_name(core.fb_audio_push(*arguments)) == "FB_ERR_ARGUMENT"
    assert audio.filled == 0 and used.value == 7
    status = core.fb_audio_push(byref(audio), None, 0, byref(used), row.ctypes.data)
    assert (status_name(status), used.value) == ("FB_MORE", 0)


@given(st.sampled_from([AudioConfig(), SMALL, AudioConfig(window=33, hop=32, fft=64, bands=5, high_hz=4000)]))
def test_nothing_is_written_outside_memory_and_row(config: AudioConfig) -> None:
    core, packed, audio, used = _core(), _CAudioConfig(*vars(config).values()), _CAudio(), c_size_t()
    size = core.fb_audio_size(byref(packed))
    memory, row, samples = aligned(size + 64), np.full(80, 0x5A, np.int8), noise(config.window)
    memory[:] = 0xA5
    assert core.fb_audio_open(byref(audio), byref(packed), memory.ctypes.data, size) == 0
    assert core.fb_audio_push(byref(audio), samples.ctypes.data, samples.size, byref(used), row.ctypes.data) == 0
    assert (memory[size:] == 0xA5).all() and (row[config.bands :] == 0x5A).all()
    assert used.value == config.window and ctypes.sizeof(audio) <= 64
