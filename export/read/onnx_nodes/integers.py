"""QuantizeLinear and DequantizeLinear: the scales and zero points that a quantized net brings along."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flipbit.export.read.onnx_nodes.values import OnnxBuilder, OnnxNode

KINDS = {np.dtype(np.int8): 0, np.dtype(np.uint8): 128}  # what is taken from the zero point for int8


def quantize(build: OnnxBuilder, node: OnnxNode) -> None:
    value = build.value(node)
    step, zero = _step(build, node)
    if any(value.padding):
        node.refuse("zeros around an image are quantized; supported are zeros right before a convolution")
    name = build.tensor(node, value)
    own = build.steps.setdefault(name, (step, zero))
    if own != (step, zero):
        node.refuse(
            f"quantizes {name} with scale {step:g} and zero point {zero}, which has {own[0]:g} and {own[1]} already"
        )
    held = replace(value, name=name, stride=(1, 1), channels=0, integer=True, step=None)
    build.stored.setdefault(name, (node.outputs[0], held))
    build.pass_on(node, held)


def dequantize(build: OnnxBuilder, node: OnnxNode) -> None:
    value = build.value(node)
    step, zero = _step(build, node)
    if not value.integer:
        node.refuse("of a tensor that no QuantizeLinear wrote")
    if zero != build.steps[value.name][1]:
        node.refuse(f"reads with zero point {zero} what was written with {build.steps[value.name][1]}")
    build.pass_on(node, replace(value, integer=False, step=step, zero=zero))


def _step(build: OnnxBuilder, node: OnnxNode) -> tuple[float, int]:
    """Scale and zero point of an activation, as for int8."""
    scale, zero = build.constant(node, 1, "scale"), build.constant(node, 2, "zero point")
    if scale is None or scale.value.size != 1 or (zero is not None and zero.value.size != 1):
        node.refuse("a scale per channel of an activation; one per tensor is supported")
    kind = np.dtype(np.uint8) if zero is None else zero.value.dtype
    if kind not in KINDS:
        node.refuse(f"8-bit activations are supported, found {kind}")
    step = float(scale.value.reshape(-1)[0])
    if not 0 < step < float("inf"):
        node.refuse(f"the scale {step:g}; a positive one is supported")
    return step, (0 if zero is None else int(zero.value.reshape(-1)[0])) - KINDS[kind]
