"""The guard of every export: it fires on a wrong net, whoever made it wrong, and leaves no file."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flipbit.export import convert, from_keras, planar
from flipbit.export.check import guard as check
from flipbit.export.commands import convert as command
from flipbit.export.commands.c_source import main as to_c
from flipbit.export.graph import Dense, ExportError, Graph, Reference, Relu, Weighted
from flipbit.export.read import fuse
from flipbit.export.write import onnx_file, tflite_file
from flipbit.runtime.image.pixels import Pixels
from flipbit.train.keras_larq import keras
from flipbit.train.nets.model_file import save_model
from tests.nets.random_nets import images, int8_graph, random_model, stir

L = keras.layers
FORMATS = ("fbit", "onnx", "tflite", "c")


def small() -> Any:
    """Flatten, a residual and a softmax: what an export can get wrong."""
    image = L.Input((6, 5, 2))
    x = L.Conv2D(4, 3, padding="same")(image)
    x = L.Add()([x, L.ReLU()(L.Dropout(0.2)(x))])
    x = L.Dense(8, activation="relu")(L.Flatten()(x))
    return stir(keras.Model(image, L.Dense(3, activation="softmax")(x)))


def graph_of(model: Any) -> Graph:
    return replace(int8_graph(model)[1], samples=images(model, 24, seed=2))


def refused(graph: Graph, folder: Path, kinds: tuple[str, ...] = FORMATS) -> list[str]:
    """What each export says; none leaves a file."""
    found = []
    for kind in kinds:
        with pytest.raises(ExportError) as error:
            graph.save(folder / f"net.{kind}")
        found.append(str(error.value))
        assert len(found[-1].splitlines()) == 1
    assert not list(folder.iterdir())
    return found


def changed(graph: Graph, change: Any) -> Graph:
    """The graph with its last dense layer changed, in integers alone."""
    (*ops, last) = graph.ops
    return graph.with_ops([*ops, change(last)], graph.tensors)


def test_every_format_says_what_was_compared(tmp_path: Path) -> None:
    graph, said = graph_of(small()), []
    for kind in FORMATS:
        graph.save(tmp_path / f"net.{kind}", said.append)
    assert all(line.startswith("checked on 24 images: graph as Keras within") for line in said)
    assert said[0].endswith("NumPy and the C core give the oracle's integers, bit for bit")
    assert said[0] == said[3]
    assert "every operation of the file and the oracle" in said[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.c", "net.fbit", "net.h", "net.onnx", "net.tflite"]


def test_a_wrong_order_of_dense_rows_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of(small())
    monkeypatch.setattr(planar, "orders", lambda graph: {})
    for line in refused(graph, tmp_path, ("fbit", "c")):
        assert "is not the oracle's" in line


def test_fusing_into_a_tensor_that_others_read_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(ops: list[Any], output: str, tensors: dict[str, Any]) -> Any:
        """As if the ReLU were the convolution's only reader."""
        (relu,) = [op for op in ops if isinstance(op, Relu)]
        rest = [replace(op, inputs=tuple(relu.inputs[0] if n == relu.output else n for n in op.inputs)) for op in ops]
        done = [replace(op, relu=True) if op.output == relu.inputs[0] else op for op in rest if op.name != relu.name]
        return fuse.fuse(done, output, tensors)

    # import_module, as flipbit.export binds the name to the function.
    monkeypatch.setattr(import_module("flipbit.export.read.from_keras"), "fuse", careless)
    for line in refused(graph_of(small()), tmp_path):
        assert "the graph does not compute what Keras does: outputs differ by" in line


def test_a_model_of_other_weights_is_found_in_real_numbers_too(tmp_path: Path) -> None:
    graph = from_keras(small())
    other = stir(small(), seed=5)
    graph.reference = Reference("Keras", lambda x: np.asarray(other(x)), "softmax")
    for line in refused(graph, tmp_path, ("onnx", "tflite")):
        assert "does not compute what Keras does" in line


def test_integers_that_lost_the_net_are_found(tmp_path: Path) -> None:
    def drop(op: Weighted) -> Weighted:
        assert op.requantize is not None
        return replace(op, requantize=replace(op.requantize, shift=op.requantize.shift + 6))

    for line in refused(changed(graph_of(small()), drop), tmp_path):
        assert "int8 activations lose the net's answers" in line


def test_writers_that_write_something_else_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model("vgg-small", (8, 8, 1))
    graph = replace(int8_graph(model)[1], samples=images(model, 16))
    monkeypatch.setattr(onnx_file, "SIGNS", -onnx_file.SIGNS)
    assert "steps off the oracle's result" in refused(graph, tmp_path, ("onnx",))[0]
    assert "differ from the graph's" in refused(from_keras(model), tmp_path, ("onnx",))[0]
    table = tflite_file._table
    monkeypatch.setattr(tflite_file, "_table", lambda magnitude, dtype: -table(magnitude, dtype))
    assert "steps off the oracle's result" in refused(graph, tmp_path, ("tflite",))[0]
    assert "differ from the graph's" in refused(from_keras(model), tmp_path, ("tflite",))[0]


def test_an_image_that_holds_other_bits_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flipbit.export.write import fbit

    pack = fbit.pack
    monkeypatch.setattr(fbit, "pack", lambda signs, layout: pack(np.roll(signs, 1, axis=-1), layout))
    model = random_model("vgg-small", (8, 8, 1))
    graph = replace(int8_graph(model)[1], samples=images(model, 16))
    for line in refused(graph, tmp_path, ("fbit", "c")):
        assert "conv1 in NumPy is not the oracle's" in line


def test_a_refusal_keeps_the_file_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.fbit").write_bytes(b"before")
    graph = graph_of(small())
    monkeypatch.setattr(planar, "orders", lambda graph: {})
    with pytest.raises(ExportError):
        graph.save(tmp_path / "net.fbit")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("net.fbit", b"before")]


def test_the_command_refuses_with_status_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    image = L.Input((8, 8, 1))
    x = L.Flatten()(L.Conv2D(4, 3)(image))
    save_model(keras.Model(image, L.Dense(10)(x)), tmp_path / "m.h5")
    arguments = [str(tmp_path / "m.h5"), "--calibrate", "digits", "--samples", "20", "--int8-weights"]
    arguments += ["--pixel-offset", "0", "--pixel-scale", "1/255"]
    assert command.main("fbit", arguments) == 0
    assert "checked on 20 images: graph as Keras within" in capsys.readouterr().out
    (tmp_path / "m.fbit").unlink()
    monkeypatch.setattr(planar, "orders", lambda graph: {})
    for export in (
        lambda: command.main("fbit", arguments),
        lambda: command.main("c", arguments),
        lambda: to_c([*arguments, "--for", "arduino"]),
    ):
        assert export() == 2
        assert "nothing was written" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["m.h5"]


def constant(value: float) -> Any:
    image = L.Input((4, 4, 1))
    x = L.Dense(3, kernel_initializer="zeros", bias_initializer=keras.initializers.Constant(value))(L.Flatten()(image))
    return keras.Model(image, x)


def one_output() -> Any:
    image = L.Input((4, 4, 1))
    return keras.Model(image, L.Dense(1)(L.Flatten()(L.Conv2D(3, 3, activation="relu")(image))))


def dead() -> Any:
    image = L.Input((4, 4, 1))
    x = L.Conv2D(3, 3, bias_initializer=keras.initializers.Constant(-1000.0), activation="relu")(image)
    return keras.Model(image, L.Dense(2)(L.Flatten()(x)))


def sure() -> Any:
    """A softmax of which nothing is left but 0 and 1."""
    image = L.Input((4, 4, 1))
    wide = keras.initializers.RandomNormal(0, 300, seed=1)
    return keras.Model(image, L.Dense(4, activation="softmax", kernel_initializer=wide)(L.Flatten()(image)))


@pytest.mark.parametrize("samples", [1, 20])
@pytest.mark.parametrize("build", [lambda: constant(0.0), lambda: constant(-7.0), one_output, dead, sure])
def test_tiny_nets_and_constant_answers_are_exported(build: Any, samples: int, tmp_path: Path) -> None:
    model = build()
    pixels = np.random.default_rng(0).integers(0, 256, (samples, *model.input_shape[1:]), np.uint8)
    graph = convert(model, calibrate=pixels, pixels=Pixels(128, 1 / 128))
    for kind in FORMATS:
        assert graph.save(tmp_path / f"net.{kind}").is_file()
    for kind in ("onnx", "tflite"):
        convert(model).save(tmp_path / f"real.{kind}")


def test_torch_nets_are_compared_with_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from flipbit.export import from_torch

    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(2, 3, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(36, 4), torch.nn.LogSoftmax(1)
    )
    graph, said = from_torch(net, torch.zeros(1, 2, 6, 5)), []
    graph.save(tmp_path / "net.onnx", said.append)
    assert "graph as PyTorch within" in said[0]
    (*ops, last) = graph.ops
    assert isinstance(last, Dense)
    wrong = graph.with_ops([*ops, replace(last, weights=last.weights[::-1])], graph.tensors)
    with pytest.raises(ExportError, match="does not compute what PyTorch does"):
        wrong.save(tmp_path / "wrong.onnx")


def test_inputs_to_compare_on_are_those_of_calibration_or_cover_the_inputs_range() -> None:
    graph = graph_of(small())
    inputs, seen = check.sample_inputs(graph)
    assert seen
    assert np.array_equal(inputs, images(small(), 24, seed=2))
    made, seen = check.sample_inputs(replace(graph, samples=None))
    assert not seen
    assert made.min() < -0.99
    assert made.max() > 0.98
