"""Images field by field, for what no exporter writes."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import numpy as np

HEADER, TENSOR, OP = 32, 12, 28
CONV, DENSE, AVERAGE, FLATTEN = 1, 2, 4, 8
BINARY, TRAINABLE = 2, 8


@dataclass(frozen=True)
class Shape:
    height: int
    width: int
    channels: int
    rank: int = 3


@dataclass(frozen=True)
class Layer:
    """From the tensor before to the next; ``kernel`` (height, width), padded to keep the size where it is odd."""

    kind: int
    kernel: tuple[int, int] = (0, 0)
    flags: int = 0
    shift: int = 0
    factor: int = 0
    fill: int = 0  # of each byte of weights


def _with_crc(data: bytearray) -> bytes:
    data[12:16] = bytes(4)
    data[12:16] = struct.pack("<I", zlib.crc32(data))
    return bytes(data)


def image(shapes: list[Shape], layers: list[Layer], metadata: bytes = b"", weights_at: int | None = None) -> bytes:
    """A chain of layers. ``weights_at`` puts the first layer's weights at another offset."""
    tables = HEADER + TENSOR * len(shapes) + OP * len(layers)
    body, at = bytearray(), tables
    records = bytearray()

    def put(piece: bytes) -> int:
        nonlocal at
        offset = at
        body.extend(piece + bytes(-len(piece) % 4))
        at += len(piece) + -len(piece) % 4
        return offset

    metadata_at = put(metadata) if metadata else 0
    for i, layer in enumerate(layers):
        source, target = shapes[i], shapes[i + 1]
        first, second = layer.factor, 0
        weighted = layer.kind in (CONV, DENSE)
        kernel = layer.kernel if layer.kind == CONV else (1, 1)
        if weighted:
            inputs = kernel[0] * kernel[1] * source.channels
            binary = layer.flags & BINARY
            size = 2 * -(-inputs // 16) if binary else inputs
            filters = np.full((target.channels, size), layer.fill, np.uint8)
            spare = -inputs % 16
            if binary and spare:  # bits behind the last weight are 0
                filters[:, -2:] &= np.frombuffer(struct.pack("<H", 0xFFFF >> spare), np.uint8)
            first = put(filters.tobytes())
            params = np.zeros(target.channels, "<i4").tobytes()
            multiplier = np.ones(target.channels, "<i2" if binary else "<i4").tobytes()
            second = put(params + multiplier)
            if i == 0 and weights_at is not None:
                first = weights_at
        windowed = layer.kind in (CONV, AVERAGE)
        stride = (1, 1) if windowed else (0, 0)
        pad = (kernel[0] // 2, kernel[1] // 2) if layer.kind == CONV and source.height == target.height else (0, 0)
        window = layer.kernel if windowed else (0, 0)
        records += struct.pack(
            "<BBHHHBBBBBBBBB3xII", layer.kind, layer.flags, i, 0xFFFF, i + 1, *window, *stride, pad[0], pad[0], pad[1],
            pad[1], layer.shift, first, second,
        )  # fmt: skip
    head = struct.pack(
        "<4sHHIIHHHHII", b"FBIT", 1, 0, tables + len(body), 0, len(shapes), len(layers), 0, len(shapes) - 1,
        metadata_at, len(metadata),
    )  # fmt: skip
    tensors = b"".join(struct.pack("<HHHbBf", s.height, s.width, s.channels, 0, s.rank, 0.05) for s in shapes)
    return _with_crc(bytearray(head + tensors + records + body))
