"""Fuses BatchNorm, ReLU and clipped ReLU into the operations around them, where nothing else reads what is between.

Readers come as plain operations first; who reads a tensor is known only once all of them are there. A BatchNorm goes
into the layer before it, or, where another operation stands between (a ReLU, pooling, an addition), into the weights of
the layer behind it if that changes nothing: these are not binary, and no zeros are padded between. Before a sign it
becomes a threshold, and signs of what a max pooling gives are taken before it. What is left becomes a depthwise 1×1
convolution, or, of a short vector, a dense layer.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from flipbit.export.graph import (
    Add,
    Array,
    Binarize,
    BitPool,
    Conv,
    Dense,
    DepthwiseConv,
    ExportError,
    Flatten,
    MaxPool,
    Op,
    Relu,
    Table,
    Tensor,
    Weighted,
)

LARGEST_DIAGONAL = 64  # units of a vector: as a dense layer their BatchNorm takes 4 KB


@dataclass(frozen=True)
class Affine(Op):
    """y = gain · x + offset per channel: a BatchNorm at rest. It must be fused, as devices have no such operation."""

    gain: Array = field(repr=False, default_factory=lambda: np.ones(0))
    offset: Array = field(repr=False, default_factory=lambda: np.zeros(0))


def affine(op: Weighted, gain: Array, offset: Array) -> Weighted:
    """``op`` followed by y ↦ gain · y + offset per channel; afterwards every scale is positive or zero."""
    with np.errstate(invalid="ignore"):  # NaN and infinity are refused later, by layer
        scale, bias = op.scale * gain, op.bias * gain + offset
    flipped = op.weights * np.where(scale < 0, -1, 1)
    fits = op.weights.dtype != np.int8 or flipped.max(initial=0) <= 127  # −(−128) does not
    weights = flipped.astype(op.weights.dtype) if fits else flipped.astype(np.float64)
    return replace(op, weights=weights, scale=np.abs(scale), bias=bias)


def fuse(ops: list[Op], output: str, tensors: dict[str, Tensor]) -> tuple[list[Op], str]:
    """The same net with every :class:`Affine`, and every ReLU that can be, fused; and the name of its output."""
    ops, output = _backward(_signs_first(_into_signs(ops, output), output, tensors), output)
    left = [op for op in ops if isinstance(op, Affine)]
    if not left:
        return ops, output
    complaints: list[str] = []
    for op in left:
        ops, output = _forward(ops, output, op, tensors, complaints)
    if complaints:
        raise ExportError("\n".join(complaints))
    return _backward(ops, output)  # a ReLU behind what was a BatchNorm


def _readers(ops: list[Op], output: str) -> dict[str, int]:
    readers: dict[str, int] = {output: 1}
    for op in ops:
        for name in op.inputs:
            readers[name] = readers.get(name, 0) + 1
    return readers


def _backward(ops: list[Op], output: str) -> tuple[list[Op], str]:
    """Each into what stands before it."""
    readers = _readers(ops, output)
    fused: dict[str, Op] = {}  # by output, in running order
    renamed: dict[str, str] = {}
    for op in ops:
        op = replace(op, inputs=tuple(renamed.get(name, name) for name in op.inputs))
        before = fused.get(op.inputs[0])
        after = _into(before, op) if readers.get(op.inputs[0], 0) == 1 else None
        if after is None:
            fused[op.output] = op
            continue
        fused[after.output] = after
        renamed[op.output] = after.output
        readers[after.output] = readers.get(op.output, 0)
    return list(fused.values()), renamed.get(output, output)


def _into(before: Op | None, op: Op) -> Op | None:
    """``before`` with what ``op`` does to its result; None if it cannot have that."""
    if isinstance(op, Affine) and isinstance(before, Weighted) and not before.relu:
        return affine(before, op.gain, op.offset)
    if isinstance(op, Affine) and isinstance(before, Affine):
        return replace(before, gain=before.gain * op.gain, offset=before.offset * op.gain + op.offset)
    if not isinstance(before, (Weighted, Add)):
        return None
    if isinstance(op, Relu):
        return replace(before, relu=True)
    if isinstance(op, Table) and op.function.name == "clip" and op.function.parameters[0] == 0:
        ceiling = op.function.parameters[1]
        return replace(before, relu=True, ceiling=min(ceiling, before.ceiling or ceiling))
    return None


def _forward(
    ops: list[Op], output: str, op: Affine, tensors: dict[str, Tensor], complaints: list[str]
) -> tuple[list[Op], str]:
    """``op`` into the layer behind it, or as a layer of its own."""
    at = next(i for i, other in enumerate(ops) if other is op)
    behind = [i for i, other in enumerate(ops) if op.output in other.inputs]
    reader = ops[behind[0]] if len(behind) == 1 and op.output != output else None
    if isinstance(reader, Weighted) and not reader.binary and _takes(reader, op):
        ops = [*ops]
        ops[behind[0]] = replace(_with_input(reader, op), inputs=op.inputs)
        return ops[:at] + ops[at + 1 :], output
    if len(tensors[op.output].shape) == 3:
        signs, sizes = np.where(op.gain < 0, -1.0, 1.0), np.abs(op.gain)
        own: Op = DepthwiseConv(op.name, op.inputs, op.output, signs[None, None], sizes, op.offset)
        return [*ops[:at], own, *ops[at + 1 :]], output
    units = len(op.gain)
    if units <= LARGEST_DIAGONAL:
        diagonal: Op = Dense(op.name, op.inputs, op.output, np.diag(np.sign(op.gain)), np.abs(op.gain), op.offset)
        return [*ops[:at], diagonal, *ops[at + 1 :]], output
    found = next((other for other in ops if other.output == op.inputs[0]), None)
    complaints.append(
        f"{op.name}: BatchNormalization of {units} units after {_found(found)}, before "
        f"{_found(reader) if reader else 'more than one layer'}; put it right after its Dense layer, before the ReLU"
    )
    return ops, output


def _takes(reader: Weighted, op: Affine) -> bool:
    """Whether the layer's weights can do what ``op`` does to their input: padded zeros must stay zeros."""
    padding = getattr(reader, "padding", (0, 0, 0, 0))
    return not any(padding) or not op.offset.any()


def _with_input(reader: Weighted, op: Affine) -> Weighted:
    """``reader`` that sees gain · x + offset: Σ w·(g·x + o) = Σ (w·g)·x + Σ w·o."""
    if isinstance(reader, DepthwiseConv):
        sums, gain = reader.weights.sum((0, 1)) * op.offset, op.gain
    elif isinstance(reader, Conv):
        sums, gain = np.einsum("ijco,c->o", reader.weights, op.offset), op.gain[:, None]
    else:
        assert isinstance(reader, Dense)
        sums, gain = op.offset @ reader.weights, op.gain[:, None]
    return replace(reader, weights=reader.weights * gain, bias=reader.bias + sums * reader.scale)


def _into_signs(ops: list[Op], output: str) -> list[Op]:
    """Moves a BatchNorm that only signs read into these: there it is a threshold, and costs no rounding."""
    for norm in [op for op in ops if isinstance(op, Affine)]:
        readers = [op for op in ops if norm.output in op.inputs]
        if not readers or norm.output == output or not all(isinstance(op, Binarize) for op in readers):
            continue
        ops = [_after(norm, op) if op in readers else op for op in ops if op is not norm]
    used = {output, *(name for op in ops for name in op.inputs)}
    return [op for op in ops if op.output in used or not isinstance(op, Flatten)]  # signs may read what it flattened


def _signs_first(ops: list[Op], output: str, tensors: dict[str, Tensor]) -> list[Op]:
    """Signs of what a max pooling gives, taken before it: the sign of the largest value is the largest of the signs.

    Bits are pooled 16 at a time, and int8 values need not be kept for it. With a negative gain it is the smallest.
    """
    for pool in reversed([op for op in ops if isinstance(op, MaxPool)]):
        readers = [op for op in ops if pool.output in op.inputs]
        signs = readers[0] if len(readers) == 1 and pool.output != output else None
        if not isinstance(signs, Binarize) or not (signs.gain >= 0).all():
            continue
        name = f"{signs.output}/pixels"
        tensors[name] = replace(tensors[pool.inputs[0]], name=name)
        first = replace(signs, inputs=pool.inputs, output=name)
        pooled = BitPool(pool.name, (name,), signs.output, pool.size, pool.stride, pool.padding)
        at = next(i for i, op in enumerate(ops) if op is pool)
        ops = [op for op in [*ops[:at], first, pooled, *ops[at + 1 :]] if op is not signs]
    return ops


def _after(norm: Affine, op: Op) -> Op:
    assert isinstance(op, Binarize)
    with np.errstate(invalid="ignore"):  # NaN and infinity are refused later, by layer
        offset = op.gain * norm.offset + op.offset
    return replace(op, inputs=norm.inputs, gain=op.gain * norm.gain, offset=offset)


def _found(op: Op | None) -> str:
    if op is None:
        return "the input"
    return f"{op.kind} with ReLU" if isinstance(op, Weighted) and op.relu else op.kind
