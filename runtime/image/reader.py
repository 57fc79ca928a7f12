"""Reads .fbit images and trusts nothing in them: docs/fbit-format.md is the specification.

Every offset, size, product and index is checked before use; a bad image raises :class:`ImageError`, whose ``status``
is the name the C core gives to the same reason.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.runtime.audio.config import LIMITS, RATE, AudioConfig
from flipbit.runtime.errors import ArgumentError, FileError, FlipbitError, ImageError, error_of
from flipbit.runtime.image.kinds import (
    BINARY,
    CHUNKS,
    NEWEST_VERSION,
    NO_TENSOR,
    ONES,
    REFERENCES,
    RELU,
    Kind,
    Shape,
    kind_of,
    named,
)  # fmt: skip
from flipbit.runtime.recordings.front_ends import (
    FRACTIONS,
    MULTIPLIERS,
    SCALES_MOST,
    SHIFTS,
    AudioInput,
    FrontEndInput,
    SignalInput,
)

__all__ = ["Image", "ImageError", "Operation", "Tensor", "read_image"]

HEADER = struct.Struct("<4sHHIIHHHHII")
TENSOR = struct.Struct("<HHHbBf")
OP = struct.Struct("<BBHHHBBBBBBBBB3sII")
FRONT_END = struct.Struct("<BBHI24s")
AUDIO = struct.Struct("<6HBB10s")
SIGNAL = struct.Struct("<BBbB6H6b2s")
HAS_FRONT_END = 1  # of the header's flags
PER_CHANNEL = 1  # of a signal's flags
INT31 = 2**31 - 1
TABLE_SIZE = 256
RANK_BITS = 0x83  # of an image of packed bits


@dataclass(frozen=True)
class Tensor:
    height: int
    width: int
    channels: int
    zero_point: int
    rank: int
    scale: float

    @property
    def size(self) -> int:
        """Values."""
        return self.height * self.width * self.channels

    @property
    def bits(self) -> bool:
        """Whether its values are ±1, packed: uint16 words (channels / 16, height, width)."""
        return self.rank == RANK_BITS

    @property
    def bytes(self) -> int:
        return 2 * self.height * self.width * -(-self.channels // 16) if self.bits else self.size

    @property
    def shape(self) -> tuple[int, ...]:
        """As it lies in memory: channel, row, column."""
        return (self.channels,) if self.rank == 1 else (self.channels, self.height, self.width)


@dataclass(frozen=True)
class Operation:
    name: str
    kind: str  # the name of one of kinds.KINDS
    flags: int
    inputs: tuple[int, ...]
    output: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    shift: int
    first: int
    second: int
    weights: np.ndarray | None = None  # uint16 words, or int8, as stored: filters first
    bias: np.ndarray | None = None
    multiplier: np.ndarray | None = None
    table: np.ndarray | None = None  # int8: the results of −128 … 127
    threshold: np.ndarray | None = None  # per channel
    inverted: np.ndarray | None = None  # per channel, bool
    references: np.ndarray | None = None  # (filters, 2): mean and deviation of results, 7 fractional bits

    @property
    def traits(self) -> Kind:
        return named(self.kind)

    @property
    def taps(self) -> int:
        """Values of a channel that one result sees: the window, or one."""
        return self.kernel[0] * self.kernel[1] if self.traits.kernel else 1

    @property
    def relu(self) -> bool:
        return bool(self.flags & RELU)

    @property
    def binary(self) -> bool:
        return bool(self.flags & BINARY)

    @property
    def chunks(self) -> bool:
        return bool(self.flags & CHUNKS)

    @property
    def ones(self) -> bool:
        return bool(self.flags & ONES)


@dataclass(frozen=True)
class Image:
    """A checked image."""

    tensors: list[Tensor]
    operations: list[Operation]
    input: int
    output: int
    metadata: dict[str, Any]
    data: bytes
    front_end: FrontEndInput | None = None  # how recordings become the input

    @property
    def labels(self) -> list[str]:
        """Names of the classes, if the metadata has them."""
        found = self.metadata.get("labels", [])
        return [str(label) for label in found] if isinstance(found, list) else []

    @property
    def values(self) -> bool:
        """Whether the outputs are values (angles, counts, an image), and not scores of classes."""
        return bool(self.metadata.get("output") == "values")


def read_image(source: str | Path | bytes) -> Image:
    """The image in a file or in memory; raises :class:`ImageError` for anything the format does not allow."""
    if isinstance(source, bytes):
        return _Reader(source).image()
    try:
        data = Path(source).read_bytes()
    except OSError as error:
        raise FileError(f"{source}: {error.strerror}") from None
    try:
        return _Reader(data).image()
    except FlipbitError as error:
        raise error.about(source) from None


def _require(condition: bool, status: str, message: str) -> None:
    if not condition:
        raise error_of(status, message)


class _Reader:
    def __init__(self, data: bytes):
        self.data = data

    def image(self) -> Image:
        data = self.data
        _require(len(data) >= HEADER.size, "FB_ERR_TRUNCATED", f"{len(data)} bytes are too few for an image")
        magic, version, flags, length, crc, tensors, ops, first, last, at, size = HEADER.unpack_from(data)
        _require(magic == b"FBIT", "FB_ERR_MAGIC", "not a .fbit image")
        known = 1 <= version <= NEWEST_VERSION
        _require(known, "FB_ERR_VERSION", f"format version {version}; this reader knows 1 to {NEWEST_VERSION}")
        self.version = version
        _require(length == len(data), "FB_ERR_LENGTH", f"says it has {length} bytes, has {len(data)}")
        _require(length % 4 == 0, "FB_ERR_LENGTH", f"its length {length} is not a multiple of 4")
        found = zlib.crc32(data[16:], zlib.crc32(data[:12] + bytes(4)))
        _require(found == crc, "FB_ERR_CRC", f"damaged: CRC {found:08x}, should be {crc:08x}")
        _require(not flags & ~(HAS_FRONT_END if version > 1 else 0), "FB_ERR_RESERVED", "a reserved field is not 0")
        tables = HEADER.size + TENSOR.size * tensors + OP.size * ops
        record = tables
        if flags & HAS_FRONT_END:
            tables += FRONT_END.size
        _require(tensors >= 1 and ops >= 1 and tables <= length, "FB_ERR_TABLE", "tables reach beyond the image")
        _require(first < tensors and last < tensors, "FB_ERR_INDEX", "input or output tensor does not exist")
        self.start = tables  # weights, parameters and metadata lie behind the tables
        self.ends = first, last
        self.tensors = [self._tensor(i) for i in range(tensors)]
        front_end = self._front_end(record, self.tensors[first]) if flags & HAS_FRONT_END else None
        metadata = self._metadata(at, size)
        names = metadata.get("names", []) if isinstance(metadata, dict) else []
        self.written = {first}
        operations = []
        for i in range(ops):
            name = str(names[i]) if isinstance(names, list) and i < len(names) else f"op{i}"
            operations.append(self._operation(i, name))
        _require(last in self.written, "FB_ERR_INDEX", "the output tensor is never written")
        # Last, as the C core does not read it: whatever else is wrong has the same status there.
        _require(isinstance(metadata, dict), "FB_ERR_METADATA", "metadata is not a JSON object")
        return Image(self.tensors, operations, first, last, metadata, data, front_end)

    def _tensor(self, i: int) -> Tensor:
        tensor = Tensor(*TENSOR.unpack_from(self.data, HEADER.size + i * TENSOR.size))
        _require(tensor.size > 0, "FB_ERR_SHAPE", f"tensor {i} has no values")
        _require(tensor.bytes <= INT31, "FB_ERR_SHAPE", f"tensor {i} is larger than 2 GB")
        vector = tensor.rank == 1 and tensor.height == tensor.width == 1
        bits = tensor.bits and self.version >= 2
        _require(tensor.rank == 3 or vector or bits, "FB_ERR_SHAPE", f"tensor {i} has rank {tensor.rank}")
        _require(
            math.isfinite(tensor.scale) and tensor.scale > 0, "FB_ERR_SCALE", f"tensor {i} has scale {tensor.scale}"
        )
        plain = tensor.scale == 1 and tensor.zero_point == 0
        _require(not bits or plain, "FB_ERR_SCALE", f"tensor {i}: bits have scale 1 and zero point 0")
        _require(not bits or i not in self.ends, "FB_ERR_SHAPE", f"tensor {i}: input and output of a net are int8")
        return tensor

    def _front_end(self, at: int, tensor: Tensor) -> FrontEndInput:
        kind, channels, hop, rate, rest = FRONT_END.unpack_from(self.data, at)
        _require(kind in (1, 2), "FB_ERR_KIND", f"front end: unknown kind {kind}")
        _require(hop >= 1, "FB_ERR_WINDOW", "front end: a hop of 0")
        if kind == 1:
            return self._audio_input(channels, hop, rate, rest, tensor)
        return self._signal_input(channels, hop, rate, rest, tensor)

    def _audio_input(self, channels: int, hop: int, rate: int, rest: bytes, tensor: Tensor) -> AudioInput:
        *given, reserved = AUDIO.unpack(rest)
        _require(not any(reserved), "FB_ERR_RESERVED", "front end: a reserved field is not 0")
        _require(rate == 1000 * RATE, "FB_ERR_WINDOW", f"front end: sound at {rate / 1000:g} Hz; expected {RATE}")
        within = all(low <= value <= high for value, (low, high) in zip(given, LIMITS.values()))
        _require(within, "FB_ERR_WINDOW", f"front end: {dict(zip(LIMITS, given))} is outside {LIMITS}")
        try:
            config = AudioConfig(*given)
        except ArgumentError as error:
            raise error_of("FB_ERR_WINDOW", f"front end: {error}") from None
        bad = f"front end: rows of {config.bands} features for an input of {tensor.shape}"
        right = channels == 1 and tensor.rank == 3 and tensor.width == config.bands and tensor.channels == 1
        _require(right, "FB_ERR_SHAPE", bad)
        return AudioInput(config, tensor.height, hop)

    def _signal_input(self, channels: int, hop: int, rate: int, rest: bytes, tensor: Tensor) -> SignalInput:
        flags, shift, fraction, gap, *given, end = SIGNAL.unpack(rest)
        multipliers, zeros = given[:SCALES_MOST], given[SCALES_MOST:]
        _require(not flags & ~PER_CHANNEL, "FB_ERR_FLAGS", f"front end: flags {flags}")
        _require(not gap and not any(end), "FB_ERR_RESERVED", "front end: a reserved field is not 0")
        _require(rate >= 1, "FB_ERR_WINDOW", "front end: a rate of 0")
        used = channels if flags & PER_CHANNEL else 1
        bad = f"front end: {channels} channels for an input of {tensor.shape}"
        _require(channels >= 1 and used <= SCALES_MOST and tensor.rank == 3, "FB_ERR_SHAPE", bad)
        planes = tensor.channels == channels and 1 in (tensor.height, tensor.width)
        _require(planes or (tensor.channels == 1 and tensor.width == channels), "FB_ERR_SHAPE", bad)
        right = SHIFTS[0] <= shift <= SHIFTS[1] and FRACTIONS[0] <= fraction <= FRACTIONS[1]
        _require(right, "FB_ERR_SHIFT", f"front end: shift {shift}, {fraction} fractional bits")
        right = all(MULTIPLIERS[0] <= m <= MULTIPLIERS[1] for m in multipliers[:used]) and not any(multipliers[used:])
        _require(right, "FB_ERR_MULTIPLIER", f"front end: multipliers {multipliers} for {used} scales")
        _require(not any(zeros[used:]), "FB_ERR_RESERVED", "front end: a reserved field is not 0")
        length = tensor.width if planes and tensor.height == 1 else tensor.height
        return SignalInput(
            rate / 1000, length, hop, channels, fraction, shift, tuple(multipliers[:used]), tuple(zeros[:used])
        )

    def _metadata(self, at: int, size: int) -> Any:
        """The metadata, or None if it is not JSON."""
        if at == 0:
            _require(size == 0, "FB_ERR_METADATA", "metadata has a length but no place")
            return {}
        try:
            return json.loads(self._slice("metadata", at, size).decode())
        except (ValueError, RecursionError):
            return None

    def _slice(self, what: str, at: int, size: int) -> bytes:
        _require(at % 4 == 0, "FB_ERR_ALIGN", f"{what}: offset {at} is not a multiple of 4")
        inside = self.start <= at <= len(self.data) and size <= len(self.data) - at
        _require(inside, "FB_ERR_OFFSET", f"{what}: {size} bytes at {at} lie outside the image")
        fill = self.data[at + size : at + size + -size % 4]
        _require(not any(fill), "FB_ERR_RESERVED", f"{what}: bytes that fill up to a multiple of 4 are not 0")
        return self.data[at : at + size]

    def _operation(self, i: int, name: str) -> Operation:
        record = OP.unpack_from(self.data, HEADER.size + TENSOR.size * len(self.tensors) + i * OP.size)
        number, flags, a, b, out, kh, kw, sy, sx, top, bottom, left, right, shift, reserved, first, second = record
        traits = kind_of(number)
        if traits is None:
            raise error_of("FB_ERR_KIND", f"{name}: unknown kind {number}")
        kind = traits.name
        _require(traits.version <= self.version, "FB_ERR_KIND", f"{name}: {kind} needs format version {traits.version}")
        _require(reserved == bytes(3), "FB_ERR_RESERVED", f"{name}: a reserved field is not 0")
        _require(not flags & ~traits.flags, "FB_ERR_FLAGS", f"{name}: flags {flags} for {kind}")
        old = self.version < 2 and flags & REFERENCES
        _require(not old, "FB_ERR_FLAGS", f"{name}: references need format version 2")
        inputs = (a, b)[: traits.inputs]
        _require(traits.inputs == 2 or b == NO_TENSOR, "FB_ERR_INDEX", f"{name}: {kind} has one input")
        _require(all(t in self.written for t in inputs), "FB_ERR_INDEX", f"{name}: reads a tensor not yet written")
        new = out < len(self.tensors) and out not in self.written
        _require(new, "FB_ERR_INDEX", f"{name}: writes tensor {out}, which does not exist or is written already")
        self.written.add(out)
        op = Operation(
            name, kind, flags, inputs, out, (kh, kw), (sy, sx), (top, bottom, left, right), shift, first, second
        )
        self._check_window(op)
        self._check_shapes(op)
        if traits.looks_up:
            return self._with_table(op)
        if traits.thresholds:
            return self._with_thresholds(op)
        if traits.weights:
            return self._with_weights(op)
        self._check_multipliers(op)
        return op

    def _check_window(self, op: Operation) -> None:
        """Fields a kind does not use are 0; those it uses make sense."""
        has = op.traits
        bad = f"{op.name}: kernel {op.kernel}, stride {op.stride}, padding {op.padding} for {op.kind}"
        _require((min(op.kernel) >= 1) if has.kernel else op.kernel == (0, 0), "FB_ERR_WINDOW", bad)
        _require((min(op.stride) >= 1) if has.stride else op.stride == (0, 0), "FB_ERR_WINDOW", bad)
        top, bottom, left, right = op.padding
        if has.padding and (self.version >= 2 or not has.padding_new):
            _require(max(top, bottom) < op.kernel[0] and max(left, right) < op.kernel[1], "FB_ERR_WINDOW", bad)
        else:
            _require(op.padding == (0, 0, 0, 0), "FB_ERR_WINDOW", bad)
        largest = 46 if has.weights and not op.binary else 30  # of products of 64 bits, of 32
        largest -= bool(op.flags & REFERENCES)  # recalibrating looks at results with half the resolution
        bounds = (1, largest) if has.shifts else (0, 0)
        _require(bounds[0] <= op.shift <= bounds[1], "FB_ERR_SHIFT", f"{op.name}: shift {op.shift}, allowed {bounds}")
        of_bits = has.weights and has.reads_bits
        _require(op.binary or not of_bits, "FB_ERR_FLAGS", f"{op.name}: {op.kind} has binary weights")
        chunked = op.binary and op.kernel == (3, 3) and self.tensors[op.inputs[0]].channels % 16 == 0
        _require(not op.chunks or chunked, "FB_ERR_FLAGS", f"{op.name}: layout chunks needs 3×3 and 16·n channels")

    def _check_shapes(self, op: Operation) -> None:
        source, target = self.tensors[op.inputs[0]], self.tensors[op.output]
        has = op.traits
        bad = f"{op.name}: {op.kind} from {source.shape} to {target.shape}"
        packed = all(self.tensors[t].bits == has.reads_bits for t in op.inputs) and target.bits == has.writes_bits
        _require(packed, "FB_ERR_SHAPE", f"{bad}: bits and int8 do not mix")
        if has.shape is Shape.WINDOWS:
            _require(source.rank == 3 or has.reads_bits, "FB_ERR_SHAPE", bad)
            top, bottom, left, right = op.padding
            height, width = source.height + top + bottom - op.kernel[0], source.width + left + right - op.kernel[1]
            _require(height >= 0 and width >= 0, "FB_ERR_SHAPE", bad)
            expected = (height // op.stride[0] + 1, width // op.stride[1] + 1)
            _require((target.height, target.width) == expected, "FB_ERR_SHAPE", bad)
            same_channels = (has.weights and not has.per_channel) or target.channels == source.channels
            vector = has.to_vector and target.rank == 1 and expected == (1, 1)
            _require(same_channels and (target.rank == 3 or has.writes_bits or vector), "FB_ERR_SHAPE", bad)
        elif has.shape is Shape.VECTORS:
            _require(source.rank == 1 and target.rank == 1, "FB_ERR_SHAPE", bad)
        elif has.shape is Shape.FLAT:
            _require(source.rank == 3 and target.rank == 1 and source.size == target.size, "FB_ERR_SHAPE", bad)
        elif has.shape is Shape.STRIDED:
            expected = (-(-source.height // op.stride[0]), -(-source.width // op.stride[1]))
            right_size = (target.height, target.width) == expected and target.channels >= source.channels
            _require(source.rank == target.rank == 3 and right_size, "FB_ERR_SHAPE", bad)
        elif has.shape is Shape.BITS:
            same = (source.height, source.width, source.channels) == (target.height, target.width, target.channels)
            _require(same, "FB_ERR_SHAPE", bad)
        elif has.shape is Shape.SAME:
            same = all(self.tensors[t].shape == target.shape for t in op.inputs)
            _require(same, "FB_ERR_SHAPE", bad)
        elif has.shape is Shape.JOINED:
            other = self.tensors[op.inputs[1]]
            sides = {(t.rank, t.height, t.width) for t in (source, other, target)}
            joined = len(sides) == 1 and source.channels + other.channels == target.channels
            _require(joined, "FB_ERR_SHAPE", f"{op.name}: {op.kind} of {source.shape}, {other.shape} to {target.shape}")
        else:
            raise error_of("FB_ERR_KIND", f"{op.name}: no reader for shapes of {op.kind}")
        if has.keeps_scale:
            kept = source.zero_point == target.zero_point and source.scale == target.scale
            _require(kept, "FB_ERR_SCALE", f"{op.name}: {op.kind} keeps zero point and scale")

    def _check_multipliers(self, op: Operation) -> None:
        used = op.traits.factors
        given = (op.first, op.second)
        right = all(1 <= m < 2**22 for m in given[:used]) and not any(given[used:])
        _require(right, "FB_ERR_MULTIPLIER", f"{op.name}: multipliers {given} for {op.kind}")
        half = 1 << op.shift >> 1
        largest = 255 * (op.taps * op.first + op.second)
        if any(op.padding):  # fewer pixels in a window, and a multiplier that is rounded for them
            largest += 255 * op.taps
        _require(not used or largest + half <= INT31, "FB_ERR_OVERFLOW", f"{op.name}: its sums overflow 32 bits")

    def _with_table(self, op: Operation) -> Operation:
        _require(op.second == 0, "FB_ERR_MULTIPLIER", f"{op.name}: a field that {op.kind} does not use is not 0")
        table = np.frombuffer(self._slice(f"{op.name} table", op.first, TABLE_SIZE), np.int8)
        return Operation(**{**op.__dict__, "table": table})

    def _with_thresholds(self, op: Operation) -> Operation:
        channels = self.tensors[op.inputs[0]].channels
        words = -(-channels // 16)
        _require(op.first == 0, "FB_ERR_MULTIPLIER", f"{op.name}: {op.first} for {op.kind}")
        raw = self._slice(f"{op.name} thresholds", op.second, 2 * (channels + words))
        threshold = np.frombuffer(raw, "<i2", channels)
        within = bool((np.abs(threshold.astype(np.int32)) <= 128).all())
        _require(within, "FB_ERR_MULTIPLIER", f"{op.name}: a threshold is not in -128 to 128")
        inverted = np.unpackbits(np.frombuffer(raw, np.uint8, 2 * words, 2 * channels), bitorder="little").astype(bool)
        _require(not inverted[channels:].any(), "FB_ERR_RESERVED", f"{op.name}: bits beyond the last channel are not 0")
        return replace(op, threshold=threshold, inverted=inverted[:channels])

    def _with_weights(self, op: Operation) -> Operation:
        channels, filters = self.tensors[op.inputs[0]].channels, self.tensors[op.output].channels
        inputs = op.taps * (1 if op.traits.per_channel else channels)
        words = -(-inputs // 16)
        size = filters * (2 * words if op.binary else inputs)
        raw = self._slice(f"{op.name} weights", op.first, size)
        width = 2 if op.binary else 4
        referenced = bool(op.flags & REFERENCES)
        params = self._slice(f"{op.name} parameters", op.second, filters * (4 + width + 4 * referenced))
        bias = np.frombuffer(params, "<i4", filters)
        multiplier = np.frombuffer(params, f"<i{width}", filters, 4 * filters).astype(np.int64)
        _require(bool((multiplier >= 1).all()), "FB_ERR_MULTIPLIER", f"{op.name}: a multiplier is not positive")
        if op.binary:
            weights = np.frombuffer(raw, "<u2").reshape(filters, words)
            left_over = 16 * words - inputs
            clean = not left_over or not (weights[:, -1] >> np.uint16(16 - left_over)).any()
            _require(clean, "FB_ERR_RESERVED", f"{op.name}: bits beyond the last weight are not 0")
            source = self.tensors[op.inputs[0]]
            reach = (1 if source.bits else 128 + 2 * abs(source.zero_point)) * inputs + np.abs(bias.astype(np.int64))
            half = 1 << op.shift >> (not referenced)
            fits = bool((reach * multiplier + half <= INT31).all())
            _require(fits, "FB_ERR_OVERFLOW", f"{op.name}: its sums overflow 32 bits")
        else:
            weights = np.frombuffer(raw, np.int8).reshape(filters, inputs)
            reach = np.abs(weights.astype(np.int64)).sum(1) * 128 + np.abs(bias.astype(np.int64))
            _require(bool((reach <= INT31).all()), "FB_ERR_OVERFLOW", f"{op.name}: its sums overflow 32 bits")
        references = None
        if referenced:
            pairs = np.frombuffer(
                params, np.dtype([("mean", "<i2"), ("deviation", "<u2")]), filters, (4 + width) * filters
            )
            references = np.stack([pairs["mean"].astype(np.int64), pairs["deviation"].astype(np.int64)], 1)
        found = {"weights": weights, "bias": bias, "multiplier": multiplier, "references": references}
        return Operation(**{**op.__dict__, **found})
