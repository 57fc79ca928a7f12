"""Numeric arrays of MATLAB's files, version 5 (``save -v6`` and ``-v7``), as CWRU publishes its recordings.

A file is a head of 128 bytes and elements; each has a type, a size and, padded to 8 bytes, its data. An array is an
element of elements: flags, dimensions, name, numbers. An element may be compressed as a whole.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import numpy as np

from flipbit.runtime.errors import InputError

Array = np.ndarray
HEAD = 128
ARRAY, COMPRESSED = 14, 15
NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
NUMERIC = range(6, 16)  # classes of arrays; the others are cells, structures, texts, sparse
BYTES_MOST = 1 << 28


def parse_mat(data: bytes) -> dict[str, Array]:
    """Arrays of real numbers by name; :class:`InputError` says what is wrong with the bytes."""
    order = {b"IM": "<", b"MI": ">"}.get(data[126:128])
    if order is None or data[124:126] not in (b"\x00\x01", b"\x01\x00"):
        newer = data[:10] == b"MATLAB 7.3"
        raise InputError("a MATLAB file of version 7.3: save it with -v7" if newer else "no MATLAB file of version 5")
    found: dict[str, Array] = {}
    try:
        for kind, body in _elements(data[HEAD:], order):
            if kind == COMPRESSED:
                packed = zlib.decompressobj().decompress(body, BYTES_MOST)
                kind, body = next(_elements(packed, order))
            if kind == ARRAY:
                found.update(_array(body, order))
    except (struct.error, zlib.error, ValueError, StopIteration, LookupError) as error:
        raise InputError(f"a damaged MATLAB file ({str(error) or type(error).__name__})") from None
    return found


def _elements(data: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        kind, size = struct.unpack_from(f"{order}II", data, at)
        if kind >> 16:  # up to four bytes lie in the tag
            kind, size, begin, following = kind & 0xFFFF, kind >> 16, at + 4, at + 8
        else:
            begin = at + 8
            following = begin + size + (-size % 8 if kind != COMPRESSED else 0)
        if begin + size > len(data):
            raise ValueError(f"{begin + size - len(data):,} bytes are missing")
        yield kind, data[begin : begin + size]
        at = following


def _array(body: bytes, order: str) -> dict[str, Array]:
    elements = list(_elements(body, order))
    if len(elements) < 4:
        return {}
    (_, flags), (_, sizes), (_, name), (kind, numbers) = elements[:4]
    if flags[0 if order == "<" else 3] not in NUMERIC:
        return {}
    shape = np.frombuffer(sizes, f"{order}i4")
    values = np.frombuffer(numbers, order + NUMBERS[kind]).reshape(shape, order="F")
    return {name.decode("latin-1"): values.astype(np.float64)}
