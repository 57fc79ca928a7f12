"""Pooling: the largest of a window, or its mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flipbit.export.graph import AveragePool, MaxPool
from flipbit.export.read.aten.builder import Builder
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
    inside = all((o - 1) * s + k <= n for n, o, k, s in zip(build.tensors[name].shape, shape[1:], size, stride))
    if pair(args["padding"]) != (0, 0) or not inside:
        build.refuse(node, "average pooling over the border; windows inside the image are supported")
    if args["divisor_override"] not in (None, size[0] * size[1]):
        build.refuse(node, f"average pooling divides by {args['divisor_override']}; the window's size is supported")
    _average(build, node, name, size, stride, (*shape[1:], shape[0]))


def adaptive_pool(build: Builder, node: Node, args: dict[str, Any]) -> None:
    name = build.image(node, args["self"])
    height, width, channels = build.tensors[name].shape
    _, rows, columns = build.shape(node)
    if height % rows or width % columns:
        build.refuse(node, f"adaptive pooling of {height}×{width} to {rows}×{columns}; sizes that divide are supported")
    size = (height // rows, width // columns)
    _average(build, node, name, size, size, (rows, columns, channels))


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
    build: Builder, node: Node, name: str, size: tuple[int, int], stride: tuple[int, int], shape: tuple[int, ...]
) -> None:
    build.emit(node, AveragePool(build.name(node), (name,), build.name(node), size=size, stride=stride), shape)
    build.same_order(node, name)
