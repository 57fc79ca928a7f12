"""Pooling: the largest of a window, or its mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flipbit.export.graph import AveragePool, DepthwiseConv, MaxPool
from flipbit.export.read.aten.builder import NO_EDGES, Builder, Edges
from flipbit.export.read.aten.nodes import pair

if TYPE_CHECKING:
    from torch.fx import Node


def max_pool(build: Builder, node: Node, args: dict[str, Any]) -> None:
    size, padding = pair(args["kernel_size"]), pair(args["padding"])
    stride = pair(args["stride"]) if args["stride"] else size
    if pair(args["dilation"]) != (1, 1):
        build.refuse(node, f"max pooling with dilation {args['dilation']}; 1 is supported")
    name = build.image(node, args["self"])
    shape = build.shape(node)
    edges: list[int] = []
    for n, out, k, s, p in zip(build.tensors[name].shape, shape[1:], size, stride, padding):
        # ceil_mode looks past the border: padding at the end, which never wins.
        edges += [p, max(p, (out - 1) * s + k - n - p)]
    top, bottom, left, right = edges
    op = MaxPool(build.name(node), (name,), build.name(node), size, stride, (top, bottom, left, right))
    build.emit(node, op, (*shape[1:], shape[0]))
    build.same_order(node, name)


def average_pool(build: Builder, node: Node, args: dict[str, Any]) -> None:
    size = pair(args["kernel_size"])
    stride = pair(args["stride"]) if args["stride"] else size
    name = build.image(node, args["self"])
    shape = build.shape(node)
    sides, padding = build.tensors[name].shape, pair(args["padding"])
    ends = [(o - 1) * s + k - p - n for n, o, k, s, p in zip(sides, shape[1:], size, stride, padding)]
    edges = (padding[0], max(padding[0], ends[0]), padding[1], max(padding[1], ends[1]))
    whole, divisor = size[0] * size[1], args["divisor_override"]
    zeros_count = any(padding) and (args["count_include_pad"] or divisor)
    if divisor not in (None, whole) or (divisor and any(n > p for n, p in zip(ends, padding))):
        build.refuse(node, f"average pooling divides by {divisor}; the window's size is supported")
    if zeros_count and any(n > p for n, p in zip(ends, padding)):
        build.refuse(node, "average pooling with ceil_mode counts some of the zeros; use count_include_pad=False")
    if zeros_count:  # the mean with the zeros around the image is a depthwise convolution by one number
        channels = build.tensors[name].shape[-1]
        filters, scale = np.ones((*size, channels)), np.full(channels, 1 / whole)
        made = build.name(node)
        build.emit(
            node,
            DepthwiseConv(made, (name,), made, filters, scale, np.zeros(channels), stride=stride, padding=edges),
            (*shape[1:], shape[0]),
        )
        build.same_order(node, name)
        return
    _average(build, node, name, size, stride, (*shape[1:], shape[0]), edges)


def adaptive_pool(build: Builder, node: Node, args: dict[str, Any]) -> None:
    name = build.image(node, args["self"])
    height, width, channels = build.tensors[name].shape
    _, rows, columns = build.shape(node)
    if height % rows or width % columns:
        build.refuse(node, f"adaptive pooling of {height}×{width} to {rows}×{columns}; sizes that divide are supported")
    size = (height // rows, width // columns)
    _average(build, node, name, size, size, (rows, columns, channels))


def adaptive_max(build: Builder, node: Node, args: dict[str, Any]) -> None:
    name = build.image(node, args["self"])
    height, width, channels = build.tensors[name].shape
    _, rows, columns = build.shape(node)
    if height % rows or width % columns:
        build.refuse(node, f"adaptive pooling of {height}×{width} to {rows}×{columns}; sizes that divide are supported")
    size = (height // rows, width // columns)
    op = MaxPool(build.name(node), (name,), build.name(node), size, size)
    build.emit(node, op, (rows, columns, channels))
    build.same_order(node, name)


def mean(build: Builder, node: Node, args: dict[str, Any]) -> None:
    x = args["self"]
    axes = sorted(axis % (len(build.shape(x)) + 1) for axis in args.get("dim") or ())
    if axes != [2, 3] or len(build.shape(x)) != 3:
        build.refuse(node, f"the mean over axes {args.get('dim')}; over height and width of an image is supported")
    name = build.image(node, x)
    height, width, channels = build.tensors[name].shape
    shape = (1, 1, channels) if args["keepdim"] else (channels,)
    _average(build, node, name, (height, width), (height, width), shape)


def _average(
    build: Builder,
    node: Node,
    name: str,
    size: tuple[int, int],
    stride: tuple[int, int],
    shape: tuple[int, ...],
    padding: Edges = NO_EDGES,
) -> None:
    made = build.name(node)
    build.emit(node, AveragePool(made, (name,), made, size=size, stride=stride, padding=padding), shape)
    build.same_order(node, name)
