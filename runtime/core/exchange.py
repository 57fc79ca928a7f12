"""Several devices, one virtual batch: a learner that exchanges plans, sums and flips with others.

leader.begin(len(x), rate_bits=0.001)
while True:
    for device, (first, own_x, own_y) in zip(devices, shares):
        device.follow(leader.plan(), first)
        for sample in zip(own_x, own_y):
            device.sample(*sample)
        leader.gather(device.sums().words, len(own_x))
    if not leader.end_pass():
        break

The bits are those of one device with all samples (firmware/core/include/fb_exchange.h).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from ctypes import POINTER, c_bool, c_char_p, c_size_t, c_uint16, c_uint32, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np

from flipbit.runtime.core.fixed_width import within
from flipbit.runtime.core.learner import Array, Learner

SCALING_SAMPLES = 16  # FB_EXCHANGE_SCALING: the pass that finds the scales of gradients looks at so many


@dataclass(frozen=True)
class Sums:
    """Words of a pass, uint32 as in the arena: ``counts`` words that count, then the sums (int32). When
    ``recalibrating``: pairs of words are 64-bit moments, then samples of each class."""

    words: Array
    counts: int
    recalibrating: bool


class Exchange(Learner):
    """A learner that takes part in others' passes, or leads them."""

    def __init__(self, *args: Any, **named: Any):
        super().__init__(*args, **named)
        core, train = self._core, c_void_p
        core.fb_exchange_plan_size.restype, core.fb_exchange_plan_size.argtypes = c_size_t, [train]
        core.fb_exchange_plan.argtypes = [train, c_char_p]
        core.fb_exchange_follow.argtypes = [train, c_char_p, c_size_t, c_uint32]
        core.fb_exchange_scales.restype, core.fb_exchange_scales.argtypes = c_bool, [train]
        core.fb_exchange_recalibrates.restype, core.fb_exchange_recalibrates.argtypes = c_bool, [train]
        core.fb_exchange_sums.restype = POINTER(c_uint32)
        core.fb_exchange_sums.argtypes = [train, POINTER(c_uint32), POINTER(c_uint32)]
        core.fb_exchange_gather.argtypes = [train, c_void_p, c_uint32, c_uint32]
        core.fb_exchange_bits.restype, core.fb_exchange_bits.argtypes = POINTER(c_uint16), [train, POINTER(c_uint32)]
        core.fb_exchange_flip.argtypes = [train, c_void_p, c_uint32]

    @property
    def _at(self) -> Any:
        return ctypes.byref(self._train)

    def plan(self) -> bytes:
        """The pass that has begun, for others to follow."""
        plan = ctypes.create_string_buffer(self._core.fb_exchange_plan_size(self._at))
        self._check(self._core.fb_exchange_plan(self._at, plan), "a plan")
        return plan.raw

    def follow(self, plan: bytes, first: int = 0) -> None:
        """Take part in the pass of that plan; ``first`` samples of its batch are other devices'."""
        first = within("first sample", first, 0, 0xFFFF)
        self._check(self._core.fb_exchange_follow(self._at, plan, len(plan), first), "the leader's plan")

    @property
    def scales(self) -> bool:
        """Whether this pass finds the scales of gradients: devices take turns, each with the plan of the one before."""
        return bool(self._core.fb_exchange_scales(self._at))

    @property
    def recalibrates(self) -> bool:
        return bool(self._core.fb_exchange_recalibrates(self._at))

    def sums(self) -> Sums:
        """What this pass has summed up so far."""
        words, counts = c_uint32(), c_uint32()
        at = self._core.fb_exchange_sums(self._at, ctypes.byref(words), ctypes.byref(counts))
        return Sums(np.ctypeslib.as_array(at, (words.value,)).copy(), counts.value, self.recalibrates)

    def gather(self, words: Array | None, samples: int) -> None:
        """Add a follower's sums over so many samples; None counts samples that did not come."""
        samples = within("samples of a follower", samples, 0, 0xFFFF)
        values = None if words is None else np.ascontiguousarray(words, np.uint32)
        at, size = (None, 0) if values is None else (values.ctypes.data, len(values))
        self._check(self._core.fb_exchange_gather(self._at, at, size, samples), "a follower's sums")

    def bits(self) -> Array:
        """Bits of trained layers, one bool each, in the order of the state (a few places stand for no weight)."""
        words = c_uint32()
        at = self._core.fb_exchange_bits(self._at, ctypes.byref(words))
        if not words.value:
            return np.zeros(0, bool)
        packed = np.ctypeslib.as_array(at, (words.value,)).astype("<u2").view(np.uint8)
        return np.unpackbits(packed, bitorder="little").astype(bool)

    def flip(self, places: Iterable[int]) -> int:
        """Flip these bits, by their place in :meth:`bits`, between two steps: how many did."""
        chosen = np.ascontiguousarray(np.fromiter(places, np.uint32))
        self._check(self._core.fb_exchange_flip(self._at, chosen.ctypes.data, len(chosen)), "a list of flips")
        return self.flips


__all__ = ["SCALING_SAMPLES", "Exchange", "Sums"]
