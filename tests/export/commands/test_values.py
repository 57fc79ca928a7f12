"""A net that gives values through every command: exported, compared by its errors, run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from flipbit.export import conversion
from flipbit.export.commands import convert as command
from flipbit.export.commands import verify
from flipbit.export.commands.describe import describe
from flipbit.export.write.c_file import header
from flipbit.export.write.c_project import project_files
from flipbit.runtime import finetune
from flipbit.runtime.commands import cli
from flipbit.runtime.core.model import Model
from flipbit.runtime.errors import ArgumentError
from flipbit.runtime.image.pixels import Pixels
from flipbit.train import run
from flipbit.train.keras_larq import keras
from tests.checkout import ROOT
from tests.nets.bars import bars, write_bars

FORMATS = ("fbit", "onnx", "tflite")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("values")
    write_bars(folder)
    arguments = ["--data", str(folder / "bars.npz"), "--net", f"{folder}/net.py:build", "-o", str(folder / "run")]
    assert run.main(["--method", "bc", "--epochs", "4", *arguments, "--no-plot", "--no-tensorboard"]) == 0
    for kind in FORMATS:
        assert command.main(kind, [str(folder / "run" / "model.h5")]) == 0
    return folder


def test_files_agree_by_the_errors_of_their_values(exported: Path, capsys: pytest.CaptureFixture) -> None:
    report, net = exported / "report.json", exported / "run"
    files = [str(net / f"model.{kind}") for kind in FORMATS]
    assert verify.main([str(net / "model.h5"), *files, "--json", str(report)]) == 0
    shown = capsys.readouterr().out
    assert "RMSE" in shown and "accuracy" not in shown and "top-1" not in shown
    runs = json.loads(report.read_text())["runs"]
    x, y = bars(120, seed=1)
    apart = Model(net / "model.fbit").predict(x) - y
    for name in ("oracle, int8", "model.fbit", "model.fbit, C core"):
        assert runs[name]["rmse"] == pytest.approx(np.sqrt(np.mean(apart**2)), rel=1e-5)
        assert runs[name]["mae"] == pytest.approx(np.mean(np.abs(apart)), rel=1e-5)
    step = Model(net / "model.fbit").image.tensors[-1].scale
    for name in runs:
        assert abs(runs[name]["rmse"] - runs["Keras"]["rmse"]) < step


def test_every_file_says_that_it_gives_values(exported: Path) -> None:
    net = exported / "run"
    model = Model(net / "model.fbit")
    assert model.values and model.image.metadata["output"] == "values" and model.labels == []
    assert describe(net / "model.fbit").facts["output"].startswith("values, scale ")
    found = {p.key: p.value for p in onnx.load(net / "model.onnx").metadata_props}
    assert found["output"] == "values"
    assert b"output.txt" in (net / "model.tflite").read_bytes()
    data = (net / "model.fbit").read_bytes()
    scale = np.float32(re.search(r"#define NET_OUTPUT_SCALE (\S+)f", header(data, "net"))[1])  # type: ignore[index]
    assert scale == np.float32(step_of(model)) and "values, each (output - NET_OUTPUT_ZERO_POINT)" in header(
        data, "net"
    )
    sketch = project_files(data, "net", "arduino", np.zeros(model.input_shape, np.uint8))
    assert '"largest output: "' in sketch["examples/classify/classify.ino"]


def test_a_file_of_values_that_comes_back_gives_values(exported: Path, tmp_path: Path) -> None:
    back = tmp_path / "back.fbit"
    assert command.main("fbit", [str(exported / "run" / "model.onnx"), "-o", str(back)]) == 0
    x, _ = bars(20)
    model = Model(back)
    assert model.values
    assert np.abs(model.predict(x) - Model(exported / "run" / "model.fbit").predict(x)).max() <= 3 * step_of(model)


def step_of(model: Model) -> float:
    return model.image.tensors[model.image.output].scale


def test_run_prints_values_and_errors(exported: Path, capsys: pytest.CaptureFixture) -> None:
    net, data = str(exported / "run" / "model.fbit"), str(exported / "bars.npz")
    assert cli.main(["run", net, data, "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)
    x, y = bars(120, seed=1)
    values = Model(net).predict(x)
    assert result["rmse"] == pytest.approx(np.sqrt(np.mean((values - y) ** 2)), rel=1e-5)
    assert np.allclose([row["values"] for row in result["each"]], values)
    assert np.allclose([row["wanted"] for row in result["each"]], y)
    assert cli.main(["run", net, data, "--each", "--limit", "2"]) == 0
    assert f"{values[0][0]:.4g}, {values[0][1]:.4g}" in capsys.readouterr().out
    np.save(exported / "one.npy", x[0])
    assert cli.main(["run", net, str(exported / "one.npy")]) == 0
    assert "RMSE" not in capsys.readouterr().out
    assert cli.main(["compare", net, net, "--data", data]) == 0
    assert "RMSE: " in capsys.readouterr().out


def test_what_classes_can_do_and_values_cannot_is_refused(exported: Path, capsys: pytest.CaptureFixture) -> None:
    net, data = exported / "run" / "model.fbit", str(exported / "bars.npz")
    with pytest.raises(ArgumentError, match="use predict"):
        Model(net).classify(bars(1)[0])
    x, _ = bars(30)
    np.savez(exported / "classes.npz", x_train=x, y_train=np.arange(30) % 2, x_test=x, y_test=np.arange(30) % 2)
    np.savez(exported / "three.npz", x=x, y=np.ones((30, 3)))
    tries: list[tuple[Callable[[list[str]], int], list[object], str]] = [
        (finetune.main, [net, "--data", data, "--target", "sim:nrf52840-dk"], "classes"),
        (cli.main, ["run", net, exported / "three.npz"], "3 values"),
        (cli.main, ["run", ROOT / "models" / "digits-vgg-small" / "model.fbit", data], "values"),
        (verify.main, [net.with_name("model.h5"), net, "--data", exported / "classes.npz"], "labels"),
    ]
    for main, words, word in tries:
        assert main([str(each) for each in words]) == 2
        said = capsys.readouterr().err
        assert said.startswith("error: ") and said.count("\n") == 1 and word in said, said


def test_a_net_of_one_unit_or_an_image_gives_values_others_if_it_is_said() -> None:
    layers = keras.layers

    def net(*ends: object) -> object:
        return keras.Sequential([keras.Input((8, 8, 1)), layers.Conv2D(4, 3), *ends])

    def gives_values(model: object, **said: bool) -> bool:
        return conversion.convert(model, pixels=Pixels(128, 1 / 128), **said).values

    assert gives_values(net(layers.Flatten(), layers.Dense(1)))
    assert gives_values(net(layers.Conv2D(2, 1)))
    assert not gives_values(net(layers.Flatten(), layers.Dense(1, activation="sigmoid")))  # two classes
    assert not gives_values(net(layers.Flatten(), layers.Dense(3)))
    assert gives_values(net(layers.Flatten(), layers.Dense(3)), values=True)


def test_values_of_very_different_sizes_are_pointed_out(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten(), keras.layers.Dense(2)])
    kernel, bias = model.layers[-1].get_weights()
    model.layers[-1].set_weights([kernel * [1000, 0.01], bias])
    images = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 1), np.uint8)
    graph = conversion.convert(model, images, pixels=Pixels(128, 1 / 128), values=True)
    said: list[str] = []
    graph.save(tmp_path / "net.fbit", said.append)
    assert "output 1 varies by less than" in said[0]
