"""Larq's binary activations: what is read of them computes what Larq does, and what cannot be is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flipbit.export import oracle
from flipbit.export.calibrate import calibrate
from flipbit.export.graph import Binarize, BitConv, BitPool, ExportError, Graph, Tensor
from flipbit.export.quantize import quantize_graph
from flipbit.export.read.from_keras import from_keras
from flipbit.export.write.fbit import fbit_bytes
from flipbit.runtime import Model
from flipbit.runtime.image import reference
from flipbit.train.keras_larq import keras, lq
from tests.nets.random_nets import images, stir

L = keras.layers
Q = {"kernel_quantizer": "ste_sign", "kernel_constraint": "weight_clip"}
SHAPE = (8, 9, 4)


def conv(filters: int, kernel: int = 3, quantizer: Any = "ste_sign", **options: Any) -> Any:
    return lq.layers.QuantConv2D(filters, kernel, input_quantizer=quantizer, **{**Q, **options})


def net(*layers: Any) -> Any:
    return stir(keras.Sequential([L.Input(SHAPE), *layers, L.Flatten(), L.Dense(3)]))


def graph_of(model: Any) -> Graph:
    """Its graph, which gives Keras' numbers; in integers C and NumPy give the oracle's."""
    graph, x = from_keras(model), images(model, 16)
    expected = model(x, training=False).numpy()
    assert np.abs(oracle.logits(graph, x) - expected).max() <= 1e-4 * np.abs(expected).max()
    integers = quantize_graph(graph, calibrate(graph, x), (1 / 128, 0))
    core = Model(fbit_bytes(integers))
    values = oracle.run(integers, x)
    x = x.reshape(len(x), *integers.tensors[integers.input].shape)  # a sequence is an image of height 1
    np.testing.assert_array_equal(core.predict(x, raw=True), values[integers.output])
    planes = np.moveaxis(values[integers.input], -1, 1)
    np.testing.assert_array_equal(reference.run(core.image, planes)[core.image.output], values[integers.output])
    return integers


def kinds(graph: Graph) -> list[str]:
    return [op.kind for op in graph]


@pytest.mark.parametrize("quantizer", ["ste_sign", "approx_sign", lq.quantizers.SwishSign(), lq.quantizers.SteSign()])
def test_input_quantizers_that_give_a_sign(quantizer: Any) -> None:
    graph = graph_of(net(conv(6, quantizer=quantizer, padding="same"), L.BatchNormalization()))
    assert kinds(graph) == ["Binarize", "BitConv", "Flatten", "Dense"]


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("stride", [1, 2, (2, 1)])
@pytest.mark.parametrize("kernel", [1, 2, 3, 5])
def test_padding_of_zeros_and_of_ones_at_every_border(value: float, stride: Any, kernel: int) -> None:
    graph = graph_of(net(conv(5, kernel, padding="same", strides=stride, pad_values=value)))
    (op,) = [op for op in graph if isinstance(op, BitConv)]
    assert op.ones == (value == 1.0 and any(op.padding))


def test_a_batch_norm_before_the_sign_becomes_thresholds_of_both_directions() -> None:
    graph = graph_of(net(L.Conv2D(40, 3), L.BatchNormalization(), conv(6), L.BatchNormalization()))
    assert kinds(graph) == ["Conv", "Binarize", "BitConv", "Flatten", "Dense"]
    (op,) = [op for op in graph if isinstance(op, Binarize)]
    assert op.inverted is not None and 0 < op.inverted.sum() < 40
    assert len(np.unique(op.threshold)) > 10


def test_thresholds_are_where_the_sign_of_the_int8_value_changes() -> None:
    gain, offset = np.array([1.0, -2.0, 0.5, 0.0, 0.0, 1e-9]), np.array([0.3, 0.3, 0.0, 1.0, -1.0, 5.0])
    op = Binarize("s", ("x",), "s", gain=gain, offset=offset)
    real = Graph("x", "s", [op], {name: Tensor(name, (1, 1, 6)) for name in "xs"})
    integers = quantize_graph(real, {}, (0.1, 17))
    every = np.arange(-128, 128).astype(np.int8)[:, None].repeat(6, 1).reshape(256, 1, 1, 6)
    found = oracle.apply(integers, integers.ops[0], every)
    values = gain * (0.1 * (every.astype(float) - 17)) + offset
    np.testing.assert_array_equal(found, np.where(values >= 0, 1, -1))


def test_bi_real_blocks_keep_an_int8_shortcut_around_the_signs() -> None:
    image = L.Input(SHAPE)
    x = L.BatchNormalization()(L.Conv2D(8, 3, padding="same")(image))
    for _ in range(2):
        x = L.Add()([L.BatchNormalization()(conv(8, padding="same", pad_values=1.0)(x)), x])
    model = stir(keras.Model(image, L.Dense(3)(L.GlobalAveragePooling2D()(x))))
    assert kinds(graph_of(model)) == ["Conv", *["Binarize", "BitConv", "Add"] * 2, "AveragePool", "Dense"]


def test_quick_net_blocks_with_a_relu_before_the_norm() -> None:
    image = L.Input(SHAPE)
    x = L.BatchNormalization()(L.Conv2D(8, 3, padding="same")(image))
    for _ in range(2):
        y = conv(8, padding="same", pad_values=1.0, activation="relu")(x)
        x = L.Add()([L.BatchNormalization()(y), x])
    model = stir(keras.Model(image, L.Dense(3)(L.GlobalAveragePooling2D()(x))))
    graph = graph_of(model)
    assert kinds(graph) == ["Conv", *["Binarize", "BitConv", "DepthwiseConv", "Add"] * 2, "AveragePool", "Dense"]


def test_a_vgg_of_signs_with_pooling_before_the_norm_and_dense_layers_of_signs() -> None:
    dense = {"input_quantizer": "ste_sign", "kernel_quantizer": "magnitude_aware_sign"}
    model = stir(keras.Sequential([
        L.Input(SHAPE), L.Conv2D(8, 3, padding="same"), L.MaxPooling2D(2), L.BatchNormalization(),
        conv(20, padding="same"), L.BatchNormalization(scale=False), L.Flatten(),
        lq.layers.QuantDense(7, **dense), L.BatchNormalization(), lq.layers.QuantDense(4, **dense),
    ]))  # fmt: skip
    graph = graph_of(model)
    assert kinds(graph) == ["Conv", "MaxPool", *["Binarize", "BitConv"] * 3]
    assert [op.size for op in graph if isinstance(op, BitConv)] == [(3, 3), (4, 4), (1, 1)]


def test_signs_of_what_a_max_pooling_gives_are_taken_before_it() -> None:
    """As Larq's BinaryNet: BatchNorms without a gain between pooling and sign, and windows over the border."""
    norm = L.BatchNormalization(scale=False)
    pooled = [L.MaxPooling2D(3, 2, padding="same"), norm, conv(20, padding="same"), L.MaxPooling2D(2)]
    graph = graph_of(net(L.Conv2D(18, 3, padding="same"), *pooled, conv(5, 2)))
    signs = ["Binarize", "BitPool", "BitConv"]
    assert kinds(graph) == ["Conv", *signs, *signs, "Flatten", "Dense"]
    assert [op.padding for op in graph if isinstance(op, BitPool)] == [(0, 1, 1, 1), (0, 0, 0, 0)]
    (first, *_) = [op for op in graph if isinstance(op, Binarize)]
    assert len(np.unique(first.threshold)) > 5


def test_a_max_pooling_keeps_its_int8_where_more_than_a_sign_reads_it_or_a_gain_is_negative() -> None:
    image = L.Input(SHAPE)
    x = L.MaxPooling2D(2)(L.Conv2D(8, 3, padding="same")(image))
    x = L.Add()([conv(8, padding="same")(x), x])
    model = stir(keras.Model(image, L.Dense(3)(L.GlobalAveragePooling2D()(x))))
    assert kinds(graph_of(model)) == ["Conv", "MaxPool", "Binarize", "BitConv", "Add", "AveragePool", "Dense"]
    model = net(L.Conv2D(8, 3), L.MaxPooling2D(2), L.BatchNormalization(), conv(5, 2))
    (norm,) = [layer for layer in model.layers if isinstance(layer, L.BatchNormalization)]
    for gain, expected in ((-1, ["MaxPool", "Binarize"]), (1, ["Binarize", "BitPool"])):
        norm.gamma.assign(np.resize([0.5, gain], 8))
        assert kinds(graph_of(model))[1:3] == expected


def test_signs_are_pooled_as_bits_and_stay_signs_behind_it() -> None:
    sign = lq.quantizers.SteSign
    expected = ["Conv", "Binarize", "BitPool", "BitConv", "Flatten", "Dense"]
    for quantizer in (None, "ste_sign"):  # the sign of a sign
        layers = [L.Conv2D(18, 3), sign(), L.MaxPooling2D(2), conv(5, 2, quantizer=quantizer)]
        assert kinds(graph_of(net(*layers))) == expected
    for pool in (L.GlobalMaxPooling2D(), L.MaxPooling2D(2)):
        dense = lq.layers.QuantDense(7, input_quantizer="ste_sign", kernel_quantizer="ste_sign")
        model = stir(keras.Sequential([L.Input(SHAPE), L.Conv2D(18, 3), sign(), pool, L.Flatten(), dense]))
        assert kinds(graph_of(model)) == ["Conv", "Binarize", "BitPool", "BitConv"]
    graph_of(net(L.Conv2D(6, 3), lq.quantizers.SteHeaviside(), L.MaxPooling2D(2), conv(5, 2, quantizer=None)))


def test_a_sequence_of_signs_is_pooled_as_an_image_of_height_1() -> None:
    q = {"input_quantizer": "ste_sign", "kernel_quantizer": "ste_sign"}
    norm = L.BatchNormalization(scale=False)
    layers = [L.Conv1D(18, 3), L.MaxPooling1D(2), norm, lq.layers.QuantConv1D(7, 3, **q), L.Flatten(), L.Dense(3)]
    graph = graph_of(stir(keras.Sequential([L.Input((16, 4)), *layers])))
    assert [op.size for op in graph if isinstance(op, BitPool)] == [(1, 2)]


def test_heaviside_is_half_a_sign_where_nothing_is_padded() -> None:
    graph_of(net(L.Conv2D(6, 3), conv(5, quantizer="ste_heaviside")))
    graph_of(net(L.Conv2D(6, 3), conv(5, quantizer="ste_heaviside", padding="same", pad_values=1.0)))
    with pytest.raises(
        ExportError, match=r"ste_heaviside with padding of 0.*padding='valid', pad_values=1 or ste_sign"
    ):
        from_keras(net(L.Conv2D(6, 3), conv(5, quantizer="ste_heaviside", padding="same")))


def test_zeros_padded_before_the_sign_are_ones_and_those_behind_it_are_zeros() -> None:
    before = graph_of(net(L.Conv2D(6, 3), L.ZeroPadding2D(1), conv(5)))
    behind = graph_of(net(L.Conv2D(6, 3), lq.quantizers.SteSign(), L.ZeroPadding2D(1), conv(5, quantizer=None)))
    assert [op.ones for graph in (before, behind) for op in graph if isinstance(op, BitConv)] == [True, False]


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ([conv(5, quantizer="ste_tern")], "input_quantizer SteTern; supported are SteSign"),
        ([conv(5, kernel_quantizer=None)], r"reads signs, but its weights are not binary.*kernel_quantizer='ste_sign'"),
        ([conv(5, padding="same", pad_values=-1.0)], "pad_values -1; 0 is supported, and 1 where signs are read"),
        ([lq.quantizers.SteSign(), L.AveragePooling2D(2), conv(5, quantizer=None)], r"AveragePool of signs.*of int8"),
        ([lq.quantizers.SteSign(), L.MaxPooling2D(2), L.Flatten(), L.Dense(5)], "reads signs, but its weights are not"),
        ([L.ZeroPadding2D(1), conv(5, padding="same")], "pad with different signs; use one of them"),
    ],
)
def test_what_cannot_be_is_refused_with_its_layer_and_what_to_do(layers: list[Any], words: str) -> None:
    with pytest.raises(ExportError, match=words):
        from_keras(net(*layers))
