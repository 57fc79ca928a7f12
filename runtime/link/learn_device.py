"""A board that learns by itself, at the end of a serial line or in an emulator: a target of ``flipbit finetune``.

::

    with open_device("qemu:netduinoplus2", firmware) as device:
        target = DeviceTarget(device, LearnerConfig(bits=True, seed=1))
        for rate in rates:
            target.begin(len(inputs), rate, 0.0)
            more = True
            while more:
                for x, label in zip(inputs, labels):
                    target.sample(x, label)
                more = target.end_pass()
        better = target.image

The net learns in a copy of its image in the board's RAM. After every step image and state are saved in its flash, as
one record: a board that loses power goes on from there by itself, and ends with the same bits. The commands are in
docs/protocol.md.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from flipbit.runtime.core import library as core
from flipbit.runtime.core.fixed_width import within
from flipbit.runtime.core.learner import NO_REFERENCES, RATE_ONE, LearnerConfig
from flipbit.runtime.core.target import TargetLostPower
from flipbit.runtime.errors import ArenaError, ArgumentError, FlipbitError, OwnerError, StateError, error_of
from flipbit.runtime.link.device import Device, DeviceError, RefusedError, RestartedError
from flipbit.runtime.link.protocol import LEARNING, LEARNING_FRESH, PIECE_MAX, Command, Status

IMAGE, STATE, BITS, SUMS = 0, 1, 2, 3
NOT_OPEN, NO_STEP = 8, 9  # details of Status.STATE
RESTARTS = 10  # in a row, before a board is given up
T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OpenedLearning:
    """What a board says about learning a net. Bytes of RAM."""

    status: int  # fb_status
    needed: int  # all of it: input, output, image, state, the least arena
    available: int
    image: int
    state: int
    arena_least: int
    arena_fast: int  # for one pass per step
    arena: int  # what it gets
    steps: int  # done so far
    resumed: bool  # from a checkpoint
    record_room: int  # longest checkpoint its flash takes; 0 without flash
    record: int  # bytes of a checkpoint
    owner: int  # CRC of the model that the stored checkpoint belongs to; 0 if there is none


@dataclass(frozen=True)
class Saved:
    """A checkpoint in a board's flash."""

    sequence: int  # counts records
    size: int  # bytes
    worst_erases: int  # of the part of its flash erased most often


class DeviceTarget:
    """A :class:`flipbit.runtime.core.target.Target` that is a board.

    ``fresh`` begins with the image as it was uploaded, even if the board has learned before. ``save`` is when it saves:
    ``"step"``, ``"pass"`` or ``"close"``. Where saving fails learning goes on without, and ``unsaved`` says why.
    """

    def __init__(self, device: Device, config: LearnerConfig, fresh: bool = False, save: str = "step"):
        if save not in ("step", "pass", "close"):
            raise ArgumentError(f"save={save!r}; expected step, pass or close")
        self.device, self.config = device, config
        self.save_after = save
        self.unsaved = ""
        self._ticks = 0
        self._fresh = fresh
        self._info = device.info()
        self._steps, self._pass, self._index, self._flips = 0, 0, 0, 0
        self.memory = self._open(fresh)

    # ---- what a target does ----

    @property
    def steps(self) -> int:
        return self._steps

    @property
    def image(self) -> bytes:
        return self._surviving(lambda: self._read(IMAGE, self._info.model_size))

    @property
    def state(self) -> bytes:
        return self._surviving(lambda: self._read(STATE, self.memory.state))

    @property
    def flips(self) -> int:
        return self._flips

    def begin(self, samples: int, rate_bits: float, rate_bias: float) -> None:
        rates = (round(rate_bits * RATE_ONE), round(rate_bias * RATE_ONE))
        samples = within("samples of a batch", samples, 1, 0xFFFF)
        if min(rates) < 0 or max(rates) > RATE_ONE:
            raise ArgumentError(f"rates {rate_bits:g} and {rate_bias:g}: rates are within 0 … 1")
        payload = struct.pack("<4I", self._steps, samples, *rates)
        self._surviving(lambda: self.device.request(Command.LEARN_BEGIN, payload, self.device.slow_timeout))
        self._pass = self._index = 0

    def sample(self, x: np.ndarray, label: int) -> tuple[int, float] | None:
        if x.size != self._info.input_size:
            raise ArgumentError(f"a sample of {x.size} values; the net takes {self._info.input_size}")
        label = within("label", label, 0, self._info.output_size - 1)
        payload = struct.pack("<2I", self._index, label)

        def learn() -> bytes:
            self.device.load(x)
            return self.device.request(Command.LEARN_SAMPLE, payload, self.device.slow_timeout)

        predicted, loss, ticks = struct.unpack_from("<3I", self._surviving(learn))
        self._index += 1
        self._ticks += ticks
        return predicted, loss / 65536

    def end_pass(self) -> bool:
        payload = struct.pack("<2I", self._steps, self._pass)
        reply = self._surviving(lambda: self.device.request(Command.LEARN_END, payload, self.device.slow_timeout))
        more, self._steps, self._flips, ticks = struct.unpack_from("<4I", reply)
        self._ticks += ticks
        self._pass += 1
        self._index = 0
        if self.save_after == "pass" or (self.save_after == "step" and not more):
            self._try_save()
        return bool(more)

    def close(self) -> None:
        self._try_save()

    @property
    def seconds(self) -> float | None:
        """Of learning, by the board's counter; None where it has none."""
        return self._ticks / self._info.tick_hz if self._ticks and self._info.tick_hz else None

    # ---- saving ----

    def save(self) -> Saved:
        """Save image and state in the board's flash. FlashError, FullError: what was saved before is still there."""

        def ask() -> bytes:
            return self.device.request(Command.LEARN_SAVE, timeout=self.device.slow_timeout)

        try:
            saved = Saved(*struct.unpack_from("<3I", self._surviving(ask)))
        except RefusedError as error:
            if error.code != Status.LEARN:
                raise
            name = core.status_name(error.detail)
            what = f"the {self._info.board} could not save a checkpoint of {self.memory.record:,} bytes"
            if name == "FB_ERR_FLASH":
                what += ": its flash does not hold what was written"
            if name == "FB_ERR_FULL":
                what += f"; its flash takes {self.memory.record_room:,}"
            raise error_of(name, what) from None
        self._fresh = False  # what is in the flash now is ours
        return saved

    def forget(self) -> None:
        """Back to the image as it was uploaded; what was saved of learning goes, too."""
        self.device.request(Command.LEARN_FORGET, timeout=self.device.slow_timeout)
        self.memory = self._open(False)

    def _try_save(self) -> None:
        if self.unsaved:
            return
        try:
            self.save()
        except FlipbitError as error:
            self.unsaved = str(error)
            log.warning("learning goes on without saving: %s", error)

    # ---- inside ----

    def _open(self, fresh: bool) -> OpenedLearning:
        payload = self.config.pack() + LEARNING_FRESH.pack(fresh)
        try:
            reply = self.device.request(Command.LEARN_OPEN, payload, self.device.slow_timeout)
        except RefusedError as error:
            if error.code == Status.COMMAND:
                raise DeviceError(
                    f"the firmware on this {self._info.board} (flipbit {self._info.version}) has no training commands: "
                    f'it answered "{error.message}"; flash one that has, or learn on a simulated device '
                    f"(--target sim:{self._info.board})"
                ) from None
            raise
        memory = OpenedLearning(*LEARNING.unpack_from(reply))
        if memory.status:
            raise self._refusal(memory)
        self._steps, self._pass, self._index = memory.steps, 0, 0
        return memory

    def _refusal(self, memory: OpenedLearning) -> FlipbitError:
        board, name = self._info.board, core.status_name(memory.status)
        anew = "begin anew (fresh), which replaces it with the next save"
        if name == "FB_ERR_ARENA":
            return ArenaError(
                f"this net cannot learn on the {board}: it needs {memory.needed:,} bytes of RAM (image "
                f"{memory.image:,}, state {memory.state:,}, arena {memory.arena_least:,}, input and output), "
                f"the board has {memory.available:,}; {memory.needed - memory.available:,} are missing: train less "
                "of the net, or use a board with more RAM"
            )
        if name == "FB_ERR_OWNER":
            return OwnerError(
                f"the flash of the {board} holds a checkpoint of another model (CRC {memory.owner:08x}): select that "
                f"model to go on with it, or {anew}"
            )
        if name == "FB_ERR_STATE":
            return StateError(
                f"the {board} has learned with other settings than {self.config}: give the same, or {anew}"
            )
        if name == "FB_ERR_VERSION":
            return StateError(f"the flash of the {board} holds a checkpoint of earlier firmware: {anew}")
        if name == "FB_ERR_ARGUMENT" and self.config.recalibrate:
            return ArgumentError(NO_REFERENCES)
        if name == "FB_ERR_ARGUMENT":
            return ArgumentError(f"this net cannot be trained{self.config.where}: nothing in that range is trainable")
        if name == "FB_ERR_OVERFLOW":
            return error_of(name, "this net cannot be trained: sums of its gradients could exceed 32 bits")
        if name == "FB_ERR_OFFSET":
            return error_of(name, "this net cannot be trained: its weights overlap others or the metadata")
        return error_of(name, f"the {board} cannot learn")

    def _read(self, what: int, size: int) -> bytes:
        data = b""
        while len(data) < size:
            asked = struct.pack("<3I", what, len(data), min(PIECE_MAX, size - len(data)))
            data += self.device.request(Command.LEARN_READ, asked)
        return data

    def _surviving(self, ask: Callable[[], T]) -> T:
        """Ask; if the board started anew meanwhile, go on from what it has saved and tell the host."""
        try:
            return ask()
        except RestartedError as error:
            why = error.message.split(";")[0]
        except RefusedError as error:  # it has started without our seeing it say so
            if error.code != Status.STATE or error.detail not in (NOT_OPEN, NO_STEP):
                raise
            why = f"{self.device.line.name}: the device restarted"
        self._reopen()
        raise TargetLostPower(f"{why}; it went on from step {self._steps}")

    def _reopen(self) -> None:
        for _ in range(RESTARTS):
            try:
                self.device.hello()
                self.memory = self._open(self._fresh)
                return
            except RestartedError:
                continue
        raise DeviceError(f"{self.device.line.name}: the device keeps restarting; is its supply too weak?")
