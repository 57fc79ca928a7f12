"""The tables of the audio front end, in integers: sine, logarithm, Hann window, mel bands (docs/audio.md)."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from flipbit.runtime.audio.config import RATE, AudioConfig
from flipbit.runtime.errors import ArgumentError

Array = np.ndarray
CIRCLE = 1024  # steps
QUARTER = CIRCLE // 4
MEL_HZ = 700  # mel(f) is proportional to log2(1 + f / 700)

# 32768 sin(2π i / 1024) of a quarter circle, as int16.
SINE = np.minimum(np.rint(32768 * np.sin(2 * np.pi * np.arange(QUARTER + 1) / CIRCLE)), 32767).astype(np.int64)
# 32768 log2(1 + i / 64).
LOG2 = np.rint(32768 * np.log2(1 + np.arange(65) / 64)).astype(np.int64)


def log2(values: Array | int) -> Array:
    """32768 log2(x) of positive integers below 2^63, from a table by linear interpolation."""
    x = np.asarray(values, np.int64)
    exponent = np.frexp(x.astype(np.float64))[1].astype(np.int64) - 1
    exponent -= (x >> np.minimum(exponent, 62)) == 0  # float64 may have rounded up to the next power of two
    mantissa = np.where(exponent > 31, x >> np.maximum(exponent - 31, 0), x << np.maximum(31 - exponent, 0))
    index, rest = mantissa >> 25 & 63, mantissa >> 9 & 0xFFFF
    return (exponent << 15) + LOG2[index] + ((LOG2[index + 1] - LOG2[index]) * rest + 0x8000 >> 16)


def rotation(steps: Array) -> tuple[Array, Array]:
    """Cosine and sine of 0 … 767 steps of the circle."""
    i = np.asarray(steps, np.int64)
    quadrant, at = i // QUARTER, i % QUARTER
    rising, falling = SINE[at], SINE[QUARTER - at]
    sine = np.choose(quadrant, [rising, falling, -rising])
    cosine = np.choose(quadrant, [falling, -rising, -falling])
    return cosine, sine


@functools.lru_cache(maxsize=32)
def hann(window: int) -> Array:
    """32768 sin²(π n / window) for n = 0 … window − 1; the second half mirrors the first."""
    n = np.arange(window, dtype=np.int64)
    at = (np.minimum(n, window - n) << 21) // window
    index, rest = at >> 12, at & 4095
    step = SINE[np.minimum(index + 1, QUARTER)] - SINE[index]
    sine = SINE[index] + (step * rest + 2048 >> 12)
    return sine * sine + 0x4000 >> 15


class Bands(NamedTuple):
    """Bin ``first + i`` has the weight ``rising[i]`` / 32768 in band ``segment[i]`` (if there is one of that number),
    and the rest to 1 in the band before (likewise)."""

    first: int
    segment: Array
    rising: Array


@functools.lru_cache(maxsize=32)
def mel_bands(config: AudioConfig) -> Bands:
    """Triangles of equal width on the mel scale; :class:`ArgumentError` where one would have no bin of the FFT."""
    bins = np.arange(1, config.fft // 2, dtype=np.int64)
    at = log2(MEL_HZ * config.fft + RATE * bins)
    low, high = (int(log2((MEL_HZ + hz) * config.fft)) for hz in (config.low_hz, config.high_hz))
    inside = (at >= low) & (at < high)
    scaled = (at[inside] - low) * (config.bands + 1)
    segment, rest = np.divmod(scaled, high - low)
    rising = (rest << 15) // (high - low)
    filled = np.zeros(config.bands + 2, bool)  # band b at b + 1
    filled[segment] = True
    filled[segment[rising > 0] + 1] = True
    if not filled[1 : config.bands + 1].all():
        raise ArgumentError(
            f"{config.bands} audio bands within {config.low_hz} … {config.high_hz} Hz are narrower than the "
            f"{RATE / config.fft:.4g} Hz of an FFT of {config.fft} points: use fewer bands, "
            "a wider range or a larger FFT"
        )
    return Bands(int(bins[inside][0]), segment, rising)
