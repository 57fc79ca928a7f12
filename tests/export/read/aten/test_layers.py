"""Convolutions and linear layers, and what is folded into them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs PyTorch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from flipbit.export.graph import Conv  # noqa: E402
from tests.nets.torch_nets import (  # noqa: E402
    Function,
    agrees,
    kinds,
    stirred,
)


@settings(max_examples=20)
@given(
    st.tuples(st.integers(5, 10), st.integers(5, 10)),
    st.sampled_from([1, 2, 3, (3, 2), 5]),
    st.sampled_from([1, 2, (2, 1), 3]),
    st.sampled_from([0, 1, 2, (0, 1)]),
    st.booleans(),
)
def test_convolution_of_any_size_stride_and_padding(size: Any, kernel: Any, stride: Any, pad: Any, bias: bool) -> None:
    agrees(nn.Conv2d(2, 3, kernel, stride, pad, bias=bias), (2, *size), n=2)


@pytest.mark.parametrize("kernel", [2, 3, (4, 1)])
def test_same_padding_by_name(kernel: Any) -> None:
    agrees(nn.Conv2d(2, 3, kernel, padding="same"), (2, 7, 6))
    agrees(nn.Conv2d(2, 3, kernel, padding="valid"), (2, 7, 6))


def test_zero_padding_merges_into_the_convolution() -> None:
    layers = nn.Sequential(nn.ZeroPad2d((1, 2, 3, 0)), nn.Conv2d(2, 3, 3, padding=1))
    (conv,) = agrees(layers, (2, 7, 6)).ops
    assert isinstance(conv, Conv) and conv.padding == (4, 1, 2, 3)


def test_dense_weights_follow_the_flatten_through_relu_and_views() -> None:
    def forward(m: Any, x: Any) -> Any:
        return m.fc(F.relu(m.pool(x).flatten(2).flatten(1)))

    graph = agrees(Function(forward, pool=nn.MaxPool2d(2), fc=nn.Linear(5 * 3 * 2, 4)), (5, 6, 4))
    assert kinds(graph) == ["MaxPool", "Relu", "Flatten", "Dense"]


def test_one_image_read_by_two_linear_layers_is_flattened_once() -> None:
    def forward(m: Any, x: Any) -> Any:
        return m.a(x.flatten(1)) + m.b(x.flatten(1))

    graph = agrees(Function(forward, a=nn.Linear(24, 4), b=nn.Linear(24, 4)), (3, 4, 2))
    assert kinds(graph) == ["Flatten", "Dense", "Dense", "Add"]


def test_weights_made_from_zeros_like_the_weights() -> None:
    def forward(m: Any, x: Any) -> Any:
        return F.linear(x, torch.where(m.fc.weight > 0, 0.5, torch.zeros_like(m.fc.weight)[:, :1] - 0.5))

    (op,) = agrees(Function(forward, fc=nn.Linear(7, 5)), (7,)).weighted()
    assert op.binary and np.array_equal(op.scale, np.full(5, 0.5))


def test_a_net_of_vectors() -> None:
    agrees(nn.Sequential(nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 3), nn.Softmax(1))[:3], (7,))


def test_matrix_products_with_constants_are_linear_layers() -> None:
    agrees(Function(lambda m, x: x @ torch.sign(m.fc.weight).T + m.fc.bias, fc=nn.Linear(7, 5)), (7,))


def test_batch_norm_without_gain_and_offset() -> None:
    agrees(stirred(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, affine=False)), (3, 6, 6)), (3, 6, 6))


@pytest.mark.parametrize(
    "tail",
    [
        lambda m, x: 2 - x,
        lambda m, x: torch.sub(m.c, x, alpha=2),
        lambda m, x: torch.rsub(x, m.c, alpha=3),
        lambda m, x: torch.add(m.c, x, alpha=3),
        lambda m, x: x / m.c - 1,
        lambda m, x: x.clamp(min=0) + 0,
        lambda m, x: torch.clamp_min(x * 1, 0),
    ],
)
def test_constants_per_channel_fold_into_the_convolution(tail: Callable[[Any, Any], Any]) -> None:
    module = Function(lambda m, x: tail(m, m.conv(x)), conv=nn.Conv2d(3, 4, 3))
    module.c = nn.Parameter(torch.randn(1, 4, 1, 1))
    assert kinds(agrees(module, (3, 6, 6))) == ["Conv"]


def test_weights_of_nearly_two_values_stay_real_when_they_are_not_near_enough() -> None:
    conv = nn.Conv2d(3, 4, 3)
    conv.weight.data = torch.sign(conv.weight) * (1 + 1e-4 * torch.rand_like(conv.weight))
    (op,) = agrees(conv, (3, 6, 6)).weighted()
    assert not op.binary
