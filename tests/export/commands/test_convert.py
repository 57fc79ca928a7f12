"""export/to_*.py as a user meets them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from flipbit.export import ExportError, convert
from flipbit.export.commands import convert as command
from flipbit.export.write.c_file import identifier
from flipbit.runtime.image import reference
from flipbit.runtime.image.reader import read_image
from flipbit.train import run
from flipbit.train.data import batches as data_sets
from flipbit.train.nets.model_file import save_model
from tests.checkout import ROOT
from tests.nets.random_nets import random_model

EXPORT = ROOT / "export"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    arguments = ["--method", "bc", "--epochs", "8", "--width", "0.5", "--no-plot", "--no-tensorboard"]
    assert run.main([*arguments, "-o", str(folder)]) == 0
    return folder / "model.h5"


@pytest.fixture
def model(trained: Path, tmp_path: Path) -> Path:
    """A trained model in a folder of its own."""
    shutil.copy(trained, tmp_path / "model.h5")
    shutil.copy(trained.parent / "run.json", tmp_path / "run.json")
    return tmp_path / "model.h5"


def test_to_fbit_writes_an_image_as_accurate_as_the_model(model: Path, capsys: pytest.CaptureFixture) -> None:
    assert command.main("fbit", [str(model), "--json", str(model.parent / "t.json")]) == 0
    printed = capsys.readouterr().out
    assert "calibrated on 500 images" in printed
    assert f"{model.with_suffix('.fbit')}: " in printed
    image = read_image(model.with_suffix(".fbit"))
    digits = data_sets.load("digits")
    assert isinstance(digits, data_sets.ImageArrays)
    pixels = (digits.x_test.astype(np.int16) - 128).astype(np.int8).transpose(0, 3, 1, 2)
    error = np.mean(reference.logits(image, pixels).argmax(1) != digits.y_test)
    trained = json.loads((model.parent / "run.json").read_text())["result"]["test_error"]
    assert error <= trained + 0.01
    assert image.labels == digits.classes
    table = json.loads((model.parent / "t.json").read_text())
    assert table["bytes"] == len(image.data)
    assert [row["bits"] for row in table["layers"] if row["bits"]] == [1] * 6 + [8]


def test_the_script_runs_from_the_shell(model: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXPORT / "to_fbit.py"), str(model), "-o", str(model.parent / "x.fbit")],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    read_image(model.parent / "x.fbit")


def test_to_c_compiles_and_holds_the_image(model: Path) -> None:
    assert command.main("fbit", [str(model)]) == 0
    assert command.main("c", [str(model)]) == 0
    program = model.parent / "main.c"
    program.write_text(
        '#include <stdio.h>\n#include "model.h"\n'
        "int main(void) { fwrite(model, 1, MODEL_SIZE, stdout); return MODEL_INPUT_SIZE == 64 ? 0 : 1; }\n"
    )
    flags = ["-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
    subprocess.run(["cc", *flags, "main.c", "model.c", "-o", "main"], cwd=model.parent, check=True)
    output = subprocess.run([model.parent / "main"], capture_output=True, check=True).stdout
    assert output == model.with_suffix(".fbit").read_bytes()


@pytest.mark.parametrize(
    ("stem", "name"), [("net", "net"), ("my-net.v2", "my_net_v2"), ("9lives", "model_9lives"), ("é", "_")]
)
def test_c_names_come_from_the_files_name(stem: str, name: str) -> None:
    assert identifier(stem) == name


def test_convert_and_save_by_suffix(model: Path, tmp_path: Path) -> None:
    graph = convert(model, calibrate="digits", samples=50)
    assert graph.save(tmp_path / "a.fbit").is_file()
    assert not convert(model).quantized
    with pytest.raises(ExportError, match="the suffix names the format"):
        graph.save(tmp_path / "a.pb")


def test_a_float_model_needs_a_word_and_then_gives_int8(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    save_model(random_model("vgg-small", (8, 8, 1), quantize="none"), tmp_path / "float.h5")
    pixels = ["--pixel-offset", "128", "--pixel-scale", "1/128"]
    arguments = [str(tmp_path / "float.h5"), "--calibrate", "digits", *pixels]
    assert command.main("fbit", arguments) == 2
    errors = capsys.readouterr().err
    assert "conv1: holds" in errors
    assert "--int8-weights" in errors
    assert command.main("fbit", [*arguments, "--int8-weights"]) == 0
    assert not any(op.binary for op in read_image(tmp_path / "float.fbit").operations)


def test_pixels_can_be_stated(tmp_path: Path) -> None:
    save_model(random_model("vgg-small", (8, 8, 1)), tmp_path / "m.h5")
    arguments = [str(tmp_path / "m.h5"), "--calibrate", "digits", "--pixel-offset", "0", "--pixel-scale", "0.00390625"]
    assert command.main("fbit", arguments) == 0
    image = read_image(tmp_path / "m.fbit")
    source = image.tensors[image.input]
    assert (source.scale, source.zero_point) == (0.00390625, -128)


def test_a_net_trained_with_a_mean_image(tmp_path: Path) -> None:
    arguments = ["--method", "bc", "--input", "mean", "--epochs", "1", "--width", "0.25", "--limit", "200"]
    assert run.main([*arguments, "--no-plot", "--no-tensorboard", "-o", str(tmp_path)]) == 0
    assert command.main("fbit", [str(tmp_path / "model.h5")]) == 0
    image = read_image(tmp_path / "model.fbit")
    assert image.metadata["input"] == "(pixel - mean image) * 0.0078125"
    (tmp_path / "input_mean.npy").unlink()
    assert command.main("fbit", [str(tmp_path / "model.h5")]) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.h5"], "none.h5: no such file"),
        (["run.json"], "not a readable HDF5 file"),
        (["model.h5", "-o", "x.onnx"], "expected a name that ends in .fbit"),
        (["model.h5", "-o", "no/x.fbit"], "no: no such folder"),
        (["model.h5", "--samples", "0"], "--samples 0: at least 1"),
        (["model.h5", "--calibrate", "nothing"], "calibration: --data nothing: no such data set"),
        (["bare/model.h5"], "int8 needs sample images: name a data set with --calibrate"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_input_is_one_clear_line_and_leaves_no_file(
    arguments: list[str], message: str, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(model.parent)
    (model.parent / "bare").mkdir()
    shutil.copy(model, model.parent / "bare" / "model.h5")
    assert command.main("fbit", arguments) == 2
    errors = capsys.readouterr().err
    assert errors.startswith("error: ")
    assert message in errors
    assert len(errors.strip().splitlines()) == 1
    assert not list(model.parent.rglob("*.fbit"))


def test_images_of_another_size_are_refused(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    np.savez(tmp_path / "own.npz", x_train=np.zeros((10, 9, 9), np.uint8), y_train=np.zeros(10, int))
    assert command.main("fbit", [str(model), "--calibrate", str(tmp_path / "own.npz")]) == 2
    assert "calibration images are (9, 9, 1), the net takes (8, 8, 1)" in capsys.readouterr().err


def test_a_truncated_model_is_refused(model: Path, capsys: pytest.CaptureFixture) -> None:
    model.write_bytes(model.read_bytes()[:5000])
    assert command.main("fbit", [str(model)]) == 2
    assert "cut short" in capsys.readouterr().err
