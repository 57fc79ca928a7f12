"""Mean and deviation of what the layers of a net compute: what ``recalibrate`` compares with, measured by the C core.

Results of a channel are counted from the zero point and before a fused ReLU cuts them off; the numbers have 7
fractional bits (docs/fbit-format.md).
"""

from __future__ import annotations

import math

import numpy as np

from flipbit.runtime.core.learner import Learner, LearnerConfig
from flipbit.runtime.image.kinds import REFERENCES
from flipbit.runtime.image.reader import Operation, read_image

Array = np.ndarray
MOST = 0xFFFF  # samples of a batch


def watched(op: Operation, height: int, width: int) -> tuple[int, bool]:
    """How many results of a channel count, and whether with half the resolution: ``fb_watched`` of the C core."""
    if not op.relu:
        return height * width, False
    strides = op.stride if op.traits.stride else (1, 1)
    sides = [(side + 1) // 2 if side >= 4 and stride <= 127 else side for side, stride in zip((height, width), strides)]
    return sides[0] * sides[1], True


def measure(image: bytes, inputs: Array) -> list[Array | None]:
    """Of every operation with references in its image, whatever they are, the right ones: (channels, 2). ``inputs`` are
    (samples, channels, height, width) int8."""
    read = read_image(image)
    marked = [bool(op.flags & REFERENCES) for op in read.operations]
    channels = [read.tensors[op.output].channels if mark else 0 for op, mark in zip(read.operations, marked)]
    learner = Learner(image, LearnerConfig(bits=False, recalibrate=1))
    learner.begin(len(inputs))
    for x in inputs:
        learner.sample(x, 0)
    sums = learner.moments(sum(channels))
    found: list[Array | None] = []
    for op, mark, count in zip(read.operations, marked, channels):
        out = read.tensors[op.output]
        here, sums = sums[:count], sums[count:]
        pixels, half = watched(op, out.height, out.width)
        pairs = [moments_to_reference(int(s), int(q), pixels * len(inputs), half) for s, q in here]
        found.append(np.array(pairs, np.int64) if mark else None)
    return found


def moments_to_reference(total: int, squares: int, values: int, half: bool) -> tuple[int, int]:
    """Mean and deviation with 7 fractional bits, as an image keeps them; 0 for a channel that never changes."""
    one = 256 if half else 128
    mean = (2 * total * one + values) // (2 * values)
    deviation = math.isqrt((squares * values - total * total) * one * one // (values * values))
    return max(-0x8000, min(0x7FFF, mean)), min(0xFFFF, deviation)
