"""What a device says of a run, of its layers and of its slots."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flipbit.runtime.link.protocol import BUILT_IN, NO_SLOT


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
