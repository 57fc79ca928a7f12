"""Instructions and cycles of layers that were never counted, from those that were.

A kernel's work is a sum of parts: look-ups go with multiply-accumulates, filling tables with the input's values,
storing with the output's, preparing with the weights. How many instructions each part takes is fitted to the layers
that were counted with the same kernel on the same core (least squares of relative errors; no part takes less than
nothing).
docs/results/cost-model.md compares estimates with counts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from flipbit.runtime.core.model import Layer

TILE = 8  # pixels of a row that a kernel computes at a time
_WINDOW = re.compile(r"(\d+)×(\d+) (?:conv|depthwise|max pool|average pool)")


def layer_key(layer: Layer) -> str:
    """What a layer's work depends on, as text: ``1 3×3 conv /2 + ReLU 9×8×3 5×4×16``."""
    shapes = ("×".join(map(str, shape)) for shape in (layer.input_shape, layer.output_shape))
    return f"{layer.bits or ''} {layer.description} {' '.join(shapes)}".strip()


def parts(key: str) -> list[float]:
    """How often a layer does each kind of work, from its :func:`layer_key`."""
    *_, source, target = key.split()
    (in_h, in_w, in_c), (out_h, out_w, out_c) = _shape(source), _shape(target)
    window = _WINDOW.search(key)
    taps = int(window[1]) * int(window[2]) if window else 1
    tiled_out, tiled_in = out_h * _tiled(out_w), in_h * _tiled(in_w)
    cut = out_h * (out_w % TILE > 0)  # tiles that the border cuts are read pixel by pixel
    if " conv" in key or "dense" in key:
        filter_size = taps * in_c
        loose = in_c % 16 > 0  # the bits of a tap do not fill words: other loops
        return [
            tiled_out * filter_size * out_c,
            tiled_out * filter_size,
            tiled_in * in_c,
            tiled_out * out_c,
            filter_size * out_c,
            out_h * out_w * out_c,
            cut * filter_size,
            cut * out_c,
            loose * tiled_out * filter_size * out_c,
            loose * tiled_out * filter_size,
            1,
        ]
    values = out_h * out_w * out_c
    return [taps * values, values, out_h * out_c, out_c, 1]


def fitted(counted: Sequence[tuple[str, float]], key: str) -> int:
    """What the layer ``key`` takes, by layers of the same kernel and core: their keys, and what they took."""
    rows = np.array([parts(other) for other, _ in counted], np.float64)
    took = np.array([cost for _, cost in counted], np.float64)
    relative = rows / took[:, None]
    size = np.linalg.norm(relative, axis=0)
    used = [i for i, length in enumerate(size) if length]
    while True:
        found, *_ = np.linalg.lstsq(relative[:, used] / size[used], np.ones(len(took)), rcond=None)
        if found.min() >= 0:
            return round(float(np.array(parts(key))[used] / size[used] @ found))
        del used[int(found.argmin())]


def _shape(text: str) -> tuple[int, int, int]:
    sizes = [int(size) for size in text.split("×")]
    return (sizes[0], sizes[1], sizes[2]) if len(sizes) == 3 else (1, 1, sizes[0])


def _tiled(width: int) -> int:
    return -(-width // TILE) * TILE
