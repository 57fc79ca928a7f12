"""Channels that weights hardly move: a gain of 0, pruned filters. Their bias must come through."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flipbit.export import oracle
from flipbit.export.write.fbit import fbit_bytes
from flipbit.runtime import Model
from flipbit.train.keras_larq import keras, lq
from tests.nets.random_nets import images, int8_graph, stir

L = keras.layers
LAYERS = {
    "conv": lambda: L.Conv2D(6, 3, use_bias=False),
    "depthwise": lambda: L.DepthwiseConv2D(3, use_bias=False),
    "dense": lambda: L.Dense(6, use_bias=False),
    "binary": lambda: lq.layers.QuantConv2D(6, 3, kernel_quantizer="ste_sign", use_bias=False),
    "of signs": lambda: lq.layers.QuantConv2D(
        6, 3, input_quantizer="ste_sign", kernel_quantizer="ste_sign", use_bias=False
    ),
}


def compared(net: Any, still: list[int]) -> None:
    """int8 by the C core beside what Keras gives: within a step in the channels ``still``, a few in others."""
    _, integers = int8_graph(net)
    x = images(net, 16, seed=2)
    expected = np.asarray(net(x, training=False))
    target = integers.tensors[integers.output]
    device = Model(fbit_bytes(integers))
    values = oracle.quantize(x, integers.tensors[integers.input]).reshape(len(x), *device.input_shape)
    assert (device.predict(values, raw=True) == oracle.run(integers, values)[integers.output]).all()
    gap = np.abs(device.predict(values) - expected).reshape(-1, expected.shape[-1]).max(0)
    assert (gap[still] <= target.scale).all() and (gap <= 5 * target.scale).all(), gap / target.scale


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("gain", [0.0, 1e-30, 1e-12, 1e-9, -1e-7, 1e-5])
def test_a_gain_near_zero_leaves_the_offset(kind: str, gain: float) -> None:
    keras.utils.set_random_seed(2)
    norm = L.BatchNormalization()
    image = L.Input((5, 6, 6))
    net = stir(keras.Model(image, norm(LAYERS[kind]()(image))))
    norm.gamma.assign(np.where(np.arange(6) % 3 == 1, gain, norm.gamma))
    norm.beta.assign([0.5, 1.5, -1.0, 0.2, -2.0, 0.0])
    compared(net, [1, 4])


@pytest.mark.parametrize("kind", ["conv", "depthwise", "dense"])
@pytest.mark.parametrize("size", [0.0, 1e-30, 1e-12, 1e-8])
def test_a_pruned_filter_gives_its_bias(kind: str, size: float) -> None:
    keras.utils.set_random_seed(3)
    layer = LAYERS[kind]()
    layer.use_bias = True
    image = L.Input((5, 6, 6))
    net = stir(keras.Model(image, layer(image)))
    weights, _ = layer.get_weights()
    axis = 2 if kind == "depthwise" else weights.ndim - 1
    share = np.where(np.arange(6) < 3, size, 1.0).reshape([-1 if i == axis else 1 for i in range(weights.ndim)])
    layer.set_weights([weights * share, np.array([0.7, -1.4, 0.0, 0.3, -0.2, 0.1])])
    compared(net, [0, 1, 2])


def test_a_filter_that_never_fires_stays_silent() -> None:
    """Far below zero: what its bias lacks to 32 bits cannot bring it back."""
    keras.utils.set_random_seed(4)
    layer = L.Conv2D(6, 3, activation="relu")
    image = L.Input((5, 6, 6))
    net = keras.Model(image, layer(image))
    weights, _ = layer.get_weights()
    weights[..., 2] *= 1e-9
    layer.set_weights([weights, np.array([0.3, 0.1, -1e6, 0.2, -0.1, 0.0])])
    compared(net, [2])
