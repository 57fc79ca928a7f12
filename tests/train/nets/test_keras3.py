"""Files of Keras 3 open as models of Keras 2 that compute the same, and never run code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from flipbit.train import load_model
from flipbit.train.keras_larq import keras, tf
from flipbit.train.nets.networks import Layers, build
from flipbit.train.settings import InputError

WRITE = """
import sys
import keras
import numpy as np
from keras import layers as L

random = np.random.default_rng(0)

def write(name, model, *kinds):
    for weight in model.weights:
        if "float" in str(weight.dtype):
            values = random.normal(0, 0.4, weight.shape)
            weight.assign(np.abs(values) + 0.2 if "variance" in weight.path else values)
    for layer in model.layers:
        if isinstance(layer, L.Normalization):
            layer.finalize_state()
    for kind in kinds:
        model.save(f"{name}.{kind}")
    x = random.normal(0, 1, (4, *model.input_shape[1:])).astype(np.float32)
    np.savez(f"{name}.npz", x=x, y=np.asarray(model(x, training=False)))

image = keras.Input((12, 12, 3), name="image")
x = L.Conv2D(8, 3, strides=2, padding="same", use_bias=False)(image)
x = L.ReLU(max_value=6, negative_slope=0.1)(L.BatchNormalization(scale=False)(x))
y = L.DepthwiseConv2D(3, padding="same", activation="silu")(x)
y = L.SeparableConv2D(8, 5, padding="same", activation="gelu")(y)
x = L.Concatenate()([L.Add()([x, y]), L.LeakyReLU(0.3)(y), L.ELU(0.7)(y), x + y])
x = L.PReLU(shared_axes=[1, 2])(L.SpatialDropout2D(0.5)(x))
inner = keras.Input((6, 6, 32))
z = L.Conv2D(4, 1)(L.MaxPooling2D(2)(inner))
block = keras.Model(inner, L.BatchNormalization()(z), name="block")
x = keras.Sequential([block, L.Activation("tanh"), L.AveragePooling2D(3, 1)], name="tail")(x)
x = L.Dense(7, activation="leaky_relu")(L.Dense(6, activation="relu6")(L.Flatten()(x)))
x = L.Dense(5, activation="softmax")(x)
write("functional", keras.Model(image, x), "keras", "h5")

signal = keras.Input((16, 2))
x = L.Conv1D(4, 5, padding="same")(signal)
shared = L.Conv1D(4, 3, padding="same", activation="relu")
x = L.GlobalMaxPooling1D()(L.MaxPooling1D(2)(shared(shared(x))))
write("signal", keras.Model(signal, L.Dense(3, name="classes")(x)), "keras")

net = keras.Sequential(
    [
        L.Rescaling(1 / 127.5, -1.0), L.RandomFlip(), L.Conv2D(4, 3, activation="relu6"), L.Activation("hard_silu"),
        L.Conv2D(4, 3, activation="hard_swish"), L.Conv2D(4, 1, activation="hard_sigmoid"),
        L.GlobalAveragePooling2D(), L.Dense(3),
    ]
)
net(np.zeros((1, 8, 8, 1), np.float32))
net.compile("adam", "mse")
write("sequential", net, "keras", "h5")

norm = L.Normalization()
norm.adapt(np.random.default_rng(1).normal(3, 2, (50, 6)))
features = keras.Input((6,))
x = L.Rescaling([1.0, 2.0, 1.0, 1.0, 3.0, 1.0], offset=1.0)(norm(features))
x = L.Normalization(mean=[1.0, 2.0, 3.0], variance=[1.0, 4.0, 9.0], invert=True)(L.Dense(3)(x))
write("features", keras.Model(features, x), "keras", "h5")

class Custom(keras.layers.Layer):
    def call(self, x):
        return x

class Own(keras.Model):
    def __init__(self, **more):
        super().__init__(**more)
        self.dense = L.Dense(3)
    def call(self, x):
        return self.dense(x)

own = Own()
own(np.zeros((1, 4), np.float32))
own.save("subclass.keras")
vector = keras.Input((4,))
keras.Model(vector, L.Lambda(lambda x: x * 2, name="twice")(vector)).save("lambda.keras")
hard = L.Dense(3, activation="celu", name="hard")(vector)
keras.Model(vector, Custom(name="mine")(hard)).save("custom.keras")
keras.Model(vector, keras.ops.sin(vector)).save("operation.keras")
quantized = keras.Sequential([vector, L.Dense(3, name="packed")])
quantized.quantize("int8")
quantized.save("quantized.keras")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nets as Keras 3 itself writes them, and what it answers."""
    folder = tmp_path_factory.mktemp("keras3")
    run = subprocess.run(
        [sys.executable, "-c", WRITE], cwd=folder, capture_output=True, text=True,
        env=os.environ | {"TF_USE_LEGACY_KERAS": "0", "KERAS_BACKEND": "tensorflow"},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return folder


@pytest.mark.parametrize(
    "name",
    ["functional.keras", "functional.h5", "signal.keras", "sequential.keras", "sequential.h5", "features.keras",
     "features.h5"],
)  # fmt: skip
def test_a_net_of_keras_3_answers_as_there(name: str, folder: Path) -> None:
    answers = np.load(folder / name.replace(".keras", ".npz").replace(".h5", ".npz"))
    found = load_model(folder / name)(answers["x"], training=False).numpy()
    assert found == pytest.approx(answers["y"], rel=1e-5, abs=1e-5)


def test_a_net_with_dropout_is_loaded_after_a_trainer_has_asked_for_determinism(folder: Path) -> None:
    tf.config.experimental.enable_op_determinism()  # as a Trainer does, for the rest of the process
    keras.utils.set_random_seed(0)
    next_number = tf.random.uniform(()).numpy()
    keras.utils.set_random_seed(0)
    load_model(folder / "functional.keras")
    assert tf.random.uniform(()).numpy() == next_number  # and the caller's random numbers are left alone


def test_a_keras_file_of_keras_2_and_larq_is_loaded(tmp_path: Path) -> None:
    model = build("resnet8", (8, 8, 3), 10, Layers(width=0.25, scale="filter"))
    model.save(tmp_path / "old.keras")
    x = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype(np.float32)
    assert (load_model(tmp_path / "old.keras")(x).numpy() == model(x, training=False).numpy()).all()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("lambda.keras", "refused, as it holds twice (Lambda: it is code; use layers); read are Keras' layers of conv"),
        ("custom.keras", "refused, as it holds hard (activation celu), mine (Custom); read are"),
        ("operation.keras", "(Sin of keras.ops)"),
        ("subclass.keras", "its description is of 'Own' and not of a functional or sequential model"),
        ("quantized.keras", "packed: was quantized by Keras 3; save the model before"),
    ],
)
def test_what_cannot_be_built_again_is_refused_in_one_line(name: str, expected: str, folder: Path) -> None:
    assert expected in refusal(folder / name)


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as error:
        load_model(path)
    assert str(error.value).startswith(str(path))
    assert len(str(error.value).splitlines()) == 1
    return str(error.value)


def forged(
    source: Path,
    target: Path,
    config: Callable[[Any], None] = lambda config: None,
    weights: Callable[[h5py.File], None] = lambda file: None,
    extra: dict[str, bytes] | None = None,
    compression: int = zipfile.ZIP_STORED,
) -> Path:
    """A copy of a ``.keras`` file with another description, other weights or other records."""
    with zipfile.ZipFile(source) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    description = json.loads(records["config.json"])
    config(description)
    records["config.json"] = json.dumps(description).encode()
    content = target.with_suffix(".part")
    content.write_bytes(records["model.weights.h5"])
    with h5py.File(content, "r+") as file:
        weights(file)
    records["model.weights.h5"] = content.read_bytes()
    with zipfile.ZipFile(target, "w", compression) as archive:
        for name, data in records.items():
            archive.writestr(name, data)
        for name, data in (extra or {}).items():
            archive.writestr(name, data)
    return target


def layer_named(description: Any, name: str) -> Any:
    return next(layer for layer in description["config"]["layers"] if layer["config"]["name"] == name)


KERNEL = "layers/conv1d/vars/0"


def replaced(name: str, **options: Any) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        del file[name]
        file.create_dataset(name, **options)

    return change


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"compression": zipfile.ZIP_DEFLATED}, "refused, as it is compressed"),
        ({"extra": {"../../evil.py": b""}}, "refused, as it holds '../../evil.py' beside"),
        ({"extra": {"assets/words.txt": b""}}, "refused, as it holds 'assets/words.txt' beside"),
        ({"weights": replaced(KERNEL, data=np.zeros((5, 2, 5), "f4"))}, "conv1d/kernel is 5×2×4 by its"),
        ({"weights": replaced(KERNEL, data=np.zeros((5, 2, 4), "i4"))}, "conv1d/kernel holds int32; floating point"),
        ({"weights": replaced(KERNEL, shape=(1 << 40,), dtype="f4")}, "more than the file holds"),
        ({"weights": lambda file: file.move("layers/conv1d", "more")}, "holds no weights of conv1d (at layers/conv1d)"),
        ({"weights": lambda file: file.move("layers/conv1d_1/vars/1", "more")}, "conv1d_1 has 2 arrays of weights"),
        ({"weights": lambda file: file["layers/conv1d/vars"].attrs.update(name="other")}, "are of other, not of"),
        ({"weights": lambda file: file.move("layers", "layer")}, "holds no weights of a model"),
        ({"config": lambda c: c["config"].update(layers="none")}, "its description is of"),
        ({"config": lambda c: c["config"].update(output_layers=["nobody", 0, 0])}, "names nobody as an end"),
        ({"config": lambda c: layer_named(c, "classes")["config"].update(units=1 << 40)}, "weights and the file holds"),
        ({"config": lambda c: layer_named(c, "conv1d")["config"].update(kernel_size=-1)}, "cannot be loaded"),
        ({"config": lambda c: layer_named(c, "conv1d").update(module="os", registered_name="system")}, "(os system)"),
        ({"config": lambda c: layer_named(c, "conv1d").update(inbound_nodes=[{"args": [3]}])}, "is called with 3"),
        ({"config": lambda c: layer_named(c, "conv1d").update(inbound_nodes=[])}, "reads what no layer"),
    ],
)  # fmt: skip
def test_a_forged_file_is_refused_in_one_line(
    options: dict[str, Any], expected: str, folder: Path, tmp_path: Path
) -> None:
    assert expected in refusal(forged(folder / "signal.keras", tmp_path / "forged.keras", **options))


def test_a_description_that_stands_twice_or_nests_deeply_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        path = forged(folder / "signal.keras", tmp_path / "twice.keras", extra={"config.json": b"{}"})
    assert "holds config.json 2 times" in refusal(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", "[" * 200_000)
        archive.writestr("metadata.json", '{"keras_version": "3.9.0"}')
        archive.writestr("model.weights.h5", b"")
    assert "nests deeper" in refusal(path)


def test_a_keras_file_cut_anywhere_is_refused(folder: Path, tmp_path: Path) -> None:
    content = (folder / "signal.keras").read_bytes()
    path = tmp_path / "cut.keras"
    for end in (3, 100, len(content) // 2, len(content) - 30, len(content) - 1):
        path.write_bytes(content[:end])
        assert refusal(path)
    middle = content.index(b"\x89HDF")
    path.write_bytes(content[:middle] + bytes(200) + content[middle + 200 :])  # its CRC is wrong now
    assert "not a whole .keras file" in refusal(path)
