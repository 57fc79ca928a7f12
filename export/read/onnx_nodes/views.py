"""Operators that compute nothing: transposes, reshapes, strided slices, zero padding, zero channels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flipbit.export.graph import Array
from flipbit.export.read.onnx_nodes.values import OnnxBuilder, OnnxNode, OnnxValue


def alias(build: OnnxBuilder, node: OnnxNode) -> None:
    """Identity, Dropout at rest, a Cast between kinds of floating point."""
    if node.kind == "Cast" and node.attribute("to") not in (1, 10, 11, 16):
        node.refuse("turns the image into integers; the net must stay in floating point")
    training = build.constant(node, 2, "training_mode") if node.kind == "Dropout" else None
    if training is not None and bool(np.any(training.value)):
        node.refuse("dropout at work; export the model in evaluation mode")
    build.pass_on(node, build.value(node))


def transpose(build: OnnxBuilder, node: OnnxNode) -> None:
    value = build.value(node)
    order = node.attribute("perm") or list(range(len(value.shape)))[::-1]
    if order[0] != 0 or ("f" in value.axes and list(order) != [0, 1]):
        node.refuse(f"transposes {value.shape} by {list(order)}; the batch must stay first")
    build.pass_on(
        node,
        replace(value, axes="".join(value.axes[i] for i in order), shape=tuple(value.shape[i] for i in order)),
    )


def reshape(build: OnnxBuilder, node: OnnxNode) -> None:
    """Reshape, Flatten, Squeeze, Unsqueeze: all values in a row, or axes of size 1 more or less."""
    value = build.value(node)
    shape = _target(build, node, value)
    if int(np.prod(shape)) != int(np.prod(value.shape)) or shape[:1] != value.shape[:1]:
        node.refuse(f"reshapes {value.shape} to {shape}; the batch must stay first, and all values be kept")
    build.pass_on(node, reshaped(build, node, value, shape))


def reshaped(build: OnnxBuilder, node: OnnxNode, value: OnnxValue, shape: tuple[int, ...]) -> OnnxValue:
    if shape == value.shape:
        return value
    letters = [letter for letter, n in zip(value.axes[1:], value.shape[1:]) if n != 1]
    kept = [n for n in value.shape[1:] if n != 1]
    if [n for n in shape[1:] if n != 1] == kept:  # axes of size 1 come and go
        left = iter(letters)
        axes = "b" + "".join("1" if n == 1 else next(left) for n in shape[1:])
        return replace(value, axes=_with_channels(axes), shape=shape)
    if len(shape) != 2 or "f" in value.axes:
        node.refuse(f"reshapes {value.shape} to {shape}; to (batch, values), or by axes of size 1, is supported")
    return replace(value, axes="bf", shape=shape, order=_order(build, node, value), name=build.tensor(node, value),
                   stride=(1, 1), channels=0)  # fmt: skip


def _with_channels(axes: str) -> str:
    """Of one channel, or of one value in all, the first axis that means nothing is the channels'."""
    return axes if set(axes) & set("cf") else axes.replace("1", "c", 1)


def _order(build: OnnxBuilder, node: OnnxNode, value: OnnxValue) -> Array:
    """The place in the deploy tensor of each value, in ONNX's order."""
    shape = build.tensors[build.tensor(node, value)].shape
    if len(shape) == 1:
        return np.arange(shape[0])
    letters = [letter for letter in value.axes if letter in "hwc"]
    at = ["hwc".index(letter) for letter in letters] + [i for i, letter in enumerate("hwc") if letter not in letters]
    return np.arange(int(np.prod(shape))).reshape(shape).transpose(at).reshape(-1)


def _target(build: OnnxBuilder, node: OnnxNode, value: OnnxValue) -> tuple[int, ...]:
    shape = value.shape
    if node.kind == "Flatten":
        axis = node.attribute("axis", 1) % (len(shape) + 1)
        return int(np.prod(shape[:axis])), int(np.prod(shape[axis:]))
    if node.kind in ("Squeeze", "Unsqueeze"):
        given = build.parameter(node, 1, "axes")
        if node.kind == "Squeeze":
            axes = {int(a) % len(shape) for a in given} if given else {i for i, n in enumerate(shape) if n == 1 and i}
            return tuple(n for i, n in enumerate(shape) if i not in axes)
        total = len(shape) + len(given or [])
        axes = {int(a) % total for a in given or []}
        rest = iter(shape)
        return tuple(1 if i in axes else next(rest) for i in range(total))
    wanted = [int(n) for n in build.parameter(node, 1, "shape") or []]
    keep = not node.attribute("allowzero", 0)
    if any(n == 0 and keep and i >= len(shape) for i, n in enumerate(wanted)) or wanted.count(-1) > 1:
        node.refuse(f"reshapes {shape} to {wanted}")
    found = [shape[i] if n == 0 and keep else n for i, n in enumerate(wanted)]
    if -1 in found:
        rest_size = int(np.prod([n for n in found if n != -1]))
        if not rest_size or int(np.prod(shape)) % rest_size:
            node.refuse(f"reshapes {shape} to {wanted}")
        found[found.index(-1)] = int(np.prod(shape)) // rest_size
    return tuple(found)


def pad(build: OnnxBuilder, node: OnnxNode) -> None:
    value = build.value(node)
    pads = [int(n) for n in build.parameter(node, 1, "pads") or node.attribute("paddings") or []]
    fill = build.parameter(node, 2, "value")
    mode, axes = node.attribute("mode", "constant"), build.parameter(node, 3, "axes")
    if mode != "constant" or (fill is not None and fill[0] != 0):
        node.refuse(f"pads with {fill[0] if fill and mode == 'constant' else mode}; zeros are supported")
    rank = len(value.shape)
    places = [int(a) % rank for a in axes] if axes else list(range(rank))
    if len(pads) != 2 * len(places) or min(pads, default=0) < 0:
        node.refuse(f"pads {value.shape} by {pads}; zeros around an image are supported")
    around = dict.fromkeys("hwc", (0, 0))
    for place, before, after in zip(places, pads[: len(places)], pads[len(places) :]):
        if value.axes[place] in around:
            around[value.axes[place]] = (before, after)
        elif before or after:
            node.refuse(
                f"pads axis {place} of {value.shape}; zeros around an image and behind its channels are supported"
            )
    if around["c"][0]:
        node.refuse("zero channels before the others; zero channels behind them are supported")
    if not any(pads):
        build.pass_on(node, value)
        return
    if len(build.tensors[value.name].shape) != 3:
        node.refuse(f"pads {value.shape}, which is not an image")
    edges = (*around["h"], *around["w"])
    shape = list(value.shape)
    for place, before, after in zip(places, pads[: len(places)], pads[len(places) :]):
        shape[place] += before + after
    padding = tuple(a + b for a, b in zip(value.padding, edges))
    more = replace(value, shape=tuple(shape), channels=value.channels + around["c"][1])
    build.pass_on(node, replace(more, padding=(padding[0], padding[1], padding[2], padding[3])))


def every_nth_pixel(build: OnnxBuilder, node: OnnxNode) -> None:
    """Slice: every n-th pixel, as option-A shortcuts take them."""
    value = build.value(node)
    starts, ends, axes, steps = (
        build.parameter(node, at, name) for at, name in ((1, "starts"), (2, "ends"), (3, "axes"), (4, "steps"))
    )
    starts, ends = starts or [], ends or []
    axes = axes if axes is not None else list(range(len(starts)))
    down, across = value.stride
    shape = list(value.shape)
    for axis, start, end, step in zip(axes, starts, ends, steps or [1] * len(starts)):
        at = int(axis) % len(shape)
        letter = value.axes[at]
        if start != 0 or end < shape[at] or step < 1 or (step > 1 and letter not in "hw") or any(value.padding):
            node.refuse(f"takes [{start}:{end}:{step}] of axis {axis}; every n-th pixel from 0 on is supported")
        shape[at] = -(-shape[at] // int(step))
        down, across = (
            (down * int(step), across) if letter == "h" else (down, across * int(step) if letter == "w" else across)
        )
    build.pass_on(node, replace(value, shape=tuple(shape), stride=(down, across)))
