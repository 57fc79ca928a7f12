"""A ``.keras`` file, opened as what it is: a zip archive of a description, of arrays, and of a version number.

Nothing is unpacked to disk, and nothing in it is run. Keras stores its records without compression, so a record can
never be larger than the file it lies in.
"""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flipbit.train.nets.h5_file import CONFIG_BYTES, require_shallow
from flipbit.train.settings import InputError

CONFIG, METADATA, WEIGHTS = RECORDS = ("config.json", "metadata.json", "model.weights.h5")


@dataclass(frozen=True)
class Archive:
    """What a ``.keras`` file holds: the model's description, its weights as an HDF5 file, and who wrote it."""

    description: dict[str, Any]
    version: str
    weights: io.BytesIO
    size: int  # of the weights, in bytes


def is_archive(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"PK"


def read_archive(path: Path) -> Archive:
    """The records of a ``.keras`` file; :class:`InputError` for what Keras never writes."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = {entry.filename: entry for entry in archive.infolist()}
            _require_plain(path, archive.infolist())
            content = {name: archive.read(entries[name]) for name in RECORDS}
    except InputError:
        raise
    except (zipfile.BadZipFile, OSError, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        raise InputError(f"{path}: not a whole .keras file ({error}); copy or save it again") from None
    description, metadata = (_json(path, name, content[name]) for name in (CONFIG, METADATA))
    version = metadata.get("keras_version")
    if not isinstance(version, str) or not version[:1].isdigit():
        raise InputError(f"{path}: its {METADATA} does not say which Keras wrote it")
    return Archive(description, version, io.BytesIO(content[WEIGHTS]), len(content[WEIGHTS]))


def _require_plain(path: Path, entries: list[zipfile.ZipInfo]) -> None:
    names = [entry.filename for entry in entries]
    for name in RECORDS:
        if names.count(name) != 1:
            raise InputError(f"{path}: holds {name} {names.count(name)} times; a .keras file has it once")
    others = sorted(set(names) - set(RECORDS))
    if others:
        raise InputError(
            f"{path}: refused, as it holds {others[0]!r} beside {', '.join(RECORDS)}; a net of images or signals "
            "has no such record"
        )
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise InputError(f"{path}: refused, as it is compressed, which Keras never does; save it again with model.save")
    if sum(entry.file_size for entry in entries) > path.stat().st_size:
        raise InputError(f"{path}: refused, as its records say that they are larger than the file")


def _json(path: Path, name: str, content: bytes) -> dict[str, Any]:
    if len(content) > CONFIG_BYTES:
        raise InputError(f"{path}: refused, as its {name} has {len(content):,} bytes")
    require_shallow(path, content.decode("utf-8", "replace"))
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        raise InputError(f"{path}: its {name} is not JSON") from None
    if not isinstance(found, dict):
        raise InputError(f"{path}: its {name} is not what Keras writes")
    return found
