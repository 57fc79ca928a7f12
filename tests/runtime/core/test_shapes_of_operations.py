"""Every operation of format version 2, and pooling, at any shape: the C core and the NumPy reference give the oracle's
integers, for random inputs and for the ends of int8."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flipbit.export import oracle
from flipbit.export.functions import Function
from flipbit.export.graph import AveragePool, Binarize, BitConv, BitPool, Concat, Conv, DepthwiseConv, MaxPool, Table
from flipbit.export.write.fbit import fbit_bytes
from flipbit.runtime.core.model import Model
from flipbit.runtime.image import reference
from tests.nets.small_nets import graph_through


@dataclass(frozen=True)
class Window:
    """An image, and what slides over it."""

    shape: tuple[int, int, int]
    size: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    seed: int

    @property
    def out(self) -> tuple[int, int]:
        height, width, _ = self.shape
        top, bottom, left, right = self.padding
        sides = (
            (height + top + bottom, self.size[0], self.stride[0]),
            (width + left + right, self.size[1], self.stride[1]),
        )
        return tuple((n - k) // s + 1 for n, k, s in sides)  # type: ignore[return-value]

    @property
    def fields(self) -> dict[str, Any]:
        return {"stride": self.stride, "padding": self.padding}


@st.composite
def windows(draw: Any) -> Window:
    sides, sizes, strides, edges = [], [], [], []
    for _ in range(2):
        size = draw(st.integers(1, 5))
        before, after = draw(st.integers(0, size - 1)), draw(st.integers(0, size - 1))
        sides.append(draw(st.integers(max(1, size - before - after), 9)))
        sizes.append(size)
        strides.append(draw(st.integers(1, 3)))
        edges += [before, after]
    channels = draw(st.sampled_from([1, 2, 3, 5, 8, 15, 16, 17, 31, 33]))
    seed = draw(st.integers(0, 2**16))
    return Window((*sides, channels), tuple(sizes), tuple(strides), tuple(edges), seed)  # type: ignore[arg-type]


def same_everywhere(window: Window, through: Any) -> None:
    graph = graph_through(window.shape, through, window.seed)
    data = fbit_bytes(graph)
    device = Model(data)
    random = np.random.default_rng(window.seed)
    ends = np.array([-128, -128, 127, 127])[:, None, None, None] * np.ones(window.shape, np.int64)
    x = np.concatenate([random.integers(-128, 128, (3, *window.shape)), ends[::2]]).astype(np.int8)
    expected = oracle.run(graph, x)[graph.output]
    assert (device.predict(x, raw=True) == expected).all()
    found = reference.run(device.image, np.ascontiguousarray(x.transpose(0, 3, 1, 2)))[device.image.output]
    assert (found.reshape(len(x), -1) == np.moveaxis(expected, -1, 1).reshape(len(x), -1)).all()


@given(window=windows(), relu=st.booleans(), binary=st.booleans())
@settings(max_examples=20, deadline=None)
def test_depthwise_convolutions(window: Window, relu: bool, binary: bool) -> None:
    shape = (*window.out, window.shape[2])
    weights = (*window.size, window.shape[2])
    same_everywhere(window, lambda b: b.weighted(DepthwiseConv, shape, weights, binary, relu=relu, **window.fields))


@pytest.mark.parametrize("kind", [AveragePool, MaxPool, BitPool])
@given(window=windows())
@settings(max_examples=15, deadline=None)
def test_pooling_over_the_border(kind: type, window: Window) -> None:
    shape = (*window.out, window.shape[2])

    def through(b: Any) -> str:
        if kind is not BitPool:
            return b.add(kind, shape, size=window.size, **window.fields)
        b.signs()
        b.add(kind, shape, size=window.size, **window.fields)
        return b.weighted(BitConv, (*window.out, 3), (1, 1, shape[2], 3), True)

    padding, edges = list(window.padding), window.shape
    for i, side in enumerate((edges[0], edges[0], edges[1], edges[1])):  # no window without a pixel of the image
        padding[i] = min(padding[i], window.size[i // 2] - 1, side)
    if tuple(padding) == window.padding:
        same_everywhere(window, through)


@given(window=windows(), relu=st.booleans(), ones=st.booleans(), filters=st.integers(1, 18))
@settings(max_examples=20, deadline=None)
def test_convolutions_of_bits(window: Window, relu: bool, ones: bool, filters: int) -> None:
    def through(b: Any) -> str:
        b.signs()
        weights = (*window.size, window.shape[2], filters)
        return b.weighted(BitConv, (*window.out, filters), weights, True, relu=relu, ones=ones, **window.fields)

    assert Binarize.traits.writes_bits  # what b.signs() adds
    same_everywhere(window, through)


@given(window=windows(), filters=st.tuples(st.integers(1, 20), st.integers(1, 20)), binary=st.booleans())
@settings(max_examples=15, deadline=None)
def test_concatenation_of_what_two_layers_give(window: Window, filters: tuple[int, int], binary: bool) -> None:
    def through(b: Any) -> str:
        height, width, channels = window.shape
        parts = []
        for count in filters:
            b.last = "x"
            parts.append(b.weighted(Conv, (height, width, count), (1, 1, channels, count), binary))
        return b.add(Concat, (height, width, sum(filters)), *parts)

    same_everywhere(window, through)


@given(
    window=windows(),
    function=st.sampled_from(
        [Function("leaky_relu", (0.3,)), Function("tanh"), Function("hard_swish"), Function("clip", (-0.25, 0.5))]
    ),
)
@settings(max_examples=20, deadline=None)
def test_tables(window: Window, function: Function) -> None:
    same_everywhere(window, lambda b: b.add(Table, window.shape, function=function))
