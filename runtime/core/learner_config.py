"""What learns and how, and its bytes: the same in a frame, in a checkpoint and wherever two are compared.

>>> LearnerConfig.unpack(LearnerConfig(seed=7).pack()) == LearnerConfig(seed=7)
True

The bytes are in docs/protocol.md; ``fb_train_config_pack`` of firmware/core/include/fb_train.h is the same in C.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from flipbit.runtime.core.fixed_width import u16, u32, within
from flipbit.runtime.errors import ArgumentError

ALL_OPS = 0xFFFF
BUFFER_BITS_MAX = 8
RULES = (0,)  # FB_RULE_…: how bits are updated
PACKED = struct.Struct("<I4B2H2BH")
LEARNS_BITS, LEARNS_BIAS, LEARNS_GAIN, SUMS = 1, 2, 4, 8
SUM_BITS = (32, 16, 8)  # FB_SUMS_…
SHIFT_MAX, MIRROR = 15, 16  # of augment


@dataclass(frozen=True)
class LearnerConfig:
    """What is trained, and with how much memory: ``fb_train_config`` of firmware/core/include/fb_train.h."""

    seed: int = 1
    buffer_bits: int = 0
    start: int = 0
    bits: bool = True
    bias: bool = False
    first_op: int = 0
    last_op: int = ALL_OPS
    rule: int = 0
    gain: bool = False
    recalibrate: int = 0  # so many steps at the start do so; all, if nothing else learns
    augment: int = 0  # shifts of at most so many pixels; + MIRROR
    prior: int = 0  # samples that the parameters count as when recalibrating
    sum_bits: int = 32  # in which gradients of weights are summed up

    @property
    def where(self) -> str:
        """The operations that learn, for messages; nothing if all may."""
        if self.last_op == ALL_OPS:
            return f" from operation {self.first_op} on" if self.first_op else ""
        return f" in operations {self.first_op} to {self.last_op}"

    def __post_init__(self) -> None:
        u32("seed", self.seed)
        within("buffer_bits", self.buffer_bits, 0, BUFFER_BITS_MAX)
        within("start", self.start, 0, (1 << self.buffer_bits) - 1)
        u16("first_op", self.first_op)
        u16("last_op", self.last_op)
        within("rule", self.rule, RULES[0], RULES[-1])
        within("recalibrate", self.recalibrate, 0, 255)
        within("augment", self.augment, 0, SHIFT_MAX | MIRROR)
        within("prior", self.prior, 0, 0xFFFF if self.recalibrate else 0)
        if self.sum_bits not in (SUM_BITS if self.bits else SUM_BITS[:1]):
            raise ArgumentError(f"sums of {self.sum_bits} bits: expected 32, or where bits flip 16 or 8")

    @property
    def sums(self) -> int:
        """FB_SUMS_…"""
        return SUM_BITS.index(self.sum_bits)

    def pack(self) -> bytes:
        learns = LEARNS_BITS * bool(self.bits) | LEARNS_BIAS * bool(self.bias) | LEARNS_GAIN * bool(self.gain)
        learns |= self.sums * SUMS
        rest = (self.first_op, self.last_op, self.recalibrate, self.augment, self.prior)
        return PACKED.pack(self.seed, self.rule, self.buffer_bits, self.start, learns, *rest)

    @classmethod
    def unpack(cls, packed: bytes) -> LearnerConfig:
        """:class:`ArgumentError` if the bytes are of no configuration of this version."""
        if len(packed) != PACKED.size:
            raise ArgumentError(f"a configuration of {len(packed)} bytes; expected {PACKED.size}")
        seed, rule, buffer_bits, start, learns, first_op, last_op, *rest = PACKED.unpack(packed)
        within("what learns", learns, 0, len(SUM_BITS) * SUMS - 1)
        bits, bias, gain = (bool(learns & part) for part in (LEARNS_BITS, LEARNS_BIAS, LEARNS_GAIN))
        recalibrate, augment, prior = rest
        return cls(
            seed, buffer_bits, start, bits, bias, first_op, last_op, rule, gain, recalibrate, augment, prior,
            SUM_BITS[learns // SUMS],
        )  # fmt: skip
