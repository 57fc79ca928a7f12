"""Ranges of activations, from what a net does on sample images.

``minmax``      the smallest and largest value seen
``percentile``  cut off the outermost 0.01 % on each side
``mse``         the cut that gives the smallest mean squared error after rounding to 8 bits
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flipbit.export import oracle
from flipbit.export.graph import Array, ExportError, Graph

METHODS = ("minmax", "percentile", "mse")
OUTERMOST = 0.01  # percent, of `percentile`
KEPT = 200_000  # values kept per tensor for percentile and mse, evenly taken


@dataclass(frozen=True)
class Range:
    low: float
    high: float


def calibrate(graph: Graph, images: Array, method: str = "minmax") -> dict[str, Range]:
    """The range of each tensor of a graph in real numbers, over ``images`` as the net sees them."""
    if method not in METHODS:
        raise ExportError(f"calibration method {method!r}; choose from {', '.join(METHODS)}")
    if not len(images):
        raise ExportError("calibration needs at least one image")
    values: dict[str, list[Array]] = {}
    lows: dict[str, float] = {}
    highs: dict[str, float] = {}
    for start in range(0, len(images), 50):
        for name, x in oracle.run(graph, images[start : start + 50]).items():
            lows[name] = min(lows.get(name, np.inf), float(x.min()))
            highs[name] = max(highs.get(name, -np.inf), float(x.max()))
            if method != "minmax":
                every = max(1, x.size * len(images) // max(1, len(x)) // KEPT)
                values.setdefault(name, []).append(x.reshape(-1)[::every].astype(np.float32))
    if method == "minmax":
        return {name: Range(lows[name], highs[name]) for name in lows}
    choose = _percentile if method == "percentile" else _least_error
    return {name: choose(np.concatenate(parts), lows[name], highs[name]) for name, parts in values.items()}


def _percentile(x: Array, low: float, high: float) -> Range:
    return Range(*(float(v) for v in np.percentile(x, [OUTERMOST, 100 - OUTERMOST])))


def _least_error(x: Array, low: float, high: float) -> Range:
    """Try ever tighter cuts of [low, high]; both ends move together, an end at zero stays."""
    best, chosen = np.inf, Range(low, high)
    for part in np.linspace(1.0, 0.3, 36):
        lo, hi = min(low * part, 0.0), max(high * part, 0.0)
        scale = (hi - lo) / 255
        if scale <= 0:
            break
        error = float(np.mean((np.clip(np.round(x / scale) * scale, lo, hi) - x) ** 2))
        if error < best:
            best, chosen = error, Range(lo, hi)
    return chosen
