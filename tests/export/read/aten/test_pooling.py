"""Pooling of images."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs PyTorch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from flipbit.export.graph import Add, AveragePool, Flatten, MaxPool, PadShortcut  # noqa: E402
from tests.nets.torch_nets import (  # noqa: E402
    Function,
    agrees,
    kinds,
)


@settings(max_examples=15)
@given(
    st.tuples(st.integers(5, 10), st.integers(5, 10)),
    st.sampled_from([2, 3, (3, 2)]),
    st.sampled_from([None, 1, 2, 3]),
    st.sampled_from([0, 1]),
    st.booleans(),
)
def test_max_pool_of_any_size_stride_padding_and_ceil_mode(
    size: Any, kernel: Any, stride: Any, pad: Any, ceil: bool
) -> None:
    agrees(nn.MaxPool2d(kernel, stride, pad, ceil_mode=ceil), (2, *size), n=2)


@pytest.mark.parametrize(
    "pool",
    [
        nn.AvgPool2d(2),
        nn.AvgPool2d((3, 2), 1),
        nn.AdaptiveAvgPool2d(1),
        nn.AdaptiveAvgPool2d((3, 2)),
        Function(lambda m, x: x.mean((2, 3))),
        Function(lambda m, x: x.mean([-1, -2], keepdim=True)),
        Function(lambda m, x: F.adaptive_avg_pool2d(x, 1).squeeze(-1).squeeze(-1)),
        Function(lambda m, x: F.avg_pool2d(x, x.shape[2:]).reshape(-1, 3)),
    ],
)
def test_average_pooling(pool: nn.Module) -> None:
    graph = agrees(pool, (3, 6, 4))
    assert kinds(graph) == ["AveragePool"]


def test_average_flattened_and_read_as_an_image_too() -> None:
    def forward(m: Any, x: Any) -> Any:
        y = m.pool(x)
        return m.fc(y.flatten(1)) + m.conv(y).flatten(1)

    module = Function(forward, pool=nn.AdaptiveAvgPool2d(1), fc=nn.Linear(3, 4), conv=nn.Conv2d(3, 4, 1))
    graph = agrees(module, (3, 4, 6))
    assert {type(op) for op in graph} >= {AveragePool, Flatten, Add}
    assert not any(isinstance(op, (MaxPool, PadShortcut)) for op in graph)
