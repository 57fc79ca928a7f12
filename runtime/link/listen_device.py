"""A board that listens: samples go to it over the line, detections come back.

::

    with open_device("/dev/ttyACM0") as device:
        listener = DeviceListener(device, ListenConfig.for_model(device.model))
        for piece in pieces:
            for detection in listener.push(piece):
                ...

The commands are in docs/protocol.md. ``crc`` is that of the outputs of all windows: equal to that of a
:class:`flipbit.runtime.recordings.listener.Listener` on this machine that got the same samples.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np

from flipbit.runtime.errors import ArgumentError, InputError
from flipbit.runtime.link.device import Device, DeviceError, RefusedError, RestartedError
from flipbit.runtime.link.protocol import PIECE_MAX, Command, Status
from flipbit.runtime.recordings.listener import Detection, ListenConfig, front_end_of

Array = np.ndarray
CONFIG = struct.Struct("<4HI")
OPENED = struct.Struct("<IIBBHHxxI")
HEARD = struct.Struct("<4I")
FOUND = struct.Struct("<IHh")
VALUES_MOST = PIECE_MAX // 2
RESTARTS = 5  # in one recording, before a board is given up


class DeviceListener:
    """A stream to a board. Where the board restarts, listening begins anew with the samples that it has not answered
    for: ``begun`` is the value at which the present stream began, ``restarts`` how often that was."""

    def __init__(self, device: Device, config: ListenConfig, on_restart: Callable[[int], None] | None = None):
        self.device, self.config = device, config
        self.front_end = front_end_of(device.model)
        self.stride = config.stride or self.front_end.hop
        self.on_restart = on_restart
        self.restarts = self.begun = self.sent = 0
        self.windows = self.crc = self.ticks = 0
        self._open()

    def _open(self) -> None:
        given = self.config
        payload = CONFIG.pack(given.stride, given.threshold, given.average, given.refractory, given.ignored)
        try:
            reply = self.device.request(Command.LISTEN_OPEN, payload)
        except RefusedError as error:
            raise _in_words(error, self.device) from None
        self.ram, self.arena, *_ = OPENED.unpack_from(reply)  # bytes: for listening, left for the net
        self.windows = self.crc = 0

    def push(self, values: Array) -> list[Detection]:
        """What more int16 samples, [samples] or [samples, channels], bring."""
        if values.dtype != np.int16:
            raise ArgumentError(f"samples are {values.dtype}; expected int16")
        data = np.ascontiguousarray(values).astype("<i2").reshape(-1)
        found, at = [], 0
        while at < data.size:
            try:
                taken, detection = self._piece(data[at : at + VALUES_MOST])
            except (RestartedError, RefusedError) as error:
                self._again(error)
                continue
            at += taken
            if detection is not None:
                found.append(detection)
        return found

    def _piece(self, values: Array) -> tuple[int, Detection | None]:
        index = (self.sent - self.begun) % 2**32
        reply = self.device.request(
            Command.LISTEN_PUSH, struct.pack("<I", index) + values.tobytes(), self.device.slow_timeout
        )
        following, self.windows, self.crc, ticks = HEARD.unpack_from(reply)
        taken = (following - index) % 2**32
        if not 0 < taken <= values.size:
            raise DeviceError(f"LISTEN_PUSH: the board took {taken} of {values.size} samples; is it another firmware?")
        self.sent += taken
        self.ticks += ticks
        if len(reply) < HEARD.size + FOUND.size:
            return taken, None
        start = self.begun // self.front_end.channels
        window, label, margin = FOUND.unpack_from(reply, HEARD.size)
        return taken, Detection.of(self.front_end, self.stride, window, label, margin, start)

    def _again(self, error: RestartedError | RefusedError) -> None:
        """A new stream after a restart, which shows at once or by a board that no longer listens."""
        if isinstance(error, RefusedError) and (error.code, error.detail) != (Status.STATE, 12):
            raise error
        self.restarts += 1
        if self.restarts > RESTARTS:
            raise DeviceError(f"{self.device.line.name}: restarted {self.restarts} times; is its supply too weak?")
        self.device.hello()
        self.begun = self.sent
        self._open()
        if self.on_restart:
            self.on_restart(self.begun)


def _in_words(error: RefusedError, device: Device) -> Exception:
    board = device.info().board
    if error.code == Status.COMMAND:
        return DeviceError(f"the firmware of the {board} does not know how to listen: flash a newer one")
    if error.code == Status.MODEL and "FB_ERR_EMPTY" in error.message:
        return InputError(f"the net on the {board} does not say how recordings become its input")
    if error.code == Status.MODEL and "FB_ERR_ARENA" in error.message:
        info = device.info()
        return DeviceError(
            f"the {board} has {info.ram_free:,} bytes of RAM for its net, and listening takes more: use a smaller net, "
            "fewer bands or a board with more RAM"
        )
    return error
