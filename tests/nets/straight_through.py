"""A float model of what a device learns from: its integers forward, straight through every rounding backward."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from flipbit.runtime.image import reference
from flipbit.runtime.image.reader import Image


@dataclass
class Gradients:
    """Per operation: of weights, (filters, channels · taps), and of biases."""

    weights: dict[int, np.ndarray]
    biases: dict[int, np.ndarray]
    loss: float


class _Round(torch.autograd.Function):
    """Nearest, ties away from zero; gradients pass."""

    @staticmethod
    def forward(ctx, x):
        return torch.sign(x) * torch.floor(x.abs() + 0.5)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class _Table(torch.autograd.Function):
    """Results looked up; gradients are multiplied by the slope over eight steps."""

    @staticmethod
    def forward(ctx, x, table):
        ctx.save_for_backward(x, table)
        return table[x.long() + 128]

    @staticmethod
    def backward(ctx, gradient):
        x, table = ctx.saved_tensors
        at = x.long() + 128
        rise = table[(at + 4).clamp(max=255)] - table[(at - 4).clamp(min=0)]
        return gradient * rise.clamp(-127, 127) / 8, None


def _requantize(x: torch.Tensor, zero: int, relu: bool) -> torch.Tensor:
    """What is cut off passes no gradient."""
    y = _Round.apply(x) + zero
    low = max(-128, zero) if relu else -128
    cut = y.clamp(low, 127)
    inside = ((cut > low) & (cut < 127)).to(x.dtype)
    return (cut - y * inside).detach() + y * inside


def gradients(image: Image, inputs: np.ndarray, labels: np.ndarray) -> Gradients:
    """Gradients of the summed cross-entropy over a batch, by PyTorch in float64."""
    values = {image.input: torch.tensor(inputs, dtype=torch.float64)}
    weights: dict[int, torch.Tensor] = {}
    biases: dict[int, torch.Tensor] = {}
    for number, op in enumerate(image.operations):
        tensors = [image.tensors[i] for i in (*op.inputs, op.output)]
        source, target = tensors[0], tensors[-1]
        x = values[op.inputs[0]] - source.zero_point
        top, bottom, left, right = op.padding
        if op.kind in ("conv", "dense"):
            kernel = op.kernel if op.kind == "conv" else (1, 1)
            signs = (
                reference.signs(op, source.channels) if op.binary else op.weights.reshape(-1, *kernel, source.channels)
            )
            w = torch.tensor(signs.transpose(0, 3, 1, 2).astype(np.float64), requires_grad=True)
            offset = op.bias.astype(np.float64) + source.zero_point * w.detach().numpy().sum((1, 2, 3))
            b = torch.tensor(offset, requires_grad=True)
            weights[number], biases[number] = w, b
            image_like = x if x.ndim == 4 else x[:, :, None, None]
            acc = F.conv2d(F.pad(image_like, (left, right, top, bottom)), w, b, op.stride if op.kind == "conv" else 1)
            m = torch.tensor(op.multiplier.astype(np.float64)).view(1, -1, 1, 1)
            y = _requantize(acc * m / 2.0**op.shift, target.zero_point, op.relu)
        elif op.kind == "depthwise":
            signs = reference.signs(op, 1) if op.binary else op.weights.reshape(-1, *op.kernel, 1)
            w = torch.tensor(signs.transpose(0, 3, 1, 2).astype(np.float64), requires_grad=True)
            offset = op.bias.astype(np.float64) + source.zero_point * w.detach().numpy().sum((1, 2, 3))
            b = torch.tensor(offset, requires_grad=True)
            weights[number], biases[number] = w, b
            acc = F.conv2d(F.pad(x, (left, right, top, bottom)), w, b, op.stride, groups=len(w))
            m = torch.tensor(op.multiplier.astype(np.float64)).view(1, -1, 1, 1)
            y = _requantize(acc * m / 2.0**op.shift, target.zero_point, op.relu)
        elif op.kind == "table":
            y = _Table.apply(values[op.inputs[0]], torch.tensor(op.table.astype(np.float64)))
        elif op.kind == "concat":
            other = values[op.inputs[1]] - tensors[1].zero_point
            both = torch.cat([x * op.first, other * op.second], 1) / 2.0**op.shift
            whole = _Round.apply(both) + target.zero_point
            y = (whole.clamp(-128, 127) - whole).detach() + whole
        elif op.kind == "add":
            other = values[op.inputs[1]] - tensors[1].zero_point
            y = _requantize((x * op.first + other * op.second) / 2.0**op.shift, target.zero_point, op.relu)
        elif op.kind == "average_pool":
            padded = F.pad(x, (left, right, top, bottom))
            total = F.avg_pool2d(padded, op.kernel, op.stride) * op.taps
            inside = F.pad(torch.ones_like(x[:1, :1]), (left, right, top, bottom))
            n = (F.avg_pool2d(inside, op.kernel, op.stride) * op.taps).round()
            m = torch.floor((op.first * op.taps + torch.floor(n / 2)) / n)
            mean = _Round.apply(total * m / 2.0**op.shift) + target.zero_point
            y = (mean.clamp(-128, 127) - mean).detach() + mean  # a mean lies between its values: hardly ever cut off
        elif op.kind == "max_pool":
            padded = F.pad(x, (left, right, top, bottom), value=-1000.0)
            y = F.max_pool2d(padded, op.kernel, op.stride) + target.zero_point
        elif op.kind == "shortcut":
            kept = x[:, :, :: op.stride[0], :: op.stride[1]]
            y = F.pad(kept, (0, 0, 0, 0, 0, target.channels - source.channels)) + target.zero_point
        elif op.kind == "relu":
            y = F.relu(x) + target.zero_point
        elif op.kind == "flatten":
            y = x.reshape(len(x), -1) + target.zero_point
        else:
            raise NotImplementedError(op.kind)
        values[op.output] = y.reshape(len(x), *target.shape)
    out = image.tensors[image.output]
    expected = reference.run(image, inputs)
    for index, value in values.items():
        np.testing.assert_array_equal(value.detach().numpy(), expected[index])
    scores = (values[image.output] - out.zero_point) * out.scale
    loss = F.cross_entropy(scores, torch.tensor(labels), reduction="sum")
    loss.backward()

    def of(parameters: dict[int, torch.Tensor]) -> dict[int, np.ndarray]:
        return {i: p.grad.numpy().reshape(len(p), -1) for i, p in parameters.items() if p.grad is not None}

    return Gradients(of(weights), of(biases), loss.item() / len(inputs))
