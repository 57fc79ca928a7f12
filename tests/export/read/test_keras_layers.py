"""Every layer that is read from Keras: the graph computes what Keras does, and a device the graph's integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flipbit.export import oracle
from flipbit.export.read.from_keras import from_keras
from flipbit.export.write.fbit import fbit_bytes
from flipbit.runtime import Model
from flipbit.train.keras_larq import keras, lq
from tests.nets.random_nets import images, int8_graph, stir

L = keras.layers
BINARY = {"depthwise_quantizer": "ste_sign", "pointwise_quantizer": "ste_sign"}


def checked(model: Any, softmax: bool = False) -> list[str]:
    """Kinds of operations of a model's graph, which computes what Keras does, as an image does the integers."""
    model = stir(model)
    graph, integers = int8_graph(model)
    x = images(model, 6)
    found = oracle.logits(graph, x.reshape(6, *graph.tensors[graph.input].shape))
    expected = np.asarray(model(x, training=False))
    if softmax:
        found = np.exp(found) / np.exp(found).sum(-1, keepdims=True)
        expected = np.concatenate([1 - expected, expected], -1)
    np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
    device = Model(fbit_bytes(integers))
    values = oracle.quantize(x, integers.tensors[integers.input]).reshape(6, *device.input_shape)
    assert (device.predict(values, raw=True) == oracle.run(integers, values)[integers.output]).all()
    assert len(np.unique(device.predict(values, raw=True))) > 2
    return [op.kind for op in graph]


def image_net(*layers: Any, shape: tuple[int, ...] = (9, 8, 4)) -> Any:
    x = first = L.Input(shape)
    for layer in layers:
        x = layer(x)
    return keras.Model(first, x)


IMAGE, SIGNAL = (9, 8, 4), (17, 3)
CASES: dict[str, tuple[list[Any], tuple[int, ...]]] = {
    "depthwise": ([L.DepthwiseConv2D(3, padding="same"), L.BatchNormalization(), L.ReLU(6.0)], IMAGE),
    "depthwise, stride 2": ([L.DepthwiseConv2D(3, strides=2, padding="same", use_bias=False)], IMAGE),
    "depthwise 5×5": ([L.DepthwiseConv2D(5, padding="valid", activation="relu")], IMAGE),
    "depthwise, one bit": ([lq.layers.QuantDepthwiseConv2D(3, depthwise_quantizer="ste_sign", padding="same")], IMAGE),
    "separable": ([L.SeparableConv2D(6, 3, strides=2, padding="same", activation="tanh")], IMAGE),
    "separable, one bit": ([lq.layers.QuantSeparableConv2D(6, 3, padding="same", **BINARY)], IMAGE),
    "groups": ([L.Conv2D(4, 3, groups=4, padding="same")], IMAGE),
    "dilation": ([L.Conv2D(5, 3, dilation_rate=2, padding="same")], IMAGE),
    "depthwise, dilation": ([L.DepthwiseConv2D(3, dilation_rate=(2, 2), padding="same")], IMAGE),
    "leaky": ([L.Conv2D(5, 3), L.LeakyReLU(0.1)], IMAGE),
    "prelu": ([L.Conv2D(5, 3), L.PReLU("ones", shared_axes=[1, 2, 3]), L.ELU(0.7)], IMAGE),
    "functions": ([L.Conv2D(5, 3, activation="swish"), L.Activation("gelu"), L.Activation("hard_sigmoid")], IMAGE),
    "pooling of ReLU6": ([L.MaxPooling2D(2), L.ReLU(2.0)], IMAGE),
    "average over the border": ([L.AveragePooling2D(3, 2, padding="same")], IMAGE),
    "global max": ([L.Conv2D(5, 3), L.GlobalMaxPooling2D(), L.Dense(3)], IMAGE),
    "keepdims": ([L.Conv2D(5, 3), L.GlobalAveragePooling2D(keepdims=True), L.Conv2D(3, 1)], IMAGE),
    "norm of the input": ([L.BatchNormalization(), L.Conv2D(5, 3)], IMAGE),
    "norm before padding": ([L.ReLU(), L.BatchNormalization(), L.Conv2D(5, 3, padding="same")], IMAGE),
    "norm behind pooling": ([L.Conv2D(5, 3), L.MaxPooling2D(2), L.BatchNormalization(), L.ReLU(),
                             L.Conv2D(3, 1)], IMAGE),
    "norm of a vector": ([L.GlobalAveragePooling2D(), L.BatchNormalization(), L.Dense(4)], IMAGE),
    "norm before bits": ([L.Dense(12, activation="relu"), L.BatchNormalization(),
                          lq.layers.QuantDense(4, kernel_quantizer="ste_sign")], (9,)),
    "two norms": ([L.Conv2D(5, 3), L.BatchNormalization(), L.BatchNormalization(), L.ReLU()], IMAGE),
    "conv 1-D": ([L.Conv1D(6, 5, padding="same", activation="relu"), L.MaxPooling1D(2),
                  L.Conv1D(4, 3, strides=2)], SIGNAL),
    "causal": ([L.Conv1D(6, 3, padding="causal", dilation_rate=2), L.GlobalMaxPooling1D(), L.Dense(3)], SIGNAL),
    "separable 1-D": ([L.SeparableConv1D(6, 9, padding="same"), L.BatchNormalization(), L.ReLU(),
                       L.AveragePooling1D(3, padding="same"), L.GlobalAveragePooling1D()], SIGNAL),
    "depthwise 1-D": ([L.DepthwiseConv1D(5, padding="same"), L.ZeroPadding1D(1), L.Conv1D(4, 3), L.Flatten(),
                       L.Dense(3)], SIGNAL),
    "the end of a MobileNet": ([L.Conv2D(5, 3, activation="relu"), L.GlobalAveragePooling2D(), L.Reshape((1, 1, 5)),
                                L.Dropout(0.1), L.Conv2D(3, 1), L.Reshape((3,))], IMAGE),
    "global max to 1×1 pixels": ([L.GlobalMaxPooling2D(), L.Reshape((1, 1, 4)), L.Conv2D(3, 1), L.Flatten()], IMAGE),
    "reshape to a row": ([L.Conv2D(5, 3), L.Reshape((-1,)), L.Reshape((210,)), L.Dense(3)], IMAGE),
    "reshape of the input": ([L.Reshape((8, 6, 2)), L.Conv2D(4, 3), L.Flatten(), L.Dense(3)], (96,)),
    "dense on an image": ([L.Conv2D(5, 3), L.Dense(6, activation="relu"), L.Dense(2)], IMAGE),
    "dense on a sequence": ([L.Dense(6, activation="tanh"), L.GlobalMaxPooling1D()], SIGNAL),
    "zeros before max pooling": ([L.Conv2D(5, 3, activation="relu"), L.MaxPooling2D(2, 1), L.ZeroPadding2D(((1, 0),
                                  (2, 1))), L.MaxPooling2D(3, 2)], IMAGE),
    "filters of one channel": ([L.DepthwiseConv2D(3, strides=2, depth_multiplier=3, activation="relu")], (9, 8, 1)),
    "only in training": ([L.GaussianNoise(0.1), L.Conv2D(5, 3), L.GaussianDropout(0.1), L.AlphaDropout(0.1),
                          L.SpatialDropout2D(0.1), L.ActivityRegularization(0.1), L.RandomFlip()], IMAGE),
    "vector": ([L.Dense(7, activation="elu"), L.Dense(3)], (64,)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_layer_computes_what_keras_does_and_a_device_its_integers(case: str) -> None:
    keras.utils.set_random_seed(1)
    layers, shape = CASES[case]
    assert checked(image_net(*layers, shape=shape))


def test_a_batch_norm_goes_into_the_weights_behind_it_where_that_is_exact() -> None:
    assert checked(image_net(L.MaxPooling2D(2), L.BatchNormalization(), L.Conv2D(5, 3))) == ["MaxPool", "Conv"]
    padded = image_net(L.MaxPooling2D(2), L.BatchNormalization(), L.Conv2D(5, 3, padding="same"))
    assert checked(padded) == ["MaxPool", "DepthwiseConv", "Conv"]  # padded zeros stay zeros


def test_a_clipped_relu_behind_a_layer_costs_nothing() -> None:
    net = image_net(L.Conv2D(5, 3), L.BatchNormalization(), L.ReLU(6.0), L.DepthwiseConv2D(3, activation="relu6"))
    assert checked(net) == ["Conv", "DepthwiseConv"]


@pytest.mark.parametrize("count", [2, 3])
def test_channels_are_put_together(count: int) -> None:
    image = L.Input((7, 6, 3))
    parts = [L.Conv2D(2 + i, 3, padding="same", activation="relu6")(image) for i in range(count)]
    net = keras.Model(image, L.Conv2D(4, 1)(L.Concatenate()(parts)))
    assert checked(net).count("Concat") == count - 1


def test_vectors_are_put_together() -> None:
    image = L.Input((5, 6, 3))
    pooled = [L.GlobalAveragePooling2D()(image), L.GlobalMaxPooling2D()(image), L.Dense(4)(L.Flatten()(image))]
    checked(keras.Model(image, L.Dense(3)(L.Concatenate()(pooled))))


def test_three_tensors_are_added() -> None:
    image = L.Input((5, 6, 3))
    checked(keras.Model(image, L.Add()([L.Conv2D(4, 3, padding="same")(image) for _ in range(3)])))


@pytest.mark.parametrize("binary", [False, True])
def test_one_unit_with_a_sigmoid_is_two_classes(binary: bool) -> None:
    quantizer = {"kernel_quantizer": "ste_sign"} if binary else {}
    net = image_net(L.Flatten(), lq.layers.QuantDense(1, activation="sigmoid", **quantizer), shape=(3, 3, 2))
    graph = from_keras(net)
    assert graph.tensors[graph.output].shape == (2,) and graph.weighted()[0].binary is binary
    checked(net, softmax=True)
