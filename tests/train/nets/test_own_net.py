"""--net with a user's own architecture: a function, a model file, a description; and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from flipbit.train import Settings, run
from flipbit.train.checkpoint import Checkpoint
from flipbit.train.keras_larq import keras
from flipbit.train.loop import train
from flipbit.train.nets.model_file import load_model, save_model
from flipbit.train.trainer import Watcher

FAST = ["--method", "bc", "--epochs", "2", "--limit", "256", "--no-plot", "--no-tensorboard"]
CODE = """
from flipbit.train.keras_larq import keras

L = keras.layers

def plain(shape, classes):
    image = keras.Input(shape)
    x = L.Conv2D(8, 3, padding="same", use_bias=False, name="a")(image)
    x = L.ReLU(name="a_relu")(L.BatchNormalization(name="a_bn")(x))
    x = L.Conv2D(16, 3, strides=2, activation="relu", name="b")(x)
    return keras.Model(image, L.Dense(classes, activation="softmax", name="c")(L.Flatten(name="f")(x)))

def in_a_row(shape, classes):
    return keras.Sequential([L.Input(shape), L.Conv2D(8, 3, name="a"), L.Flatten(name="f"), L.Dense(classes, name="c")])

def with_layers(shape, classes, layers):
    image = keras.Input(shape)
    x = layers.conv(image, "a", layers.filters(16), stride=2)
    x = L.GlobalAveragePooling2D(name="average")(x)
    return keras.Model(image, layers.dense(x, "logits", classes, last=True))

def broken(shape, classes):
    return shape[7]

def number(shape, classes):
    return 7

def too_many(shape, classes):
    return in_a_row(shape, classes + 1)

def code(shape, classes):
    image = keras.Input(shape)
    return keras.Model(image, L.Dense(classes)(L.Flatten()(L.Lambda(lambda x: x)(image))))

def dense(shape, classes):
    image = keras.Input(shape)
    return keras.Model(image, L.Dense(classes)(L.Flatten()(image)))

def quantized(shape, classes, layers):
    from flipbit.train.keras_larq import lq
    image = keras.Input(shape)
    x = lq.layers.QuantConv2D(4, 3, kernel_quantizer="ste_sign", name="a")(image)
    return keras.Model(image, L.Dense(classes)(L.Flatten()(x)))
"""


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "my net.py"
    path.write_text(CODE)
    return path


@pytest.mark.parametrize(("function", "quantized"), [("plain", 2), ("in_a_row", 1), ("with_layers", 1)])
def test_a_function_builds_the_net_that_is_trained(function: str, quantized: int, net: Path, tmp_path: Path) -> None:
    assert run.main(["--net", f"{net}:{function}", *FAST, "-o", str(tmp_path / "out")]) == 0
    model = load_model(tmp_path / "out" / "model.h5")
    kernels = [layer.kernel_quantizer for layer in model.layers if getattr(layer, "kernel_quantizer", None)]
    assert len(kernels) == quantized
    logits = model(np.zeros((1, 8, 8, 1), np.float32)).numpy()
    assert logits.shape == (1, 10)
    assert abs(logits.sum() - 1) > 1e-3  # no softmax


def test_the_architecture_of_a_model_file_is_trained_anew(net: Path, tmp_path: Path) -> None:
    assert run.main(["--net", f"{net}:plain", *FAST, "-o", str(tmp_path / "first")]) == 0
    first = tmp_path / "first" / "model.h5"
    text = load_model(first).to_json()
    (tmp_path / "net.json").write_text(text)
    for name, given in (("second", first), ("third", tmp_path / "net.json")):
        assert run.main(["--net", str(given), *FAST, "-o", str(tmp_path / name)]) == 0
        a, b = (load_model(tmp_path / n / "model.h5").get_weights() for n in ("first", name))
        assert all((x == y).all() for x, y in zip(a, b, strict=True))  # same seed, same net
    # In full precision nothing of it is quantized.
    adam = ["--method", "adam", *FAST[2:], "-o", str(tmp_path / "adam")]
    assert run.main(["--net", str(first), *adam]) == 0
    layers = load_model(tmp_path / "adam" / "model.h5").layers
    assert not any(getattr(layer, "kernel_quantizer", None) for layer in layers)


def test_weights_of_an_own_net_start_another_run(net: Path, tmp_path: Path) -> None:
    spec = f"{net}:plain"
    assert run.main(["--net", spec, "--method", "adam", *FAST[2:], "-o", str(tmp_path / "float")]) == 0
    start = str(tmp_path / "float" / "model.h5")
    assert run.main(["--net", spec, "--init-from", start, *FAST, "--lr", "0", "-o", str(tmp_path / "out")]) == 0
    a, b = (load_model(tmp_path / name / "model.h5").get_layer("b").kernel.numpy() for name in ("float", "out"))
    assert (a == b).all()


def test_a_run_of_an_own_net_resumes_bit_for_bit_and_only_with_that_net(
    net: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    class Stop(Exception):
        pass

    class Cut(Watcher):
        def epoch_started(self, epoch: int) -> None:
            if epoch == 1:
                raise Stop

    def settings() -> Settings:
        return Settings(method="bc", net=f"{net}:plain", limit=256, epochs=2).resolve()

    train(settings(), tmp_path / "whole")
    with pytest.raises(Stop):
        train(settings(), tmp_path / "parts", Cut())
    assert run.main(["--resume", str(tmp_path / "parts"), "--no-plot", "--no-tensorboard"]) == 0
    a, b = (Checkpoint.load(tmp_path / name / "checkpoint.npz") for name in ("whole", "parts"))
    assert all((x == y).all() for x, y in zip(a.weights + a.optimizer, b.weights + b.optimizer, strict=True))
    net.write_text(CODE + "\n# changed\n")
    assert run.main(["--resume", str(tmp_path / "parts"), "--epochs", "3"]) == 2
    assert "the file has changed since the run began" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("broken", "my net.py, line 23: broken failed with IndexError: tuple index out of range"),
        ("missing", "the file has no function missing"),
        ("number", "gave a builtins.int, expected a Keras 2 model"),
        ("too_many", "takes (8, 8, 1) and gives (11,); the data has images of (8, 8, 1) and 10 classes"),
        ("code", "holds Lambda"),
        ("dense", "no layer is quantized"),
        ("quantized", "a has a quantizer of its own"),
    ],
)
def test_a_net_that_cannot_be_trained_is_one_clear_line(
    function: str, message: str, net: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert run.main(["--net", f"{net}:{function}", *FAST, "-o", str(tmp_path / "out")]) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert len(errors.strip().splitlines()) == 1


def test_descriptions_that_are_none_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    image = keras.Input((8, 8, 1))
    model = keras.Model(image, keras.layers.Lambda(lambda x: x)(image))
    for name, text, message in (
        ("a.json", "{", "not readable as JSON"),
        ("b.json", "{}", "not the architecture of a Keras 2 model"),
        ("c.json", model.to_json(), "refused, as it names Lambda"),
        ("d.json", json.dumps([1]), "not the architecture of a Keras 2 model"),
    ):
        (tmp_path / name).write_text(text)
        assert run.main(["--net", str(tmp_path / name), *FAST, "-o", str(tmp_path / "out")]) == 2
        assert message in capsys.readouterr().err
    save_model(model, tmp_path / "e.h5")
    assert run.main(["--net", str(tmp_path / "e.h5"), *FAST, "-o", str(tmp_path / "out")]) == 2
    assert "refused, as it names Lambda" in capsys.readouterr().err
