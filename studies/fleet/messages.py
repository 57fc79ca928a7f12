"""What crosses the network. Little-endian; a message that is malformed is refused with :class:`MessageError`.

request: task u8 | change u8 | base u32 | image u32 | rate u32 | seed u32 | limit u32 | first u16 | sum bits u8 |
         length of the change u32 | change | plan
reply:   status u8 | sum bits u8 | image u32 | samples u16 | right u16 | loss f32 | seconds f32 | body

``base`` and ``image`` are CRCs: of the image that the change starts from, and of the one that it ends with.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from flipbit.runtime.core.exchange import Sums
from flipbit.runtime.errors import ArgumentError

Array = np.ndarray
REQUEST = struct.Struct("<BBIIIIIHBI")
REPLY = struct.Struct("<BBIHHff")
LONGEST = 1 << 26  # bytes that any part unpacks to: a forged one would fill the memory
BLOCK = 64  # sums of 8 bits that share an exponent


class MessageError(ArgumentError):
    """Bytes that are no message of this version."""


class Task(IntEnum):
    HELLO = 0  # who are you: image, samples
    FLIPS = 1  # learn a step by yourself, send what you would flip
    SUMS = 2  # take part in a pass, send its sums
    SCALES = 3  # find the scales of gradients from here on, send the plan that follows


class Change(IntEnum):
    """How a device comes from the image it has to the one that the server has."""

    NONE = 0
    FLIPS = 1
    BYTES = 2
    WHOLE = 3


class Answer(IntEnum):
    DONE = 0
    STALE = 1  # has another image than the change starts from
    WRONG_NET = 2
    NO_SAMPLES = 3
    FAILED = 4  # the body says why


@dataclass(frozen=True)
class Request:
    task: Task
    image: int
    base: int = 0
    change: Change = Change.NONE
    payload: bytes = b""
    rate: int = 0  # 20 fractional bits
    seed: int = 0
    limit: int = 0  # flips, at most
    first: int = 0  # samples of the batch that are other devices'
    bits: int = 32  # of a sum
    plan: bytes = b""

    def pack(self) -> bytes:
        head = REQUEST.pack(
            self.task, self.change, self.base, self.image, self.rate, self.seed, self.limit, self.first, self.bits,
            len(self.payload),
        )  # fmt: skip
        return head + self.payload + self.plan

    @classmethod
    def unpack(cls, data: bytes) -> Request:
        if len(data) < REQUEST.size:
            raise MessageError(f"a request of {len(data)} bytes; expected at least {REQUEST.size}")
        task, change, base, image, rate, seed, limit, first, bits, length = REQUEST.unpack_from(data)
        rest = data[REQUEST.size :]
        if task not in set(Task) or change not in set(Change) or length > len(rest) or bits not in (8, 32):
            raise MessageError("a request of another version, or damaged")
        return cls(
            Task(task), image, base, Change(change), rest[:length], rate, seed, limit, first, bits, rest[length:]
        )


@dataclass(frozen=True)
class Reply:
    status: Answer
    image: int
    samples: int = 0
    right: int = 0
    loss: float = 0.0  # nats, summed over the samples
    seconds: float = 0.0
    bits: int = 32
    body: bytes = b""

    def pack(self) -> bytes:
        head = (self.status, self.bits, self.image, self.samples, self.right, self.loss, self.seconds)
        return REPLY.pack(*head) + self.body

    @classmethod
    def unpack(cls, data: bytes) -> Reply:
        if len(data) < REPLY.size:
            raise MessageError(f"a reply of {len(data)} bytes; expected at least {REPLY.size}")
        status, bits, image, samples, right, loss, seconds = REPLY.unpack_from(data)
        numbers = right <= samples and 0 <= loss <= 1e9 and 0 <= seconds <= 1e9
        if status not in set(Answer) or bits not in (8, 32) or not numbers:
            raise MessageError("a reply of another version, or damaged")
        return cls(Answer(status), image, samples, right, loss, seconds, bits, data[REPLY.size :])


def _unpacked(data: bytes) -> bytes:
    try:
        expand = zlib.decompressobj()
        found = expand.decompress(data, LONGEST)
    except zlib.error:
        raise MessageError("a part of a message is damaged") from None
    if not expand.eof or expand.unused_data:
        raise MessageError("a part of a message is damaged or too long")
    return found


# Flips: distances between places that rise, 7 bits to a byte (the highest bit: more follows), compressed.


def pack_places(places: Array) -> bytes:
    gaps = np.diff(np.sort(np.asarray(places, np.int64)), prepend=-1) - 1
    packed = bytearray()
    for gap in gaps.tolist():
        while gap > 127:
            packed.append(gap & 127 | 128)
            gap >>= 7
        packed.append(gap)
    return zlib.compress(bytes(packed), 9)


def unpack_places(data: bytes) -> Array:
    packed = np.frombuffer(_unpacked(data), np.uint8).astype(np.int64)
    ends = np.flatnonzero(packed < 128)
    if len(packed) and (not len(ends) or ends[-1] != len(packed) - 1):
        raise MessageError("a list of flips ends in the middle of one")
    starts = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
    if len(ends) and (ends - starts).max() > 4:
        raise MessageError("a list of flips with a place beyond 2^32")
    place = np.arange(len(packed)) - np.repeat(starts, ends - starts + 1)
    gaps = np.add.reduceat((packed & 127) << 7 * place, starts) if len(ends) else packed
    places = np.cumsum(gaps + 1) - 1
    if len(places) and places[-1] >= 1 << 32:
        raise MessageError("a list of flips with a place beyond 2^32")
    return places.astype(np.uint32)


# Images: the bytes that differ.


def pack_difference(old: bytes, new: bytes) -> bytes:
    changed = np.frombuffer(old, np.uint8) ^ np.frombuffer(new, np.uint8)
    places = np.flatnonzero(changed)
    listed = pack_places(places)
    return struct.pack("<I", len(listed)) + listed + zlib.compress(changed[places].tobytes(), 9)


def apply_difference(old: bytes, packed: bytes) -> bytes:
    if len(packed) < 4:
        raise MessageError("a difference of images is cut off")
    (length,) = struct.unpack_from("<I", packed)
    places = unpack_places(packed[4 : 4 + length])
    values = np.frombuffer(_unpacked(packed[4 + length :]), np.uint8)
    if len(places) != len(values) or (len(places) and places[-1] >= len(old)):
        raise MessageError("a difference of images is of another image")
    new = np.frombuffer(old, np.uint8).copy()
    new[places] ^= values
    return new.tobytes()


# Sums: exact, or rounded stochastically to 8 bits with an exponent for each block.


def pack_sums(sums: Sums, bits: int, seed: int) -> bytes:
    """Moments are always exact: there are few of them."""
    if bits == 32 or sums.recalibrating:
        return zlib.compress(sums.words.view(np.uint8).reshape(-1, 4).T.tobytes(), 1)
    counts, values = sums.words[: sums.counts], sums.words[sums.counts :].view(np.int32).astype(np.int64)
    blocks = np.pad(values, (0, -len(values) % BLOCK)).reshape(-1, BLOCK)
    most = np.abs(blocks).max(1, initial=0)
    exponents = np.zeros(len(blocks), np.int64)
    for _ in range(25):  # 2^31 / 2^24 is 128
        exponents += most >> exponents > 126  # rounding up makes it 127 at most
    random = np.random.default_rng(seed).integers(0, 1 << 32, blocks.shape) & ((1 << exponents) - 1)[:, None]
    small = ((blocks + random) >> exponents[:, None]).astype(np.int8)
    packed = counts.tobytes() + exponents.astype(np.uint8).tobytes() + small.tobytes()[: len(values)]
    return zlib.compress(packed, 6)


def unpack_sums(data: bytes, bits: int, like: Sums) -> Array:
    """Words as :class:`Sums` has them; ``like`` is the server's own of the same pass."""
    packed, count = _unpacked(data), len(like.words)
    if bits == 32 or like.recalibrating:
        if len(packed) != 4 * count:
            raise MessageError(f"sums of {len(packed):,} bytes; expected {4 * count:,}")
        return np.ascontiguousarray(np.frombuffer(packed, np.uint8).reshape(4, -1).T).view(np.uint32).reshape(-1)
    values = count - like.counts
    blocks = -(-values // BLOCK)
    if len(packed) != 4 * like.counts + blocks + values:
        raise MessageError(f"sums of {len(packed):,} bytes; expected {4 * like.counts + blocks + values:,}")
    counts = np.frombuffer(packed, np.uint32, like.counts)
    exponents = np.frombuffer(packed, np.uint8, blocks, 4 * like.counts).astype(np.int64)
    if len(exponents) and exponents.max() > 24:
        raise MessageError("sums with an exponent beyond 24")
    small = np.frombuffer(packed, np.int8, values, 4 * like.counts + blocks).astype(np.int64)
    sums = small << np.repeat(exponents, BLOCK)[:values]
    return np.concatenate([counts, sums.astype(np.int32).view(np.uint32)])
