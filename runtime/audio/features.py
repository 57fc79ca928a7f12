"""The audio front end in NumPy: the same integers as ``fb_audio`` in C, for many clips at a time (docs/audio.md).

>>> features(np.zeros(16_000, np.int16)).shape
(49, 40)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flipbit.runtime.audio.config import AudioConfig
from flipbit.runtime.audio.tables import CIRCLE, hann, log2, mel_bands, rotation
from flipbit.runtime.errors import ArgumentError

Array = np.ndarray
FRAMES = 1024  # computed together: their intermediate values stay in the processor's cache


def features(samples: Array, config: AudioConfig | None = None) -> Array:
    """int8 features [rows, bands] of int16 samples at 16 kHz, or [clips, rows, bands] of [clips, samples]."""
    config = config or AudioConfig()
    if samples.dtype != np.int16 or samples.ndim not in (1, 2):
        raise ArgumentError(
            f"samples are {samples.dtype} with {samples.ndim} dimensions; expected int16, [samples] or [clips, samples]"
        )
    rows = config.rows(samples.shape[-1])
    found = np.empty((*samples.shape[:-1], rows, config.bands), np.int8)
    if not rows:
        mel_bands(config)  # refuses what is refused with samples, too
        return found
    frames = np.lib.stride_tricks.sliding_window_view(samples, config.window, -1)[..., :: config.hop, :]
    clips = frames if frames.ndim == 3 else frames[None]
    flat = found.reshape(-1, config.bands)
    together = max(1, FRAMES // rows)
    for first in range(0, len(clips), together):
        part = clips[first : first + together].reshape(-1, config.window)  # copies: windows overlap
        for at in range(0, len(part), FRAMES):
            some = frame_features(part[at : at + FRAMES], config)
            flat[first * rows + at :][: len(some)] = some
    return found


def frame_features(frames: Array, config: AudioConfig) -> Array:
    """int8 features [frames, bands] of int16 windows [frames, window]."""
    real, imaginary, exponent = spectrum(frames, config)
    return logarithm(*band_energies(real, imaginary, exponent, config), config)


def headroom(*values: Array) -> Array:
    """For each row the least h ≥ 0 such that all values are within −2^h … 2^h − 1."""
    folded: Any = 0
    for v in values:
        folded = folded | np.bitwise_or.reduce(v ^ (v >> 31), axis=-1)
    return np.frexp(folded.astype(np.float64))[1].astype(np.int32)


def rounded(values: Array, shift: Array) -> Array:
    """values / 2^shift to nearest, halves upwards; a shift for each row."""
    shift = shift.reshape(-1, *[1] * (values.ndim - 1))
    return values + (1 << shift >> 1) >> shift


def spectrum(frames: Array, config: AudioConfig) -> tuple[Array, Array, Array]:
    """The complex FFT of pairs of samples, in int32, and an exponent per frame: times 2^exponent."""
    points = config.fft // 2
    x = frames.astype(np.int32)
    h = headroom(x)
    exponent = h - 15
    padded = np.zeros((len(x), config.fft), np.int32)
    padded[:, : config.window] = rounded(x * hann(config.window).astype(np.int32), h)
    order = bit_reversed(points)
    real, imaginary = padded[:, ::2][:, order], padded[:, 1::2][:, order]
    h = headroom(real, imaginary)
    done = 1
    if points.bit_length() % 2 == 0:  # an odd power of two: one stage of radix 2
        shift = np.maximum(h - 14, 0)
        real, imaginary = (_pairs(v, shift) for v in (real, imaginary))
        exponent, h, done = exponent + shift, headroom(real, imaginary), 2
    while done < points:
        shift = np.maximum(h - (13 if done == 1 else 12), 0)
        real, imaginary = _radix_4(real, imaginary, shift, done)
        exponent, h, done = exponent + shift, headroom(real, imaginary), 4 * done
    return real, imaginary, exponent


def bit_reversed(points: int) -> Array:
    bits = points.bit_length() - 1
    n = np.arange(points)
    return sum(((n >> b & 1) << (bits - 1 - b) for b in range(bits)), np.zeros_like(n))


def _pairs(v: Array, shift: Array) -> Array:
    a, b = v[:, ::2], v[:, 1::2]
    return rounded(np.stack([a + b, a - b], -1), shift).reshape(v.shape)


def _times(real: Array, imaginary: Array, cosine: Array, sine: Array) -> tuple[Array, Array]:
    """(real + j imaginary) (cosine − j sine) / 32768, to nearest."""
    return (
        real * cosine + imaginary * sine + 0x4000 >> 15,
        imaginary * cosine - real * sine + 0x4000 >> 15,
    )


def _radix_4(real: Array, imaginary: Array, shift: Array, done: int) -> tuple[Array, Array]:
    """One stage: four transforms of ``done`` points become one, whose parts lie in bit-reversed order."""
    parts = [v.reshape(len(v), -1, 4, done) for v in (real, imaginary)]
    (ar, br, cr, dr), (ai, bi, ci, di) = ([part[:, :, i] for i in range(4)] for part in parts)
    if done > 1:
        k = np.arange(done) * (CIRCLE // (4 * done))
        turned = []
        for (r, i), turn in zip(((br, bi), (cr, ci), (dr, di)), (2, 1, 3)):
            cosine, sine = (w.astype(np.int32) for w in rotation(turn * k))
            tr, ti = _times(r, i, cosine, sine)
            tr[..., 0], ti[..., 0] = r[..., 0], i[..., 0]  # by 1, which int16 cannot say
            turned += [tr, ti]
        br, bi, cr, ci, dr, di = turned
    pr, pi, qr, qi = ar + br, ai + bi, ar - br, ai - bi
    sr, si, tr, ti = cr + dr, ci + di, cr - dr, ci - di
    new_real = np.stack([pr + sr, qr + ti, pr - sr, qr - ti], 2)
    new_imaginary = np.stack([pi + si, qi - tr, pi - si, qi + tr], 2)
    return rounded(new_real, shift).reshape(real.shape), rounded(new_imaginary, shift).reshape(real.shape)


def powers(real: Array, imaginary: Array, shift: Array) -> Array:
    """Powers of the bins 0 … n − 1 of the real FFT in int64, from the complex FFT of n pairs; that of bin 0 is 0."""
    n = real.shape[1]
    k = np.arange(1, n // 2 + 1)
    zr, zi, mr, mi = real[:, k], imaginary[:, k], real[:, n - k], imaginary[:, n - k]
    sr, si, dr, di = zr + mr, zi - mi, zr - mr, zi + mi
    cosine, sine = (w.astype(np.int32) >> 1 for w in rotation(k * (CIRCLE // (2 * n))))
    tr, ti = di * cosine - dr * sine + 0x2000 >> 14, dr * cosine + di * sine + 0x2000 >> 14
    found = np.zeros(real.shape, np.int64)
    for at, xr, xi in ((n - k, sr - tr, si + ti), (k, sr + tr, si - ti)):
        xr, xi = (rounded(v, shift).astype(np.int64) for v in (xr, xi))
        found[:, at] = xr * xr + xi * xi
    return found


def band_energies(real: Array, imaginary: Array, exponent: Array, config: AudioConfig) -> tuple[Array, Array]:
    """Energies [frames, bands] in int64 and an exponent per frame."""
    first, segment, rising = mel_bands(config)
    shift = np.where(headroom(real, imaginary) > 14, 2, 1).astype(np.int32)
    power = powers(real, imaginary, shift)[:, first : first + len(segment)]
    up = power * rising >> 15
    sums = np.zeros((len(real), config.bands + 2), np.int64)  # band b at b + 1
    starts = np.flatnonzero(np.diff(segment, prepend=-1))
    sums[:, segment[starts] + 1] += np.add.reduceat(up, starts, 1)
    sums[:, segment[starts]] += np.add.reduceat(power - up, starts, 1)
    return sums[:, 1:-1], exponent + shift - 1


def logarithm(energies: Array, exponent: Array, config: AudioConfig) -> Array:
    """Features: the logarithm of energies · 4^exponent, on the scale that ``floor`` and ``gain`` give."""
    level = log2(np.maximum(energies, 1)) + (2 * exponent.astype(np.int64) - config.floor << 15)[:, None]
    steps = np.clip(level * config.gain + (1 << 18) >> 19, 0, 255)
    return (np.where(energies > 0, steps, 0) - 128).astype(np.int8)
