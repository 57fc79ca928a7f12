"""Writes a quantized deploy graph as a .fbit image: docs/fbit-format.md, byte by byte."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import Any, cast

import numpy as np

from flipbit.export.graph import Array, ExportError, Graph, Op, Weighted
from flipbit.export.pack import layout_of, pack
from flipbit.export.planar import planar
from flipbit.runtime.files import replacing
from flipbit.runtime.image.kinds import BINARY, CHUNKS, NO_TENSOR, RELU, TRAINABLE

MAGIC, VERSION = b"FBIT", 1
HEADER = struct.Struct("<4sHHIIHHHHII")
TENSOR = struct.Struct("<HHHbBf")
OP = struct.Struct("<BBHHHBBBBBBBBB3xII")


def write_fbit(graph: Graph, path: Path, input_formula: str | None = None) -> None:
    with replacing(path) as temporary:
        temporary.write_bytes(fbit_bytes(graph, input_formula))


def fbit_bytes(graph: Graph, input_formula: str | None = None) -> bytes:
    """The image of a quantized graph."""
    if not graph.quantized:
        raise ExportError("a .fbit image holds integers: calibrate and quantize the graph first (--activations int8)")
    graph = planar(graph)
    names = list(graph.tensors)
    index = {name: i for i, name in enumerate(names)}
    _fits("tensors", len(names), 0xFFFE)
    body = bytearray(HEADER.size + TENSOR.size * len(names) + OP.size * len(graph.ops))
    _align(body)

    def append(array: Array, dtype: str) -> int:
        offset = len(body)
        body.extend(np.ascontiguousarray(array.astype(dtype)).tobytes())
        _align(body)
        return offset

    records = []
    for op in graph:
        if isinstance(op, Weighted):
            assert op.requantize is not None
            first = append(*_weights(op))
            bias = op.requantize.bias.astype("<i4").tobytes()
            multiplier = op.requantize.multiplier.astype("<i2" if op.binary else "<i4").tobytes()
            second = append(np.frombuffer(bias + multiplier, np.uint8), "u1")
        else:
            given: tuple[int, ...] = cast(Any, op).factors if op.traits.factors else ()
            first, second = (*given, 0, 0)[:2]
        records.append(_record(op, index, first, second))
    metadata = {"labels": graph.labels, "names": [op.name for op in graph], "input": input_formula}
    text = json.dumps({k: v for k, v in metadata.items() if v}, ensure_ascii=False, separators=(",", ":")).encode()
    start = len(body)
    body.extend(text)
    _align(body)
    offset = HEADER.size
    for name in names:
        tensor = graph.tensors[name]
        _fits(f"{name}: a side", max(tensor.shape), 0xFFFF)
        h, w, c = tensor.shape if len(tensor.shape) == 3 else (1, 1, tensor.shape[0])
        TENSOR.pack_into(body, offset, h, w, c, tensor.zero_point, len(tensor.shape), tensor.scale)
        offset += TENSOR.size
    for record in records:
        body[offset : offset + OP.size] = record
        offset += OP.size
    ends = index[graph.input], index[graph.output]

    def header(crc: int) -> None:
        HEADER.pack_into(body, 0, MAGIC, VERSION, 0, len(body), crc, len(names), len(records), *ends, start, len(text))

    header(0)
    header(zlib.crc32(body))
    return bytes(body)


def _align(body: bytearray) -> None:
    body.extend(bytes(-len(body) % 4))


def _fits(what: str, value: int, largest: int) -> None:
    if value > largest:
        raise ExportError(f"{what}: {value} is more than a .fbit image can say ({largest})")


def _record(op: Op, index: dict[str, int], first: int, second: int) -> bytes:
    """What the kind has, from the operation's fields of that name; all else is 0."""
    has, fields = op.traits, cast(Any, op)
    kernel = fields.size if has.kernel else (0, 0)
    stride = _pair(fields.stride) if has.stride else (0, 0)
    padding = fields.padding if has.padding else (0, 0, 0, 0)
    flags = RELU if getattr(op, "relu", False) else 0
    if isinstance(op, Weighted) and op.binary:
        flags |= BINARY | TRAINABLE
        flags |= CHUNKS if has.flags & CHUNKS and layout_of(op.weights.shape) == "chunks" else 0
    for what, values in (("kernel", kernel), ("stride", stride), ("padding", padding)):
        _fits(f"{op.name}: {what}", max(values), 255)
    if has.padding and (max(padding[:2]) >= kernel[0] or max(padding[2:]) >= kernel[1]):
        raise ExportError(
            f"{op.name}: padding {padding} around a kernel of {kernel}; less than the kernel is supported"
        )
    other = index[op.inputs[1]] if has.inputs == 2 else NO_TENSOR
    return OP.pack(
        has.number, flags, index[op.inputs[0]], other, index[op.output],
        *kernel, *stride, *padding, fields.shift if has.shifts else 0, first, second,
    )  # fmt: skip


def _pair(stride: int | tuple[int, int]) -> tuple[int, int]:
    return (stride, stride) if isinstance(stride, int) else stride


def _weights(op: Weighted) -> tuple[Array, str]:
    """Weights in file order, filters first, and their type."""
    if op.binary:
        return pack(op.weights, layout_of(op.weights.shape)), "<u2"
    return np.moveaxis(op.weights, -1, 0), "i1"
