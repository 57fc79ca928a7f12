"""A board that learns with others: what :class:`flipbit.runtime.core.exchange.Exchange` does, done by a board.

::

    with open_device("/dev/ttyACM0") as device:
        board = ExchangeTarget(device, LearnerConfig(bits=True, seed=1))
        board.follow(leader.plan(), first)
        for x, label in samples:
            board.sample(x, label)
        leader.gather(board.sums().words, len(samples))

Samples, gradients and updates stay with the board; the host moves what the fleet exchanges (docs/protocol.md).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import numpy as np

from flipbit.runtime.core import library as core
from flipbit.runtime.core.exchange import Sums
from flipbit.runtime.core.fixed_width import within
from flipbit.runtime.core.learner import Array, LearnerConfig, Step
from flipbit.runtime.errors import ArenaError, ArgumentError, error_of
from flipbit.runtime.link.device import Device, DeviceError, RefusedError
from flipbit.runtime.link.learn_device import BITS, SUMS, DeviceTarget
from flipbit.runtime.link.protocol import PAYLOAD_MAX, PIECE_MAX, Command, Status

FLIPS = PIECE_MAX // 4  # in a request
RECALIBRATES = 2


class ExchangeTarget(DeviceTarget):
    """A :class:`DeviceTarget` that takes part in others' passes. It saves only when it is told to."""

    def __init__(self, device: Device, config: LearnerConfig, fresh: bool = False):
        super().__init__(device, config, fresh, save="close")
        self._following: tuple[int, int, int] | None = None  # words, counts, kind of the pass

    @property
    def follows(self) -> bool:
        """Whether its state is the leader's: there is nothing to save."""
        return self._following is not None

    # ---- alone ----

    def step(self, inputs: Array, labels: Array, rate_bits: float = 0.0, rate_bias: float = 0.0) -> Step:
        """A step by itself, as :meth:`flipbit.runtime.core.learner.Learner.step`."""
        self._leave()
        self.begin(len(inputs), rate_bits, rate_bias)
        passes = 0
        while True:
            results = [self.sample(x, int(label)) for x, label in zip(inputs, labels)]
            passes += 1
            if not self.end_pass():
                break
        told = [result for result in results if result is not None]
        right = np.mean([predicted == label for (predicted, _), label in zip(told, labels)])
        return Step(float(np.mean([loss for _, loss in told])), float(right), self.flips, passes)

    def bits(self) -> Array:
        """Bits of trained layers, in the order of the state."""
        _, places = self._flip(b"")
        packed = self._surviving(lambda: self._read(BITS, places // 8))
        return np.unpackbits(np.frombuffer(packed, np.uint8), bitorder="little").astype(bool)

    def flip(self, places: Iterable[int]) -> None:
        """Flip these bits, by their place in :meth:`bits`."""
        chosen = np.unique(np.fromiter(places, np.int64))
        if not len(chosen):
            return
        bits = self.bits()
        if chosen[0] < 0 or chosen[-1] >= len(bits):
            raise ArgumentError(f"a flip at place {chosen[-1]:,}; this net has {len(bits):,}")
        words = (2 * chosen + ~bits[chosen]).astype("<u4")
        for at in range(0, len(words), FLIPS):
            self._flip(words[at : at + FLIPS].tobytes())

    def _flip(self, words: bytes) -> tuple[int, int]:
        """CRC of the image then, and how many places there are."""
        crc, places = struct.unpack_from("<2I", self._ask(Command.LEARN_FLIP, words, "a list of flips"))
        self._leave()
        return crc, places

    def _leave(self) -> None:
        if self.follows:  # its own state begins anew
            self._following, self._steps = None, 0

    # ---- with others ----

    def follow(self, plan: bytes, first: int = 0) -> None:
        """Take part in the pass of that plan; ``first`` samples of its batch are other devices'."""
        first = within("first sample", first, 0, 0xFFFF)
        if 4 + len(plan) > PAYLOAD_MAX:
            raise ArgumentError(
                f"a plan of {len(plan)} bytes: a board takes {PAYLOAD_MAX - 4}, nets of up to 100 layers or so"
            )
        self._following, self._steps = None, 0  # whether it follows now or refuses: its own state is gone
        reply = self._ask(Command.LEARN_FOLLOW, struct.pack("<I", first) + plan, "the leader's plan")
        words, counts, kind = struct.unpack_from("<3I", reply)
        self._following, self._index = (words, counts, kind), first

    def plan(self) -> bytes:
        """The plan as this pass has left it."""
        return self._ask(Command.LEARN_PLAN, b"", "a plan")

    def sums(self) -> Sums:
        """What this pass has summed up so far."""
        if self._following is None:
            raise ArgumentError("there are no sums: the board follows no other device")
        words, counts, kind = self._following
        data = self._surviving(lambda: self._read(SUMS, 4 * words))
        return Sums(np.frombuffer(data, "<u4").astype(np.uint32), counts, kind == RECALIBRATES)

    def _ask(self, command: Command, payload: bytes, what: str) -> bytes:
        try:
            return self._surviving(lambda: self.device.request(command, payload, self.device.slow_timeout))
        except RefusedError as error:
            if error.code == Status.COMMAND:
                raise DeviceError(
                    f"the firmware on this {self._info.board} (flipbit {self._info.version}) cannot take part in a "
                    "fleet: flash one of this version"
                ) from None
            if error.code != Status.LEARN:
                raise
            name = core.status_name(error.detail)
            if name == "FB_ERR_ARENA":
                raise ArenaError(
                    f"the {self._info.board} has too little RAM to sum up this net's gradients in the leader's passes: "
                    "let the fleet add up by flips (--way flips), or train less of the net"
                ) from None
            raise error_of(name, f"{what} was refused by the {self._info.board}") from None
