"""What a file that was given as a model is, by its content, and what to do if it is not one that can be read here."""

from __future__ import annotations

import zipfile
from pathlib import Path

from flipbit.export.graph import ExportError
from flipbit.export.read.pt2_file import HOW

HDF5, FBIT, TFLITE, GZIP = b"\x89HDF\r\n\x1a\n", b"FBIT", b"TFL3", b"\x1f\x8b"
SOURCE = "pass the model.keras, model.h5, model.onnx or model.pt2 it was made from"
EXPECTED = "expected a model.keras or model.h5 (Keras), a model.onnx, or a model.pt2 (torch.export)"


def recognise(path: Path) -> str:
    """``keras``, ``h5``, ``onnx`` or ``pt2`` for a model that can be read; :class:`ExportError` for anything else."""
    if path.is_dir():
        raise ExportError(f"{path}: {_folder(path)}")
    if not path.is_file():
        raise ExportError(f"{path}: no such file")
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError as error:
        raise ExportError(f"{path}: {error.strerror}") from None
    if head.startswith(HDF5):
        return "h5"
    if head.startswith(b"PK"):
        kind = _archive(path)
        if kind in ("pt2", "keras"):
            return kind
        raise ExportError(f"{path}: {kind}")
    # ModelProto: ir_version, producer_name
    if head and (path.suffix == ".onnx" or (path.suffix != ".pb" and head[0] == 0x08 and b"\x12" in head[2:4])):
        return "onnx"
    raise ExportError(f"{path}: {_other(path, head)}")


def _folder(path: Path) -> str:
    if (path / "saved_model.pb").is_file():
        return (
            "a TensorFlow SavedModel, which is code; save the Keras model it came from with model.save('model.keras') "
            "(of Keras 2, keras.models.load_model opens the folder)"
        )
    if (path / "model.h5").is_file():
        return f"a folder; pass the model in it: {path / 'model.h5'}"
    return f"a folder; {EXPECTED}"


def _archive(path: Path) -> str:
    """A zip file: pt2, keras, or what it is."""
    if not zipfile.is_zipfile(path):
        return "a zip archive that is cut short; copy it again"
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return "a damaged zip archive; copy it again"
    ends = {name.rpartition("/")[2] for name in names}
    if "model.weights.h5" in ends and "config.json" in ends:
        return "keras"
    if any(name.endswith("models/model.json") for name in names) or "serialized_exported_program.json" in ends:
        return "pt2"
    if "data.pkl" in ends:
        what = "a TorchScript program" if any("/code/" in name for name in names) else "a PyTorch pickle (.pt, .pth)"
        return f"{what}: it holds bare weights, or code that runs when it is opened; build the net and {HOW}"
    if any(name.endswith(".npy") for name in names):
        return f"a NumPy archive (.npz), not a model; {EXPECTED}"
    return f"a zip archive of something else; {EXPECTED}"


def _other(path: Path, head: bytes) -> str:
    if not head:
        return "an empty file"
    if head.startswith(FBIT):
        return f"a .fbit image, which is what exporting gives; {SOURCE}, or run it with flipbit run"
    if head[4:8] == TFLITE:
        return f"a TFLite model, from which the weights' real numbers cannot be had; {SOURCE}"
    if path.suffix == ".pb":
        return "a frozen TensorFlow graph or part of a SavedModel; save the Keras model with model.save('model.keras')"
    if head[0] == 0x80 and 2 <= head[1] <= 5:
        return f"a pickle (as of older PyTorch .pt and .pth), which can run code when opened; build the net and {HOW}"
    if head.startswith(GZIP):
        return "compressed with gzip; unpack it first"
    if head.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer, not the file itself; run: git lfs pull"
    try:
        head.decode()
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4:  # a character may be cut at the end of what was read
            return f"not a readable HDF5 file or archive; {EXPECTED}"
    if b"\0" in head:
        return f"not a readable HDF5 file or archive; {EXPECTED}"
    return f"a text file, not a readable HDF5 file; {EXPECTED}"
