"""Resampling keeps what both rates can hold and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from flipbit.runtime.audio.resample import resample
from flipbit.runtime.errors import ArgumentError


def sine(hz: float, rate: int, size: int) -> np.ndarray:
    return np.sin(2 * np.pi * hz / rate * np.arange(size))


@pytest.mark.parametrize("rate", [8_000, 22_050, 44_100, 48_000])
@pytest.mark.parametrize("part", [0.01, 0.2, 0.42])
def test_a_tone_stays_itself(rate: int, part: float) -> None:
    hz = part * min(rate, 16_000)
    found = resample(sine(hz, rate, rate // 4), rate, 16_000)
    middle = slice(400, 3600)
    assert np.abs(found - sine(hz, 16_000, found.size))[middle].max() < 2e-4


@pytest.mark.parametrize("hz", [8_700, 10_000, 15_000, 23_000])
def test_what_16_khz_cannot_hold_is_gone(hz: float) -> None:
    assert np.abs(resample(sine(hz, 48_000, 12_000), 48_000, 16_000))[200:-200].max() < 2e-4


def test_a_constant_stays_one_and_the_same_rate_changes_nothing() -> None:
    assert np.abs(resample(np.full(4000, 100.0), 44_100, 16_000)[100:-100] - 100).max() < 1e-9
    x = sine(100, 16_000, 99)
    np.testing.assert_array_equal(resample(x, 16_000, 16_000), x)


@pytest.mark.parametrize(("rate", "size", "length"), [(48_000, 3, 1), (48_000, 4, 2), (8_000, 5, 10), (44_100, 0, 0)])
def test_the_length_is_that_of_the_time_rounded_up(rate: int, size: int, length: int) -> None:
    assert resample(np.ones(size), rate, 16_000).size == length


def test_no_rate_is_refused() -> None:
    with pytest.raises(ArgumentError, match="0 to 16000"):
        resample(np.ones(5), 0, 16_000)
