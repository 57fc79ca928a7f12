"""Looks through an HDF5 file before anything is read from it: it may hold plain arrays, and no more than it has bytes.

HDF5 can take a data set from other files (external storage, external links, virtual data sets), promise arrays that
are not there (of any size, filled with zeros) and pack zeros by a factor of a thousand. Keras uses none of it.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.train.settings import InputError

OBJECTS = 100_000  # groups and data sets; a net of 1,000 layers has about 6,000
CONFIG_BYTES, CONFIG_DEPTH = 64 << 20, 100


def weights_inside(path: Path, file: Any, available: int) -> int:
    """How many numbers the data sets of an open file of ``available`` bytes hold; :class:`InputError` for what Keras
    never writes."""
    total = bytes_used = 0
    for name, data in _data_sets(path, file):
        kept = data.id.get_create_plist()
        if data.is_virtual or data.external or kept.get_external_count():
            raise InputError(f"{path}: refused, as {name} takes its values from other files")
        if kept.get_nfilters():
            raise InputError(f"{path}: refused, as {name} is compressed; save the model again with model.save('x.h5')")
        if data.dtype.kind not in "fiub":
            raise InputError(f"{path}: refused, as {name} holds {data.dtype} and not numbers")
        size = data.size or 0
        bytes_used += size * data.dtype.itemsize
        missing = data.id.get_storage_size() < size * data.dtype.itemsize
        if missing or bytes_used > available:
            raise InputError(f"{path}: refused, as {name} says {data.shape}, which is more than the file holds")
        total += size
    return total


def _data_sets(path: Path, file: Any) -> Iterator[tuple[str, Any]]:
    import h5py

    pending, seen = [file["/"]], set()
    while pending:
        group = pending.pop()
        for name in group:
            link = group.get(name, getlink=True)
            where = f"{group.name.rstrip('/')}/{name}"
            if not isinstance(link, h5py.HardLink):
                raise InputError(f"{path}: refused, as {where} is a link to elsewhere ({type(link).__name__})")
            item = group[name]
            key = h5py.h5o.get_info(item.id).addr
            if key in seen:
                continue
            seen.add(key)
            if len(seen) > OBJECTS:
                raise InputError(f"{path}: refused, as it holds more than {OBJECTS:,} groups and data sets")
            if isinstance(item, h5py.Group):
                pending.append(item)
            elif isinstance(item, h5py.Dataset):
                yield where, item
            else:
                raise InputError(f"{path}: refused, as {where} is neither a group nor a data set")


def text_attribute(path: Path, file: Any, name: str) -> str | None:
    """An attribute of the file that is one text; None if it has none of that name."""
    import h5py

    if name not in file.attrs:
        return None
    attribute = h5py.h5a.open(file.id, name.encode())
    if attribute.shape not in ((), (1,)) or attribute.get_storage_size() > CONFIG_BYTES:
        raise InputError(f"{path}: its {name} is not one text")
    found = file.attrs[name]
    found = found if isinstance(found, (str, bytes)) or not len(found) else found[0]
    if isinstance(found, bytes):
        found = found.decode("utf-8", "replace")
    if not isinstance(found, str) or len(found) > CONFIG_BYTES:
        raise InputError(f"{path}: its {name} is not one text")
    return found


def require_shallow(path: Path, text: str) -> None:
    """Refuse JSON whose brackets nest deeper than any model's, without recursion; brackets inside strings count not."""
    depth, quoted, escaped = 0, False, False
    for letter in text:
        if quoted:
            quoted = escaped or letter != '"'
            escaped = letter == "\\" and not escaped
        elif letter == '"':
            quoted = True
        elif letter in "[{":
            depth += 1
            if depth > CONFIG_DEPTH:
                raise InputError(f"{path}: refused, as its model description nests deeper than {CONFIG_DEPTH} levels")
        elif letter in "]}":
            depth -= 1


def with_half(content: io.BytesIO, names: set[str]) -> io.BytesIO:
    """The same file with the data sets ``names`` (Keras' names of weights) in half precision; signs are kept."""
    import h5py

    smaller = io.BytesIO()
    with h5py.File(content, "r") as source, h5py.File(smaller, "w") as target:

        def copy(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset):
                halved = any(name.endswith("/" + kernel) for kernel in names)
                made = target.create_dataset(name, data=_half(item[()]) if halved else item[()])
            else:
                made = target.require_group(name)
            made.attrs.update(item.attrs)

        target.attrs.update(source.attrs)
        source.visititems(copy)
    return smaller


def _half(values: np.ndarray) -> np.ndarray:
    """In half precision; what is below zero stays below it, and so keeps its bit."""
    rounded = values.astype(np.float16)
    return np.where((values < 0) & (rounded == 0), np.float16(-6e-8), rounded).astype(np.float16)
