"""The oracle: runs a deploy graph in NumPy, in real numbers or in the device's integers. Written for reading.

The integer semantics are those of docs/numerics.md, and every kernel of the C core must give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flipbit.export.graph import (
    Add,
    Array,
    AveragePool,
    Binarize,
    BitConv,
    BitPool,
    Concat,
    Conv,
    Dense,
    DepthwiseConv,
    ExportError,
    Flatten,
    Graph,
    MaxPool,
    Op,
    PadShortcut,
    Relu,
    Table,
    Tensor,
    Weighted,
)


def run(graph: Graph, images: Array) -> dict[str, Array]:
    """Every tensor of the graph for a batch: float64 for a graph in real numbers, int8 for a quantized one.

    ``images`` are real numbers as the net saw them in training; for a quantized graph they may be int8 already.
    """
    source = graph.tensors[graph.input]
    if images.ndim == 3 and source.shape == (1, *images.shape[1:]):
        images = images[:, None]  # a sequence is an image of height 1
    if images.shape[1:] != source.shape:
        raise ValueError(f"images of {images.shape[1:]}, but the net takes {source.shape}")
    if graph.quantized:
        values = {graph.input: images if images.dtype == np.int8 else quantize(images, source)}
    else:
        values = {graph.input: images.astype(np.float64)}
    for op in graph:
        values[op.output] = apply(graph, op, *[values[name] for name in op.inputs])
        assert values[op.output].shape[1:] == graph.tensors[op.output].shape, op.name
    return values


def apply(graph: Graph, op: Op, *inputs: Array) -> Array:
    """What one operation of the graph writes."""
    kernel = (_INTEGER if graph.quantized else _REAL).get(type(op))
    if kernel is None:
        raise ExportError(f"{op.name}: {op.kind} is not an operation that the oracle knows")
    return kernel(graph, op, *inputs)


def logits(graph: Graph, images: Array) -> Array:
    """The net's output as real numbers, in batches that fit memory."""
    out = graph.tensors[graph.output]
    parts = [run(graph, images[i : i + 100])[graph.output] for i in range(0, len(images), 100)]
    result = np.concatenate(parts) if parts else np.zeros((0, *out.shape))
    return dequantize(result, out) if graph.quantized else result


def quantize(real: Array, tensor: Tensor) -> Array:
    """Real numbers to int8: nearest, ties away from zero, saturated."""
    assert tensor.scale is not None
    scaled = np.asarray(real, np.float64) / tensor.scale
    return np.clip(round_half_away(scaled) + tensor.zero_point, -128, 127).astype(np.int8)


def dequantize(values: Array, tensor: Tensor) -> Array:
    assert tensor.scale is not None
    return (values.astype(np.float64) - tensor.zero_point) * tensor.scale


def round_half_away(x: Array) -> Array:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


def windows(x: Array, size: tuple[int, int], stride: tuple[int, int]) -> Array:
    """(batch, out height, out width, kernel height, kernel width, channels), without copying."""
    view = np.lib.stride_tricks.sliding_window_view(x, size, (1, 2))  # type: ignore[call-overload]
    return np.asarray(view[:, :: stride[0], :: stride[1]]).transpose(0, 1, 2, 4, 5, 3)


def pad(x: Array, padding: tuple[int, int, int, int], value: float) -> Array:
    top, bottom, left, right = padding
    return np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=value)


def products(op: Weighted, x: Array, zero: float) -> Array:
    """Σ x·w of each output channel. float64 holds every integer that can occur exactly."""
    weights = op.weights.astype(np.float64)
    if isinstance(op, DepthwiseConv):
        return np.einsum("nyxijc,ijc->nyxc", windows(pad(x, op.padding, zero), op.size, op.stride), weights)
    if isinstance(op, (Conv, BitConv)):
        height, width = op.weights.shape[:2]
        x = windows(pad(x, op.padding, zero), (height, width), op.stride)
        x = x.reshape(*x.shape[:3], -1)
    return x.astype(np.float64) @ weights.reshape(-1, op.channels)


def requantize(
    acc: Array, bias: Array | int, multiplier: Array | int, shift: int, zero_point: int, relu: bool
) -> Array:
    """(acc + bias) · multiplier / 2^shift, + zero point, saturated; ReLU is saturation at the zero point.

    Rounds to nearest, ties away from zero: what is below zero is one less before it is shifted.
    """
    product = (acc.astype(np.int64) + bias) * multiplier
    rounded = (product + (1 << shift >> 1) - (product < 0)) >> shift
    low = max(-128, zero_point) if relu else -128
    return np.clip(rounded + zero_point, low, 127).astype(np.int8)


def _outside(op: Weighted, zero: float) -> float:
    """What lies around an image."""
    return 1.0 if isinstance(op, BitConv) and op.ones else zero


def _shaped(graph: Graph, op: Weighted, y: Array) -> Array:
    """A convolution of bits may give a vector: a dense layer of signs."""
    return y.reshape(len(y), *graph.tensors[op.output].shape) if isinstance(op, BitConv) else y


def _weighted_real(graph: Graph, op: Op, x: Array) -> Array:
    assert isinstance(op, Weighted)
    return _clipped(_shaped(graph, op, products(op, x, _outside(op, 0.0)) * op.scale + op.bias), op)


def _clipped(y: Array, op: Weighted | Add) -> Array:
    return np.clip(y, 0, op.ceiling) if op.relu else y


def _weighted_integer(graph: Graph, op: Op, x: Array) -> Array:
    assert isinstance(op, Weighted) and op.requantize is not None
    source, target, r = graph.tensors[op.inputs[0]], graph.tensors[op.output], op.requantize
    acc = _shaped(graph, op, products(op, x, _outside(op, source.zero_point)))
    return requantize(acc, r.bias, r.multiplier, r.shift, target.zero_point, op.relu)


def _max_pool(graph: Graph, op: Op, x: Array) -> Array:
    assert isinstance(op, (MaxPool, BitPool))
    lowest = -128 if x.dtype == np.int8 else -np.inf
    return windows(pad(x, op.padding, lowest), op.size, op.stride).max((3, 4))


def _average_real(graph: Graph, op: Op, x: Array) -> Array:
    assert isinstance(op, AveragePool)
    total = windows(pad(x, op.padding, 0), op.size, op.stride).sum((3, 4))
    return (total / _pixels(op, x)).reshape(len(x), *graph.tensors[op.output].shape)


def _pixels(op: AveragePool, x: Array) -> Array:
    """How many pixels of each window lie inside the image, (1, out height, out width, 1)."""
    return windows(pad(np.ones((1, *x.shape[1:3], 1), np.int64), op.padding, 0), op.size, op.stride).sum((3, 4))


def _average_integer(graph: Graph, op: Op, x: Array) -> Array:
    assert isinstance(op, AveragePool)
    source, target = graph.tensors[op.inputs[0]], graph.tensors[op.output]
    total = windows(pad(x, op.padding, 0), op.size, op.stride).sum((3, 4), dtype=np.int64)
    n, window = _pixels(op, x), op.size[0] * op.size[1]
    multiplier = (op.multiplier * window + n // 2) // n  # larger where a window is not whole
    mean = requantize(total, -source.zero_point * n, multiplier, op.shift, target.zero_point, False)
    return mean.reshape(len(x), *target.shape)


def _add_real(graph: Graph, op: Op, a: Array, b: Array) -> Array:
    assert isinstance(op, Add)
    return _clipped(a + b, op)


def _add_integer(graph: Graph, op: Op, a: Array, b: Array) -> Array:
    assert isinstance(op, Add)
    ta, tb, target = (graph.tensors[name] for name in (*op.inputs, op.output))
    total = (a.astype(np.int64) - ta.zero_point) * op.multipliers[0]
    total += (b.astype(np.int64) - tb.zero_point) * op.multipliers[1]
    return requantize(total, 0, 1, op.shift, target.zero_point, op.relu)


def _pad_shortcut(graph: Graph, op: Op, x: Array) -> Array:
    assert isinstance(op, PadShortcut)
    kept = x[:, :: op.stride, :: op.stride]
    zero = graph.tensors[op.output].zero_point
    return np.pad(kept, ((0, 0), (0, 0), (0, 0), (0, op.channels - x.shape[-1])), constant_values=zero)


def _relu(graph: Graph, op: Op, x: Array) -> Array:
    return np.maximum(x, x.dtype.type(graph.tensors[op.output].zero_point))


def _flatten(graph: Graph, op: Op, x: Array) -> Array:
    return x.reshape(len(x), -1)


def _table_real(graph: Graph, op: Op, x: Array) -> Array:
    assert isinstance(op, Table)
    return op.function(x)


def _table_integer(graph: Graph, op: Op, x: Array) -> Array:
    assert isinstance(op, Table) and op.table is not None
    return np.asarray(op.table)[x.astype(np.int64) + 128]


def _concat_real(graph: Graph, op: Op, a: Array, b: Array) -> Array:
    return np.concatenate([a, b], axis=-1)


def _concat_integer(graph: Graph, op: Op, a: Array, b: Array) -> Array:
    assert isinstance(op, Concat)
    zero_point = graph.tensors[op.output].zero_point
    parts = [
        requantize(x, -graph.tensors[name].zero_point, factor, op.shift, zero_point, False)
        for x, name, factor in zip((a, b), op.inputs, op.multipliers)
    ]
    return np.concatenate(parts, axis=-1)


def _binarize_real(graph: Graph, op: Op, x: Array) -> Array:
    assert isinstance(op, Binarize)
    return np.where(op.positive(x), 1.0, -1.0).reshape(len(x), *graph.tensors[op.output].shape)


def _binarize_integer(graph: Graph, op: Op, x: Array) -> Array:
    assert isinstance(op, Binarize) and op.threshold is not None and op.inverted is not None
    bits = (x >= op.threshold) != op.inverted
    return np.where(bits, 1, -1).astype(np.int8).reshape(len(x), *graph.tensors[op.output].shape)


Kernels = dict[type, Callable[..., Array]]
_SHARED: Kernels = {
    MaxPool: _max_pool,
    BitPool: _max_pool,
    PadShortcut: _pad_shortcut,
    Relu: _relu,
    Flatten: _flatten,
}
_REAL: Kernels = {
    **_SHARED,
    Conv: _weighted_real,
    DepthwiseConv: _weighted_real,
    Dense: _weighted_real,
    BitConv: _weighted_real,
    AveragePool: _average_real,
    Add: _add_real,
    Table: _table_real,
    Concat: _concat_real,
    Binarize: _binarize_real,
}
_INTEGER: Kernels = {
    **_SHARED,
    Conv: _weighted_integer,
    DepthwiseConv: _weighted_integer,
    Dense: _weighted_integer,
    BitConv: _weighted_integer,
    AveragePool: _average_integer,
    Add: _add_integer,
    Table: _table_integer,
    Concat: _concat_integer,
    Binarize: _binarize_integer,
}
