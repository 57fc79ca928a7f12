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

from flipbit.runtime.files import replacing, write_json
from flipbit.train import load_model
from flipbit.train.keras_larq import keras, lq
from flipbit.train.nets.model_file import save_model
from flipbit.train.nets.networks import NETWORKS, Layers, build, quantized_layers
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


def test_half_precision_halves_the_file_and_changes_no_output(tmp_path: Path) -> None:
    model = build("resnet8", (32, 32, 3), 10, Layers())
    kernel = quantized_layers(model)[0].kernel
    tiny = kernel.numpy()
    tiny[0, 0, 0, :3] = [-1e-12, 1e-12, -0.0]  # zero in half precision
    kernel.assign(tiny)
    for half in (False, True):
        save_model(model, tmp_path / f"{half}.h5", half=half)
    sizes = [(tmp_path / f"{half}.h5").stat().st_size for half in (False, True)]
    assert sizes[1] < 0.65 * sizes[0]
    x = images(model)
    loaded = load_model(tmp_path / "True.h5")
    assert (loaded(x).numpy() == model(x).numpy()).all()
    assert loaded.layers[1].kernel.dtype == "float32"


def test_half_precision_leaves_kernels_that_count_with_more_than_signs(tmp_path: Path) -> None:
    model = build("resnet8", (32, 32, 3), 10, Layers(scale="filter"))
    save_model(model, tmp_path / "model.h5", half=True)
    for mine, kept in zip(model.get_weights(), load_model(tmp_path / "model.h5").get_weights(), strict=True):
        assert (mine == kept).all()


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


KERNEL = "model_weights/conv2/conv2/kernel:0"


def forged(path: Path, forge: Any) -> str:
    """What is said of a model whose file was changed by ``forge(file, kernel's shape)``."""
    with h5py.File(path, "r+") as file:
        shape = file[KERNEL].shape
        del file[KERNEL]
        forge(file, shape)
    with pytest.raises(InputError) as error:
        load_model(path)
    assert len(str(error.value).splitlines()) == 1
    return str(error.value)


def test_weights_from_another_file_are_refused(saved: Path) -> None:
    secret = saved.parent / "secret"
    secret.write_bytes(bytes(1 << 20))
    other = saved.parent / "other.h5"
    with h5py.File(other, "w") as file:
        file["w"] = np.zeros(100_000)

    def external(file: Any, shape: Any) -> None:
        file.create_dataset(KERNEL, shape, "f4", external=[(str(secret), 0, h5py.h5f.UNLIMITED)])

    def virtual(file: Any, shape: Any) -> None:
        layout = h5py.VirtualLayout((100_000,), "f8")
        layout[:] = h5py.VirtualSource(str(other), "w", shape=(100_000,))
        file.create_virtual_dataset(KERNEL, layout)

    def linked(link: Any) -> Any:
        def forge(file: Any, shape: Any) -> None:
            file[KERNEL] = link

        return forge

    content = saved.read_bytes()
    for forge, expected in (
        (external, "takes its values from other files"),
        (virtual, "takes its values from other files"),
        (linked(h5py.ExternalLink(str(other), "w")), "is a link to elsewhere (ExternalLink)"),
        (linked(h5py.SoftLink("/model_weights/conv1/conv1/kernel:0")), "is a link to elsewhere (SoftLink)"),
    ):
        saved.write_bytes(content)
        found = forged(saved, forge)
        assert expected in found
        assert KERNEL in found


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"shape": (1 << 32,), "dtype": "f4"}, "more than the file holds"),
        ({"shape": (1 << 32,), "dtype": "f4", "chunks": (1 << 16,)}, "more than the file holds"),
        ({"data": np.zeros(1 << 20, "f4"), "compression": "gzip"}, "is compressed"),
        ({"shape": (3,), "dtype": h5py.string_dtype()}, "and not numbers"),
    ],
    ids=["never written", "never written, in chunks", "packed zeros", "text"],
)
def test_a_small_file_that_promises_much_is_refused(saved: Path, options: dict[str, Any], expected: str) -> None:
    found = forged(saved, lambda file, shape: file.create_dataset(KERNEL, **options))
    assert saved.stat().st_size < 200_000
    assert expected in found


def test_layers_larger_than_the_weights_in_the_file_are_refused_before_they_are_built(saved: Path) -> None:
    def change(config: Any) -> None:
        (dense,) = [layer for layer in config["config"]["layers"] if layer["class_name"].endswith("Dense")]
        dense["config"]["units"] = 1 << 31

    rewrite(saved, change)
    pooling = keras.layers.GlobalAveragePooling2D()
    with pytest.raises(InputError, match=r"its layers have [\d,]+ weights and the file holds"):
        load_model(saved)
    # Building them in a graph has left alone what layers outside of it are made of.
    assert keras.Sequential([keras.Input((4, 4, 3)), pooling]).output_shape == (None, 3)


def test_a_deeply_nested_description_is_refused(saved: Path) -> None:
    for text in ('{"a":' * 200_000 + "1" + "}" * 200_000, "[" * 101 + "]" * 101):
        with h5py.File(saved, "r+") as file:
            del file.attrs["model_config"]
            file.attrs["model_config"] = text
        with pytest.raises(InputError, match="nests deeper than 100 levels"):
            load_model(saved)


def test_groups_that_hold_each_other_end(saved: Path) -> None:
    with h5py.File(saved, "r+") as file:
        file["model_weights/conv2/again"] = file["model_weights"]
    assert load_model(saved).name  # nobody reads it, and the walk ends


def test_whatever_a_description_says_is_one_line(saved: Path) -> None:
    for at, value in (("kernel_size", -3), ("filters", "many"), ("filters", None), ("padding", ["same"])):
        rewrite(saved, lambda config, at=at, value=value: config["config"]["layers"][1]["config"].update({at: value}))
        with pytest.raises(InputError) as error:
            load_model(saved)
        assert len(str(error.value).splitlines()) == 1


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
