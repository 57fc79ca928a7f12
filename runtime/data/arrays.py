"""Arrays of a user's ``.npy`` and ``.npz`` files: plain numbers, never objects, and no larger than the file."""

from __future__ import annotations

import math
import os
import zipfile
from pathlib import Path
from typing import IO

import numpy as np

from flipbit.runtime.errors import InputError

Array = np.ndarray


def read_arrays(path: Path) -> dict[str, Array]:
    """The arrays of an ``.npz``, or the one of an ``.npy`` under its own name; never objects."""
    try:
        packed = zipfile.is_zipfile(path)
        if packed != (path.suffix == ".npz"):
            with open(path, "rb") as file:
                if packed or file.read(6) == np.lib.format.MAGIC_PREFIX:
                    raise ValueError("an archive of arrays: call it .npz" if packed else "a single array: call it .npy")
        if not packed:
            with open(path, "rb") as file:
                return {path.stem: _read_array(file, os.fstat(file.fileno()).st_size)}
        arrays = {}
        with zipfile.ZipFile(path) as archive:
            for part in archive.infolist():
                with archive.open(part) as member:
                    arrays[part.filename.removesuffix(".npy")] = _read_array(member, part.file_size)
        return arrays
    except OSError as error:
        raise InputError(f"{path}: not a readable {path.suffix} ({error.strerror or error})") from None
    except Exception as error:  # whatever NumPy, zipfile and zlib say of a damaged or hostile file
        reason = (str(error).splitlines() or [""])[0] or type(error).__name__
        raise InputError(f"{path}: not a readable {path.suffix} of plain arrays ({reason})") from None


def _read_array(file: IO[bytes], size: int) -> Array:
    """The array in ``size`` bytes; what its head claims is compared with that before memory is taken."""
    head = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if head not in read:
        raise ValueError(f"of version {head[0]}.{head[1]}; expected 1.0 or 2.0")
    shape, _, dtype = read[head](file)
    if not dtype.hasobject and math.prod(shape) * dtype.itemsize != size - file.tell():
        raise ValueError(f"{size - file.tell():,} bytes for an array of {shape}, {dtype}")
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)
