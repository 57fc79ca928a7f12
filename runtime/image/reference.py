"""A plain NumPy reader's version of the C core: runs a checked image on int8 planes. Slow, and written for reading.

It follows docs/numerics.md and docs/fbit-format.md and shares no code with the exporter, so that a misreading on
either side shows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flipbit.runtime.errors import error_of
from flipbit.runtime.image.reader import Image, Operation, Tensor

Array = np.ndarray


def run(image: Image, inputs: Array) -> list[Array]:
    """Every tensor for a batch of int8 inputs, (batch, channels, height, width) or (batch, units)."""
    values: list[Array | None] = [None] * len(image.tensors)
    source = image.tensors[image.input]
    if inputs.dtype != np.int8 or inputs.shape[1:] != source.shape:
        raise ValueError(f"expected int8 images of {source.shape}, got {inputs.dtype} of {inputs.shape[1:]}")
    values[image.input] = inputs
    for op in image.operations:
        arguments = [values[i] for i in op.inputs]
        tensors = [image.tensors[i] for i in (*op.inputs, op.output)]
        if op.kind not in _KERNELS:
            raise error_of("FB_ERR_KIND", f"{op.name}: {op.kind} is not in the reference")
        result = _KERNELS[op.kind](op, tensors, *arguments)
        values[op.output] = result.reshape(len(inputs), *image.tensors[op.output].shape)
    return [v if v is not None else np.zeros(0, np.int8) for v in values]


def logits(image: Image, inputs: Array) -> Array:
    """The output as real numbers."""
    out = image.tensors[image.output]
    return (run(image, inputs)[image.output].astype(np.float64) - out.zero_point) * out.scale


def signs(op: Operation, channels: int) -> Array:
    """±1 weights (filters, kernel height, kernel width, channels) from packed words."""
    assert op.weights is not None
    kh, kw = op.kernel if op.traits.kernel else (1, 1)
    bits = (op.weights[:, :, None] >> np.arange(16, dtype=np.uint16)) & 1  # (filters, words, 16)
    if op.chunks:  # word chunk·9 + tap
        ordered = bits.reshape(len(bits), channels // 16, kh * kw, 16).transpose(0, 2, 1, 3)
    else:
        ordered = bits.reshape(len(bits), -1)[:, : kh * kw * channels]
    return ordered.reshape(len(bits), kh, kw, channels).astype(np.int64) * 2 - 1


def _saturate(product: Array, shift: int, target: Tensor, relu: bool) -> Array:
    size = (np.abs(product) + (1 << shift >> 1)) >> shift  # nearest, ties away from zero
    low = max(-128, target.zero_point) if relu else -128
    return np.clip(np.where(product < 0, -size, size) + target.zero_point, low, 127).astype(np.int8)


def _taps(op: Operation, x: Array, outside: int, target: Tensor) -> list[Array]:
    """For each place of the kernel, the pixels it sees: (batch, channels, out height, out width)."""
    top, bottom, left, right = op.padding
    padded = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=outside)
    seen = []
    for ky in range(op.kernel[0]):
        for kx in range(op.kernel[1]):
            rows = slice(ky, ky + (target.height - 1) * op.stride[0] + 1, op.stride[0])
            columns = slice(kx, kx + (target.width - 1) * op.stride[1] + 1, op.stride[1])
            seen.append(padded[:, :, rows, columns])
    return seen


def _conv(op: Operation, tensors: list[Tensor], x: Array) -> Array:
    source, target = tensors
    if op.binary:
        weights = signs(op, source.channels)
    else:
        assert op.weights is not None
        weights = op.weights.astype(np.int64).reshape(-1, *op.kernel, source.channels)
    acc: Array = np.zeros((len(x), target.channels, target.height, target.width), np.int64)
    for tap, pixels in enumerate(_taps(op, x, source.zero_point, target)):
        ky, kx = divmod(tap, op.kernel[1])
        acc += np.einsum("nchw,oc->nohw", pixels.astype(np.float64), weights[:, ky, kx].astype(np.float64)).astype(
            np.int64
        )
    return _requantize(op, acc, target, (-1, 1, 1))


def _dense(op: Operation, tensors: list[Tensor], x: Array) -> Array:
    source, target = tensors
    assert op.weights is not None
    weights = signs(op, source.channels).reshape(target.channels, -1) if op.binary else op.weights.astype(np.int64)
    return _requantize(op, x.astype(np.int64) @ weights.T, target, (-1,))


def _requantize(op: Operation, acc: Array, target: Tensor, shape: tuple[int, ...]) -> Array:
    assert op.bias is not None and op.multiplier is not None
    product = (acc + op.bias.astype(np.int64).reshape(shape)) * op.multiplier.reshape(shape)
    return _saturate(product, op.shift, target, op.relu)


def _max_pool(op: Operation, tensors: list[Tensor], x: Array) -> Array:
    return np.maximum.reduce(_taps(op, x, -128, tensors[-1])).astype(np.int8)


def _average_pool(op: Operation, tensors: list[Tensor], x: Array) -> Array:
    source, target = tensors
    seen = _taps(op, x, 0, target)
    here = np.sum(_taps(op, np.ones((1, 1, source.height, source.width)), 0, target), axis=0)  # pixels inside
    total = np.sum(seen, axis=0) - here * source.zero_point
    multiplier = (op.first * op.taps + here // 2) // here  # of a whole window: the image's
    return _saturate(total * multiplier, op.shift, target, False)


def _add(op: Operation, tensors: list[Tensor], a: Array, b: Array) -> Array:
    ta, tb, target = tensors
    total = (a.astype(np.int64) - ta.zero_point) * op.first + (b.astype(np.int64) - tb.zero_point) * op.second
    return _saturate(total, op.shift, target, op.relu)


def _shortcut(op: Operation, tensors: list[Tensor], x: Array) -> Array:
    source, target = tensors
    result = np.full((len(x), *target.shape), target.zero_point, np.int8)
    result[:, : source.channels] = x[:, :, :: op.stride[0], :: op.stride[1]]
    return result


def _relu(op: Operation, tensors: list[Tensor], x: Array) -> Array:
    return np.maximum(x, np.int8(tensors[-1].zero_point))


def _flatten(op: Operation, tensors: list[Tensor], x: Array) -> Array:
    return x.reshape(len(x), -1)


def _depthwise(op: Operation, tensors: list[Tensor], x: Array) -> Array:
    source, target = tensors
    assert op.weights is not None
    weights = signs(op, 1) if op.binary else op.weights.astype(np.int64)
    weights = weights.reshape(target.channels, -1)
    seen = _taps(op, x, source.zero_point, target)
    acc = sum(pixels * weights[:, tap].reshape(-1, 1, 1) for tap, pixels in enumerate(seen))
    return _requantize(op, np.asarray(acc), target, (-1, 1, 1))


def _table(op: Operation, tensors: list[Tensor], x: Array) -> Array:
    assert op.table is not None
    return op.table[x.astype(np.int64) + 128]


def _concat(op: Operation, tensors: list[Tensor], a: Array, b: Array) -> Array:
    target = tensors[-1]
    parts = [
        _saturate((x.astype(np.int64) - source.zero_point) * factor, op.shift, target, False)
        for x, source, factor in zip((a, b), tensors, (op.first, op.second))
    ]
    return np.concatenate(parts, axis=1)


def _max_pool_bits(op: Operation, tensors: list[Tensor], x: Array) -> Array:
    """±1; the device joins its bits by OR."""
    return np.maximum.reduce(_taps(op, x, -1, tensors[-1])).astype(np.int8)


def _binarize(op: Operation, tensors: list[Tensor], x: Array) -> Array:
    """±1; the device has them as bits."""
    assert op.threshold is not None and op.inverted is not None
    shape = (-1,) if x.ndim == 2 else (-1, 1, 1)
    above = x >= op.threshold.reshape(shape)
    return np.where(above != op.inverted.reshape(shape), 1, -1).astype(np.int8)


def _conv_bits(op: Operation, tensors: list[Tensor], x: Array) -> Array:
    source, target = tensors
    weights = signs(op, source.channels).astype(np.float64)  # float64 holds every sum exactly, and is fast
    acc: Array = np.zeros((len(x), target.height, target.width, target.channels))
    for tap, pixels in enumerate(_taps(op, x, 1 if op.ones else 0, target)):
        acc += np.moveaxis(pixels.astype(np.float64), 1, -1) @ weights[:, tap // op.kernel[1], tap % op.kernel[1]].T
    return _requantize(op, np.moveaxis(acc, -1, 1).astype(np.int64), target, (-1, 1, 1))


_KERNELS: dict[str, Callable[..., Array]] = {
    "conv": _conv,
    "dense": _dense,
    "max_pool": _max_pool,
    "average_pool": _average_pool,
    "add": _add,
    "shortcut": _shortcut,
    "relu": _relu,
    "flatten": _flatten,
    "depthwise": _depthwise,
    "table": _table,
    "concat": _concat,
    "binarize": _binarize,
    "conv_bits": _conv_bits,
    "max_pool_bits": _max_pool_bits,
}
