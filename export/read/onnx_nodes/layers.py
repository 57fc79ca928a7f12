"""Convolutions, dense layers, and what is folded into them: BatchNormalization and constants per channel."""

from __future__ import annotations

from typing import Any

import numpy as np

from flipbit.export.graph import Array, Conv, Dense, DepthwiseConv
from flipbit.export.read.aten.layers import nearly_binary
from flipbit.export.read.from_keras import OF_BITS, dilated, weighted
from flipbit.export.read.fuse import Affine
from flipbit.export.read.onnx_nodes.values import Edges, OnnxBuilder, OnnxNode, OnnxValue, StoredNumbers


def window(
    build: OnnxBuilder, node: OnnxNode, value: OnnxValue, kernel: tuple[int, int]
) -> tuple[tuple[int, int], Edges]:
    """The stride and the padding of a convolution or pooling; of a 1-D one, the height is 1."""
    stride = pair(node, node.attribute("strides"), 1)
    rows, columns = _size(build, value)
    automatic = node.attribute("auto_pad", "NOTSET")
    if automatic in ("SAME_UPPER", "SAME_LOWER"):
        edges: list[int] = []
        for n, k, s in zip((rows, columns), kernel, stride):
            total = max((-(-n // s) - 1) * s + k - n, 0)
            small, large = total // 2, total - total // 2
            edges += [small, large] if automatic == "SAME_UPPER" else [large, small]
        return stride, (edges[0], edges[1], edges[2], edges[3])
    pads = node.attribute("pads") or [0, 0]
    if len(pads) == 2:
        pads = [0, pads[0], 0, pads[1]]
    if len(pads) != 4 or min(pads) < 0 or automatic not in ("NOTSET", "VALID"):
        node.refuse(f"padding {list(pads)} {automatic}; zeros around an image are supported")
    top, left, bottom, right = (int(n) for n in pads) if automatic == "NOTSET" else (0, 0, 0, 0)
    return stride, (top, bottom, left, right)


def pair(node: OnnxNode, found: Any, default: int) -> tuple[int, int]:
    values = [int(n) for n in found or (default, default)]
    if len(values) not in (1, 2) or min(values) < 1:
        node.refuse(f"{values} as a size; one or two numbers from 1 on are supported")
    return (1, values[0]) if len(values) == 1 else (values[0], values[1])


def _size(build: OnnxBuilder, value: OnnxValue) -> tuple[int, int]:
    """Height and width of an image, with the zeros around it."""
    rows, columns, _ = build.tensors[value.name].shape
    top, bottom, left, right = value.padding
    down, across = value.stride
    return -(-rows // down) + top + bottom, -(-columns // across) + left + right


def result(
    node: OnnxNode, build: OnnxBuilder, value: OnnxValue, kernel: Any, stride: Any, padding: Edges, up: bool = False
) -> Any:
    """Height and width of what a window that moves over an image gives."""
    found = []
    for n, k, s, before, after in zip(_size(build, value), kernel, stride, padding[::2], padding[1::2]):
        span = n + before + after - k
        if span < 0:
            node.refuse(f"a window of {kernel} on an image of {_size(build, value)} with padding {padding}")
        count = -(-span // s) + 1 if up else span // s + 1
        found.append(count - 1 if up and (count - 1) * s >= n + before else count)
    return tuple(found)


def conv(build: OnnxBuilder, node: OnnxNode) -> None:
    value = build.value(node)
    build.expect_image(node, value)
    held = build.constant(node, 1, "weights")
    if held is None or held.value.ndim not in (3, 4) or held.value.ndim != len(value.shape):
        node.refuse(f"weights of shape {None if held is None else held.value.shape}; 1-D and 2-D are supported")
    groups, channels, filters = node.attribute("group", 1), value.shape[1], len(held.value)
    depthwise = groups == channels == filters and held.value.shape[1] == 1 and groups > 1
    if not depthwise and (groups != 1 or held.value.shape[1] != channels):
        node.refuse(
            f"{groups} groups for {channels} channels and {filters} filters; supported are 1, and one filter per "
            "channel"
        )
    kernel = (held.value.shape[2] if held.value.ndim == 4 else 1, held.value.shape[-1])
    kind: Any = DepthwiseConv if depthwise else Conv

    def ours(w: Array) -> Array:
        w = w.reshape(filters, -1, *kernel).transpose(2, 3, 1, 0)
        return w[:, :, 0] if depthwise else w

    fields = _weights(build, node, held, 0, ours)
    dilation = pair(node, node.attribute("dilations"), 1)
    wide = dilated(fields["weights"] if fields["binary"] else fields["weights"].astype(np.float64), dilation)
    if wide is None:
        node.refuse(f"dilation {list(dilation)} {OF_BITS}")
    fields["weights"] = wide.astype(fields["weights"].dtype)
    kernel = (wide.shape[0], wide.shape[1])
    stride, padding = window(build, node, value, kernel)
    rows, columns = result(node, build, value, kernel, stride, padding)
    name = build.unpadded(node, value)
    outer = value.padding
    edges: Any = tuple(a + b for a, b in zip(padding, outer))
    fields["scale"] = fields["scale"] * _read_scale(build, value)
    bias = _bias(build, node, 2, filters)
    seen = OnnxValue("", value.axes, (*value.shape[:1], filters, *(rows, columns)[4 - len(value.shape) :]))
    build.emit(
        node,
        lambda made: kind(made, (name,), made, bias=bias, stride=stride, padding=edges, **fields),
        (rows, columns, filters),
        seen,
    )


def gemm(build: OnnxBuilder, node: OnnxNode) -> None:
    if node.attribute("transA", 0):
        node.refuse("transA; a batch of vectors times weights is supported")
    held = build.constant(node, 1, "weights")
    if held is None or held.value.ndim != 2:
        node.refuse("weights that are no matrix")
    turned = bool(node.attribute("transB", 0))
    bias = build.constant(node, 2, "bias")
    beta = float(node.attribute("beta", 1.0))
    _dense(build, node, held, turned, None if bias is None else beta * bias.value, float(node.attribute("alpha", 1.0)))


def matmul(build: OnnxBuilder, node: OnnxNode) -> None:
    held = build.constant(node, 1, "weights")
    if held is None or held.value.ndim != 2:
        node.refuse("a product of two tensors; weights must be a constant matrix")
    _dense(build, node, held, False, None, 1.0)


def _dense(
    build: OnnxBuilder, node: OnnxNode, held: StoredNumbers, turned: bool, bias: Array | None, alpha: float
) -> None:
    value = build.value(node)
    name, order = build.vector(node, value)
    inputs, units = held.value.shape[::-1] if turned else held.value.shape
    if inputs != len(order):
        node.refuse(f"weights for {inputs} inputs on {len(order)}")

    def ours(w: Array) -> Array:
        w = w.T if turned else w
        placed = np.empty_like(w)
        placed[order] = w
        return placed

    fields = _weights(build, node, held, 0 if turned else 1, ours)
    fields["scale"] = fields["scale"] * _read_scale(build, value)
    if alpha != 1.0:
        if alpha < 0:
            node.refuse(f"alpha {alpha:g}; a positive one is supported")
        fields["scale"] = fields["scale"] * alpha
    if bias is not None and bias.size not in (1, units):
        node.refuse(f"a bias of shape {bias.shape} for {units} units")
    offsets = np.zeros(units) if bias is None else np.broadcast_to(bias.astype(np.float64).reshape(-1), (units,))
    seen = OnnxValue("", "bc", (value.shape[0], units))
    build.emit(node, lambda made: Dense(made, (name,), made, bias=offsets, **fields), (units,), seen)


def _weights(build: OnnxBuilder, node: OnnxNode, held: StoredNumbers, filters: int, ours: Any) -> dict[str, Any]:
    """The fields of :class:`Weighted` for weights of a file; ``filters`` is their axis of output channels.

    Weights that the file keeps as integers are taken over as they are, with the file's scales.
    """
    if not np.isfinite(held.value).all():
        node.refuse("its weights hold NaN or infinity; train it again")
    if held.integers is None or held.steps is None:
        return weighted(nearly_binary(ours(held.value.astype(np.float64))))
    if held.steps.size > 1 and held.axis != filters:
        node.refuse(f"its weights have scales along axis {held.axis}; one scale, or one per filter, is supported")
    if held.integers.min() < -128 or held.integers.max() > 127:
        node.refuse(
            "its weights are asymmetric: less their zero point they do not fit int8; quantize them symmetrically "
            "(onnxruntime: WeightSymmetric)"
        )
    if not (held.steps > 0).all():
        node.refuse("a scale of its weights is not above zero")
    fields = weighted(ours(held.integers))
    if not fields["binary"]:
        fields["weights"] = fields["weights"].astype(np.int8)
    return {**fields, "scale": fields["scale"] * held.steps}


def _bias(build: OnnxBuilder, node: OnnxNode, at: int, units: int) -> Array:
    held = build.constant(node, at, "bias")
    if held is None:
        return np.zeros(units)
    if held.value.shape != (units,):
        node.refuse(f"a bias of shape {held.value.shape} for {units} filters")
    return held.value.astype(np.float64)


def _read_scale(build: OnnxBuilder, value: OnnxValue) -> float:
    """How much larger an input is read than it was written: 1 but for a DequantizeLinear with a scale of its own."""
    own = build.steps.get(value.name)
    return 1.0 if value.step is None or own is None else value.step / own[0]


def batch_norm(build: OnnxBuilder, node: OnnxNode) -> None:
    if node.attribute("training_mode", 0) or (len([name for name in node.outputs if name]) > 1 and node.opset >= 14):
        node.refuse("with the statistics of the batch; export the model in evaluation mode")
    held = [build.constant(node, i, what) for i, what in enumerate(("", "scale", "bias", "mean", "variance")) if i]
    if any(found is None or found.value.ndim != 1 for found in held):
        node.refuse("scale, bias, mean and variance must be vectors")
    gamma, beta, mean, variance = (found.value.astype(np.float64) for found in held if found is not None)
    with np.errstate(invalid="ignore", divide="ignore"):  # refused later, by layer
        gain = gamma / np.sqrt(variance + float(node.attribute("epsilon", 1e-5)))
    value = build.value(node)
    if value.axes[1:2] != "c":
        node.refuse(f"normalizes axis 1 of a tensor with the axes {value.axes}; the channels are supported")
    affine(build, node, value, gain, beta - mean * gain)


def affine(build: OnnxBuilder, node: OnnxNode, value: OnnxValue, gain: Array, offset: Array) -> None:
    """gain · x + offset per channel, to be fused into the operation that wrote x."""
    build.require_own_step(node, value)
    name = build.tensor(node, value)
    if len(gain) != build.tensors[name].shape[-1]:
        node.refuse(f"{len(gain)} numbers for {build.tensors[name].shape[-1]} channels")
    build.emit(node, lambda made: Affine(made, (name,), made, gain, offset), build.tensors[name].shape, value)
