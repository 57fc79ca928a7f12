"""A net in numbers: weights, bits, bytes and multiply-accumulates of each layer.

Larq's ``lq.models.summary`` prints a similar table, but a line for each BatchNorm and ReLU; here a row is what
a device stores and computes: a layer with the BatchNorm that folds into it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np


@dataclass(frozen=True)
class LayerRow:
    """``weights`` of ``bits`` each, and ``offsets``: bias, or BatchNorm folded to a scale and an offset (float32)."""

    name: str
    kind: str
    output: tuple[int, ...]
    weights: int
    bits: int
    offsets: int
    macs: int

    @property
    def parameters(self) -> int:
        return self.weights + self.offsets

    @property
    def bytes(self) -> int:
        return (self.weights * self.bits + 7) // 8 + 4 * self.offsets


def layer_rows(model: Any) -> list[LayerRow]:
    """A row for each layer that has a kernel."""
    rows: dict[str, LayerRow] = {}
    for layer in model.layers:
        kernel = getattr(layer, "kernel", None)
        if kernel is not None:
            output = tuple(layer.output_shape[1:])
            quantizer = getattr(layer, "kernel_quantizer", None)
            weights = int(np.prod(kernel.shape))
            bias = output[-1] if getattr(layer, "use_bias", False) else 0
            bits = getattr(quantizer, "precision", None) or 32
            macs = weights * int(np.prod(output[:-1]))
            kind = "dense" if kernel.shape.rank == 2 else "×".join(map(str, kernel.shape[:2])) + " conv"
            rows[layer.name] = LayerRow(layer.name, kind, output, weights, bits, bias, macs)
        elif type(layer).__name__ == "BatchNormalization":
            before = layer.inbound_nodes[0].inbound_layers.name
            if before in rows:
                rows[before] = replace(rows[before], offsets=2 * rows[before].output[-1])
    return list(rows.values())
