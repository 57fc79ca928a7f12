"""Frames between a host and a device: docs/protocol.md as pure functions.

::

    on the line     COBS( id u16 | command u8 | status u8 | payload | CRC-32 u32 )  00

``firmware/app/fb_frame.c`` is the same in C. Nothing here waits, opens or sends: see `device.py`.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field, replace
from enum import IntEnum

from flipbit.runtime.core.fixed_width import u8, u16

PROTOCOL_VERSION = 2
HEAD = struct.Struct("<HBB")
CRC = struct.Struct("<I")
PAYLOAD_MAX = 244
PIECE_MAX = 240
FRAME_MAX = HEAD.size + PAYLOAD_MAX + CRC.size
LINE_MAX = FRAME_MAX + 1  # encoded, without the 0 at its end
REPLY = 0x80  # added to the command's number in a reply
EVENT = 0xFF  # command of a frame nobody asked for: text, with id 0
BUILT_IN = 0xFF  # slot number of the image that is linked into the firmware
NO_SLOT = 0xFE
LOCK_BUILT, LOCK_CONSENT, LOCK_KEY = 1, 2, 4  # built with LOCKED=1; somebody consents now; takes a key
KEY_MOST = 64  # bytes


class Command(IntEnum):
    """What a host asks for. 0x40 … 0x5F are for learning, 0x60 … 0x6F for what a board alone has."""

    IDENTIFY = 0x01
    COUNTERS = 0x02
    ECHO = 0x03
    RESET = 0x04
    UNLOCK = 0x05
    LOAD = 0x10
    INFER = 0x11
    READ_OUTPUT = 0x12
    LAYERS = 0x14
    PLAN = 0x15
    STOP = 0x16
    READ_LAYER = 0x17
    LOOK = 0x20
    BEGIN = 0x21
    PIECE = 0x22
    FINISH = 0x23
    SELECT = 0x24
    READ_IMAGE = 0x25
    LISTEN_OPEN = 0x30
    LISTEN_PUSH = 0x31
    LEARN_OPEN = 0x40
    LEARN_BEGIN = 0x41
    LEARN_SAMPLE = 0x42
    LEARN_END = 0x43
    LEARN_READ = 0x44
    LEARN_SAVE = 0x45
    LEARN_FORGET = 0x46
    LEARN_GUARD = 0x47
    LEARN_DRIFT = 0x48
    LEARN_FLIP = 0x49
    LEARN_FOLLOW = 0x4A
    LEARN_PLAN = 0x4B


class Status(IntEnum):
    """How a request went. The first sixteen answer a request, the others bytes that were no frame."""

    OK = 0
    COMMAND = 1
    LENGTH = 2
    RANGE = 3
    ORDER = 4
    STATE = 5
    MODEL = 6
    STORE = 7
    IN_USE = 8
    FULL = 9
    DIFFERS = 10
    LEARN = 11
    LOCKED = 12
    LONG = 0x10
    COBS = 0x11
    CRC = 0x12


class FrameError(Exception):
    """Bytes that are no frame; ``status`` says why, as a device would."""

    def __init__(self, status: Status, message: str):
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Frame:
    """A request, a reply or an event."""

    id: int
    command: int
    status: int = 0
    payload: bytes = b""

    @property
    def is_reply(self) -> bool:
        return bool(self.command & REPLY) and not self.is_event

    @property
    def is_event(self) -> bool:
        return self.command == EVENT and self.id == 0

    @property
    def is_complaint(self) -> bool:
        """The device could not make sense of what it received."""
        return self.command == REPLY and self.id == 0 and self.status >= Status.LONG

    @property
    def text(self) -> str:
        """Of an event."""
        return self.payload.decode("utf-8", "replace")

    @property
    def detail(self) -> int:
        """The number that comes with an error."""
        return int.from_bytes(self.payload[:4], "little")


def cobs_encode(data: bytes) -> bytes:
    """``data`` without zeros: each group of bytes up to a zero (or 254 of them) has its length + 1 in front."""
    out = bytearray()
    groups = data.split(b"\0")
    for number, group in enumerate(groups):
        while len(group) >= 254:
            out += b"\xff" + group[:254]
            group = group[254:]
            if not group and number == len(groups) - 1:
                return bytes(out)
        out += bytes([len(group) + 1]) + group
    return bytes(out)


def cobs_decode(line: bytes) -> bytes:
    """The inverse; :class:`FrameError` if ``line`` is not what :func:`cobs_encode` gives."""
    out = bytearray()
    at = 0
    while at < len(line):
        code = line[at]
        end = at + code
        if code == 0 or end > len(line):
            raise FrameError(Status.COBS, f"a group of {code} bytes at {at}, of {len(line)}")
        out += line[at + 1 : end]
        at = end
        if at < len(line) and code < 255:
            out.append(0)
    return bytes(out)


def encode(frame: Frame) -> bytes:
    """A frame as it goes over the line, with the 0 at its end."""
    if len(frame.payload) > PAYLOAD_MAX:
        raise ValueError(f"a payload of {len(frame.payload)} bytes; a frame takes {PAYLOAD_MAX}")
    head = (u16("id of a frame", frame.id), u8("command", frame.command), u8("status", frame.status))
    body = HEAD.pack(*head) + frame.payload
    return cobs_encode(body + CRC.pack(zlib.crc32(body))) + b"\0"


def decode(line: bytes) -> Frame:
    """A frame from the bytes before its 0; :class:`FrameError` if they are none."""
    if len(line) > LINE_MAX:
        raise FrameError(Status.LONG, f"{len(line)} bytes, at most {LINE_MAX}")
    data = cobs_decode(line)
    if len(data) < HEAD.size + CRC.size:
        raise FrameError(Status.COBS, f"{len(data)} bytes, at least {HEAD.size + CRC.size}")
    body, (crc,) = data[: -CRC.size], CRC.unpack(data[-CRC.size :])
    if zlib.crc32(body) != crc:
        raise FrameError(Status.CRC, f"CRC {crc:08x}, computed {zlib.crc32(body):08x}")
    number, command, status = HEAD.unpack_from(body)
    return Frame(number, command, status, body[HEAD.size :])


@dataclass
class Reader:
    """Frames out of a stream of bytes that comes in pieces. What is no frame is counted, and kept for a monitor."""

    bad: int = 0
    noise: list[bytes] = field(default_factory=list)
    _line: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that ``data`` completes."""
        frames = []
        *lines, rest = data.split(b"\0")
        for line in lines:
            self._line += line
            whole, self._line = bytes(self._line), bytearray()
            if not whole:
                continue
            try:
                frames.append(decode(whole))
            except FrameError:
                self.bad += 1
                self.noise.append(whole)
                del self.noise[:-16]
        self._line += rest
        del self._line[: max(0, len(self._line) - 4096)]  # endless noise does not fill the memory
        return frames


# ---- what is in the payloads ----

IDENTITY = struct.Struct("<8B13I")
LAYER = struct.Struct("<3I")
RESULT = struct.Struct("<IQI")
PLAN = struct.Struct("<2I")
SLOT = struct.Struct("<3I")
LEARNING_FRESH = struct.Struct("<B3x")  # behind the configuration
LEARNING = struct.Struct("<13I")


@dataclass(frozen=True)
class Identity:
    """What a device says about itself. Sizes in bytes."""

    protocol: int
    piece: int  # most bytes of data in a frame
    slots: int
    slot: int  # of the model in use; BUILT_IN, NO_SLOT if there is no model
    refused: int  # status of the selected image if it could not be used, else 0
    store_is_ram: bool
    model_crc: int
    model_size: int
    layers: int
    input_size: int
    output_size: int
    arena_size: int  # with which each layer runs its fastest kernel
    arena_least: int
    ram_free: int  # for input, output and arena
    ram: int
    flash: int
    slot_room: int  # for an image
    clock_hz: int
    tick_hz: int  # 0: there is no counter
    version: str  # of the core
    board: str
    chip: str
    core: str
    learns: bool = False  # the net in use is a copy in RAM that learns, or has learned
    checkpoint: int = 0  # status of what is saved of learning, if the model in use cannot go on from it
    lock: int = 0  # LOCK_… bits; 0: whoever is on the line may ask anything

    @property
    def locked(self) -> bool:
        """It answers info and infer only, for now."""
        return bool(self.lock & LOCK_BUILT) and not self.lock & LOCK_CONSENT


def parse_identity(payload: bytes) -> Identity:
    """Of a reply to IDENTIFY. What a later version adds behind is left out."""
    if len(payload) < IDENTITY.size or payload[0] != PROTOCOL_VERSION:
        version = payload[0] if payload else 0
        raise ValueError(f"the device speaks protocol version {version}, this host {PROTOCOL_VERSION}")
    protocol, piece, slots, slot, refused, store_is_ram, learns, checkpoint, *numbers = IDENTITY.unpack_from(payload)
    names = payload[IDENTITY.size :].split(b"\0", 4)
    if len(names) < 5:
        raise ValueError(f"an identity with {len(names) - 1} names, expected 4")
    texts = [name.decode("ascii", "replace") for name in names[:4]]
    first = Identity(protocol, piece, slots, slot, refused, bool(store_is_ram), *numbers, *texts)
    lock = names[4][0] if names[4] else 0
    return replace(first, learns=bool(learns), checkpoint=checkpoint, lock=lock)
