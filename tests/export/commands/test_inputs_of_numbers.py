"""Nets that are fed measurements and not pixels: calibrated on an .npy of inputs as the net takes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flipbit.export.commands import convert as command
from flipbit.runtime.core.model import Model
from flipbit.train.keras_larq import keras
from flipbit.train.nets.model_file import save_model

L = keras.layers


def saved(folder: Path, shape: tuple[int, ...], *layers: object) -> Path:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input(shape), *layers])
    save_model(model, folder / "net.h5")
    x = np.random.default_rng(0).normal(5, 3, (60, *shape)).astype(np.float32)
    np.save(folder / "inputs.npy", x)
    np.save(folder / "answers.npy", model(x, training=False).numpy())
    return folder / "net.h5"


@pytest.mark.parametrize(
    ("shape", "layers"),
    [
        ((20,), [L.Dense(12, activation="relu"), L.BatchNormalization(), L.Dense(3)]),
        ((30, 4), [L.Conv1D(6, 5, activation="relu"), L.GlobalAveragePooling1D(), L.Dense(2)]),
        ((8, 8), [L.Rescaling(0.5, 0.25), L.Flatten(), L.Dense(3)]),
    ],
    ids=["a vector", "a sequence", "rows, rescaled"],
)
def test_measurements_go_through_export_and_the_device_image(
    shape: tuple[int, ...], layers: list[object], tmp_path: Path
) -> None:
    model = saved(tmp_path, shape, *layers)
    options = ["--calibrate", str(tmp_path / "inputs.npy"), "--int8-weights"]
    for kind in ("fbit", "onnx", "tflite"):
        assert command.main(kind, [str(model), *options]) == 0
    device = Model(tmp_path / "net.fbit")
    x, answers = np.load(tmp_path / "inputs.npy"), np.load(tmp_path / "answers.npy")
    x = 0.5 * x + 0.25 if shape == (8, 8) else x  # the rescaling is for who feeds the net
    found = device.predict(x.reshape(-1, *device.input_shape))
    assert np.sqrt(np.mean((found - answers) ** 2)) < 0.1 * answers.std()


@pytest.mark.parametrize(
    ("array", "word"),
    [
        (np.zeros((5, 21), np.float32), "5×21; the net takes N×20"),
        (np.full((5, 20), np.nan), "NaN"),
        (np.array([["a"] * 20]), "holds <U1"),
        (np.zeros((0, 20)), "0×20"),
        (np.float32(1), "one number"),
    ],
    ids=["another length", "NaN", "text", "nothing", "a scalar"],
)
def test_inputs_that_do_not_fit_are_refused(
    array: np.ndarray, word: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    model = saved(tmp_path, (20,), L.Dense(3))
    np.save(tmp_path / "other.npy", array)
    assert command.main("fbit", [str(model), "--calibrate", str(tmp_path / "other.npy"), "--int8-weights"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and word in said and said.count("\n") == 1
    assert not (tmp_path / "net.fbit").exists()
