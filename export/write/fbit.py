"""Writes a quantized deploy graph as a .fbit image: docs/fbit-format.md, byte by byte."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import astuple
from pathlib import Path
from typing import Any, cast

import numpy as np

from flipbit.export.graph import Array, Binarize, BitConv, ExportError, Graph, Op, Table, Weighted
from flipbit.export.pack import layout_of, pack
from flipbit.export.planar import planar
from flipbit.runtime.files import replacing
from flipbit.runtime.image.kinds import BINARY, CHUNKS, NO_TENSOR, ONES, REFERENCES, RELU, TRAINABLE
from flipbit.runtime.recordings.front_ends import SCALES_MOST, AudioInput

MAGIC = b"FBIT"
RANK_BITS = 0x83  # of an image of packed bits
HEADER = struct.Struct("<4sHHIIHHHHII")
TENSOR = struct.Struct("<HHHbBf")
OP = struct.Struct("<BBHHHBBBBBBBBB3xII")
AUDIO_INPUT = struct.Struct("<BBHI6HBB10x")
SIGNAL_INPUT = struct.Struct("<BBHIBBbx6H6b2x")
HAS_FRONT_END = 1  # of the header's flags


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
    front_end = _front_end(graph)
    body = bytearray(HEADER.size + TENSOR.size * len(names) + OP.size * len(graph.ops) + len(front_end))
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
            second = append(np.frombuffer(bias + multiplier + _references(op), np.uint8), "u1")
        elif isinstance(op, Table):
            assert op.table is not None
            first, second = append(np.asarray(op.table), "i1"), 0
        elif isinstance(op, Binarize):
            first, second = 0, append(_thresholds(op), "<u2")
        else:
            given: tuple[int, ...] = cast(Any, op).factors if op.traits.factors else ()
            first, second = (*given, 0, 0)[:2]
        records.append(_record(op, index, first, second))
    metadata = {
        "labels": graph.labels, "names": [op.name for op in graph], "input": input_formula,
        "output": "values" if graph.values else "",
    }  # fmt: skip
    text = json.dumps({k: v for k, v in metadata.items() if v}, ensure_ascii=False, separators=(",", ":")).encode()
    start = len(body)
    body.extend(text)
    _align(body)
    packed = {op.output for op in graph if op.traits.writes_bits}
    offset = HEADER.size
    for name in names:
        tensor = graph.tensors[name]
        _fits(f"{name}: a side", max(tensor.shape), 0xFFFF)
        h, w, c = tensor.shape if len(tensor.shape) == 3 else (1, 1, tensor.shape[0])
        rank = RANK_BITS if name in packed else len(tensor.shape)
        TENSOR.pack_into(body, offset, h, w, c, tensor.zero_point, rank, tensor.scale)
        offset += TENSOR.size
    for record in records:
        body[offset : offset + OP.size] = record
        offset += OP.size
    body[offset : offset + len(front_end)] = front_end
    counts = len(names), len(records)
    ends = index[graph.input], index[graph.output]
    flags = HAS_FRONT_END if front_end else 0
    version = max(2 if flags else 1, *(_version(op) for op in graph))

    def header(crc: int) -> None:
        HEADER.pack_into(body, 0, MAGIC, version, flags, len(body), crc, *counts, *ends, start, len(text))

    header(0)
    header(zlib.crc32(body))
    return bytes(body)


def _front_end(graph: Graph) -> bytes:
    """The record of how recordings become the input; empty if there is nothing to say."""
    found, shape = graph.front_end, graph.tensors[graph.input].shape
    if found is None:
        return b""
    if not found.fits(shape):
        raise ExportError(f"a net that takes {shape} does not fit its front end: {found}")
    rate = round(1000 * found.rate)
    if isinstance(found, AudioInput):
        return AUDIO_INPUT.pack(1, 1, found.hop, rate, *astuple(found.audio))
    more = [0] * (SCALES_MOST - len(found.multipliers))
    return SIGNAL_INPUT.pack(
        2, found.channels, found.hop, rate, int(found.per_channel), found.shift, found.fraction,
        *found.multipliers, *more, *found.zeros, *more,
    )  # fmt: skip


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
        flags |= BINARY | has.flags & TRAINABLE
        flags |= CHUNKS if has.flags & CHUNKS and layout_of(op.weights.shape) == "chunks" else 0
    if isinstance(op, BitConv) and op.ones:
        flags |= ONES
    if isinstance(op, Weighted) and op.references is not None:
        flags |= REFERENCES
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


def _version(op: Op) -> int:
    """The first version of the format that has all that the operation uses: older readers run what they can."""
    referenced = isinstance(op, Weighted) and op.references is not None
    if referenced or (op.traits.padding_new and any(cast(Any, op).padding)):
        return 2
    return op.traits.version


def _references(op: Weighted) -> bytes:
    """Mean and deviation of each channel's results, if it has them."""
    if op.references is None:
        return b""
    pairs = np.empty(op.channels, np.dtype([("mean", "<i2"), ("deviation", "<u2")]))
    pairs["mean"], pairs["deviation"] = op.references.T
    return pairs.tobytes()


def _pair(stride: int | tuple[int, int]) -> tuple[int, int]:
    return (stride, stride) if isinstance(stride, int) else stride


def _thresholds(op: Binarize) -> Array:
    """Thresholds, then the inverted channels as bits."""
    assert op.threshold is not None and op.inverted is not None
    inverted: Array = np.zeros(-(-len(op.inverted) // 16) * 16, np.uint8)
    inverted[: len(op.inverted)] = op.inverted
    words = np.packbits(inverted, bitorder="little").view("<u2")
    return np.concatenate([op.threshold.astype("<i2").view("<u2"), words])


def _weights(op: Weighted) -> tuple[Array, str]:
    """Weights in file order, filters first, and their type."""
    if op.binary:
        return pack(op.weights, layout_of(op.weights.shape)), "<u2"
    return np.moveaxis(op.weights, -1, 0), "i1"
