"""The deploy graph as it grows: what one operation changes, another may still read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from tests.nets.torch_nets import (  # noqa: E402
    Function,
    agrees,
    stirred,
)


def inplace_statement(m: Any, x: Any) -> Any:
    y = m.a(x)
    F.relu(y, inplace=True)
    return m.b(y)


def inplace_addition(m: Any, x: Any) -> Any:
    y = m.a(x)
    z = F.relu(y)
    y += z
    return m.b(y) + m.b(z)


def before_and_after_relu(m: Any, x: Any) -> Any:
    y = m.a(x)
    return m.b(F.relu(y)) + m.b(y)


def empty_padding_read_twice(m: Any, x: Any) -> Any:
    y = F.pad(m.a(x), (0, 0))
    return m.b(F.relu(y)) + m.b(y)


def empty_padding_beside(m: Any, x: Any) -> Any:
    y = m.a(x)
    return m.b(F.relu(F.pad(y, (0, 0)))) + m.b(y * 1)


def slices_read_twice(m: Any, x: Any) -> Any:
    y = m.a(x)[:, :, ::2, ::2]
    return F.relu(y) + F.relu(F.pad(y, (0, 0, 0, 0, 0, 0)))


def zero_channels_then_convolution(m: Any, x: Any) -> Any:
    return m.a(F.pad(m.a(x)[:, :, ::2, ::2][:, :, ::1], (1, 1, 0, 2)))


def zero_channels_flattened(m: Any, x: Any) -> Any:
    y = F.pad(x, (0, 0, 0, 0, 1, 1))
    return F.relu(y).flatten(1) @ torch.linspace(-1, 1, 5 * 9 * 8 * 2, dtype=x.dtype).reshape(-1, 2)


@pytest.mark.parametrize(
    "forward",
    [
        inplace_statement,
        inplace_addition,
        before_and_after_relu,
        empty_padding_read_twice,
        empty_padding_beside,
        slices_read_twice,
        zero_channels_then_convolution,
        zero_channels_flattened,
    ],
)
def test_only_what_nobody_else_reads_is_changed(forward: Callable[[Any, Any], Any]) -> None:
    conv = nn.Conv2d(3, 3, 3, padding=1)
    agrees(Function(forward, a=conv, b=nn.Conv2d(3, 4, 3)), (3, 9, 8))


class Branches(nn.Module):
    """Random layers, each reading any tensor before it; views, dropout and identities between them."""

    def __init__(self, seed: int):
        super().__init__()
        self.random = np.random.default_rng(seed)
        self.plan = [int(n) for n in self.random.integers(0, 6, 6)]
        self.reads = [tuple(int(n) for n in self.random.integers(0, 100, 2)) for _ in self.plan]
        self.layers = nn.ModuleList(nn.Conv2d(3, 3, 3, padding=1) for _ in self.plan)
        self.norms = nn.ModuleList(nn.BatchNorm2d(3) for _ in self.plan)
        self.side = nn.Linear(60, 60)
        self.head = nn.Linear(60, 4)

    def forward(self, x: Any) -> Any:
        tensors = [self.layers[0](x)]
        for move, (a, b), layer, norm in zip(self.plan, self.reads, self.layers, self.norms):
            first, second = tensors[a % len(tensors)], tensors[b % len(tensors)]
            if move == 0:
                tensors.append(norm(layer(first)))
            elif move == 1:
                tensors.append(F.dropout(first, 0.3, self.training))
            elif move == 2:
                tensors.append(F.relu(first.contiguous()))
            elif move == 3:
                tensors.append(first + second)
            elif move == 4:
                tensors.append(F.relu(F.dropout(first, 0.3, self.training)) + first)
            else:
                tensors.append(layer(second))
        flat = tensors[-1].flatten(1)
        return self.head(F.relu(flat) + F.relu(self.side(tensors[len(tensors) // 2].flatten(1))) + flat)


@pytest.mark.parametrize("start", range(0, 30, 10))
def test_random_branches_compute_what_torch_does(start: int) -> None:
    for seed in range(start, start + 10):
        torch.manual_seed(seed)
        agrees(stirred(Branches(seed), (3, 4, 5), seed), (3, 4, 5))
