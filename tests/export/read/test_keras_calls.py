"""Layers and models at several places, models whose size is open, and numbers per channel in front or inside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flipbit.export import ExportError, oracle
from flipbit.export.conversion import open_source
from flipbit.export.read.from_keras import from_keras
from flipbit.runtime.image.pixels import Pixels
from flipbit.train.keras_larq import keras
from tests.nets.random_nets import images, stir

L = keras.layers


def agrees(model: Any, pixels: bool = False) -> list[str]:
    """Kinds of operations of a model's graph, which computes what Keras does."""
    graph, x = from_keras(model), images(model)
    x = (x * 128 + 128).astype(np.float32) if pixels else x
    expected = np.asarray(model(x, training=False))
    found = oracle.logits(graph, graph.rescaling(x) if graph.rescaling else x)
    np.testing.assert_allclose(found.reshape(expected.shape), expected, atol=1e-4 * np.abs(expected).max())
    return [op.kind for op in graph]


def complaint(model: Any) -> str:
    with pytest.raises(ExportError) as raised:
        from_keras(model)
    return str(raised.value)


def test_layers_may_be_used_at_several_places() -> None:
    image = L.Input((12, 12, 4))
    relu, pool, twice, norm = L.ReLU(), L.MaxPooling2D(2, 1), L.Conv2D(4, 3), L.BatchNormalization()
    x = pool(relu(norm(twice(image))))
    x = pool(relu(norm(twice(x))))
    net = stir(keras.Model(image, L.Dense(3)(L.Flatten()(x))))
    assert agrees(net) == ["Conv", "MaxPool", "Conv", "MaxPool", "Flatten", "Dense"]


def test_a_model_inside_may_be_used_at_several_places() -> None:
    inner = L.Input((8, 8, 4))
    block = keras.Model(inner, L.Add()([inner, L.Conv2D(4, 3, activation="relu")(L.ZeroPadding2D()(inner))]))
    image = L.Input((8, 8, 4))
    agrees(keras.Model(image, L.GlobalAveragePooling2D()(block(block(image)))))


def test_what_a_layer_gives_elsewhere_is_not_read() -> None:
    image, other = L.Input((8, 8, 3)), L.Input((6, 6, 3))
    shared = L.Conv2D(4, 3)
    shared(other), L.UpSampling2D()(shared(image))
    agrees(keras.Model(image, L.Dense(3)(L.Flatten()(shared(image)))))


def test_a_model_inside_may_leave_its_size_open() -> None:
    inner = L.Input((None, None, 3))
    x = L.ReLU(6.0)(L.Conv2D(4, 3, strides=2, padding="same")(inner))
    x = L.SeparableConv2D(5, 3, padding="same")(L.MaxPooling2D(3, 2, padding="same")(x))
    body = keras.Model(inner, L.GlobalMaxPooling2D()(L.Concatenate()([x, L.Conv2D(2, 1)(x)])))
    image = L.Input((17, 14, 3))
    agrees(keras.Model(image, L.Dense(3)(body(image))))


def test_rescaling_by_channel_or_inside_is_a_norm() -> None:
    image = L.Input((8, 8, 3))
    x = L.Rescaling(1 / 255)(image)
    x = L.Rescaling([2.0, 3.0, 4.0], offset=[-1.0, 0.5, 0.0])(x)
    x = L.Rescaling(0.5, 1.0)(L.ReLU()(L.Conv2D(4, 3)(x)))
    net = keras.Model(image, L.Dense(3)(L.Flatten()(x)))
    agrees(net, pixels=True)
    assert open_source(net).known_pixels == Pixels(0.0, 1 / 255)
    by_channel = keras.Model(image, L.Conv2D(4, 3)(L.Rescaling([2.0, 3.0, 4.0], offset=-1.0)(image)))
    assert agrees(by_channel, pixels=True) == ["Conv"]
    assert open_source(by_channel).known_pixels == Pixels(0.0, 1.0)  # takes pixels as they are
    apart = keras.Model(image, L.Add()([L.Rescaling(0.1)(image), L.Rescaling(0.2, name="other")(image)]))
    assert complaint(apart).startswith("other: reads the input beside another Rescaling")


@pytest.mark.parametrize("shape", [(20,), (9, 6), (6, 5, 4)])
@pytest.mark.parametrize("invert", [False, True])
def test_features_may_be_normalized(shape: tuple[int, ...], invert: bool, tmp_path: Path) -> None:
    layer = L.Normalization(invert=invert)
    layer.adapt(np.random.default_rng(0).normal(3, 2, (50, *shape)))
    features = L.Input(shape)
    net = keras.Model(features, L.Dense(3)(L.Flatten()(layer(features))))
    agrees(net)
    net.save(tmp_path / "net.h5")
    agrees(open_source(tmp_path / "net.h5").model)


def test_numbers_that_differ_within_a_channel_are_refused() -> None:
    features = L.Input((9, 6))
    layer = L.Normalization(axis=1, mean=np.zeros(9), variance=np.ones(9), name="rows")
    assert complaint(keras.Model(features, L.Flatten()(layer(features)))).startswith("rows: Normalization by numbers")


def test_inputs_and_outputs_are_counted_among_the_complaints() -> None:
    one, two = L.Input((8, 8, 3)), L.Input((8, 8, 3))
    x = L.UpSampling2D(name="larger")(L.Concatenate()([one, two]))
    said = complaint(keras.Model([one, two], [L.Flatten()(x), L.LayerNormalization(name="evened")(x)]))
    assert "2 inputs and 2 outputs" in said and "larger: UpSampling2D" in said and "evened: LayerNorm" in said


def test_a_file_with_layers_that_no_device_runs_is_opened_and_all_of_them_are_named(tmp_path: Path) -> None:
    image = L.Input((8, 8, 2))
    x = L.LSTM(3, name="memory")(L.Reshape((4, 8), name="cut")(L.Resizing(4, 4, name="smaller")(image)))
    keras.Model(image, L.UnitNormalization(name="turned")(x)).save(tmp_path / "net.h5")
    with pytest.raises(ExportError) as raised:
        open_source(tmp_path / "net.h5").real()
    for part in (
        "smaller: Resizing",
        "resize the input",
        "cut: a Reshape",
        "memory: LSTM",
        "use Conv1D",
        "turned: Unit",
    ):
        assert part in str(raised.value)


def sigmoid_unit(*between: Any) -> Any:
    x = image = L.Input((6, 6, 2))
    for layer in [L.Conv2D(3, 3, activation="relu"), L.Flatten(), *between]:
        x = layer(x)
    return stir(keras.Model(image, x))


@pytest.mark.parametrize("between", ["activation", "norm", "argument"])
def test_one_unit_with_a_sigmoid_is_two_classes_however_it_is_written(between: str) -> None:
    layers = {
        "argument": [L.Dense(1, activation="sigmoid")],
        "activation": [L.Dense(1), L.Activation("sigmoid")],
        "norm": [L.Dense(1), L.BatchNormalization(), L.Activation("sigmoid")],
    }[between]
    net = sigmoid_unit(*layers)
    graph, x = from_keras(net), images(net)
    found = oracle.logits(graph, x)
    np.testing.assert_allclose(1 / (1 + np.exp(found[:, :1] - found[:, 1:])), net(x), rtol=1e-4)
    assert not open_source(net).real().values


def test_a_sigmoid_that_gives_a_value_is_one_number() -> None:
    net = sigmoid_unit(L.Dense(1, activation="sigmoid"))
    graph = open_source(net, values=True).real()
    x = images(net)
    np.testing.assert_allclose(oracle.logits(graph, x), net(x), rtol=1e-4)
    assert graph.values and graph.tensors[graph.output].shape == (1,)


def test_values_behind_a_softmax_are_refused() -> None:
    image = L.Input((6, 6, 2))
    pixels = keras.Model(image, L.Conv2D(3, 1, activation="softmax")(image))
    with pytest.raises(ExportError, match=r"gives values .6×6×3., but ends in a softmax"):
        open_source(pixels).real()
    classes = keras.Model(image, L.Dense(3, activation="softmax")(L.Flatten()(image)))
    assert not open_source(classes).real().values
    with pytest.raises(ExportError, match=r"gives values .3., but ends in a softmax"):
        open_source(classes, values=True).real()
