"""How much work learning is: the multiply-accumulates of a net, its trained weights, and the passes of a step."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import replace

import numpy as np

from flipbit.runtime.core.learner import Learner, LearnerConfig
from flipbit.runtime.image.kinds import TRAINABLE
from flipbit.runtime.image.reader import Image, Operation, read_image

RECALIBRATE = "recalibrate"


class Workload:
    """The work of training an image with a configuration."""

    def __init__(self, image: bytes, config: LearnerConfig):
        self.bytes = image
        self.image: Image = read_image(image)
        self.config = config

    @property
    def method(self) -> str:
        """What learns: "sr", "bias", "sr+bias", "gain+bias", "buffer" …, "sr/8" with sums of 8 bits, or "recalibrate"
        if nothing does; with which operations, if not all. Recalibrating before is not part of it."""
        c = self.config
        bits = ("buffer" if c.buffer_bits else "sr") if c.bits else ""
        bits += f"/{c.sum_bits}" if c.sum_bits < 32 else ""
        parts = (bits, "gain" if c.gain else "", "bias" if c.bias else "")
        name = "+".join(part for part in parts if part) or RECALIBRATE
        some = c.first_op > 0 or c.last_op < len(self.image.operations) - 1
        return f"{name} of {c.first_op} to {c.last_op}" if some else name

    @property
    def signature(self) -> str:
        """The same for nets of the same shape and method, whatever their weights: they take the same work."""
        return self.shape if self.method == "sr" else f"{self.shape} {self.method}"

    @property
    def trains(self) -> bool:
        """Whether gradients are computed."""
        return self.config.bits or self.config.bias or self.config.gain

    @property
    def shape(self) -> str:
        """The same for nets of the same shape."""
        tensors = self.image.tensors
        layers = [
            f"{op.kind} {op.binary} {op.kernel} {op.stride} {op.inputs} {op.output} {tensors[op.output].shape}"
            for op in self.image.operations
        ]
        text = ";".join([str(tensors[self.image.input].shape), *layers])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one forward run."""
        return sum(self.macs_of(op) for op in self.image.operations if op.weights is not None)

    def macs_of(self, op: Operation) -> int:
        """Of one layer."""
        return self._taps(op) * self.image.tensors[op.output].size

    @property
    def weights(self) -> int:
        """Trained bits, multipliers and biases."""
        tensors, c = self.image.tensors, self.config
        return sum(
            (self._taps(op) * (c.bits and op.binary and op.flags & TRAINABLE != 0) + c.bias + c.gain)
            * tensors[op.output].channels
            for i, op in enumerate(self.image.operations)
            if c.first_op <= i <= c.last_op and op.weights is not None
        )

    @functools.cached_property
    def arena_fast(self) -> int:
        """Bytes of arena for one pass per step and the fastest kernels of this machine."""
        return Learner(self.bytes, self.config).arena_fast

    def passes(self, arena: int) -> int:
        """Passes of a step in an arena of so many bytes, as the C core on this machine plans them.

        Its tables may be larger than those of a microcontroller's kernels, which then need fewer passes.
        """
        learner = Learner(self.bytes, replace(self.config, recalibrate=0, prior=0), arena)
        x: np.ndarray = np.zeros((1, learner.input_size), np.int8)
        # A first step finds the scales of gradients in one pass; then measures, then updates, in the same passes.
        return (learner.step(x, np.zeros(1, int)).passes - 1) // 2

    def _taps(self, op: Operation) -> int:
        """Weights of a filter."""
        source = self.image.tensors[op.inputs[0]]
        return op.taps * source.channels
