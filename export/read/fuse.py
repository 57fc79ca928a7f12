"""Fuses a BatchNorm or ReLU into the operation before it, where nothing else reads what that operation writes.

Readers come as plain operations first; who reads a tensor is known only once all of them are there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from flipbit.export.graph import Add, Array, ExportError, Op, Relu, Weighted


@dataclass(frozen=True)
class Affine(Op):
    """y = gain · x + offset per channel: a BatchNorm at rest. It must be fused, as devices have no such operation."""

    gain: Array = field(repr=False, default_factory=lambda: np.ones(0))
    offset: Array = field(repr=False, default_factory=lambda: np.zeros(0))


def affine(op: Weighted, gain: Array, offset: Array) -> Weighted:
    """``op`` followed by y ↦ gain · y + offset per channel; afterwards every scale is positive or zero."""
    with np.errstate(invalid="ignore"):  # NaN and infinity are refused later, by layer
        scale, bias = op.scale * gain, op.bias * gain + offset
    flip = np.where(scale < 0, -1, 1)
    return replace(op, weights=(op.weights * flip).astype(op.weights.dtype), scale=np.abs(scale), bias=bias)


def fuse(ops: list[Op], output: str) -> tuple[list[Op], str]:
    """The same net with every :class:`Affine`, and every ReLU that can be, fused; and the name of its output."""
    readers: dict[str, int] = {output: 1}
    for op in ops:
        for name in op.inputs:
            readers[name] = readers.get(name, 0) + 1
    fused: dict[str, Op] = {}  # by output, in running order
    renamed: dict[str, str] = {}
    for op in ops:
        op = replace(op, inputs=tuple(renamed.get(name, name) for name in op.inputs))
        before = fused.get(op.inputs[0])
        alone = readers.get(op.inputs[0], 0) == 1
        after: Op | None = None
        if isinstance(op, Affine):
            if not alone or not isinstance(before, Weighted) or before.relu:
                raise ExportError(
                    f"{op.name}: BatchNormalization after {_found(before, alone)}; "
                    "supported right after Conv2D or Dense, where nothing else reads these"
                )
            after = affine(before, op.gain, op.offset)
        elif isinstance(op, Relu) and alone and isinstance(before, (Weighted, Add)):
            after = replace(before, relu=True)
        if after is None:
            fused[op.output] = op
            continue
        fused[after.output] = after
        renamed[op.output] = after.output
        readers[after.output] = readers.get(op.output, 0)
    return list(fused.values()), renamed.get(output, output)


def _found(before: Op | None, alone: bool) -> str:
    if before is None:
        return "the input"
    if not alone:
        return "a tensor that others read too"
    return f"{before.kind} with ReLU" if isinstance(before, Weighted) else before.kind
