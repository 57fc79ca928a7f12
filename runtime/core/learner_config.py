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
PACKED = struct.Struct("<I4B2HI")
LEARNS_BITS, LEARNS_BIAS = 1, 2


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

    def __post_init__(self) -> None:
        u32("seed", self.seed)
        within("buffer_bits", self.buffer_bits, 0, BUFFER_BITS_MAX)
        within("start", self.start, 0, (1 << self.buffer_bits) - 1)
        u16("first_op", self.first_op)
        u16("last_op", self.last_op)
        within("rule", self.rule, RULES[0], RULES[-1])

    def pack(self) -> bytes:
        learns = LEARNS_BITS * bool(self.bits) | LEARNS_BIAS * bool(self.bias)
        ops = (self.first_op, self.last_op)
        return PACKED.pack(self.seed, self.rule, self.buffer_bits, self.start, learns, *ops, 0)

    @classmethod
    def unpack(cls, packed: bytes) -> LearnerConfig:
        """:class:`ArgumentError` if the bytes are of no configuration of this version."""
        if len(packed) != PACKED.size:
            raise ArgumentError(f"a configuration of {len(packed)} bytes; expected {PACKED.size}")
        seed, rule, buffer_bits, start, learns, first_op, last_op, zeros = PACKED.unpack(packed)
        within("what learns", learns, 0, LEARNS_BITS | LEARNS_BIAS)
        within("a configuration's last bytes", zeros, 0, 0)
        bits, bias = bool(learns & LEARNS_BITS), bool(learns & LEARNS_BIAS)
        return cls(seed, buffer_bits, start, bits, bias, first_op, last_op, rule)
