"""Files that are no model.h5: every command says what they are and what to do."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from flipbit.export.commands import convert as command
from flipbit.export.commands import show, verify
from flipbit.export.commands.c_source import main as to_c
from tests.nets.random_nets import int8_graph, random_model

KERAS_3 = """
import keras
model = keras.Sequential([keras.layers.Input((8, 8, 1)), keras.layers.Flatten(), keras.layers.Dense(3)])
model.save("new.keras")
model.save_weights("new.weights.h5")
model.export("saved_model")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What people have lying about."""
    folder = tmp_path_factory.mktemp("files")
    environment = {k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"}
    subprocess.run([sys.executable, "-c", KERAS_3], cwd=folder, check=True, capture_output=True, env=environment)
    graph = int8_graph(random_model("vgg-small", (8, 8, 1)))[1]
    for kind in ("fbit", "onnx", "tflite"):
        graph.save(folder / f"net.{kind}")
    (folder / "cut.onnx").write_bytes((folder / "net.onnx").read_bytes()[:1000])
    (folder / "net.onnx").unlink()
    (folder / "old.pth").write_bytes(pickle.dumps({"weight": [1.0]}, 2))
    for name, entry in (("state.pth", "archive/data.pkl"), ("script.pt", "net/code/x.py"), ("other.zip", "x")):
        with zipfile.ZipFile(folder / name, "w") as archive:
            archive.writestr(entry, "")
            if name == "script.pt":
                archive.writestr("net/data.pkl", "")
    np.savez(folder / "data.npz", x_train=np.zeros(3))
    (folder / "cut.keras").write_bytes((folder / "new.keras").read_bytes()[:200])
    (folder / "notes.h5").write_text("Überschrift\n" * 1000, encoding="utf-8")
    (folder / "empty.h5").touch()
    (folder / "noise.h5").write_bytes(np.random.default_rng(0).bytes(5000))
    (folder / "pointer.h5").write_text("version https://git-lfs.github.com/spec/v1\n")
    (folder / "run").mkdir()
    (folder / "run" / "model.h5").touch()
    return folder


EXPECTED = {
    "new.weights.h5": "holds weights but no model",
    "saved_model": "a TensorFlow SavedModel, which is code; save the Keras model",
    "net.fbit": "a .fbit image, which is what exporting gives",
    "net.tflite": "a TFLite model",
    "cut.onnx": "not a valid ONNX model",
    "old.pth": "a pickle (as of older PyTorch .pt and .pth)",
    "state.pth": "a PyTorch pickle (.pt, .pth): it holds bare weights",
    "script.pt": "a TorchScript program",
    "other.zip": "a zip archive of something else",
    "data.npz": "a NumPy archive (.npz), not a model",
    "cut.keras": "a zip archive that is cut short",
    "notes.h5": "a text file",
    "empty.h5": "an empty file",
    "noise.h5": "not a readable HDF5 file",
    "pointer.h5": "a Git LFS pointer",
    "run": "a folder; pass the model in it: ",
    "none.h5": "no such file",
}


@pytest.mark.parametrize("name", EXPECTED)
def test_every_command_says_what_a_file_is(name: str, folder: Path, capsys: pytest.CaptureFixture) -> None:
    path = str(folder / name)
    before = sorted(folder.rglob("*"))
    calls = [lambda kind=kind: command.main(kind, [path]) for kind in ("fbit", "onnx", "tflite")]
    if name != "net.fbit":  # which it writes as C
        calls += [lambda: command.main("c", [path]), lambda: to_c([path, "--for", "arduino"])]
    calls.append(lambda: verify.main([path, str(folder / "net.fbit")]))
    if name not in ("net.fbit", "net.tflite"):  # which it shows
        calls.append(lambda: show.main([path]))
    for call in calls:
        assert call() == 2
        errors = capsys.readouterr().err
        assert errors.startswith(f"error: {path}")
        if call is not calls[-1] or name not in ("none.h5", "run", "empty.h5"):
            assert EXPECTED[name] in errors
        assert len(errors.splitlines()) == 1
    assert sorted(folder.rglob("*")) == before
