"""Additions of tensors, arithmetic with constants, ReLU and the final softmax."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from flipbit.export.functions import Function
from flipbit.export.graph import Add, Array, Relu, Table, Weighted
from flipbit.export.read.aten.builder import Builder, Value
from flipbit.export.read.aten.layers import affine_after
from flipbit.export.read.aten.nodes import ALIASES, operator_of

if TYPE_CHECKING:
    from torch.fx import Node


def arithmetic(build: Builder, node: Node, args: dict[str, Any]) -> None:
    """Addition of two tensors, or +, −, ·, / with a constant per channel."""
    a, b, alpha = args["self"], args["other"], args.get("alpha", 1)
    called = operator_of(node)
    if a in build.at and b in build.at:
        if called != "add" or alpha != 1:
            gate = "; a product (squeeze-and-excite) is not: leave it out" if called == "mul" else ""
            build.refuse(node, f"{node.target} of two tensors; plain addition is supported{gate}")
        _add(build, node, a, b)
        return
    x, other = (a, b) if a in build.at else (b, a)
    c = _per_channel(build, node, x, other)
    one, zero = np.ones_like(c), np.zeros_like(c)
    folded: dict[str, tuple[Array, Array]] = {
        "add": (one, alpha * c) if x is a else (alpha * one, c),
        "sub": (one, -alpha * c) if x is a else (-alpha * one, c),
        "rsub": (-alpha * one, c) if x is a else (one, -alpha * c),
        "mul": (c, zero),
    }
    if called == "div":
        if x is not a or args.get("rounding_mode"):
            build.refuse(node, f"{node.target} by a tensor or with rounding; division by a constant is supported")
        with np.errstate(divide="ignore"):
            folded["div"] = (1 / c, zero)
    if np.array_equal(folded[called][0], one) and not folded[called][1].any():
        build.pass_on(node, x)  # x · 1, x + 0
        return
    affine_after(build, node, x, *folded[called])


def _per_channel(build: Builder, node: Node, x: Node, other: Any) -> Array:
    value = build.numbers(build.constants.get(other, other))
    shape = build.shape(x)
    try:
        return np.broadcast_to(value, (1, shape[0], *([1] * (len(shape) - 1)))).reshape(-1)
    except ValueError:
        return build.refuse(
            node, f"a constant of shape {value.shape} beside {('batch', *shape)}; one per channel is supported"
        )


def _add(build: Builder, node: Node, a: Node, b: Node) -> None:
    names = build.tensor(a), build.tensor(b)
    if build.tensors[names[0]].shape != build.tensors[names[1]].shape and len(build.shape(node)) == 1:
        names = build.vector(a), build.vector(b)
    shapes = [build.tensors[name].shape for name in names]
    if shapes[0] != shapes[1] or build.shape(a) != build.shape(b):
        build.refuse(node, f"adds {build.shape(a)} and {build.shape(b)}; two tensors of one shape are supported")
    _agree(build, node, (a, b), names)
    build.emit(node, Add(build.name(node), names, build.name(node)), shapes[0])
    build.same_order(node, names[0])


def _agree(build: Builder, node: Node, nodes: tuple[Node, Node], names: tuple[str, str]) -> None:
    """Bring two tensors to one order of channels, by permuting the weights that wrote one of them."""
    channels = build.tensors[names[0]].shape[-1]
    orders = [build.order.get(name, np.arange(channels)) for name in names]
    if np.array_equal(orders[0], orders[1]):
        return
    for i, j in ((0, 1), (1, 0)):
        op = build.writer(nodes[i], names[i])
        if isinstance(op, Weighted):
            at = np.argsort(orders[i])[orders[j]]
            build.put(replace(op, weights=op.weights[..., at], scale=op.scale[at], bias=op.bias[at]))
            build.order.pop(names[i], None)
            build.set_order(names[i], orders[j])
            return
    build.refuse(node, "adds two shortcuts with zero channels in different places; a convolution must write one")


def relu(build: Builder, node: Node, args: dict[str, Any]) -> None:
    """ReLU, and what clips: ``clamp``, ``hardtanh``, ``relu6``."""
    low, high = args.get("min", args.get("min_val", 0)), args.get("max", args.get("max_val"))
    if operator_of(node) == "relu6":
        high = 6.0
    if low != 0 and (low is None or high is None):
        build.refuse(node, f"clamps to {low} … {high}; a ReLU, or a range with two ends, is supported")
    (x, name) = (args["self"], build.tensor(args["self"]))
    op = build.writer(x, name)
    if isinstance(op, (Weighted, Add)) and low == 0 and not (op.relu and high is not None):
        build.put(replace(op, relu=True, ceiling=op.ceiling if high is None else float(high)))
        build.at[node] = Value(name)
        return
    if high is not None:
        _table(build, node, x, Function("clip", (float(low), float(high))))
        return
    build.emit(node, Relu(build.name(node), (name,), build.name(node)), build.tensors[name].shape)
    build.same_order(node, name)


def function(build: Builder, node: Node, args: dict[str, Any]) -> None:
    """A function of one value that a table computes."""
    called = operator_of(node)
    if called == "elu" and (args.get("scale", 1) != 1 or args.get("input_scale", 1) != 1):
        build.refuse(node, "an ELU with scales; a plain one is supported")
    made = {
        "leaky_relu": lambda: Function("leaky_relu", (float(args["negative_slope"]),)),
        "elu": lambda: Function("elu", (float(args["alpha"]),)),
        "sigmoid": lambda: Function("sigmoid"),
        "tanh": lambda: Function("tanh"),
        "silu": lambda: Function("swish"),
        "gelu": lambda: Function("gelu_tanh" if args.get("approximate") == "tanh" else "gelu"),
        "hardsigmoid": lambda: Function("hard_sigmoid", (1 / 6, 0.5)),
        "hardswish": lambda: Function("hard_swish"),
    }[called]()
    _table(build, node, args["self"], made)


def one_slope(build: Builder, node: Node, args: dict[str, Any]) -> None:
    """PReLU with one slope for all channels."""
    held = build.constant(node, args, "weight")
    slopes = np.unique(np.zeros(0) if held is None else held)
    if len(slopes) != 1:
        build.refuse(node, f"PReLU with {len(slopes)} slopes; one for all channels is supported")
    _table(build, node, args["self"], Function("leaky_relu", (float(slopes[0]),)))


def _table(build: Builder, node: Node, x: Node, made: Function) -> None:
    name = build.tensor(x)
    build.emit(node, Table(build.name(node), (name,), build.name(node), made), build.tensors[name].shape)
    build.same_order(node, name)


def softmax(build: Builder, node: Node, args: dict[str, Any], result: Node) -> None:
    while result is not node and operator_of(result) in ALIASES:
        result = result.all_input_nodes[0]
    if result is not node:
        build.refuse(node, "a softmax inside the net; only a final one is supported")
    if args["dim"] not in (1, 1 - node.meta["val"].dim()):
        build.refuse(node, f"a softmax over axis {args['dim']}; over the classes, axis 1, is supported")
    build.ends = "log_softmax" if "log" in operator_of(node) else "softmax"
    build.pass_on(node, args["self"])
