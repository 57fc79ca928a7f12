"""model.h5 opens in a fresh process, and never runs code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from flipbit.train import load_model
from flipbit.train.files import replacing, write_json
from flipbit.train.keras_larq import keras, lq
from flipbit.train.model_file import save_model
from flipbit.train.networks import NETWORKS, Layers, build
from flipbit.train.settings import InputError


def images(model: Any, n: int = 3) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, *model.input_shape[1:])).astype(np.float32)


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_every_net_is_saved_and_loaded_with_the_same_output(name: str, tmp_path: Path) -> None:
    model = build(name, (32, 32, 3), 10, Layers(width=0.25, scale="filter"))
    save_model(model, tmp_path / "model.h5")
    loaded = load_model(tmp_path / "model.h5")
    x = images(model)
    assert (loaded(x, training=False).numpy() == model(x, training=False).numpy()).all()


def test_the_stochastic_quantizer_survives_saving(tmp_path: Path) -> None:
    model = build("vgg-small", (8, 8, 1), 10, Layers(forward="stochastic", bits=2, delta=0.5))
    x = images(model)
    model(x, training=True)
    save_model(model, tmp_path / "model.h5")
    loaded = load_model(tmp_path / "model.h5")
    assert (loaded(x, training=False).numpy() == model(x, training=False).numpy()).all()
    # The count of draws came along: both go on with the same random numbers.
    assert (loaded(x, training=True).numpy() == model(x, training=True).numpy()).all()


def test_a_saved_model_opens_in_a_fresh_process(tmp_path: Path) -> None:
    model = build("resnet20", (16, 16, 3), 10, Layers(width=0.5))
    save_model(model, tmp_path / "model.h5")
    np.save(tmp_path / "x.npy", images(model))
    script = (
        "import numpy as np; from flipbit.train import load_model; m = load_model('model.h5'); "
        "np.save('y.npy', m(np.load('x.npy'), training=False).numpy())"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
    assert np.load(tmp_path / "y.npy") == pytest.approx(model(images(model), training=False).numpy(), abs=1e-5)


def test_a_users_own_larq_model_is_loaded(tmp_path: Path) -> None:
    model = keras.Sequential(
        [
            keras.layers.Input((8, 8, 1)),
            lq.layers.QuantConv2D(4, 3, kernel_quantizer="ste_sign", kernel_constraint="weight_clip", use_bias=False),
            keras.layers.BatchNormalization(),
            keras.layers.ReLU(),
            keras.layers.Flatten(),
            keras.layers.Dense(3),
        ]
    )
    save_model(model, tmp_path / "own.h5")
    x = images(model)
    assert (load_model(tmp_path / "own.h5")(x).numpy() == model(x, training=False).numpy()).all()


def rewrite(path: Path, change: Any) -> None:
    with h5py.File(path, "r+") as file:
        config = json.loads(file.attrs["model_config"])
        change(config)
        file.attrs["model_config"] = json.dumps(config)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "model.h5"
    save_model(build("vgg-small", (8, 8, 1), 10, Layers(width=0.25)), path)
    return path


def test_a_lambda_layer_is_refused(tmp_path: Path) -> None:
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Lambda(lambda x: x + 1)])
    model.save(tmp_path / "evil.h5")
    with pytest.raises(InputError, match="refused, as it names Lambda"):
        load_model(tmp_path / "evil.h5")


def test_a_class_or_module_from_elsewhere_is_refused(saved: Path) -> None:
    def change(config: Any) -> None:
        layer = config["config"]["layers"][1]
        layer["class_name"], layer["module"] = "Popen", "subprocess"

    rewrite(saved, change)
    with pytest.raises(InputError, match="refused, as it names Popen, module subprocess"):
        load_model(saved)


def test_a_known_name_in_a_foreign_module_is_refused(saved: Path) -> None:
    rewrite(saved, lambda config: config["config"]["layers"][1].update(module="keras_evil.layers"))
    with pytest.raises(InputError, match="module keras_evil"):
        load_model(saved)


def test_a_file_cut_short_is_refused(saved: Path) -> None:
    saved.write_bytes(saved.read_bytes()[:-2000])
    with pytest.raises(InputError, match="not a readable HDF5 file, or cut short"):
        load_model(saved)


def test_other_files_are_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_model(tmp_path / "none.h5")
    (tmp_path / "text.h5").write_text("hello")
    with pytest.raises(InputError, match="not a readable HDF5"):
        load_model(tmp_path / "text.h5")
    with h5py.File(tmp_path / "weights.h5", "w") as file:
        file["w"] = [1.0]
    with pytest.raises(InputError, match="holds weights but no model"):
        load_model(tmp_path / "weights.h5")


def test_a_failed_write_leaves_the_old_file_and_no_left_over(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"old": 1})

    def fail() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert json.loads(path.read_text()) == {"old": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
