"""Images as strangers send them: whole ones, bent in many ways, most with a right checksum."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator

import numpy as np

from tests.firmware.wasm.jobs import CORPUS, SHIPPED
from tests.nets.small_nets import repaired

HEADER, TENSOR, OPERATION = 32, 12, 28
EXTREMES = {
    1: [0, 1, 2, 127, 128, 254, 255],
    2: [0, 1, 255, 256, 4096, 32767, 65535],
    4: [0, 1, 4, 1 << 16, 1 << 31, (1 << 32) - 1],
}
TEXTS = [
    b'{"labels": 5, "names": {"a": 1}, "input": [1], "output": ["values"]}',
    b'{"labels": [{"toString": 1}, [[[]]], null, true, 1e999], "names": [null, {}, 3]}',
    b'{"labels": ["' + b"x" * 5000 + b'"], "names": ["' + "\u202e\u0000".encode() * 200 + b'"]}',
    b'{"input": "(pixel - 1e308) * 1e308", "output": "values"}',
    b'{"input": "(pixel - 0) / 0"}',
    b'{"__proto__": {"labels": ["a"]}, "constructor": 3, "input": "(pixel - 128) * 0.0078125"}',
    b"[" * 3000 + b"]" * 3000,
    b"\xff\xfe\x00",
    b"null",
    json.dumps({"labels": [str(i) for i in range(20_000)], "output": "values"}).encode(),
]  # fmt: skip


def _put(data: bytearray, at: int, size: int, value: int) -> None:
    if at + size <= len(data):
        data[at : at + size] = value.to_bytes(size, "little")


def _fields(data: bytearray, random: np.random.Generator) -> None:
    """Fields of tables get extreme values."""
    tensors, operations = (min(count, 1000) for count in struct.unpack_from("<HH", data, 16))
    for _ in range(random.integers(1, 4)):
        where = random.integers(4)
        size = int(random.choice([1, 2, 4]))
        if where == 0:
            at = int(random.integers(4, HEADER))
        elif where == 1:
            at = HEADER + TENSOR * int(random.integers(max(1, tensors))) + int(random.integers(TENSOR))
        else:
            at = HEADER + TENSOR * tensors + OPERATION * int(random.integers(max(1, operations)))
            at += int(random.integers(OPERATION))
        _put(data, at, size, int(random.choice(EXTREMES[size])))


def _large(data: bytearray, random: np.random.Generator) -> None:
    """All tensors become larger alike, so that their shapes still agree."""
    (tensors,) = struct.unpack_from("<H", data, 16)
    factor = int(random.choice([2, 8, 64, 500]))
    for i in range(min(tensors, (len(data) - HEADER) // TENSOR)):
        for at in (0, 2):
            (side,) = struct.unpack_from("<H", data, HEADER + TENSOR * i + at)
            if side > 1:
                _put(data, HEADER + TENSOR * i + at, 2, min(65535, side * factor))


def _metadata(data: bytearray, random: np.random.Generator) -> None:
    new = TEXTS[random.integers(len(TEXTS))]
    data.extend(bytes(-len(data) % 4))
    struct.pack_into("<II", data, 24, len(data), len(new))
    data.extend(new + bytes(-len(new) % 4))
    struct.pack_into("<I", data, 8, len(data))


def _noise(data: bytearray, random: np.random.Generator) -> None:
    for _ in range(random.integers(1, 9)):
        data[random.integers(len(data))] = random.integers(256)


def strangers(count: int, seed: int) -> Iterator[bytes]:
    """Each seed gives the same images."""
    random = np.random.default_rng(seed)
    sources = [data for path in CORPUS + SHIPPED if len(data := path.read_bytes()) > 100]
    bends = [_fields, _fields, _large, _metadata, _noise]
    for i in range(count):
        data = bytearray(sources[random.integers(len(sources))])
        kind = random.integers(10)
        if kind == 0:
            yield bytes(data[: random.integers(len(data))])
        elif kind == 1:
            _noise(data, random)
            yield bytes(data)
        elif kind == 2 and i % 2:
            yield bytes(data) + random.bytes(int(random.integers(1, 300)))
        else:
            for _ in range(random.integers(1, 3)):
                bends[random.integers(len(bends))](data, random)
            yield repaired(data)
