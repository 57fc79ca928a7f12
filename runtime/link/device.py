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
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flipbit.runtime.core.fixed_width import u8, u32
from flipbit.runtime.core.model import Model
from flipbit.runtime.errors import ArgumentError, FlipbitError
from flipbit.runtime.image.inputs import dequantize, to_planes, value_text
from flipbit.runtime.link.connection import Connection
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
    Identity,
    Status,
)
from flipbit.runtime.link.refusals import DeviceError, NoAnswerError, RefusedError, RestartedError, command_name
from flipbit.runtime.link.reports import Inference, LayerReport, Slot, slot_name
from flipbit.runtime.link.verify import Difference, first_difference

if TYPE_CHECKING:
    from flipbit.runtime.link.memory import BoardMemory

Progress = Callable[[int, int], None]


class Device(Connection):
    """A device that runs a net."""

    _model: Model | None = None

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
        labels, scores = model.labels, dequantize(values, model.image.tensors[model.image.output])
        return Inference(
            index=index,
            label=value_text(scores) if model.values else labels[index] if index < len(labels) else str(index),
            values=values,
            scores=scores,
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
            difference = first_difference(self, net, number, x)
            if difference is not None:
                return difference
            if progress:
                progress(number + 1, len(planes))
        return None

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
            raise DeviceError(f"{command_name(command)}: an empty answer at {at} of {size} bytes")
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


def _crc(model: Model) -> int:
    """As in the header of the image: tells models apart."""
    return int.from_bytes(model.image.data[12:16], "little")


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


__all__ = [
    "BUILT_IN",
    "Device",
    "DeviceError",
    "Difference",
    "Inference",
    "LayerReport",
    "LineError",
    "NoAnswerError",
    "RefusedError",
    "RestartedError",
    "Slot",
    "open_device",
    "slot_name",
]
