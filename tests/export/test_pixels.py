"""How pixels become a net's input: stated, read or refused, kept in every file, and used by verify."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipbit.export import ExportError, convert
from flipbit.export.commands import convert as command
from flipbit.export.commands import verify
from flipbit.export.commands.describe import describe
from flipbit.runtime import Model
from flipbit.runtime.image.pixels import Pixels
from flipbit.runtime.image.reader import read_image
from flipbit.train.data import batches as data_sets
from flipbit.train.keras_larq import keras
from flipbit.train.nets.model_file import save_model
from tests.nets.random_nets import random_model, stir

L = keras.layers
STATED = ["--pixel-offset", "0", "--pixel-scale", "1/255"]
numbers = st.floats(-1e6, 1e6).filter(lambda x: abs(x) > 1e-9)


@given(numbers | st.just(0.0) | st.integers(-300, 300), numbers)
def test_a_formula_is_read_as_it_was_written(offset: float, scale: float) -> None:
    assert Pixels.parse(Pixels(offset, scale).formula) == Pixels(offset, scale)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(pixel - 128) * 0.0078125", Pixels(128, 1 / 128)),
        ("(pixel - 0) / 255", Pixels(0, 1 / 255)),
        ("(pixel - -1.5e1) * 2e-3", Pixels(-15, 0.002)),
        ("(pixel - mean image) * 0.0078125", None),
        ("(pixel - 128) / 0", None),
        ("(pixel - 128) * 0", None),
        ("(pixel - 1e999) * 1", None),
        ("pixel - 128", None),
        (None, None),
    ],
)
def test_the_grammar_of_formulas(text: object, expected: Pixels | None) -> None:
    assert Pixels.parse(text) == expected


@given(st.integers(0, 255), numbers, numbers, numbers)
def test_formulas_follow_each_other(pixel: int, scale: float, offset: float, inner: float) -> None:
    first, second = Pixels(3.0, scale), Pixels(offset, inner)
    x = np.array([pixel])
    expected = (first(x) - offset) * inner
    assert first.then(second)(x) == pytest.approx(expected, rel=1e-9, abs=1e-9 * abs(offset * inner))


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A net from elsewhere, trained on digits / 255 and ending in a softmax; nothing beside it says so."""
    folder = tmp_path_factory.mktemp("foreign")
    digits = data_sets.load("digits")
    assert isinstance(digits, data_sets.ImageArrays)
    keras.utils.set_random_seed(0)
    layers = [L.Input((8, 8, 1)), L.Conv2D(8, 3, activation="relu"), L.Flatten(), L.Dense(10, activation="softmax")]
    model = keras.Sequential(layers)
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(digits.x_train / np.float32(255), digits.y_train, epochs=12, verbose=0)
    save_model(model, folder / "net.h5")
    return folder / "net.h5"


OPTIONS = ["--calibrate", "digits", "--int8-weights", "--samples", "100"]


@pytest.mark.parametrize("kind", ["fbit", "onnx", "tflite", "c"])
def test_int8_of_a_net_from_elsewhere_needs_its_pixels(
    foreign: Path, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    arguments = [str(foreign), *OPTIONS, "-o", str(tmp_path / f"net.{kind}")]
    assert command.main(kind, arguments) == 2
    errors = capsys.readouterr().err
    assert "how do pixels 0 … 255 become its input?" in errors
    assert "--pixel-offset O --pixel-scale S" in errors
    assert len(errors.splitlines()) == 1
    assert command.main(kind, [*arguments, "--pixel-scale", "1/255"]) == 2
    assert "--pixel-offset is missing" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    assert command.main(kind, [*arguments, *STATED]) == 0
    assert "the net sees (pixel - 0) * 0.00392156862745098" in capsys.readouterr().out
    if kind != "c":
        assert describe(tmp_path / f"net.{kind}").facts["pixels"] == "(pixel - 0) * 0.00392156862745098"


def test_files_in_real_numbers_need_none(foreign: Path, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    assert command.main("onnx", [str(foreign), "--activations", "float", "--int8-weights", "-o", str(path)]) == 0
    assert "pixels" not in describe(path).facts


def test_python_needs_them_too(foreign: Path) -> None:
    with pytest.raises(ExportError, match=r"pixels=Pixels\(0, 1 / 255\)"):
        convert(foreign, calibrate="digits")
    assert convert(foreign, calibrate="digits", samples=20, pixels=Pixels(0, 1 / 255)).quantized


@pytest.mark.parametrize("kind", ["fbit", "onnx", "tflite"])
def test_python_keeps_them_in_the_file(foreign: Path, kind: str, tmp_path: Path) -> None:
    graph = convert(foreign, calibrate="digits", samples=20, pixels=Pixels(0, 1 / 255))
    path = graph.save(tmp_path / f"net.{kind}")
    assert describe(path).facts["pixels"] == "(pixel - 0) * 0.00392156862745098"


def exported(foreign: Path, folder: Path, *pixels: str) -> list[Path]:
    files = [folder / f"net.{kind}" for kind in ("fbit", "onnx", "tflite")]
    for path in files:
        assert command.main(path.suffix[1:], [str(foreign), *OPTIONS, *pixels, "-o", str(path)]) == 0
    return files


def test_verify_uses_what_the_files_say_and_compares_logits(
    foreign: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    files = exported(foreign, tmp_path, *STATED)
    arguments = [str(foreign), *map(str, files), "--calibrate", "digits", "--samples", "100", "--data", "digits"]
    assert verify.main([*arguments, "--json", str(tmp_path / "r.json")]) == 0
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["disagree"] == []
    assert report["pixels"] == "(pixel - 0) * 0.00392156862745098"
    count = data_sets.load("digits").test_size
    assert report["images"] == count
    for run in report["runs"].values():
        assert run["images"] == count
        assert run["accuracy"] > 0.85
        assert run["agreement"] > 0.99
    assert report["runs"]["Keras"]["largest"] < 1e-4
    assert "pixels as net.fbit says" in capsys.readouterr().out


def test_verify_disagrees_with_files_of_other_pixels(
    foreign: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    files = exported(foreign, tmp_path, "--pixel-offset", "128", "--pixel-scale", "1/128")
    arguments = [str(foreign), *map(str, files), "--calibrate", "digits", "--samples", "100", "--data", "digits"]
    assert verify.main([*arguments, *STATED]) == 1
    errors = capsys.readouterr().err
    for path in files:
        assert f"disagree: {path.name}: says that pixels become (pixel - 128) * 0.0078125" in errors


def test_a_net_that_rescales_its_input_says_it_itself(tmp_path: Path) -> None:
    model = stir(
        keras.Sequential(
            [
                L.Input((8, 8, 1)),
                L.Rescaling(1 / 127.5, offset=-1.0),
                L.Conv2D(4, 3, padding="same", activation="relu"),
                L.Flatten(),
                L.Dense(10),
            ]
        )
    )
    save_model(model, tmp_path / "net.h5")
    assert command.main("fbit", [str(tmp_path / "net.h5"), *OPTIONS]) == 0
    image = read_image(tmp_path / "net.fbit")
    pixels = Pixels.parse(image.metadata["input"])
    assert pixels is not None
    assert (pixels.offset, pixels.scale) == (pytest.approx(127.5), pytest.approx(1 / 127.5))
    digits = data_sets.load("digits")
    assert isinstance(digits, data_sets.ImageArrays)
    expected = model(digits.x_test.astype(np.float32), training=False).numpy()
    found = Model(tmp_path / "net.fbit").predict(digits.x_test)
    assert np.sqrt(np.mean((found - expected) ** 2)) < 0.1 * expected.std()


def refused(*layers: Any) -> str:
    from flipbit.export import from_keras

    with pytest.raises(ExportError) as error:
        from_keras(keras.Sequential([L.Input((8, 8, 3)), *layers]))
    return str(error.value)


def test_rescaling_by_nothing_is_refused() -> None:
    assert "rescales by 0.0" in refused(L.Rescaling(0.0), L.Conv2D(3, 3))


@pytest.mark.parametrize("text", ["[]", '{"input": 3}', '{"input": {"offset": []}}', '{"input": {"scale": 0}}', "{"])
def test_a_run_file_of_nonsense_is_one_line(text: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    save_model(random_model("vgg-small", (8, 8, 1)), tmp_path / "net.h5")
    (tmp_path / "run.json").write_text(text)
    assert command.main("fbit", [str(tmp_path / "net.h5"), "--calibrate", "digits"]) == 2
    errors = capsys.readouterr().err
    assert "run.json: " in errors
    assert len(errors.splitlines()) == 1
