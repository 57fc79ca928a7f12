"""The order of flattened values on a device, and fusing beside second readers: random nets against Keras."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flipbit.export import oracle
from flipbit.export.check.guard import as_the_model_ends
from flipbit.export.check.runners import core_runner, file_runner
from flipbit.export.graph import ExportError, Graph
from flipbit.export.planar import orders
from flipbit.export.read.from_keras import from_keras
from flipbit.export.write.fbit import fbit_bytes, write_fbit
from flipbit.train.keras_larq import keras
from tests.nets.random_graphs import random_graph
from tests.nets.random_nets import images, int8_graph, stir

L = keras.layers


def agrees(model: Any, graph: Graph, x: np.ndarray) -> None:
    """The graph in real numbers computes what Keras does; a softmax is compared by its logarithm."""
    expected = np.asarray(model(x, training=False), np.float64)
    assert graph.reference is not None
    if graph.reference.ends:
        expected = np.log(np.maximum(expected, 1e-30))
    found = as_the_model_ends(oracle.logits(graph, x), graph.reference.ends)
    assert np.abs(found - expected).max() <= 1e-4 * max(np.abs(expected).max(), 0.01)


def same_bits(graph: Graph, x: np.ndarray, path: Path) -> None:
    """Every tensor of the image, in NumPy and in the C core, is the oracle's."""
    write_fbit(graph, path)
    expected = oracle.run(graph, x)
    for run in (file_runner(path, graph), core_runner(path, graph), core_runner(path, graph, True)):
        found = run(x)
        assert graph.output in found or graph.ops[-1].kind == "Flatten"
        for name, value in found.items():
            assert np.array_equal(value, expected[name]), name


@pytest.mark.parametrize("start", range(0, 60, 10))
def test_random_nets_compute_what_keras_does_and_give_the_same_bits_on_a_device(start: int, tmp_path: Path) -> None:
    written = 0
    for seed in range(start, start + 10):
        model = random_graph(seed)
        x = images(model, 4)
        graph, integers = int8_graph(model)
        agrees(model, graph, x)
        try:
            fbit_bytes(integers)
        except ExportError as error:
            assert "in two orders on a device" in str(error) or "around a kernel" in str(error)  # noqa: PT017
            continue
        same_bits(integers, x, tmp_path / "a.fbit")
        written += 1
    assert written >= 4


def flattened(channels: int = 4) -> tuple[Any, Any, Any]:
    image = L.Input((5, 3, 2))
    return (image, *(L.Flatten()(L.Conv2D(channels, 3, padding="same", activation="relu")(image)) for _ in "ab"))


def two_flattens() -> Any:
    image, a, b = flattened()
    return keras.Model(image, L.Dense(3)(L.Add()([a, b])))


def flatten_and_dense() -> Any:
    image, a, b = flattened()
    return keras.Model(image, L.Dense(3)(L.ReLU()(L.Add()([a, L.Dense(60)(b)]))))


def dense_read_twice() -> Any:
    image, a, b = flattened()
    units = L.Dense(60)(b)
    return keras.Model(image, L.Dense(3)(L.Add()([L.Dense(60)(units), L.Add()([a, units])])))


def flatten_relu_dropout() -> Any:
    image = L.Input((5, 3, 2))
    x = L.Flatten()(L.MaxPooling2D(2)(L.Conv2D(4, 2)(image)))
    return keras.Model(image, L.Dense(3)(L.Dropout(0.2)(L.ReLU()(x))))


def one_pixel_as_output() -> Any:
    image = L.Input((5, 3, 2))
    return keras.Model(image, L.Flatten()(L.Conv2D(7, (5, 3))(image)))


def one_channel_as_output() -> Any:
    image = L.Input((5, 3, 2))
    return keras.Model(image, L.Flatten()(L.Conv2D(1, 3, padding="same")(image)))


@pytest.mark.parametrize(
    "build",
    [
        two_flattens,
        flatten_and_dense,
        dense_read_twice,
        flatten_relu_dropout,
        one_pixel_as_output,
        one_channel_as_output,
    ],
)
def test_flattened_values_keep_their_meaning(build: Any, tmp_path: Path) -> None:
    model = build()
    x = images(model, 6)
    graph, integers = int8_graph(model)
    agrees(model, graph, x)
    same_bits(integers, x, tmp_path / "a.fbit")


def test_dense_layers_write_in_the_order_of_the_flatten_they_are_added_to() -> None:
    graph, _ = int8_graph(flatten_and_dense())
    (add,) = [op for op in graph if op.kind == "Add"]
    places = orders(graph)
    assert all(np.array_equal(places[name], places[add.output]) for name in add.inputs)
    assert places[add.output][1] == 4  # the second value of the first plane is the next pixel's


def flatten_as_output() -> Any:
    image, a, _ = flattened()
    return keras.Model(image, a)


def flattens_of_two_shapes() -> Any:
    image = L.Input((4, 4, 4))
    tall = L.Flatten()(L.MaxPooling2D(2)(image))  # 2×2×4
    flat = L.Flatten()(L.Conv2D(1, 1)(image))  # 4×4×1
    return keras.Model(image, L.Dense(3)(L.Add(name="sum")([tall, flat])))


def flatten_and_average() -> Any:
    image = L.Input((2, 2, 4))
    return keras.Model(
        image, L.Dense(2)(L.Add(name="sum")([L.Flatten()(image), L.GlobalAveragePooling2D()(L.Conv2D(16, 1)(image))]))
    )


@pytest.mark.parametrize(
    ("build", "name"),
    [(flatten_as_output, "flatten"), (flattens_of_two_shapes, "sum"), (flatten_and_average, "sum")],
)
def test_an_order_that_no_device_has_is_refused_by_name(build: Any, name: str, tmp_path: Path) -> None:
    model = build()
    graph, integers = int8_graph(model)
    agrees(model, graph, images(model))
    with pytest.raises(ExportError, match=rf"{name}\w*: meets values in two orders on a device, .*Dense layer between"):
        integers.save(tmp_path / "a.fbit")
    assert not list(tmp_path.iterdir())
    integers.save(tmp_path / "a.onnx")  # where nothing is reordered
    integers.save(tmp_path / "a.tflite")


@pytest.mark.parametrize("idle", [lambda: L.Dropout(0.5), lambda: L.Activation("linear")], ids=["dropout", "linear"])
@pytest.mark.parametrize("reader", ["relu", "through"])
def test_a_relu_behind_a_layer_that_does_nothing_changes_no_other_readers_tensor(idle: Any, reader: str) -> None:
    image = L.Input((6, 6, 2))
    x = L.Conv2D(3, 3, padding="same")(image)
    y = L.ReLU()(idle()(x))
    second = idle()(x) if reader == "through" else x
    model = keras.Model(image, L.Dense(2)(L.GlobalAveragePooling2D()(L.Add()([second, y]))))
    agrees(model, from_keras(model), images(model))


def test_a_batch_norm_behind_a_layer_that_does_nothing_is_a_layer_of_its_own_beside_another_reader() -> None:
    image = L.Input((6, 6, 2))
    x = L.Conv2D(3, 3, padding="same")(image)
    y = L.BatchNormalization(name="norm")(L.Dropout(0.5)(x))
    model = stir(keras.Model(image, L.GlobalAveragePooling2D()(L.Add()([x, y]))))
    graph = from_keras(model)
    assert [op.kind for op in graph] == ["Conv", "DepthwiseConv", "Add", "AveragePool"]
    agrees(model, graph, images(model))
