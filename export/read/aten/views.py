"""Operators that compute nothing: views, strided slices, zero padding, zero channels."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flipbit.export.graph import Concat
from flipbit.export.read.aten.builder import Builder, Value
from flipbit.export.read.aten.nodes import operator_of

if TYPE_CHECKING:
    from torch.fx import Node


def every_nth_pixel(build: Builder, node: Node, args: dict[str, Any]) -> None:
    """Every n-th pixel, as option-A shortcuts take them."""
    x, step, start, end = args["self"], args["step"], args["start"] or 0, args["end"]
    axis = args["dim"] % (len(build.shape(x)) + 1)
    size = x.meta["val"].shape[axis]
    whole = start == 0 and (end is None or (isinstance(size, int) and end >= size) or end >= 2**62)
    if whole and step == 1:
        build.pass_on(node, x)
        return
    if not whole or axis not in (2, 3) or any(build.at[x].padding):
        build.refuse(node, f"takes [{start}:{end}:{step}] of axis {axis}; every n-th pixel from 0 on is supported")
    build.expect_image(node, x)
    down, right = build.at[x].stride
    build.at[node] = replace(build.at[x], stride=(down * step, right) if axis == 2 else (down, right * step))


def pad(build: Builder, node: Node, args: dict[str, Any]) -> None:
    edges, x = list(args["pad"]), args["self"]
    if args.get("mode", "constant") != "constant" or args["value"] not in (None, 0):
        value = args["value"] if args.get("mode", "constant") == "constant" else args["mode"]
        build.refuse(node, f"pads with {value}; zeros are supported")
    left, right, top, bottom, front, back, *more = edges + [0] * (6 - len(edges))
    if min(edges, default=0) < 0 or any(more):
        build.refuse(node, f"pads by {edges}; zeros around the image and zero channels are supported")
    if not any(edges):
        build.pass_on(node, x)
        return
    build.expect_image(node, x)
    before = build.at[x]
    build.at[node] = replace(
        before,
        channels=(before.channels[0] + front, before.channels[1] + back),
        padding=tuple(a + b for a, b in zip(before.padding, (top, bottom, left, right))),
    )


def zero_channels(build: Builder, node: Node, args: dict[str, Any]) -> None:
    """Zero channels as a concatenation, or the channels of several tensors."""
    parts = args["tensors"]
    found = [part for part in parts if part in build.at]
    if len(found) > 1 and len(found) == len(parts):
        _concatenate(build, node, parts, args["dim"])
        return
    zeros = all(not build.numbers(build.constants[part]).any() for part in parts if part in build.constants)
    if len(found) != 1 or not zeros or args["dim"] not in (1, 1 - node.meta["val"].dim()):
        build.refuse(node, "concatenates tensors; one tensor and zero channels are supported")
    (x,) = found
    counts = [int(part.meta["val"].shape[1]) for part in parts]
    place = parts.index(x)
    front, back = sum(counts[:place]), sum(counts[place + 1 :])
    build.expect_image(node, x)
    before = build.at[x]
    build.at[node] = replace(before, channels=(before.channels[0] + front, before.channels[1] + back))


def _concatenate(build: Builder, node: Node, parts: list[Node], axis: int) -> None:
    """Two at a time."""
    names = [build.tensor(part) for part in parts]
    if axis not in (1, 1 - node.meta["val"].dim()) or any(name in build.order for name in names):
        build.refuse(node, f"concatenates along axis {axis}; channels of tensors in PyTorch's order are supported")
    for part in parts:
        if len(build.shape(part)) == 3:
            build.expect_image(node, part)
    if any(build.shape(part) != build.torch_shape(name) for part, name in zip(parts, names)):
        build.refuse(node, "concatenates tensors that were reshaped; concatenate them before")
    done = names[0]
    for name in names[1:]:
        shape = build.tensors[done].shape
        shape = (*shape[:-1], shape[-1] + build.tensors[name].shape[-1])
        build.emit(node, Concat(build.name(node), (done, name), build.name(node)), shape)
        done = build.at[node].name


def alias(build: Builder, node: Node, args: dict[str, Any]) -> None:
    """A view, a copy, a dropout at rest: the same values in the same order."""
    if args.get("train") or args.get("training"):
        build.refuse(node, "dropout at work; export the model in eval mode")
    x = node.all_input_nodes[0]
    value = node.meta["val"]
    if x not in build.at or ("dtype" in args and operator_of(node) == "view"):
        build.refuse(node, f"{node.target} of constants or to another type is not supported")
    batch, before = value.shape[:1], x.meta["val"]
    before = before[0] if isinstance(before, (tuple, list)) else before
    if batch != before.shape[:1]:
        build.refuse(node, f"reshapes {tuple(before.shape)} to {tuple(value.shape)}; the batch axis must stay first")
    if not value.dtype.is_floating_point:
        build.refuse(node, f"turns into {value.dtype}; the net must stay in floating point")
    if value.shape != before.shape and build.at[x] != Value(build.at[x].name):
        build.at[node] = Value(build.tensor(x))
    else:
        build.pass_on(node, x)


def first_result(build: Builder, node: Node, args: dict[str, Any]) -> None:
    """The first of several results, of operators whose others are statistics or indices."""
    if node.args[1] != 0:
        build.refuse(node, f"uses result {node.args[1]} of {node.all_input_nodes[0].target}; the first is supported")
    build.pass_on(node, node.all_input_nodes[0])
