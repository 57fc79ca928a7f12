"""Changes of a camera, for trying how well a net adapts: the same pictures, seen by another or an ageing camera.

>>> drifted = apply_drift(pixels, "cast:2")

| change | severity 1, 2, 3 |
|---|---|
| ``cast`` | gains of red, green, blue: 1.2/1/0.75, 1.35/1/0.55, 1.5/0.95/0.4 |
| ``dim`` | brightness × 0.5, 0.35, 0.22 |
| ``blur`` | a binomial 3×3 filter once, twice, three times |
| ``noise`` | normal noise of σ = 12, 20, 30 levels |

A camera that is mounted otherwise has no severity: ``mirror`` (left and right change places), ``turn`` (upside down),
``swap`` (red and blue change places).
"""

from __future__ import annotations

import numpy as np

from flipbit.runtime.errors import ArgumentError

Array = np.ndarray
GAINS = ((1.2, 1.0, 0.75), (1.35, 1.0, 0.55), (1.5, 0.95, 0.4))
BRIGHTNESS = (0.5, 0.35, 0.22)
SIGMA = (12.0, 20.0, 30.0)
DRIFTS = ("cast", "dim", "blur", "noise")
SEVERITIES = (1, 2, 3)
MOUNTS = ("mirror", "turn", "swap")


def colour_cast(x: Array, severity: int) -> Array:
    """Another white balance: each channel multiplied by a gain."""
    if x.shape[-1] != 3:
        raise ArgumentError(f"a colour cast needs 3 channels, these images have {x.shape[-1]}")
    return _pixels(x * np.array(GAINS[severity - 1]))


def dimming(x: Array, severity: int) -> Array:
    """Less light."""
    return _pixels(x * BRIGHTNESS[severity - 1])


def blur(x: Array, severity: int) -> Array:
    """Out of focus: (1 2 1)ᵀ(1 2 1)/16, applied ``severity`` times; edges are repeated."""
    values = x.astype(np.float32)  # exact: 8 bits, and 4 more each time
    for _ in range(severity):
        for axis in (1, 2):
            pad = [(0, 0)] * 4
            pad[axis] = (1, 1)
            wide = np.moveaxis(np.pad(values, pad, mode="edge"), axis, 0)
            values = np.moveaxis((wide[:-2] + 2 * wide[1:-1] + wide[2:]) / 4, 0, axis)
    return _pixels(values)


def noise(x: Array, severity: int, seed: int = 0) -> Array:
    """A worse sensor: independent noise on every value. The same seed draws the same noise."""
    return _pixels(x + np.random.default_rng(seed).normal(0, SIGMA[severity - 1], x.shape))


def mounted(x: Array, mount: str) -> Array:
    """A camera that is mounted otherwise."""
    if mount == "swap" and x.shape[-1] != 3:
        raise ArgumentError(f"colours change places in images of 3 channels, these have {x.shape[-1]}")
    changed = {"mirror": x[:, :, ::-1], "turn": x[:, ::-1, ::-1], "swap": x[..., ::-1]}[mount]
    return np.ascontiguousarray(changed)


def apply_drift(x: Array, change: str, seed: int = 0) -> Array:
    """Pixels (uint8, N×height×width×channels) after a change such as ``cast:2``; several are joined by ``+``."""
    if x.dtype != np.uint8 or x.ndim != 4:
        raise ArgumentError(f"drift changes pixels (uint8, N×height×width×channels), this is {x.dtype} of {x.shape}")
    for one in change.split("+"):
        name, _, severity = one.partition(":")
        if one in MOUNTS:
            x = mounted(x, one)
            continue
        if name not in DRIFTS or severity not in map(str, SEVERITIES):
            raise ArgumentError(
                f"drift {one!r}: expected {', '.join(DRIFTS)} with a severity of 1 to 3, such as cast:2, or "
                f"{', '.join(MOUNTS)}"
            )
        level = int(severity)
        if name == "noise":
            x = noise(x, level, seed)
        else:
            x = {"cast": colour_cast, "dim": dimming, "blur": blur}[name](x, level)
    return x


def _pixels(values: Array) -> Array:
    return np.clip(np.round(values), 0, 255).astype(np.uint8)
