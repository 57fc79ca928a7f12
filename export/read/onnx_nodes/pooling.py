"""Pooling: the largest of a window, or its mean."""

from __future__ import annotations

import numpy as np

from flipbit.export.graph import AveragePool, DepthwiseConv, MaxPool
from flipbit.export.read.onnx_nodes.layers import pair, result, window
from flipbit.export.read.onnx_nodes.values import Edges, OnnxBuilder, OnnxNode, OnnxValue


def max_pool(build: OnnxBuilder, node: OnnxNode) -> None:
    value = build.value(node)
    name = build.image(node, value)
    build.require_own_step(node, value)
    kernel, stride, edges, (rows, columns) = _window(build, node, value)
    if len([output for output in node.outputs if output]) > 1 or node.attribute("storage_order", 0):
        node.refuse("gives the places of the largest, too; their values are supported")
    channels = value.shape[1]
    build.emit(
        node,
        lambda made: MaxPool(made, (name,), made, size=kernel, stride=stride, padding=edges),
        (rows, columns, channels),
        OnnxValue("", value.axes, (value.shape[0], channels, *(rows, columns)[4 - len(value.shape) :])),
    )


def average_pool(build: OnnxBuilder, node: OnnxNode) -> None:
    value = build.value(node)
    name = build.image(node, value)
    kernel, stride, edges, (rows, columns) = _window(build, node, value)
    channels = value.shape[1]
    seen = OnnxValue("", value.axes, (value.shape[0], channels, *(rows, columns)[4 - len(value.shape) :]))
    if any(edges) and node.attribute("count_include_pad", 0):
        if build.steps or edges != window(build, node, value, kernel)[1]:
            node.refuse("average pooling that counts the zeros around an image; set count_include_pad=False")
        # The mean with the zeros is a depthwise convolution by one number.
        filters, scale = np.ones((*kernel, channels)), np.full(channels, 1 / (kernel[0] * kernel[1]))

        def mean(made: str) -> DepthwiseConv:
            none = np.zeros(channels)
            return DepthwiseConv(made, (name,), made, filters, scale=scale, bias=none, stride=stride, padding=edges)

        build.emit(node, mean, (rows, columns, channels), seen)
        return
    build.emit(
        node,
        lambda made: AveragePool(made, (name,), made, size=kernel, stride=stride, padding=edges),
        (rows, columns, channels),
        seen,
    )
    build.read_as(node, 0, value)


def _window(
    build: OnnxBuilder, node: OnnxNode, value: OnnxValue
) -> tuple[tuple[int, int], tuple[int, int], Edges, tuple[int, int]]:
    """Kernel, stride and padding, with what rounding up adds at the end; and the size of the result."""
    kernel = pair(node, node.attribute("kernel_shape"), 0)
    if any(n != 1 for n in node.attribute("dilations") or ()):
        node.refuse(f"pooling with dilation {list(node.attribute('dilations'))}; 1 is supported")
    stride, padding = window(build, node, value, kernel)
    size = result(node, build, value, kernel, stride, padding, bool(node.attribute("ceil_mode", 0)))
    rows, columns, _ = build.tensors[value.name].shape
    edges = list(padding)
    for i, (n, out, k, s) in enumerate(zip((rows, columns), size, kernel, stride)):
        edges[2 * i + 1] = max(edges[2 * i + 1], (out - 1) * s + k - n - edges[2 * i])
    return kernel, stride, (edges[0], edges[1], edges[2], edges[3]), size


def global_average(build: OnnxBuilder, node: OnnxNode) -> None:
    value = build.value(node)
    build.expect_image(node, value)
    _mean(build, node, value, OnnxValue("", value.axes, (*value.shape[:2], *(1,) * (len(value.shape) - 2))))


def global_max(build: OnnxBuilder, node: OnnxNode) -> None:
    value = build.value(node)
    name = build.image(node, value)
    build.require_own_step(node, value)
    rows, columns, channels = build.tensors[name].shape
    build.emit(
        node,
        lambda made: MaxPool(made, (name,), made, size=(rows, columns), stride=(rows, columns)),
        (1, 1, channels),
        OnnxValue("", value.axes, (*value.shape[:2], *(1,) * (len(value.shape) - 2))),
    )


def reduce_mean(build: OnnxBuilder, node: OnnxNode) -> None:
    """The mean over height and width, as TensorFlow's exporters write global pooling."""
    value, seen = _over_the_image(build, node, "mean")
    _mean(build, node, value, seen)


def reduce_max(build: OnnxBuilder, node: OnnxNode) -> None:
    """The largest over height and width, as PyTorch's newer exporter writes AdaptiveMaxPool2d(1)."""
    value, seen = _over_the_image(build, node, "largest")
    build.require_own_step(node, value)
    name = build.tensor(node, value)
    rows, columns, channels = build.tensors[name].shape
    size = (rows, columns)
    build.emit(node, lambda made: MaxPool(made, (name,), made, size=size, stride=size), (1, 1, channels), seen)


def _over_the_image(build: OnnxBuilder, node: OnnxNode, what: str) -> tuple[OnnxValue, OnnxValue]:
    """What is read, and what is given, of an operator that takes height and width away."""
    value = build.value(node)
    found = build.parameter(node, 1, "axes") or []
    axes = sorted(int(axis) % max(1, len(value.shape)) for axis in found)
    wanted = [i for i, letter in enumerate(value.axes) if letter in "hw1"]
    if axes != wanted or value.axes.count("c") != 1 or not set("hw") & set(value.axes):
        node.refuse(f"the {what} over axes {found} of {value.shape}; over height and width of an image is supported")
    if node.attribute("keepdims", 1):
        shape = tuple(1 if i in axes else n for i, n in enumerate(value.shape))
        seen = OnnxValue("", value.axes, shape)
    else:
        kept = [i for i in range(len(value.shape)) if i not in axes]
        seen = OnnxValue("", "".join(value.axes[i] for i in kept), tuple(value.shape[i] for i in kept))
    return value, seen


def _mean(build: OnnxBuilder, node: OnnxNode, value: OnnxValue, seen: OnnxValue) -> None:
    name = build.tensor(node, value)
    rows, columns, channels = build.tensors[name].shape
    build.emit(
        node,
        lambda made: AveragePool(made, (name,), made, size=(rows, columns), stride=(rows, columns)),
        (1, 1, channels),
        seen,
    )
    build.read_as(node, 0, value)
