"""Whatever a user gives a command that it cannot use, the command says so in one line, exits with status 2 and leaves
nothing behind: every kind of wrong file, in every place where a command takes one."""

from __future__ import annotations

import importlib
import importlib.util
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checkout import ROOT
from tests.patience import PATIENCE

SHIPPED = ROOT / "models" / "digits-vgg-small"

Main = Callable[[list[str]], int]
Make = Callable[[Path], object]

# ---- the commands ----


def flipbit(*words: str) -> list[str]:
    return ["runtime/__main__.py", *words]


def main_of(script: str) -> Main:
    """What a script runs, in this process: TensorFlow is imported once."""
    if script == "runtime/__main__.py":
        return importlib.import_module("flipbit.runtime.commands.cli").main
    if script.startswith(("train/", "export/", "runtime/")):
        return importlib.import_module("flipbit." + script.removesuffix(".py").replace("/", ".")).main
    name = "script_" + script.removesuffix(".py").replace("/", "_")
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / script)
        assert spec and spec.loader
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name].main


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a good net, its model and good data; temporary files have a place in it, too."""
    for name in ("model.fbit", "model.h5", "run.json"):
        shutil.copy(SHIPPED / name, tmp_path / name)
    images = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 1), dtype=np.uint8)
    labels = np.arange(12) % 10
    np.savez(tmp_path / "good.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setenv("FLIPBIT_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files(folder: Path) -> set[str]:
    """All files but what TensorFlow and onnxruntime keep, and what emulated boards remember."""
    # TensorFlow compiles what it traces into the temporary folder.
    allowed = ("temporary/__autograph", "temporary/__pycache__/__autograph", "temporary/.ses", "state/")
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}
    return {name for name in found if not name.startswith(allowed)}


def check_said(said: str, *words: str) -> None:
    """One line of error, and no line that is a traceback or could steer a terminal."""
    errors = [line for line in said.splitlines() if line.startswith("error:")]
    assert len(errors) == 1, said
    assert "Traceback" not in said and not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", errors[0]), said
    for word in words:
        assert word in errors[0], said


@pytest.fixture
def refused(here: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., None]:
    """Runs a command that has to refuse, with what it has to say; ``kept`` was whole before the disk was full."""

    def check(command: list[str], *words: str, kept: tuple[str, ...] = ()) -> None:
        before = files(here)
        capfd.readouterr()
        try:
            status: Any = main_of(command[0])(command[1:])
        except SystemExit as stop:
            status = stop.code
        said = capfd.readouterr().err
        assert status == 2, (status, said)
        check_said(said, *words)
        assert files(here) - {*kept} == before

    return check


# ---- what is wrong with files ----


def cut(source: str, share: float) -> Make:
    def make(path: Path) -> None:
        data = (path.parent / source).read_bytes()
        path.write_bytes(data[: int(share * len(data))])

    return make


def flipped(source: str) -> Make:
    def make(path: Path) -> None:
        data = bytearray((path.parent / source).read_bytes())
        data[len(data) // 2] ^= 0xFF
        path.write_bytes(data)

    return make


def noise(path: Path) -> None:
    path.write_bytes(np.random.default_rng(1).bytes(5000))


def bare_keras(path: Path) -> None:
    """The records of a ``.keras`` file, with nothing in them."""
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("config.json", "metadata.json", "model.weights.h5"):
            archive.writestr(name, "{}")


def images(*shape: int, dtype: Any = np.uint8) -> np.ndarray:
    return np.ones(shape, dtype)


def archive(**arrays: Any) -> Make:
    """An .npz, whatever the name's ending."""

    def make(path: Path) -> None:
        with open(path, "wb") as file:
            np.savez(file, **arrays)

    return make


def array(content: np.ndarray) -> Make:
    """An .npy, whatever the name's ending."""

    def make(path: Path) -> None:
        with open(path, "wb") as file:
            np.save(file, content)

    return make


def claiming(*shape: int, descr: str = "|u1") -> bytes:
    """An .npy whose head claims more than there is."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": False, "shape": shape})
    return stream.getvalue() + bytes(100)


def claimed(path: Path) -> None:
    content = claiming(10**9, 8, 8, 1)
    if path.suffix == ".npy":
        path.write_bytes(content)
        return
    with zipfile.ZipFile(path, "w") as file:
        for name in ("x_train", "y_train", "x_test", "y_test"):
            file.writestr(f"{name}.npy", content)


def bad_deflate(path: Path) -> None:
    x, y = np.arange(20 * 64, dtype=np.uint8).reshape(20, 8, 8, 1), np.arange(20) % 10
    with open(path, "wb") as file:
        np.savez_compressed(file, x_train=x, y_train=y, x_test=x, y_test=y)
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as file:
        for part in file.infolist():
            start = part.header_offset + 30 + len(part.filename) + 20
            data[start : start + part.compress_size // 2] = b"\xff" * (part.compress_size // 2)
    path.write_bytes(data)


def bomb(path: Path) -> None:
    """A few KB that unpack to 16 MB that are no array."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name in ("x_train", "y_train", "x_test", "y_test"):
            file.writestr(f"{name}.npy", bytes(1 << 24))


def both(x: Any, y: Any) -> Make:
    return archive(x_train=x, y_train=y, x_test=x, y_test=y)


objects = np.array([{"a": 1}, None] * 6, dtype=object)
ten = np.arange(12) % 10

BAD_DATA: dict[str, tuple[str, Make]] = {
    "a missing file": ("none.npz", lambda path: None),
    "an empty file": ("empty.npz", lambda path: path.touch()),
    "an empty array": ("empty.npy", lambda path: path.touch()),
    "random bytes": ("noise.npz", noise),
    "random bytes as an array": ("noise.npy", noise),
    "random bytes as a picture": ("noise.png", noise),
    "random bytes without an ending": ("noise", noise),
    "half an archive": ("half.npz", cut("good.npz", 0.5)),
    "an archive with a flipped byte": ("flipped.npz", flipped("good.npz")),
    "an archive of objects": ("objects.npz", both(objects, objects)),
    "an array of objects": ("objects.npy", array(objects)),
    "labels that are objects": ("labels.npz", both(images(12, 8, 8, 1), objects)),
    "an .npy named .npz": ("array.npz", array(images(12, 8, 8, 1))),
    "an .npz named .npy": ("archive.npy", both(images(12, 8, 8, 1), ten)),
    "a damaged deflate stream": ("deflate.npz", bad_deflate),
    "zeros that unpack to much": ("bomb.npz", bomb),
    "an array that claims a terabyte": ("claims.npy", claimed),
    "an archive that claims a terabyte": ("claims.npz", claimed),
    "an archive without images": ("other.npz", archive(weights=images(3))),
    "no images at all": ("nothing.npz", both(images(0, 8, 8, 1), ten[:0])),
    "text instead of numbers": ("text.npz", both(np.array(["a"] * 12), ten)),
    "complex numbers": ("complex.npz", both(images(12, 8, 8, 1, dtype=np.complex128), ten)),
    "NaN": ("nan.npz", both(images(12, 8, 8, 1, dtype=np.float32) * np.nan, ten)),
    "infinity": ("inf.npz", both(images(12, 8, 8, 1, dtype=np.float32) * np.inf, ten)),
    "labels of another length": ("length.npz", both(images(12, 8, 8, 1), ten[:5])),
    "labels in a matrix": ("matrix.npz", both(images(12, 8, 8, 1), np.ones((12, 10), np.int64))),
    "negative labels": ("negative.npz", both(images(12, 8, 8, 1), ten - 5)),
    "labels beyond 32 bits": ("wide.npz", both(images(12, 8, 8, 1), ten + 2**32)),
    "one-hot labels": ("hot.npz", both(images(12, 8, 8, 1), np.eye(10)[ten])),
    "values that are NaN": ("none.npz", both(images(12, 8, 8, 1), ten * np.nan)),
    "values of another length": ("real.npz", both(images(12, 8, 8, 1), ten[:5] + 0.5)),
    "a scalar": ("scalar.npz", both(np.uint8(1), np.uint8(1))),
    "an empty folder": ("folder", lambda path: path.mkdir()),
    "a folder of text": ("texts", lambda path: (path.mkdir(), (path / "a.txt").write_text("a"))),
    "a folder of pictures that are none": (
        "pictures",
        lambda path: [((path / name).mkdir(parents=True), noise(path / name / "a.png")) for name in ("a", "b")],
    ),
    "a folder of CIFAR-10 with nothing in it": ("cifar-10-batches-py", lambda path: path.mkdir()),
    "CIFAR-10 of random bytes": (
        "cifar-10-batches-bin",
        lambda path: (path.mkdir(), *(noise(path / f"{name}.bin") for name in ("data_batch_1", "test_batch"))),
    ),
    "a name that is no text": ("a\udcff.npz", noise),
    "a name with escape codes": ("\x1b[2J\x1b]0;x\x07\n.npz", noise),
}
# For a net of 8×8×1 and 10 classes.
MISFITS: dict[str, tuple[str, Make]] = {
    "images of another size": ("size.npz", both(images(12, 9, 9, 1), ten)),
    "images of other channels": ("channels.npz", both(images(12, 8, 8, 3), ten)),
}

BAD_IMAGES: dict[str, tuple[str, Make]] = {
    "a missing file": ("none.fbit", lambda path: None),
    "a folder": ("folder.fbit", lambda path: path.mkdir()),
    "an empty file": ("empty.fbit", lambda path: path.touch()),
    "random bytes": ("noise.fbit", noise),
    "half an image": ("half.fbit", cut("model.fbit", 0.5)),
    "an image with a flipped byte": ("flipped.fbit", flipped("model.fbit")),
    "a name that is no text": ("a\udcff.fbit", noise),
    "a name with escape codes": ("\x1b[2J\x1b]0;x\x07.fbit", noise),
    "a file beneath a file": ("model.h5/x.fbit", lambda path: None),
    "a name that is too long": ("x" * 300 + ".fbit", lambda path: None),
}

BAD_MODELS: dict[str, tuple[str, Make]] = {
    "a missing file": ("none.h5", lambda path: None),
    "a folder": ("folder.h5", lambda path: path.mkdir()),
    "an empty file": ("empty.h5", lambda path: path.touch()),
    "random bytes": ("noise.h5", noise),
    "half a model": ("half.h5", cut("model.h5", 0.5)),
    "random bytes of PyTorch": ("noise.pt2", noise),
    "random bytes of ONNX": ("noise.onnx", noise),
    "an .npz": ("arrays.h5", both(images(3), ten)),
    "a .keras without a net": ("bare.keras", bare_keras),
    "a device image": ("image.h5", cut("model.fbit", 1)),
    "a name that is no text": ("a\udcff.h5", noise),
    "a name with escape codes": ("\x1b[2J\x1b]0;x\x07.h5", noise),
}

# ---- where files are taken ----

TUNE = ["--target", "sim:nrf52840-dk", "--steps", "1"]
FLEET = ["--data", "digits", "--devices", "10", "--each", "5", "--held-back", "50", "--local", "-o", "fleet"]
FEDAVG = [
    "--model",
    "model.h5",
    "--data",
    "digits",
    "--devices",
    "10",
    "--each",
    "5",
    "--held-back",
    "50",
    "-o",
    "fleet",
]
JOIN = ["--number", "0", "--keys", "none", "--samples", "none.npz", "--flash", "flash"]
TAKES_DATA = {
    "flipbit run": flipbit("run", "model.fbit", "BAD"),
    "flipbit profile": flipbit("profile", "model.fbit", "--runs", "1", "--data", "BAD"),
    "flipbit compare": flipbit("compare", "model.fbit", "model.fbit", "--data", "BAD"),
    "runtime/finetune.py": ["runtime/finetune.py", "model.fbit", "--data", "BAD", *TUNE],
    "runtime/study.py": ["runtime/study.py", "drift", "model.fbit", "BAD", "--samples", "5", "--quick"],
    "firmware/boards/run_images.py": ["firmware/boards/run_images.py", "model.fbit", "--data", "BAD"],
    "train/run.py": ["train/run.py", "--method", "bc", "--data", "BAD", "--epochs", "1", "-o", "run"],
    "export/to_fbit.py": ["export/to_fbit.py", "model.h5", "--calibrate", "BAD", "-o", "new.fbit"],
    "export/to_c.py": ["export/to_c.py", "model.fbit", "--for", "arduino", "--calibrate", "BAD", "-o", "new"],
    "export/verify.py": ["export/verify.py", "model.h5", "model.fbit", "--data", "BAD"],
    "flipbit train": flipbit("train", "--method", "bc", "--data", "BAD", "--epochs", "1", "-o", "run"),
    "flipbit export": flipbit("export", "model.h5", "--calibrate", "BAD", "-o", "new.tflite"),
    "flipbit export --for": flipbit("export", "model.fbit", "--for", "zephyr", "--calibrate", "BAD", "-o", "new"),
    "flipbit verify": flipbit("verify", "model.h5", "model.fbit", "--data", "BAD"),
    "flipbit fleet": flipbit("fleet", "simulate", "model.fbit", *FLEET, "--data", "BAD"),
}
TAKES_IMAGE = {
    "flipbit run": flipbit("run", "BAD", "good.npz"),
    "flipbit info": flipbit("info", "BAD"),
    "flipbit info --board": flipbit("info", "BAD", "--board", "microbit"),
    "flipbit profile": flipbit("profile", "BAD", "--runs", "1"),
    "flipbit compare, first": flipbit("compare", "BAD", "model.fbit"),
    "flipbit compare, second": flipbit("compare", "model.fbit", "BAD"),
    "flipbit bench": flipbit("bench", "BAD", "--rounds", "1"),
    "flipbit flash": flipbit("flash", "--board", "microbit", "--model", "BAD", "-o", "new.elf"),
    "flipbit device": flipbit("device", "infer", "good.npz", "--port", "qemu:microbit", "--model", "BAD"),
    "flipbit device listen": flipbit("device", "listen", "tone.wav", "--port", "sim", "--model", "BAD"),
    "runtime/finetune.py": ["runtime/finetune.py", "BAD", "--data", "good.npz", *TUNE],
    "runtime/study.py": ["runtime/study.py", "drift", "BAD", "good.npz"],
    "firmware/boards/run_images.py": ["firmware/boards/run_images.py", "BAD", "--data", "good.npz"],
    "firmware/count/bench.py": ["firmware/count/bench.py", "BAD"],
    "firmware/count/learn.py": ["firmware/count/learn.py", "BAD"],
    "export/to_c.py": ["export/to_c.py", "BAD", "-o", "new.c"],
    "export/show.py": ["export/show.py", "BAD"],
    "export/verify.py": ["export/verify.py", "model.h5", "BAD", "--data", "good.npz"],
    "flipbit export --to c": flipbit("export", "BAD", "--to", "c", "-o", "new.c"),
    "flipbit show": flipbit("show", "BAD"),
    "flipbit study": flipbit("study", "drift", "BAD", "good.npz"),
    "flipbit fleet": flipbit("fleet", "simulate", "BAD", *FLEET),
}
TAKES_MODEL = {
    **{
        f"export/to_{kind}.py": [f"export/to_{kind}.py", "BAD", "-o", f"new.{kind}"]
        for kind in ("fbit", "onnx", "tflite", "c")
    },
    "export/verify.py": ["export/verify.py", "BAD", "model.fbit", "--data", "good.npz"],
    "export/show.py": ["export/show.py", "BAD"],
    "flipbit export": flipbit("export", "BAD"),
    "flipbit export --to onnx": flipbit("export", "BAD", "--to", "onnx"),
    "flipbit verify": flipbit("verify", "BAD", "model.fbit", "--data", "good.npz"),
    "flipbit show": flipbit("show", "BAD"),
    "flipbit train --teacher": flipbit("train", "--method", "bc", "--teacher", "BAD", "-o", "run"),
    "train/run.py --init-from": ["train/run.py", "--method", "bc", "--init-from", "BAD", "-o", "run"],
    "train/run.py --net": ["train/run.py", "--method", "bc", "--net", "BAD", "-o", "run"],
    "train/run.py --teacher": ["train/run.py", "--method", "bc", "--teacher", "BAD", "-o", "run"],
}  # fmt: skip


# These load a model by TensorFlow for each case, and read data as train/run.py does: a few kinds will do for each day.
SLOW = ("export/to_fbit.py", "export/verify.py", "flipbit export", "flipbit verify")
DAILY = (
    "a missing file",
    "random bytes",
    "an archive of objects",
    "a damaged deflate stream",
    "NaN",
    "an empty folder",
)


def cases(commands: dict[str, list[str]], kinds: dict[str, tuple[str, Make]]) -> list[Any]:
    return [
        pytest.param(
            command,
            *kind,
            id=f"{name}: {what}",
            marks=[pytest.mark.slow] if kinds is BAD_DATA and name in SLOW and what not in DAILY else [],
        )
        for name, command in commands.items()
        for what, kind in kinds.items()
    ]


def put(command: list[str], name: str, make: Make, here: Path) -> list[str]:
    make(here / name)
    return [name if word == "BAD" else word for word in command]


@pytest.mark.parametrize(("command", "name", "make"), cases(TAKES_DATA, BAD_DATA))
def test_bad_data_is_refused(command: list[str], name: str, make: Make, here: Path, refused: Any) -> None:
    refused(put(command, name, make, here))


@pytest.mark.parametrize(
    ("command", "name", "make"), cases({n: c for n, c in TAKES_DATA.items() if not re.search("train", n)}, MISFITS)
)
def test_data_of_another_net_is_refused(command: list[str], name: str, make: Make, here: Path, refused: Any) -> None:
    refused(put(command, name, make, here))


@pytest.mark.parametrize(("command", "name", "make"), cases(TAKES_IMAGE, BAD_IMAGES))
def test_a_bad_image_is_refused(command: list[str], name: str, make: Make, here: Path, refused: Any) -> None:
    refused(put(command, name, make, here))


@pytest.mark.parametrize(("command", "name", "make"), cases(TAKES_MODEL, BAD_MODELS))
def test_a_bad_model_is_refused(command: list[str], name: str, make: Make, here: Path, refused: Any) -> None:
    refused(put(command, name, make, here))


# ---- where commands write ----

WRITES = {
    **{
        f"export/to_{kind}.py": [f"export/to_{kind}.py", "model.h5", "--calibrate", "good.npz", "-o", f"OUT.{kind}"]
        for kind in ("fbit", "onnx", "tflite", "c")
    },
    "export/to_fbit.py --json": ["export/to_fbit.py", "model.h5", "--calibrate", "good.npz", "--json", "OUT.json"],
    "export/to_c.py of an image": ["export/to_c.py", "model.fbit", "-o", "OUT.c"],
    "export/to_c.py --for": ["export/to_c.py", "model.fbit", "--for", "zephyr", "-o", "OUT"],
    "export/show.py --json": ["export/show.py", "model.fbit", "--json", "OUT.json"],
    "export/show.py --picture": ["export/show.py", "model.fbit", "--picture", "OUT.png"],
    "export/verify.py --json": [
        "export/verify.py", "model.h5", "model.fbit", "--data", "good.npz", "--json", "OUT.json"
    ],
    "flipbit export": flipbit("export", "model.h5", "--calibrate", "good.npz", "-o", "OUT.onnx"),
    "flipbit export --for": flipbit("export", "model.fbit", "--for", "arduino", "-o", "OUT"),
    "flipbit show --json": flipbit("show", "model.fbit", "--json", "OUT.json"),
    "flipbit verify --json": flipbit("verify", "model.h5", "model.fbit", "--data", "good.npz", "--json", "OUT.json"),
    "flipbit train": flipbit("train", "--method", "bc", "--epochs", "1", "-o", "OUT"),
    "flipbit reproduce": flipbit("reproduce", "toy", "-o", "OUT"),
    "flipbit bench --json": flipbit("bench", "model.fbit", "--rounds", "1", "--json", "OUT.json"),
    "flipbit finetune -o": flipbit("finetune", "model.fbit", "--data", "good.npz", *TUNE, "-o", "OUT.fbit"),
    "flipbit finetune --report": flipbit(
        "finetune", "model.fbit", "--data", "good.npz", *TUNE, "-o", "new.fbit", "--report", "OUT.json"
    ),
    "flipbit finetune --plot": flipbit(
        "finetune", "model.fbit", "--data", "good.npz", *TUNE, "-o", "new.fbit", "--plot", "OUT.png"
    ),
    "runtime/study.py": ["runtime/study.py", "drift", "model.fbit", "good.npz", "--samples", "5", "-o", "OUT.json"],
    "runtime/study.py --make": ["runtime/study.py", "personalise", "--make", "OUT"],
    "train/run.py": ["train/run.py", "--method", "bc", "--epochs", "1", "-o", "OUT"],
    "train/reproduce.py": ["train/reproduce.py", "toy", "-o", "OUT"],
    "firmware/demo.py": ["firmware/demo.py", "-o", "OUT"],
}  # fmt: skip
MADE = (  # folders, by the command
    "runtime/study.py --make", "train/run.py", "train/reproduce.py", "firmware/demo.py", "flipbit train",
    "flipbit reproduce",
)  # fmt: skip
FOLDERS = ("export/to_c.py --for", "flipbit export --for", *MADE)


BAD_OUTPUTS: dict[str, tuple[str, Make]] = {
    "a missing folder": ("none/new", lambda path: None),
    "below a file": ("model.h5/new", lambda path: None),
    "where nobody may write": ("/proc/new", lambda path: None),
    "a name that is too long": ("n" * 300, lambda path: None),
    "a folder": ("folder", lambda path: path.mkdir()),
    "a full disk": ("full", lambda path: path.symlink_to("/dev/full")),
}


def outputs() -> list[Any]:
    return [
        pytest.param(command, *kind, id=f"{name}: {what}")
        for name, command in WRITES.items()
        for what, kind in BAD_OUTPUTS.items()
        if not (name in MADE and what in ("a missing folder", "a folder"))
        if not (name in FOLDERS and what == "a full disk")
    ]


@pytest.mark.parametrize(("command", "name", "make"), outputs())
def test_output_that_cannot_be_written_is_refused(
    command: list[str], name: str, make: Make, here: Path, refused: Any
) -> None:
    if name.startswith("/proc") and not Path("/proc/self").exists():
        pytest.skip("this system has no /proc")
    suffix = next(Path(word).suffix for word in command if word.startswith("OUT"))
    make(here / f"{name}{suffix}")
    refused([name + suffix if word.startswith("OUT") else word for word in command], kept=("new.fbit",))


# ---- words and numbers on the command line ----

FINETUNE = ["runtime/finetune.py", "model.fbit", "--data", "good.npz", "--target", "sim:nrf52840-dk", "--steps", "1"]
WORDS = ROOT / "models" / "words-word-s" / "model.fbit"
PICTURE = ROOT / "docker" / "raspberry-pi" / "pictures" / "3" / "a.pgm"
TRAIN = ["train/run.py", "--method", "bc", "--epochs", "1", "-o", "run"]
DEVICE = flipbit("device", "info", "--port")
STUDY = ["runtime/study.py", "drift", "model.fbit", "good.npz", "--samples", "5"]


def word_of(value: str) -> str:
    """The part of a value that its error has to name."""
    return value.split(":")[-1].removeprefix("../").removesuffix("thermal")


BAD_WORDS = [
    (flipbit("walk"), "walk"),
    (flipbit("serve", "--no-open", "--port", "70000"), "--port 70000"),
    (flipbit("serve", "--no-open", "--port", "http"), "--port"),
    (flipbit("serve", "--no-open", "--reports", "none"), "--reports none"),
    (flipbit("serve", "--no-open", "--reports", "model.fbit"), "no such folder"),
    (flipbit("--walk"), "VERB"),
    (flipbit("--completion", "fish"), "fish"),
    (flipbit("train"), "--method"),
    (flipbit("train", "--method", "bc", "--epochs", "0", "-o", "run"), "--epochs"),
    (flipbit("reproduce", "none"), "flipbit reproduce --help"),
    (flipbit("export"), "flipbit export --help"),
    (flipbit("export", "model.h5", "--to", "elf"), "--to"),
    (flipbit("export", "model.h5", "-o", "new.elf"), "new.elf"),
    (flipbit("export", "model.h5", "-o", "new"), ".tflite"),
    (flipbit("export", "model.h5", "--to", "onnx", "-o", "new.fbit"), "new.fbit"),
    (flipbit("export", "model.h5", "--to", "onnx", "--for", "arduino"), "--for"),
    (flipbit("export", "model.h5", "--for", "none"), "--for"),
    (flipbit("export", "model.h5", "--activations", "float"), "--activations"),
    (flipbit("export", "model.h5", "--to", "c", "--weights", "unpacked"), "--weights"),
    (flipbit("export", "model.h5", "--samples", "0"), "--samples"),
    (flipbit("export", "model.h5", "--references", "-1"), "--references"),
    (flipbit("export", "model.h5", "--references", "65536"), "--references"),
    (flipbit("export", "model.fbit"), "model.fbit"),
    (flipbit("verify", "model.h5"), "flipbit verify --help"),
    (flipbit("verify", "model.h5", "model.fbit", "--images", "0"), "--images"),
    (flipbit("show", "good.npz"), "good.npz"),
    (flipbit("study", "none"), "none"),
    (flipbit("run", "model.fbit", "good.npz", "--walk"), "--walk"),
    (flipbit("info", "model.fbit", "\x1b[2J\n"), "\\x1b"),
    *((flipbit("run", "model.fbit", "good.npz", option, value), option) for option, value in [
        ("--top", "0"), ("--top", "-1"), ("--top", "x"), ("--limit", "-1"), ("--limit", "0"), ("--threads", "0"),
        ("--threads", "-3"), ("--resize", "none"),
    ]),
    (flipbit("run", "model.fbit", "good.npz", "--arena", "-1"), "arena"),
    (flipbit("run", "model.fbit", "good.npz", "--arena", "10"), "arena"),
    (flipbit("run", "model.fbit", "good.npz", "--arena", str(2**70)), "arena"),
    (flipbit("info", "model.fbit", "--board", "none"), "none"),
    (flipbit("info", "model.fbit", "--arena", "-1"), "arena"),
    (flipbit("profile", "model.fbit", "--runs", "0"), "--runs"),
    (flipbit("profile", "model.fbit", "--counts", "good.npz"), "good.npz"),
    (flipbit("profile", "model.fbit", "--counts", "run.json"), "run.json"),
    (flipbit("compare", "model.fbit", "model.fbit", "--limit", "0"), "--limit"),
    (flipbit("compare", "model.fbit", "model.fbit", "--limit", "-2"), "--limit"),
    (flipbit("bench", "model.fbit", "--rounds", "0"), "--rounds"),
    (flipbit("cost", "resnet9"), "resnet9"),
    (flipbit("cost", "none.h5"), "none.h5"),
    (flipbit("cost", "flip-s", "--shape", "32x32"), "--shape"),
    (flipbit("cost", "flip-s", "--width", "0"), "--width"),
    (flipbit("cost", "flip-s", "--classes", "0"), "--classes"),
    (flipbit("fleet"), "VERB"),
    (flipbit("fleet", "none"), "none"),
    (flipbit("fleet", "simulate", "none.fbit", *FLEET), "none.fbit"),
    (flipbit("fleet", "simulate", "model.fbit", *FLEET, "--data", "none"), "none"),
    (flipbit("fleet", "simulate", "model.fbit", *FLEET, "--devices", "0"), "--devices"),
    (flipbit("fleet", "simulate", "model.fbit", *FLEET, "--each", "0"), "--each"),
    (flipbit("fleet", "simulate", "model.fbit", *FLEET, "--each", "900"), "need 9,000"),
    (flipbit("fleet", "simulate", "model.fbit", *FLEET, "--each", "50-10"), "--each"),
    (flipbit("fleet", "simulate", "model.fbit", *FLEET, "--alpha", "0"), "--alpha"),
    (flipbit("fleet", "simulate", "model.fbit", *FLEET, "--alpha", "nan"), "--alpha"),
    (flipbit("fleet", "simulate", "model.fbit", *FLEET, "--by", "none.npy"), "none.npy"),
    (flipbit("fleet", "simulate", "model.fbit", *FLEET, "--by", "group"), "--by"),
    (flipbit("fleet", "simulate", "model.fbit", *FLEET, "--drift", "none:1"), "none:1"),
    (flipbit("fleet", "simulate", "model.fbit", *FLEET, "--held-back", "0"), "--held-back"),
    (flipbit("fleet", "simulate", "model.fbit", *FLEET, "--liars", "11"), "--liars"),
    (flipbit("fleet", "simulate", "model.fbit", *FLEET, "--way", "none"), "--way"),
    (flipbit("fleet", "simulate", "model.fbit", *FLEET, "--method", "bias"), "--way sum"),
    (flipbit("fleet", "simulate", "model.fbit", *FLEET, "--rounds", "0"), "--rounds"),
    (flipbit("fleet", "simulate", "model.fbit", *FLEET, "--rate", "2"), "--rate"),
    (flipbit("fleet", "simulate", "model.fbit", *FLEET, "--quorum", "0"), "--quorum"),
    (flipbit("fleet", "simulate", "model.fbit", *FLEET, "--sum-bits", "7"), "--sum-bits"),
    (flipbit("fleet", "simulate", "model.fbit", *FLEET, "--share", "0"), "--share"),
    (flipbit("fleet", "simulate", "model.fbit", *FLEET, "--seed", "-1"), "--seed"),
    (flipbit("fleet", "simulate", "model.fbit", *FLEET, "--cores", "0"), "--cores"),
    (flipbit("fleet", "simulate", "model.fbit", *FLEET, "-o", "model.h5"), "model.h5"),
    (flipbit("fleet", "simulate", "model.fbit", *FLEET, "--plot", "none/out.png"), "none/out.png"),
    (flipbit("fleet", "fedavg", "model.fbit", *FEDAVG, "--lr", "0"), "--lr"),
    (flipbit("fleet", "fedavg", "model.fbit", *FEDAVG, "--lr", "0.1", "--rounds", "0"), "--rounds"),
    (flipbit("fleet", "report", "none"), "none"),
    (flipbit("fleet", "keys", "--devices", "0", "-o", "keys"), "--devices"),
    (flipbit("fleet", "keys", "-o", "model.h5"), "model.h5"),
    (flipbit("fleet", "serve", "model.fbit", "--keys", "none", "-o", "out", "--port", "0"), "--port"),
    (flipbit("fleet", "serve", "model.fbit", "--keys", "none", "-o", "out", "--devices", "0"), "--devices"),
    (flipbit("fleet", "serve", "model.fbit", "--keys", "none", "-o", "out", "--wait-for", "11"), "--wait-for"),
    (flipbit("fleet", "serve", "model.fbit", "--keys", "none", "-o", "out", "--patience", "0"), "--patience"),
    (flipbit("fleet", "serve", "model.fbit", "--keys", "none", "-o", "out", "--boards", "0"), "--boards"),
    (flipbit("fleet", "join", "model.fbit", *JOIN, "--server", "nowhere"), "HOST:PORT"),
    (flipbit("fleet", "join", "model.fbit", *JOIN, "--server", "127.0.0.1:1"), "none.npz"),
    (flipbit("pareto", "good.npz", "none.fbit"), "none.fbit"),
    (flipbit("pareto", "good.npz", "model.fbit", "--other", "x:1:2"), "--other"),
    (flipbit("pareto", "good.npz", "model.fbit", "--other", "x:101:2:3"), "--other"),
    (flipbit("pareto", "good.npz", "model.fbit", "--board", "none"), "none"),
    (flipbit("pareto", "good.npz", "model.fbit", "--limit", "0"), "--limit"),
    (flipbit("bench", "model.fbit", "--against", "model.h5"), "model.h5"),
    (flipbit("bench", "model.fbit", "--against", "none.tflite"), "none.tflite"),
    (flipbit("flash"), "--board"),
    (flipbit("flash", "--board", "none"), "none"),
    (flipbit("flash", "--board", "../boards/microbit"), "microbit"),
    (flipbit("flash", "--board", "microbit", "--firmware", "none.elf"), "none.elf"),
    (flipbit("flash", "--board", "microbit", "--firmware", "model.fbit", "--qemu"), "model.fbit"),
    (flipbit("flash", "--board", "microbit", "--fresh", "--model", "model.fbit"), "--fresh"),
    (flipbit("device"), "VERB"),
    (flipbit("device", "listen", "--port", "sim"), "RECORDING"),
    (flipbit("device", "listen", "--port", "sim", "tone.wav"), "--model"),
    (flipbit("device", "listen", "--port", "sim", "--model", "model.fbit", "tone.wav"), "how recordings become"),
    (flipbit("run", "model.fbit", "tone.wav"), "tone.wav"),
    (flipbit("run", str(WORDS), str(PICTURE)), "not pictures"),
    (flipbit("run", str(WORDS), str(PICTURE.parent)), "not pictures"),
    (flipbit("device", "guard", "--port", "unix:none"), "--undo"),
    (flipbit("device", "guard", "good.npz", "--port", "unix:none", "--window", "x"), "--window"),
    *(([*DEVICE, port], word) for port, word in [
        ("/dev/none", "/dev/none"), ("qemu:none", "none"), ("tcp:127.0.0.1:1", "127.0.0.1"), ("tcp:x", "tcp:x"),
        ("tcp:x:y", "tcp:x:y"), ("tcp:localhost:99999999", "99999999"), ("unix:none", "none"), ("", "port"),
        ("model.fbit", "model.fbit"),
    ]),
    *(([*DEVICE, "unix:none", option, value], option) for option, value in [
        ("--timeout", "-1"), ("--timeout", "nan"), ("--timeout", "x"), ("--baud", "0"), ("--baud", "-9"),
    ]),
    ([*DEVICE, "unix:none", "--key", "none"], "none"),
    *(([*FINETUNE, option, value], option) for option, value in [
        ("--steps", "0"), ("--steps", "-1"), ("--rate", "nan"), ("--rate", "-1"), ("--rate", "2"),
        ("--bias-rate", "inf"), ("--samples", "0"), ("--samples", "-1"), ("--samples", "12"), ("--held-back", "0"),
        ("--held-back", "-1"), ("--seed", "-1"), ("--seed", str(2**64)), ("--buffer-bits", "9"), ("--method", "none"),
        ("--prior", "-1"), ("--prior", "65536"), ("--augment", "none of these"),
    ]),
    ([*FINETUNE, "--method", "recalibrate"], "--references"),
    ([*FINETUNE, "--sums", "8"], "--sums 8"),
    ([*FINETUNE, "--method", "sr", "--sums", "12"], "--sums 12"),
    ([*FINETUNE, "--layers", "3"], "--layers"),
    ([*FINETUNE, "--layers", "900-901"], "nothing in that range"),
    ([*FINETUNE, "--layers", "2-1"], "2-1"),
    ([*FINETUNE, "--new", "eleven"], "--new eleven"),
    ([*FINETUNE, "--replay", "2"], "--replay goes with --new"),
    ([*FINETUNE, "--plan", "--samples", "1"], "at least 2 samples"),
    ([*FINETUNE, "--drift", "mirror:2"], "mirror:2"),
    (["runtime/study.py", "shift", "model.fbit", "good.npz", "--samples", "11"], "--samples 11"),
    (["runtime/study.py", "replay", "model.fbit", "good.npz", "--samples", "0"], "--samples 0"),
    *(([*FINETUNE, option, value], word_of(value)) for option, value in [
        ("--arena", "-5"), ("--supply", "nuclear"), ("--supply", "battery:x"), ("--supply", "battery:-1"),
        ("--supply", "battery:nan"), ("--supply", "battery:inf"), ("--supply", "capacitor:0:thermal"),
        ("--supply", "capacitor:1:none"), ("--supply", "capacitor:1"), ("--drift", "none"), ("--drift", "dim:x"),
        ("--drift", "dim:99"), ("--drift", "dim:nan"), ("--target", "sim:none"), ("--target", "qemu:none"),
        ("--target", "/dev/none"), ("--target", "sim:../microbit"), ("--plot", "x.none"), ("--checkpoint", "model.h5"),
    ]),
    ([*FINETUNE, "--compare", "--bc", "none.h5"], "none.h5"),
    *(([*STUDY, option, value], option) for option, value in [
        ("--samples", "0"), ("--samples", "12"), ("--samples", "-4"), ("--part", "x"), ("--part", "3/2"),
        ("--part", "0/0"), ("--part", "-1/2"),
    ]),
    (["runtime/study.py", "none"], "none"),
    (["runtime/study.py", "drift"], "image"),
    *((["firmware/boards/run_images.py", "model.fbit", "--data", "good.npz", option, value], option)
      for option, value in [("--boards", "none"), ("--images", "x"), ("--images", "-1"), ("--images", "0"),
                            ("--json", "none/x.json")]),
    (["firmware/count/bench.py", "model.fbit", "--cores", "none"], "--cores"),
    (["firmware/count/bench.py", "model.fbit", "--boards", "none"], "--boards"),
    (["firmware/count/bench.py", "model.fbit", "--ram", "12"], "--ram"),
    (["firmware/count/learn.py", "model.fbit", "--methods", "none"], "--methods"),
    *((["firmware/count/audio.py", option, value], named) for option, value, named in [
        ("--cores", "none", "--cores"), ("--set", "bands", "--set"), ("--set", "colour=3", "--set"),
        ("--set", "bands=65", "bands"), ("--set", "fft=500", "fft"), ("--json", "none/x.json", "none"),
    ]),
    (["firmware/count/audio_precision.py", "good.npz"], "not a WAV file"),
    (["firmware/count/audio_precision.py", "none.wav"], "none.wav"),
    (["firmware/count/audio_precision.py", "good.npz", "--clips", "0"], "--clips"),
    (["firmware/demo.py", "--walk"], "--walk"),
    *(([*TRAIN, option, value], option) for option, value in [
        ("--epochs", "0"), ("--epochs", "-1"), ("--epochs", "x"), ("--batch", "0"), ("--lr", "nan"), ("--lr", "-1"),
        ("--lr", "inf"), ("--width", "0"), ("--width", "nan"), ("--width", "inf"), ("--seed", "-1"),
        ("--seed", str(2**40)), ("--threads", "-1"), ("--holdout", "1"), ("--holdout", "nan"), ("--holdout", "-0.5"),
        ("--bits", "0"), ("--bits", "9"), ("--net", "none"), ("--momentum", "2"), ("--delta", "nan"),
        ("--delta", "0"), ("--lr-drops", "x"), ("--lr-drops", "0"), ("--label-smoothing", "2"), ("--mixup", "nan"),
        ("--cutout", "-1"), ("--clip", "nan"), ("--weight-decay", "-1"), ("--weight-decay", "nan"),
        ("--activation-bits", "1"), ("--limit", "0"), ("--image-size", "0"), ("--workers", "0"), ("--workers", "x"),
        ("--wait", "0"), ("--wait", "nan"), ("--wait", "inf"), ("--batch-norm", "none"),
    ]),
    ([*TRAIN, "--data", "none"], "none"),
    ([*TRAIN, "--init-matching"], "--init-matching"),
    ([*TRAIN, "--augment", "none at all"], "--augment"),
    ([*TRAIN, "--data", "motionsense", "--data-dir", "none"], "motionsense"),
    (["train/run.py", "--resume", "none"], "none"),
    (["train/run.py", "--resume", "model.h5"], "model.h5"),
    ([*TRAIN, "--net", "none.py:build"], "none.py"),
    ([*TRAIN, "--net", "run.json"], "run.json"),
    *((["train/reproduce.py", "toy", "-o", "out", option, value], option) for option, value in [
        ("--epochs", "0"), ("--limit", "0"), ("--threads", "-1"), ("--seed", "-1"), ("--seed", str(2**40)),
        ("--scale", "none"),
    ]),
    (["train/reproduce.py", "none"], "none"),
    (["train/bench.py", "--batch", "0"], "--batch"),
    (["train/bench.py", "--seconds", "nan"], "--seconds"),
    (["train/bench.py", "--net", "none"], "--net"),
    *((["export/to_fbit.py", "model.h5", "--calibrate", "good.npz", option, value], option) for option, value in [
        ("--samples", "0"), ("--samples", "-1"), ("--method", "none"), ("--pixel-scale", "x"),
        ("--pixel-scale", "1/0"),
    ]),
    (["export/to_fbit.py", "model.h5", "--pixel-scale", "1"], "--pixel-offset"),
    (["export/to_fbit.py", "model.h5", "--pixel-scale", "nan", "--pixel-offset", "0"], "nan"),
    (["export/to_fbit.py", "model.h5", "--pixel-scale", "0", "--pixel-offset", "0"], "scale"),
    (["export/to_fbit.py", "model.h5", "-o", "model.onnx"], "model.onnx"),
    (["export/to_fbit.py", "model.h5", "--calibrate", "none.npy"], "none.npy"),
    (["export/verify.py", "model.h5", "model.fbit", "--data", "good.npz", "--values"], "labels"),
    (["export/verify.py", "model.h5", "model.fbit", "--images", "0"], "--images"),
    (["export/verify.py", "model.h5", "good.npz"], "good.npz"),
    (["export/to_c.py", "model.fbit", "--for", "none"], "--for"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "word"), [pytest.param(*case, id=ascii(" ".join(case[0]))) for case in BAD_WORDS])
def test_words_and_numbers_that_make_no_sense_are_refused(command: list[str], word: str, refused: Any) -> None:
    refused(command, word)


# ---- terminals, pipes and signals: of a process of its own ----

PLAIN = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
SHOWS = {  # quick commands that print much
    "flipbit info": flipbit("info", "model.fbit"),
    "flipbit info --json": flipbit("info", "model.fbit", "--json"),
    "flipbit run": flipbit("run", "model.fbit", "good.npz", "--each"),
    "flipbit compare": flipbit("compare", "model.fbit", "model.fbit"),
    "flipbit flash --list": flipbit("flash", "--list"),
    "flipbit": flipbit(),
    "flipbit --version": flipbit("--version"),
    "flipbit bench --help": flipbit("bench", "--help"),
    "flipbit train --help": flipbit("train", "--help"),
    "flipbit export --help": flipbit("export", "--help"),
    "flipbit show": flipbit("show", "model.fbit"),
    "export/show.py": ["export/show.py", "model.fbit"],
    "train/run.py --help": ["train/run.py", "--help"],
    "runtime/finetune.py": ["runtime/finetune.py", "model.fbit", "--data", "good.npz", *TUNE],
    "train/reproduce.py --help": ["train/reproduce.py", "--help"],
    "runtime/study.py --help": ["runtime/study.py", "--help"],
    "firmware/count/bench.py --help": ["firmware/count/bench.py", "--help"],
    "firmware/count/audio.py --help": ["firmware/count/audio.py", "--help"],
    "firmware/boards/run_images.py --help": ["firmware/boards/run_images.py", "--help"],
    "firmware/demo.py --help": ["firmware/demo.py", "--help"],
}


def words_of(command: list[str]) -> list[str]:
    if command[0] == "runtime/__main__.py":
        return [sys.executable, "-m", "flipbit.runtime", *command[1:]]
    return [sys.executable, str(ROOT / command[0]), *command[1:]]


def run(command: list[str], here: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONUNBUFFERED": "", "TMPDIR": str(here / "temporary"), **options.pop("env", {})}
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run(words_of(command), cwd=here, env=environment, text=True, timeout=PATIENCE, **options)


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["", "unbuffered"])
@pytest.mark.parametrize("command", SHOWS.values(), ids=SHOWS)
def test_a_full_disk_behind_stdout_is_one_line(command: list[str], unbuffered: str, here: Path) -> None:
    with open("/dev/full", "w") as full:
        done = run(command, here, stdout=full, env={"PYTHONUNBUFFERED": unbuffered})
    assert done.returncode == 2, done.stderr
    check_said(done.stderr, "No space left on device")
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["", "unbuffered"])
@pytest.mark.parametrize("command", SHOWS.values(), ids=SHOWS)
def test_a_reader_that_has_gone_is_no_error(command: list[str], unbuffered: str, here: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = run(command, here, stdout=writer, env={"PYTHONUNBUFFERED": unbuffered})
    finally:
        os.close(writer)
    assert done.returncode == 0, done.stderr
    assert not re.search("error|Traceback|Exception", done.stderr), done.stderr


@pytest.mark.parametrize("command", SHOWS.values(), ids=SHOWS)
def test_a_terminal_of_ascii_is_enough(command: list[str], here: Path) -> None:
    done = run(command, here, env=PLAIN)
    assert done.returncode == 0, done.stderr
    assert done.stdout and "Traceback" not in done.stderr


@pytest.mark.slow
def test_training_and_export_write_to_a_terminal_of_ascii(here: Path) -> None:
    for command in (
        ["train/run.py", "--method", "bc", "--data", "digits", "--epochs", "1", "--limit", "200", "-o", "run"],
        ["export/to_fbit.py", "run/model.h5"],
        ["export/verify.py", "run/model.h5", "run/model.fbit", "--images", "10"],
    ):
        done = run(command, here, env=PLAIN)
        assert done.returncode == 0, done.stderr


def test_an_error_in_a_terminal_of_ascii_names_what_it_cannot_show(here: Path) -> None:
    done = run(flipbit("info", "čmelák\udcff.fbit"), here, env=PLAIN)
    assert done.returncode == 2
    check_said(done.stderr, r"k\xff.fbit")


def test_nobody_who_listens_is_no_reason_for_another_status(here: Path) -> None:
    with open("/dev/full", "w") as full:
        assert run(flipbit("info", "none.fbit"), here, stdout=full, stderr=full).returncode == 2


@pytest.mark.slow
def test_classes_of_any_name_are_trained_drawn_exported_and_run(here: Path) -> None:
    random = np.random.default_rng(0)
    for name in (b"cat\xff", b"\x1b[31mdog", b"$\\frac$", "čmelák".encode()):
        folder = here / "photos" / os.fsdecode(name)
        folder.mkdir(parents=True)
        for number in range(6):
            pixels = random.integers(0, 256, 192, dtype=np.uint8).tobytes()
            (folder / f"{number}.ppm").write_bytes(b"P6 8 8 255\n" + pixels)
    for command in (
        ["train/run.py", "--method", "bc", "--data", "photos", "--epochs", "1", "-o", "run"],
        ["export/to_fbit.py", "run/model.h5"],
        ["export/to_c.py", "run/model.fbit"],
        ["export/show.py", "run/model.fbit"],
        flipbit("info", "run/model.fbit"),
        flipbit("run", "run/model.fbit", "photos"),
    ):
        done = run(command, here)
        assert done.returncode == 0, done.stderr
        assert "\x1b[31m" not in done.stdout + done.stderr
    assert " right" in done.stdout and "no class" not in done.stderr


# Ctrl-C while a module is imported, at the same place each time.
INTERRUPTED = """
import runpy, signal, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
sys.argv = {argv!r}
sys.path[0] = {folder!r}
runpy.run_{how}(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("numpy", flipbit("info", "model.fbit")),
        ("flipbit.runtime.commands.finetune", flipbit("finetune", "--help")),
        ("tensorflow", ["train/run.py", "--method", "bc", "--epochs", "1", "-o", "run"]),
        ("rich.console", ["train/reproduce.py", "toy", "-o", "run"]),
        ("tensorflow", ["export/to_fbit.py", "model.h5", "-o", "new.fbit"]),
        ("tensorflow", ["export/verify.py", "model.h5", "model.fbit"]),
        ("tensorflow", ["train/bench.py"]),
        ("flipbit.train.verbs", flipbit("train", "--help")),
        ("tensorflow", flipbit("export", "model.h5", "-o", "new.fbit")),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_control_c_at_the_start_is_one_line(module: str, command: list[str], here: Path) -> None:
    script = str(ROOT / command[0])
    argv, how = ([script, *command[1:]], "path")
    if command[0] == "runtime/__main__.py":
        argv, how = ["flipbit.runtime", *command[1:]], "module"
    code = INTERRUPTED.format(module=module, argv=argv, folder=str(Path(script).parent), how=how)
    before = files(here)
    done = subprocess.run([sys.executable, "-c", code], cwd=here, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 128 + signal.SIGINT, done.stderr
    assert "stopped" in done.stderr.splitlines()[-1] and "Traceback" not in done.stderr, done.stderr
    assert files(here) == before


# ---- no command can miss it ----


def test_every_command_ends_by_the_same_rule() -> None:
    apart = {
        "docker/smoke.py", "docker/wheels.py", "docker/count_neon.py",  # run where flipbit is not installed, or alone
        "firmware/boards/read_profile.py", "firmware/boards/report_sizes.py", "firmware/boards/make_image.py",  # make's
        "firmware/boards/board_tables.py",
        "firmware/fuzz/make_corpus.py", "firmware/fuzz/stack_depth.py", "runtime/simulate/traces/generate.py",  # theirs
    }  # fmt: skip
    homes = {"runtime/__main__.py": "runtime/commands/cli.py", "runtime/finetune.py": "runtime/commands/cli.py",
             "runtime/commands/flash.py": "runtime/commands/device.py", "runtime/study.py": "studies/learning.py",
             "export/verify.py": "export/commands/verify.py", "export/show.py": "export/commands/show.py",
             "train/run.py": "train/commands/train.py", "train/reproduce.py": "train/commands/reproduce.py",
             "export/to_c.py": "export/commands/c_source.py",
             **{f"export/to_{kind}.py": "export/commands/convert.py" for kind in ("fbit", "onnx", "tflite")},
             }  # fmt: skip
    for path in sorted(ROOT.glob("*/**/*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(("train/", "export/", "runtime/", "studies/", "firmware/", "docker/")) and name not in apart:
            text = path.read_text(encoding="utf-8")
            if "__main__" in text:
                assert "guarded(" in (ROOT / homes.get(name, name)).read_text(encoding="utf-8"), name
            assert "argparse.ArgumentParser(" not in text, f"{name}: use exits.CommandParser"
