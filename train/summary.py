"""A net in numbers: weights, bits, bytes and multiply-accumulates of each layer.

Larq's ``lq.models.summary`` prints a similar table, but counts the MACs of binary weights with real-valued
activations as float ones; here a row says how many bits its weights take.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class LayerRow:
    name: str
    kind: str
    output: tuple[int, ...]
    weights: int
    bits: int
    bytes: int
    macs: int


def layer_rows(model: Any) -> list[LayerRow]:
    """A row for each layer with weights; BatchNorm counts as the scale and offset it folds into."""
    rows = []
    for layer in model.layers:
        own = layer.count_params()
        if not own:
            continue
        output = tuple(layer.output_shape[1:])
        kernel = getattr(layer, "kernel", None)
        if kernel is None:
            folded = 2 * output[-1]
            rows.append(LayerRow(layer.name, type(layer).__name__, output, folded, 32, 4 * folded, 0))
            continue
        quantizer = getattr(layer, "kernel_quantizer", None)
        bits = getattr(quantizer, "precision", None) or 32
        weights = int(np.prod(kernel.shape))
        bias = int(np.prod(layer.bias.shape)) if getattr(layer, "use_bias", False) else 0
        places = int(np.prod(output[:-1]))
        size = (weights * bits + 7) // 8 + 4 * bias
        rows.append(LayerRow(layer.name, type(layer).__name__, output, weights + bias, bits, size, weights * places))
    return rows


def totals(rows: list[LayerRow]) -> LayerRow:
    return LayerRow(
        "total", "", (), sum(r.weights for r in rows), 0, sum(r.bytes for r in rows), sum(r.macs for r in rows)
    )
