"""Convolutions, linear layers, and what is folded into them: BatchNorm and constants per channel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flipbit.export.graph import Array, Conv, Dense, DepthwiseConv, Weighted
from flipbit.export.read.aten.builder import NO_EDGES, Builder, Edges, Value
from flipbit.export.read.aten.nodes import pair
from flipbit.export.read.from_keras import OF_BITS, binary_filters, dilated, weighted
from flipbit.export.read.fuse import Affine, affine

if TYPE_CHECKING:
    from torch.fx import Node

NEARLY = 1e-5  # relative: a straight-through (sign(w) − w).detach() + w misses ±1 by float32's rounding


def conv(build: Builder, node: Node, args: dict[str, Any]) -> None:
    dilation, groups = pair(args["dilation"]), args["groups"]
    if args.get("transposed"):
        build.refuse(node, "a transposed convolution; upsampling is not supported: end the net at its smallest image")
    weights = build.constant(node, args, "weight")
    assert weights is not None
    x = args["input"]
    if weights.ndim != 4:
        build.refuse(
            node, f"weights of shape {weights.shape}; Conv2d is supported (Conv1d by way of ONNX: torch.onnx.export)"
        )
    depthwise = groups > 1
    if depthwise and weights.shape[:2] != (groups, 1):
        build.refuse(
            node, f"{groups} groups for {len(weights)} filters; supported are 1 group, and one filter per channel"
        )
    build.expect_image(node, x)
    name = build.unpadded(x)
    kernel, stride = weights.shape[2:], pair(args["stride"])
    padding: Edges
    if args["padding"] == "same":
        reach = [d * (k - 1) for k, d in zip(kernel, dilation)]
        edges = [(n // 2, n - n // 2) for n in reach]
        padding = (*edges[0], *edges[1])
    elif args["padding"] == "valid":
        padding = NO_EDGES
    else:
        vertical, horizontal = pair(args["padding"])
        padding = (vertical, vertical, horizontal, horizontal)
    top, bottom, left, right = (a + b for a, b in zip(padding, build.at[x].padding))
    weights = weights.transpose(2, 3, 1, 0)
    bias = build.constant(node, args, "bias")
    if depthwise:
        weights = weights[:, :, 0]
    if name in build.order:
        at = build.order[name]
        weights = weights[:, :, at]
        bias = bias[at] if depthwise and bias is not None else bias
    fields = weighted(nearly_binary(weights))
    wide = dilated(fields["weights"], dilation)
    if wide is None:
        build.refuse(node, f"dilation {dilation} {OF_BITS}")
    fields["weights"] = wide
    made: type[Conv | DepthwiseConv] = DepthwiseConv if depthwise else Conv
    op = made(
        build.name(node),
        (name,),
        build.name(node),
        bias=np.zeros(weights.shape[-1]) if bias is None else bias,
        stride=stride,
        padding=(top, bottom, left, right),
        **fields,
    )
    channels, height, width = build.shape(node)
    build.emit(node, op, (height, width, channels))
    if depthwise:
        build.same_order(node, name)


def linear(build: Builder, node: Node, args: dict[str, Any]) -> None:
    weights = build.constant(node, args, "weight")
    assert weights is not None
    _dense(build, node, args["input"], weights.T, build.constant(node, args, "bias"))


def matmul(build: Builder, node: Node, args: dict[str, Any]) -> None:
    """x @ weights, or, of linear layers taken apart, bias + x @ weights."""
    x = args.get("mat1", args["self"])
    args = {"weight": args.get("mat2", args.get("other")), "bias": args["self"] if "mat1" in args else None} | {
        what: args.get(what, 1) for what in ("alpha", "beta")
    }
    weights = build.constant(node, args, "weight")
    bias = build.constant(node, args, "bias")
    assert weights is not None
    _dense(build, node, x, args["alpha"] * weights, None if bias is None else args["beta"] * bias)


def _dense(build: Builder, node: Node, x: Node, weights: Array, bias: Array | None) -> None:
    if weights.ndim != 2 or x not in build.at or len(build.shape(x)) != 1:
        build.refuse(node, f"a linear layer on shape {('batch', *build.shape(x))}; flatten to (batch, units) first")
    name = build.vector(x)
    units = weights.shape[1]
    if name in build.order:
        weights = weights[build.order[name]]
    bias = np.zeros(units) if bias is None else np.broadcast_to(bias, (units,))
    fields = weighted(nearly_binary(weights))
    build.emit(node, Dense(build.name(node), (name,), build.name(node), bias=bias, **fields), (units,))


def batch_norm(build: Builder, node: Node, args: dict[str, Any]) -> None:
    if args.get("training") or args["running_mean"] is None:
        build.refuse(
            node, "BatchNorm with the statistics of the batch; export the model in eval mode, with running ones"
        )
    mean, variance = (build.constant(node, args, what) for what in ("running_mean", "running_var"))
    gamma, beta = (build.constant(node, args, what) for what in ("weight", "bias"))
    assert mean is not None and variance is not None
    gain = (1.0 if gamma is None else gamma) / np.sqrt(variance + args["eps"])
    affine_after(build, node, args["input"], gain, -mean * gain + (0.0 if beta is None else beta))


def affine_after(build: Builder, node: Node, x: Node, gain: Array, offset: Array) -> None:
    """gain · x + offset per channel: folded into the operation that wrote x, or left for fuse.py."""
    name = build.tensor(x)
    op = build.writer(x, name)
    if isinstance(op, Weighted) and not op.relu and build.shape(x) == build.torch_shape(name):
        build.put(affine(op, gain, offset))
        build.at[node] = Value(name)
        return
    name = build.vector(x) if len(build.shape(x)) == 1 else build.image(node, x)
    at = build.order.get(name, np.arange(len(gain)))
    made = Affine(build.name(node), (name,), build.name(node), gain[at], offset[at])
    build.emit(node, made, build.tensors[name].shape)
    build.same_order(node, name)


def nearly_binary(weights: Array) -> Array:
    """``weights`` with filters of nearly two values ±s made exact, if all filters are such."""
    flat = np.abs(weights.reshape(-1, weights.shape[-1]))
    if not flat.size or binary_filters(weights) or not np.isfinite(flat).all():
        return weights
    magnitude = np.median(flat, axis=0)
    if (np.abs(flat - magnitude) <= NEARLY * magnitude).all() and (magnitude > 0).all():
        return np.where(weights > 0, magnitude, -magnitude)
    return weights
