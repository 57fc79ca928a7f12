"""What each kind of operation is: one row per kind, the twin of firmware/core/run/fb_kinds.c.

Reader, reference and exporter ask this table instead of listing kinds. tests/test_kinds.py holds it equal to the C
core's and to docs/fbit-format.md, and walks every kind through everything that has a branch for it. CONTRIBUTING.md
says how to add one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

RELU, BINARY, CHUNKS, TRAINABLE, REFERENCES, ONES = 1, 2, 4, 8, 16, 32  # flags of an operation
NO_TENSOR = 0xFFFF
NEWEST_VERSION = 2  # of the format, that these readers know


class Shape(IntEnum):
    """How the shape of the result follows from what is read."""

    WINDOWS = 1  # image to image, window by window; as many channels as before, or as filters
    VECTORS = 2  # vector to vector
    SAME = 3  # value by value: all that is read and written has one shape
    STRIDED = 4  # every stride-th pixel, and channels that are added
    FLAT = 5  # image to vector, in the order in which it lies
    JOINED = 6  # the channels of the first, then those of the second
    BITS = 7  # value by value, to an image of packed bits; a vector becomes one of 1×1


class Back(IntEnum):
    """Where the gradient of a result goes, when a device learns."""

    NONE = 0  # nowhere: no layer below is trained
    WEIGHTS = 1  # by way of the weights
    VALUES = 2  # value by value
    WINDOW = 3  # to all of its window
    LARGEST = 4  # to the largest of its window
    CORNER = 5  # to the first of its window
    SLOPE = 6  # value by value, times the slope of the table there
    PARTS = 7  # each input takes its channels


class CutOff(IntEnum):
    """Where a result is cut off, so that its gradient is 0."""

    NONE = 0
    ENDS = 1  # at both ends of int8, or a fused ReLU
    ZERO = 2  # below zero


@dataclass(frozen=True)
class Kind:
    """A row. What is not named here, an operation does not have: its fields are 0 in an image."""

    number: int
    name: str
    shape: Shape
    inputs: int = 1  # tensors read
    factors: int = 0  # multipliers: of each input, or none
    flags: int = 0  # that it may have
    kernel: bool = False  # a window
    stride: bool = False
    padding: bool = False  # smaller than the window
    weights: bool = False  # and parameters
    shifts: bool = False  # the result is requantized, by a shift
    keeps_scale: bool = False  # the result has the scale and zero point of the input
    to_vector: bool = False  # a result of 1×1 may be a vector
    in_place: bool = False  # the result may lie where an input was
    moves_nothing: bool = False  # and there is nothing to do then
    per_channel: bool = False  # a filter sees one channel, its own; as many channels as before
    looks_up: bool = False  # a table of 256 values
    padding_new: bool = False  # padding only from version 2 on
    thresholds: bool = False  # one per channel
    reads_bits: bool = False  # packed bits, not int8; and its weights, if any, are binary
    writes_bits: bool = False  # likewise
    back: Back = Back.NONE
    cut: CutOff = CutOff.NONE
    version: int = 1  # of the format, from which on it is allowed


KINDS = (
    Kind(
        1, "conv", Shape.WINDOWS, flags=RELU | BINARY | CHUNKS | TRAINABLE | REFERENCES, kernel=True, stride=True,
        padding=True, weights=True, shifts=True, back=Back.WEIGHTS, cut=CutOff.ENDS,
    ),
    Kind(
        2, "dense", Shape.VECTORS, flags=RELU | BINARY | TRAINABLE | REFERENCES, weights=True, shifts=True,
        back=Back.WEIGHTS, cut=CutOff.ENDS,
    ),
    Kind(3, "max_pool", Shape.WINDOWS, kernel=True, stride=True, padding=True, keeps_scale=True, back=Back.LARGEST),
    Kind(
        4, "average_pool", Shape.WINDOWS, factors=1, kernel=True, stride=True, padding=True, padding_new=True,
        shifts=True, to_vector=True, back=Back.WINDOW,
    ),
    Kind(
        5, "add", Shape.SAME, inputs=2, factors=2, flags=RELU, shifts=True, in_place=True, back=Back.VALUES,
        cut=CutOff.ENDS,
    ),
    Kind(6, "shortcut", Shape.STRIDED, stride=True, keeps_scale=True, back=Back.CORNER),
    Kind(7, "relu", Shape.SAME, keeps_scale=True, in_place=True, back=Back.VALUES, cut=CutOff.ZERO),
    Kind(8, "flatten", Shape.FLAT, keeps_scale=True, in_place=True, moves_nothing=True, back=Back.VALUES),
    Kind(
        9, "depthwise", Shape.WINDOWS, flags=RELU | BINARY | TRAINABLE | REFERENCES, kernel=True, stride=True,
        padding=True, weights=True, shifts=True, per_channel=True, back=Back.WEIGHTS, cut=CutOff.ENDS, version=2,
    ),
    Kind(10, "table", Shape.SAME, looks_up=True, in_place=True, back=Back.SLOPE, version=2),
    Kind(11, "concat", Shape.JOINED, inputs=2, factors=2, shifts=True, back=Back.PARTS, version=2),
    Kind(13, "binarize", Shape.BITS, thresholds=True, writes_bits=True, version=2),
    Kind(
        14, "conv_bits", Shape.WINDOWS, flags=RELU | BINARY | CHUNKS | ONES, kernel=True, stride=True, padding=True,
        weights=True, shifts=True, to_vector=True, reads_bits=True, cut=CutOff.ENDS, version=2,
    ),
    Kind(
        15, "max_pool_bits", Shape.WINDOWS, kernel=True, stride=True, padding=True, reads_bits=True, writes_bits=True,
        version=2,
    ),
)  # fmt: skip

_BY_NUMBER = {kind.number: kind for kind in KINDS}
_BY_NAME = {kind.name: kind for kind in KINDS}


def kind_of(number: int) -> Kind | None:
    """The kind with this number in an image; None if there is none."""
    return _BY_NUMBER.get(number)


def named(name: str) -> Kind:
    """The kind of this name; KeyError if there is none."""
    return _BY_NAME[name]
