"""A device of the fleet that is a board: at a serial port, or emulated. Its samples are kept here, at the gateway; the
board learns from them, flips, and keeps image and state in its own flash."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flipbit.runtime.board.profile import build, load_profile
from flipbit.runtime.core.exchange import Exchange
from flipbit.runtime.core.target import TargetLostPower
from flipbit.runtime.errors import FlipbitError, InputError, OwnerError, StateError
from flipbit.runtime.link.device import NO_SLOT, Device, RestartedError, open_device
from flipbit.runtime.link.exchange_device import ExchangeTarget
from flipbit.runtime.link.memory import BoardMemory
from flipbit.studies.fleet.device import FleetDevice, crc_of
from flipbit.studies.fleet.messages import MessageError, Reply, Request

log = logging.getLogger(__name__)
TIMEOUT = 30.0  # seconds for an answer: an emulated board of a busy gateway takes its time


@dataclass(frozen=True)
class Port:
    """Where a board is: ``/dev/ttyACM0``, ``tcp:HOST:PORT``, ``unix:PATH``; or ``qemu:BOARD``, an emulated one with
    ``image`` in its firmware, which keeps its flash in ``folder``."""

    name: str
    image: Path
    folder: Path
    baud: int = 115200

    @contextlib.contextmanager
    def opened(self) -> Iterator[Device]:
        kind, _, board = self.name.partition(":")
        with contextlib.ExitStack() as stack:
            firmware = memory = None
            if kind == "qemu":
                profile = load_profile(board)
                if profile.qemu is None:  # said before its firmware is built
                    raise InputError(f"{self.name}: QEMU does not emulate the {profile.title}; connect a real one")
                memory = stack.enter_context(BoardMemory(profile, self.folder))
                if memory.program is None:
                    memory.keep_program(build(memory.profile, self.image, self.folder / "build").elf)
                firmware = memory.program
            device = stack.enter_context(open_device(self.name, firmware, self.baud, timeout=TIMEOUT, memory=memory))
            self.check(device)
            yield device

    def check(self, device: Device) -> None:
        """Another net would be noticed only when the server speaks of it."""
        info, size = device.info(), self.image.stat().st_size
        if info.slot == NO_SLOT:
            raise InputError(f"{self.name}: the {info.board} has no model: flipbit device upload {self.image} --select")
        if info.model_size != size:
            raise InputError(
                f"{self.name}: the {info.board} runs another net than {self.image} ({info.model_size:,} bytes, not "
                f"{size:,}): flipbit device upload {self.image} --select"
            )
        if info.locked:
            raise InputError(f"{self.name}: the {info.board} is locked, and a fleet changes its weights: unlock it")


class FleetBoard(FleetDevice):
    """A :class:`FleetDevice` whose core is a board's. It answers once it is connected."""

    def connect(self, device: Device, way: str) -> None:
        """From here on this board. What it learned and did not save is dropped, as by a loss of power."""
        self._device = device
        self._config = self.own_config if way == "flips" else self.config
        self._saving = True
        device.reset()
        self._target = self._opened()
        self.image = self._target.image

    def _opened(self, fresh: bool = False) -> ExchangeTarget:
        try:
            return ExchangeTarget(self._device, self._config, fresh)
        except (OwnerError, StateError):  # it has learned something else: this fleet starts from its image
            if fresh:
                raise
            return self._opened(fresh=True)

    def _answer(self, request: Request) -> Reply:
        try:
            return super()._answer(request)
        except (TargetLostPower, RestartedError):  # it went on from its flash; the same once more
            self._device.hello()
            self._target = self._opened()
            self.image = self._target.image
            return super()._answer(request)

    def keep(self) -> None:
        """Image and state go to the board's flash; in a pass that it follows there is nothing of its own."""
        if self._target.follows or not self._saving:
            return
        try:
            self._target.save()
        except FlipbitError as error:
            self._saving = False
            log.warning("%s: goes on without saving: %s", self._device.line.name, error)

    def _learner(self) -> Exchange:
        return self._target  # type: ignore[return-value]  # of an Exchange it does what devices ask

    def _follow(self, request: Request) -> Exchange:
        self._target.follow(request.plan, request.first)
        return self._target  # type: ignore[return-value]

    def _replace(self, image: bytes, crc: int) -> bool:
        """Where only bits differ they are flipped; else the image is uploaded."""
        if crc_of(image) != crc:
            raise MessageError("the image that was sent is damaged")
        if len(image) != len(self.image):
            raise InputError(f"the server's image has {len(image):,} bytes, this board's net {len(self.image):,}")
        new = Exchange(image, self.config)  # refused if the core cannot train it
        if self.config.bits:
            places = np.flatnonzero(new.bits() != Exchange(self.image, self.config).bits())
            self._target.flip(places)
        if self._target.image != image:
            self._target.forget()
            self._device.select(self._device.upload(image))
            self._target = self._opened(fresh=True)
        self.image = image
        self.keep()
        return True


__all__ = ["FleetBoard", "Port"]
