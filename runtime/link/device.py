"""A board that runs the flipbit firmware, over its serial port or as an emulated one.

::

    with open_device("/dev/ttyACM0") as device:          # or "qemu:netduinoplus2", firmware="app.elf"
        print(device.info().board)
        print(device.infer(photo).label)
        device.verify(photo)                             # every layer, against this machine
        device.upload("better.fbit")

The protocol is in docs/protocol.md. A request is sent again when its answer is damaged or does not come: each does the
same when it comes twice.
"""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flipbit.runtime.core import library as core
from flipbit.runtime.core.fixed_width import u8, u32
from flipbit.runtime.core.model import Model
from flipbit.runtime.errors import ArgumentError, FlipbitError
from flipbit.runtime.image.inputs import dequantize, to_planes
from flipbit.runtime.link.line import Line, LineError, open_line
from flipbit.runtime.link.protocol import (
    BUILT_IN,
    KEY_MOST,
    LAYER,
    NO_SLOT,
    PIECE_MAX,
    PLAN,
    RESULT,
    SLOT,
    Command,
    Frame,
    Identity,
    Reader,
    Status,
    encode,
    parse_identity,
)

if TYPE_CHECKING:
    from flipbit.runtime.link.memory import BoardMemory

QUIET = 0.05  # seconds without a byte after which a line is at rest
Progress = Callable[[int, int], None]


class DeviceError(FlipbitError):
    """A device does not do what it is asked."""

    status = "FB_ERR_DEVICE"

    def __str__(self) -> str:
        return self.message


class NoAnswerError(DeviceError):
    """Nothing comes back."""


class RestartedError(DeviceError):
    """The device started anew in the middle of a request."""


class RefusedError(DeviceError):
    """The device answered with an error; ``code`` and ``detail`` are what it sent."""

    def __init__(self, command: int, code: int, detail: int):
        super().__init__(_refusal(command, code, detail))
        self.code = code
        self.detail = detail


@dataclass(frozen=True)
class Inference:
    """What a device made of an input."""

    index: int  # of the class
    label: str  # its name, or its number where it has none
    values: np.ndarray  # int8
    scores: np.ndarray  # the real numbers they stand for
    ticks: int  # of the board's counter; 0 where it has none
    seconds: float | None  # on the device, by its counter
    round_trip: float  # seconds until the answer was here, without loading the input


@dataclass(frozen=True)
class LayerReport:
    """A layer on the device."""

    index: int
    name: str
    kernel: str  # the C function that computed it there
    size: int  # bytes of its output
    crc: int  # of its output
    ticks: int
    live: int  # bytes of activations in the arena while it runs
    scratch: int  # bytes of tables and sums besides


@dataclass(frozen=True)
class Difference:
    """The first layer whose output is not the host's."""

    input: int  # number of the input
    layer: int
    name: str
    count: int  # values that differ
    total: int
    place: tuple[int, ...]  # of the first: channel, row, column
    device: int
    host: int

    def __str__(self) -> str:
        return (
            f"input {self.input}: layer {self.layer} ({self.name}) differs in {self.count:,} of {self.total:,} values, "
            f"first at {self.place}: {self.device} on the device, {self.host} on the host"
        )


@dataclass(frozen=True)
class Slot:
    """A place for an image."""

    number: int
    size: int  # bytes of its image; 0: empty
    crc: int
    in_use: bool

    @property
    def name(self) -> str:
        return slot_name(self.number)


def slot_name(number: int) -> str:
    """``0``, ``1``, ``built-in`` or ``none``."""
    return {BUILT_IN: "built-in", NO_SLOT: "none"}.get(number, str(number))


class Device:
    """A device at the end of a line.

    ``timeout`` is how many seconds an answer may take, ``slow_timeout`` one for which the net runs or flash is erased.
    """

    def __init__(
        self,
        line: Line,
        timeout: float = 2.0,
        slow_timeout: float = 120.0,
        retries: int = 4,
        on_event: Callable[[str], None] | None = None,
        on_close: Callable[[], None] | None = None,
    ):
        self.line = line
        self.timeout = timeout
        self.slow_timeout = slow_timeout
        self.retries = retries
        self.retried = 0  # requests sent again so far
        self._on_event = on_event
        self._on_close = on_close
        self._reader = Reader()
        self._frames: list[Frame] = []
        self._id = 0
        self._model: Model | None = None

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.line.close()
        if self._on_close:
            self._on_close()

    # ---- requests ----

    def request(
        self, command: int, payload: bytes = b"", timeout: float | None = None, expect_restart: bool = False
    ) -> bytes:
        """Send a request and return the payload of its answer; RefusedError if that is an error."""
        self._id = self._id % 0xFFFF + 1
        data = b"\0" + encode(Frame(self._id, command, 0, payload))  # the 0 ends what noise there was before
        wait = self.timeout if timeout is None else timeout
        for attempt in range(self.retries + 1):
            self.retried += attempt > 0
            self.line.write(data)
            reply = self._await(self._id, command, time.monotonic() + wait, expect_restart)
            if reply is None:
                continue
            if reply.status != Status.OK:
                raise RefusedError(command, reply.status, reply.detail)
            return reply.payload
        raise NoAnswerError(
            f"{self.line.name}: no answer to {_name(command)} after {self.retries + 1} tries of {wait:g} s "
            f"({self._reader.bad} damaged frames came); does the board run the flipbit firmware (flipbit flash), "
            "and is this its port, with the right baud rate?"
        )

    def _await(self, number: int, command: int, deadline: float, expect_restart: bool) -> Frame | None:
        """The reply to a request; None if it must be sent again."""
        while (frame := self._next(deadline)) is not None:
            if frame.is_event:
                self._tell(frame)
                if frame.text.startswith("ready") and not expect_restart:
                    raise RestartedError(
                        f"{self.line.name}: the device restarted during {_name(command)} (a fault, a loss of power, or "
                        "its reset button); what was loaded is gone, start over"
                    )
            elif frame.id == number and frame.command == command | 0x80:
                return frame
            elif frame.is_complaint:
                # What it could not read may have been noise before our request, whose answer then still comes. To send
                # again while it sends would cost bytes on boards that buffer only one.
                deadline = min(deadline, time.monotonic() + QUIET)
        return None

    def _next(self, deadline: float) -> Frame | None:
        while not self._frames:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            bad = self._reader.bad
            self._frames += self._reader.feed(self.line.read(left))
            if self._reader.bad > bad:  # perhaps the answer, damaged: no use in waiting much longer
                deadline = min(deadline, time.monotonic() + self.timeout)
        return self._frames.pop(0)

    def _tell(self, frame: Frame) -> None:
        if self._on_event:
            self._on_event(frame.text)

    def hello(self, patience: float = 10.0) -> Identity:
        """Wait for a device that may still be starting, and return who it is."""
        deadline = time.monotonic() + patience
        retries, self.retries = self.retries, 0
        try:
            while True:
                try:
                    self.request(Command.ECHO, b"hello", min(0.5, self.timeout), expect_restart=True)
                    break
                except NoAnswerError:
                    if time.monotonic() > deadline:
                        raise
        finally:
            self.retries = retries
        return self.info()

    # ---- what it is ----

    def info(self) -> Identity:
        """Board, core, model and memory."""
        payload = self.request(Command.IDENTIFY, timeout=max(self.timeout, 5.0))
        try:
            return parse_identity(payload)
        except ValueError as error:
            raise DeviceError(
                f"{self.line.name}: {error}; flash it anew, or install the flipbit it was flashed with"
            ) from None

    def counters(self) -> dict[str, int]:
        """Frames received: good ones, and noise."""
        good, bad, ticks = struct.unpack("<3I", self.request(Command.COUNTERS))
        return {"good": good, "bad": bad, "ticks": ticks}

    def echo(self, data: bytes) -> bytes:
        """The same bytes, from the device."""
        return self.request(Command.ECHO, data)

    def reset(self) -> Identity:
        """Start the device anew."""
        self._model = None
        self.request(Command.RESET, expect_restart=True)
        return self.hello()

    def unlock(self, key: bytes) -> Identity:
        """Present the key of a locked board; no bytes lock it again."""
        if len(key) > KEY_MOST:
            raise ArgumentError(f"a key of {len(key)} bytes; a board's has 16 to {KEY_MOST}")
        try:
            self.request(Command.UNLOCK, key)
        except RefusedError as error:
            if error.code != Status.LOCKED:
                raise
            why = "this is not its key" if error.detail == 2 else "it was built without a key"
            raise DeviceError(f"{self.line.name}: the board stays locked: {why}") from None
        return self.info()

    # ---- running the net ----

    @property
    def model(self) -> Model:
        """The net on the device: the one given to :meth:`use`, else read from the device."""
        info = self.info()
        if info.slot == NO_SLOT:
            raise DeviceError(
                f"the {info.board} has no model; upload one (flipbit device upload), or flash one with the firmware "
                "(flipbit flash --model)"
            )
        if self._model is None or _crc(self._model) != info.model_crc:
            self._model = Model(self.read_image())
        return self._model

    def use(self, model: Model | str | Path, learned: bool = False) -> Model:
        """Say which net is on the device, to spare reading it; DeviceError if it is another.

        ``learned``: a net that has learned on the device is called by the image it started from.
        """
        model = model if isinstance(model, Model) else Model(model)
        info = self.info()
        if learned and info.learns:
            crc = SLOT.unpack(self.request(Command.LOOK, bytes([info.slot])))[2]
        else:
            crc = info.model_crc
        if _crc(model) != crc:
            raise DeviceError(
                f"{model.path or 'the image'} has CRC {_crc(model):08x}, the model on the {info.board} "
                f"{crc:08x}: upload the image (flipbit device upload) or flash it (flipbit flash --model)"
            )
        self._model = model
        return model

    def load(self, values: np.ndarray) -> None:
        """Put int8 values, as they lie in memory, into the net's input."""
        data = np.ascontiguousarray(values, np.int8).tobytes()
        for at in range(0, len(data), PIECE_MAX):
            self.request(Command.LOAD, at.to_bytes(4, "little") + data[at : at + PIECE_MAX])

    def infer(self, x: Any) -> Inference:
        """Run the net for one input: height × width × channels, pixels (uint8), float as in training, or int8."""
        model = self._model or self.model
        planes, _ = to_planes(x, model.image.tensors[model.image.input], model.pixels)
        if len(planes) != 1:
            raise ArgumentError(f"a batch of {len(planes)}: a device takes one input at a time")
        self.load(planes[0])
        return self.run(model)

    def run(self, model: Model | None = None) -> Inference:
        """Run the net for the input that is loaded."""
        model = model or self._model or self.model
        start = time.perf_counter()
        payload = self.request(Command.INFER, timeout=self.slow_timeout)
        round_trip = time.perf_counter() - start
        index, ticks, size = RESULT.unpack_from(payload)
        data = payload[RESULT.size :]
        while len(data) < size:
            data += self._read(Command.READ_OUTPUT, b"", len(data), size)
        values = np.frombuffer(data, np.int8)
        labels = model.labels
        return Inference(
            index=index,
            label=labels[index] if index < len(labels) else str(index),
            values=values,
            scores=dequantize(values, model.image.tensors[model.image.output]),
            ticks=ticks,
            seconds=self._seconds(ticks),
            round_trip=round_trip,
        )

    def _seconds(self, ticks: int) -> float | None:
        if not ticks:
            return None
        rate = self.info().tick_hz
        return ticks / rate if rate else None

    def layers(self, plans: bool = True) -> list[LayerReport]:
        """Every layer for the input that is loaded: CRC of its output, ticks it took, and its kernel with ``plans``."""
        model = self._model or self.model
        found: list[tuple[int, int, int]] = []
        while len(found) < len(model.layers):
            payload = self.request(Command.LAYERS, struct.pack("<I", len(found)), self.slow_timeout)
            found += LAYER.iter_unpack(payload)
        reports = []
        for layer, (crc, ticks, size) in zip(model.layers, found):
            live = scratch = 0
            kernel = ""
            if plans:
                payload = self.request(Command.PLAN, struct.pack("<I", layer.index))
                live, scratch = PLAN.unpack_from(payload)
                kernel = payload[PLAN.size :].rstrip(b"\0").decode()
            reports.append(LayerReport(layer.index, layer.name, kernel, size, crc, ticks, live, scratch))
        return reports

    def read_layer(self, index: int) -> np.ndarray:
        """The output of a layer for the input that is loaded, as it lies in memory."""
        payload = self.request(Command.STOP, struct.pack("<I", u32("layer", index)), self.slow_timeout)
        crc, size, _tensor = struct.unpack("<3I", payload)
        data = b""
        while len(data) < size:
            data += self._read(Command.READ_LAYER, b"", len(data), size)
        if zlib.crc32(data) != crc:
            raise DeviceError(f"layer {index}: CRC {zlib.crc32(data):08x} of what was read, {crc:08x} on the device")
        return np.frombuffer(data, np.int8)

    def verify(
        self, inputs: Any, model: Model | str | Path | None = None, progress: Progress | None = None
    ) -> Difference | None:
        """Compare every layer with this machine's C core, for one input or a batch. None if all are equal."""
        net = self.use(model) if model is not None else self._model or self.model
        planes, _ = to_planes(inputs, net.image.tensors[net.image.input], net.pixels)
        for number, x in enumerate(planes):
            self.load(x)
            expected = _layer_outputs(net, x)
            for report in self.layers(plans=False):
                if report.crc != zlib.crc32(expected[report.index].tobytes()):
                    return self._difference(number, net, report.index, expected[report.index])
            if progress:
                progress(number + 1, len(planes))
        return None

    def _difference(self, number: int, model: Model, index: int, expected: np.ndarray) -> Difference:
        found = self.read_layer(index)
        layer = model.layers[index]
        wrong = np.flatnonzero(found != expected)
        if not len(wrong):
            raise DeviceError(
                f"input {number}: layer {index} ({layer.name}) differed, and was equal when it was run again: the "
                "device does not give the same result twice"
            )
        shape = model.image.tensors[layer.output].shape
        place = tuple(int(i) for i in np.unravel_index(wrong[0], shape))
        return Difference(
            number, index, layer.name, len(wrong), found.size, place, int(found[wrong[0]]), int(expected[wrong[0]])
        )

    def bench(self, repeats: int = 5) -> tuple[list[LayerReport], list[Inference]]:
        """Every layer once, and whole runs, for the input that is loaded; for zeros if none is."""
        model = self._model or self.model
        try:
            reports = self.layers()
        except RefusedError as error:
            if error.code != Status.STATE:
                raise
            self.load(np.zeros(model.image.tensors[model.image.input].size, np.int8))
            reports = self.layers()
        return reports, [self.run(model) for _ in range(repeats)]

    # ---- images ----

    def slots(self) -> list[Slot]:
        """The built-in image, and what the slots hold."""
        info = self.info()
        found = []
        for number in (BUILT_IN, *range(info.slots)):
            _state, size, crc = SLOT.unpack(self.request(Command.LOOK, bytes([number])))
            found.append(Slot(number, size, crc, number == info.slot))
        return found

    def read_image(self, slot: int | None = None) -> bytes:
        """The image in a slot; by default the one in use, with what it has learned."""
        info = self.info()
        if slot is None and info.learns:
            data = b""
            while len(data) < info.model_size:
                data += self._read(Command.LEARN_READ, bytes(4), len(data), info.model_size)
            return data
        slot = info.slot if slot is None else slot
        _state, size, _crc = SLOT.unpack(self.request(Command.LOOK, bytes([u8("slot", slot)])))
        if not size:
            raise DeviceError(f"slot {slot_name(slot)} holds no image")
        data = b""
        while len(data) < size:
            data += self._read(Command.READ_IMAGE, bytes([u8("slot", slot), 0, 0, 0]), len(data), size)
        return data

    def _read(self, command: Command, head: bytes, at: int, size: int) -> bytes:
        data = self.request(command, head + struct.pack("<2I", at, min(PIECE_MAX, size - at)))
        if not data:
            raise DeviceError(f"{_name(command)}: an empty answer at {at} of {size} bytes")
        return data

    def upload(
        self, image: str | Path | bytes | Model, slot: int | None = None, progress: Progress | None = None
    ) -> int:
        """Put an image into a slot, by default one that is not in use, and return its number. It is not selected."""
        model = image if isinstance(image, Model) else Model(image)
        data, info = model.image.data, self.info()
        if not info.slots:
            raise DeviceError(f"the {info.board} has no storage for images; flash the model with the firmware instead")
        if len(data) > info.slot_room:
            raise DeviceError(f"an image of {len(data):,} bytes; a slot of the {info.board} takes {info.slot_room:,}")
        if slot is None:
            slot = next((i for i in range(info.slots) if i != info.slot), None)
            if slot is None:
                raise DeviceError("the only slot is in use: select the built-in image first")
        begin = struct.pack("<B3x2I", u8("slot", slot), len(data), _crc(model))
        self.request(Command.BEGIN, begin, self.slow_timeout)
        for at in range(0, len(data), PIECE_MAX):
            piece = data[at : at + PIECE_MAX]
            self.request(Command.PIECE, at.to_bytes(4, "little") + piece)
            if progress:
                progress(at + len(piece), len(data))
        self.request(Command.FINISH, timeout=self.slow_timeout)
        return slot

    def select(self, slot: int) -> Identity:
        """Use the image of a slot, or BUILT_IN, from now on; after a restart, too."""
        self._model = None
        self.request(Command.SELECT, bytes([u8("slot", slot)]), self.slow_timeout)
        return self.info()

    # ---- watching ----

    def monitor(self, seconds: float | None = None) -> Iterator[str]:
        """What the device says unasked, a line at a time; other bytes on the line as text."""
        deadline = time.monotonic() + (seconds if seconds is not None else 1e9)
        while time.monotonic() < deadline:
            frame = self._next(min(deadline, time.monotonic() + 0.2))
            for noise in self._reader.noise:
                yield f"? {noise.decode('ascii', 'backslashreplace')}"
            self._reader.noise.clear()
            if frame is not None:
                yield frame.text if frame.is_event else f"{_name(frame.command)}: {frame.payload.hex(' ')}"


def _layer_outputs(model: Model, planes: np.ndarray) -> list[np.ndarray]:
    """The output of every layer on this machine, as it lies in memory, for an input as it lies in memory."""
    found = model.tensors(planes.transpose(1, 2, 0) if planes.ndim == 3 else planes)
    values = [found[layer.name] for layer in model.layers]
    return [np.ascontiguousarray(v.transpose(2, 0, 1) if v.ndim == 3 else v).reshape(-1) for v in values]


def _crc(model: Model) -> int:
    """As in the header of the image: tells models apart."""
    return int.from_bytes(model.image.data[12:16], "little")


def _name(command: int) -> str:
    try:
        return Command(command & 0x7F).name
    except ValueError:
        return f"command {command:#04x}"


_MISSING = {
    1: "it has no model: upload one",
    2: "the input is not loaded yet, or not whole",
    3: "no upload has begun",
    4: "the upload is not complete",
    5: "the slot holds no image",
    6: "the net does not stand still at a layer",
    7: "the board has no storage",
    8: "no net is learning: open learning first",
    9: "no step of learning has begun",
    10: "a step of learning is under way: end it first",
    11: "what was learned is not saved: save it, or reset the board to drop it",
}
_STORE = {
    1: "outside the storage",
    2: "not aligned",
    3: "the flash controller reported an error",
    4: "it does not hold what was written: is the flash locked, or an emulator's that cannot be written?",
}


_CONSENT = {
    1: "hold its button or set its jumper, then try again",
    2: "present its key (--key FILE)",
}


def _refusal(command: int, code: int, detail: int) -> str:
    reasons = {
        Status.COMMAND: "the firmware does not know this command: flash a newer one",
        Status.LENGTH: f"a payload of {detail} bytes is too short or too long",
        Status.RANGE: f"an offset, index or length is too large: the limit is {detail:,}",
        Status.ORDER: f"pieces must follow each other: expected offset {detail:,}",
        Status.STATE: _MISSING.get(detail, f"not now ({detail})"),
        Status.MODEL: f"the image is refused: {core.status_name(detail)}",
        Status.STORE: f"storage: {_STORE.get(detail, detail)}",
        Status.IN_USE: f"slot {detail} holds the model in use: select another first",
        Status.FULL: f"no place left to note a selection, after {detail}: upload an image again",
        Status.DIFFERS: f"a piece is not what came at its offset ({detail:,}) before",
        Status.LOCKED: "the board is locked: " + _CONSENT.get(detail, "somebody must consent"),
        Status.LEARN: f"learning or saving failed: {core.status_name(detail)}",
    }
    try:
        reason = reasons[Status(code)]
    except (ValueError, KeyError):
        reason = f"status {code}, {detail}"
    return f"{_name(command)}: {reason}"


def open_device(
    port: str,
    firmware: str | Path | None = None,
    baud: int | None = None,
    on_event: Callable[[str], None] | None = None,
    timeout: float = 2.0,
    patience: float = 10.0,
    memory: BoardMemory | None = None,
) -> Device:
    """The device at a port, ready to answer.

    ``/dev/ttyACM0`` or ``COM3`` (needs pyserial), ``tcp:HOST:PORT``, ``unix:PATH``, or ``qemu:BOARD``, which starts an
    emulator that runs ``firmware``, an .elf of that board: a new board each time, or the one whose ``memory`` is given.
    """
    kind, _, board = port.partition(":")
    on_close = None
    if kind == "qemu":
        from flipbit.runtime.link.emulator import Emulator

        if firmware is None:
            raise ArgumentError(f"{port} needs the firmware to run: an .elf built for {board or 'the board'}")
        emulator = Emulator(board, firmware, memory=memory)
        on_close = emulator.close
        line: Line = emulator.line()
    else:
        line = open_line(port, baud or 115200)
    device = Device(line, timeout=timeout, on_event=on_event, on_close=on_close)
    try:
        device.hello(patience)
    except (FlipbitError, KeyboardInterrupt):
        device.close()
        raise
    return device


__all__ = ["BUILT_IN", "Device", "DeviceError", "Difference", "Inference", "LineError", "Slot", "open_device"]
