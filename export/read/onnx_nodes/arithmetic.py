"""Additions of tensors, arithmetic with constants, functions of one value and the final softmax."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from flipbit.export.functions import Function
from flipbit.export.graph import Add, Array, Concat, Relu, Table
from flipbit.export.read.onnx_nodes.layers import affine
from flipbit.export.read.onnx_nodes.values import OnnxBuilder, OnnxNode, OnnxValue

LARGE = 3e38  # of float32: no bound
GATES = {
    Function("sigmoid"): Function("swish"),
    **{Function("hard_sigmoid", (slope, 0.5)): Function("hard_swish") for slope in (1 / 6, float(np.float32(1 / 6)))},
}


def arithmetic(build: OnnxBuilder, node: OnnxNode) -> None:
    """Addition of two tensors, or +, −, ·, / with a constant per channel."""
    held = [name in build.at for name in node.inputs]
    if len(held) == 2 and all(held):
        if node.kind == "Mul" and _gated(build, node):
            return
        if node.kind != "Add":
            node.refuse("of two tensors; addition is supported, and x · sigmoid(x)")
        _add(build, node)
        return
    if len(held) != 2 or not any(held):
        node.refuse(f"of {len(held)} tensors; two are supported")
    at = held.index(True)
    value = build.value(node, at)
    found = build.constant(node, 1 - at, "constant")
    assert found is not None
    c = per_channel(build, node, value, found.value)
    one, zero = np.ones_like(c), np.zeros_like(c)
    if node.kind == "Div" and at == 1:
        node.refuse("divides by a tensor; division by a constant is supported")
    with np.errstate(divide="ignore"):
        gain, offset = {
            "Add": (one, c),
            "Sub": (one, -c) if at == 0 else (-one, c),
            "Mul": (c, zero),
            "Div": (1 / c if node.kind == "Div" else c, zero),
        }[node.kind]
    if np.array_equal(gain, one) and not offset.any():
        build.pass_on(node, value)  # x · 1, x + 0
        return
    affine(build, node, value, gain, offset)


def per_channel(build: OnnxBuilder, node: OnnxNode, value: OnnxValue, constant: Array) -> Array:
    """A constant beside a tensor as one number per channel."""
    channels = build.tensors[value.name].shape[-1] + value.channels
    wide = constant.astype(np.float64).reshape((1,) * (len(value.shape) - constant.ndim) + constant.shape)
    at = value.axes.find("c")
    fits = wide.ndim == len(value.axes) and all(n == 1 or (i == at and n == channels) for i, n in enumerate(wide.shape))
    if not fits:
        node.refuse(f"a constant of shape {constant.shape} beside {value.shape}; one per channel is supported")
    return np.broadcast_to(wide.reshape(-1), (channels,)).copy()


def _add(build: OnnxBuilder, node: OnnxNode) -> None:
    a, b = build.value(node, 0), build.value(node, 1)
    names = build.tensor(node, a), build.tensor(node, b)
    shapes = [build.tensors[name].shape for name in names]
    same_order = a.order is b.order or (
        a.order is not None and b.order is not None and np.array_equal(a.order, b.order)
    )
    if a.shape != b.shape or a.axes != b.axes or shapes[0] != shapes[1] or not same_order:
        node.refuse(f"adds {a.shape} ({a.axes}) and {b.shape} ({b.axes}); two tensors of one shape are supported")
    build.emit(node, lambda made: Add(made, names, made), shapes[0], a)
    build.read_as(node, 0, a)
    build.read_as(node, 1, b)


def relu(build: OnnxBuilder, node: OnnxNode) -> None:
    build.elementwise(node, lambda made, x: Relu(made, (x,), made))


def clip(build: OnnxBuilder, node: OnnxNode) -> None:
    low, high = (build.parameter(node, at, name) for at, name in ((1, "min"), (2, "max")))
    least, most = (float(low[0]) if low else -LARGE), (float(high[0]) if high else LARGE)
    if least == 0 and most >= LARGE:
        relu(build, node)
    elif least >= most or not (-LARGE < least or most < LARGE):
        node.refuse(f"clips to {least:g} … {most:g}; a range with one end at least is supported")
    else:
        _table(build, node, Function("clip", (max(least, -LARGE), min(most, LARGE))))


def function(build: OnnxBuilder, node: OnnxNode) -> None:
    """A function of one value that a table computes."""
    alpha, beta = node.attribute("alpha"), node.attribute("beta")
    known: dict[str, Callable[[], Function]] = {
        "LeakyRelu": lambda: Function("leaky_relu", (0.01 if alpha is None else float(alpha),)),
        "Elu": lambda: Function("elu", (1.0 if alpha is None else float(alpha),)),
        "Sigmoid": lambda: Function("sigmoid"),
        "Tanh": lambda: Function("tanh"),
        "Gelu": lambda: Function("gelu_tanh" if node.attribute("approximate", "none") == "tanh" else "gelu"),
        "HardSigmoid": lambda: Function(
            "hard_sigmoid", (0.2 if alpha is None else float(alpha), 0.5 if beta is None else float(beta))
        ),
        "HardSwish": lambda: Function("hard_swish"),
        "Swish": lambda: Function("swish"),
    }
    if node.kind == "Swish" and alpha not in (None, 1.0):
        node.refuse(f"alpha {alpha:g}; 1 is supported")
    _table(build, node, known[node.kind]())


def one_slope(build: OnnxBuilder, node: OnnxNode) -> None:
    """PRelu with one slope for all channels."""
    slopes = build.constant(node, 1, "slopes")
    found = np.unique(np.zeros(0) if slopes is None else slopes.value)
    if len(found) != 1:
        node.refuse(f"{len(found)} slopes; one for all channels is supported")
    _table(build, node, Function("leaky_relu", (float(found[0]),)))


def _table(build: OnnxBuilder, node: OnnxNode, what: Function) -> None:
    build.elementwise(node, lambda made, x: Table(made, (x,), made, what))


def _gated(build: OnnxBuilder, node: OnnxNode) -> bool:
    """x · sigmoid(x) and x · hard_sigmoid(x), as exporters write swish and hard-swish."""
    writers = {op.output: op for op in build.ops}
    for at in (0, 1):
        value, gate = build.value(node, at), build.value(node, 1 - at)
        op = writers.get(gate.name)
        if isinstance(op, Table) and op.inputs == (value.name,) and op.function in GATES and value.shape == gate.shape:
            _gate(build, node, value, GATES[op.function])
            return True
    return False


def _gate(build: OnnxBuilder, node: OnnxNode, value: OnnxValue, made: Function) -> None:
    name = build.tensor(node, value)
    build.emit(node, lambda output: Table(output, (name,), output, made), build.tensors[name].shape, value)


def concat(build: OnnxBuilder, node: OnnxNode) -> None:
    """Channels of several tensors, two at a time."""
    values = [build.value(node, at) for at in range(len(node.inputs))]
    first = values[0]
    axis = int(node.attribute("axis", 1)) % max(1, len(first.shape))
    others = [[n for i, n in enumerate(value.shape) if i != axis] for value in values]
    if (
        any(value.axes != first.axes for value in values)
        or first.axes[axis] != "c"
        or others.count(others[0]) != len(values)
    ):
        node.refuse(
            f"concatenates {', '.join(str(value.shape) for value in values)} along axis {axis}; channels are supported"
        )
    names = [build.tensor(node, value) for value in values]
    channels = first.shape[axis]
    done, seen = names[0], first
    for value, name in zip(values[1:], names[1:]):
        channels += value.shape[axis]
        shape = (*build.tensors[done].shape[:-1], channels)
        seen = replace(seen, shape=(*first.shape[:axis], channels, *first.shape[axis + 1 :]))
        pair = (done, name)
        build.emit(node, lambda made, pair=pair: Concat(made, pair, made), shape, seen)  # type: ignore[misc]
        done = build.ops[-1].output
        if pair[0] == names[0]:
            build.read_as(node, 0, first)
        build.read_as(node, 1, value)
    if len(values) == 1:
        build.pass_on(node, first)


def softmax(build: OnnxBuilder, node: OnnxNode, final: bool) -> None:
    value = build.value(node)
    axis = node.attribute("axis", -1 if node.opset >= 13 else 1) % max(1, len(value.shape))
    if not final:
        node.refuse("a softmax inside the net; only a final one is supported")
    if value.axes[axis] not in "cf" or any(n != 1 for i, n in enumerate(value.shape) if i not in (0, axis)):
        node.refuse(f"a softmax over axis {axis} of {value.shape}; over the classes is supported")
    build.ends = "log_softmax" if node.kind == "LogSoftmax" else "softmax"
    build.pass_on(node, value)
