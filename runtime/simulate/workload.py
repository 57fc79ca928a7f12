"""How much work learning is: the multiply-accumulates of a net, its trained weights, and the passes of a step."""

from __future__ import annotations

import functools
import hashlib

import numpy as np

from flipbit.runtime.core.learner import Learner, LearnerConfig
from flipbit.runtime.image.kinds import TRAINABLE
from flipbit.runtime.image.reader import Image, Operation, read_image


class Workload:
    """The work of training an image with a configuration."""

    def __init__(self, image: bytes, config: LearnerConfig):
        self.bytes = image
        self.image: Image = read_image(image)
        self.config = config

    @property
    def method(self) -> str:
        """What learns: "sr", "bias", "sr+bias", "buffer" or "buffer+bias"; with which operations, if not all."""
        c = self.config
        bits = ("buffer" if c.buffer_bits else "sr") if c.bits else ""
        name = "+".join(part for part in (bits, "bias" if c.bias else "") if part)
        some = c.first_op > 0 or c.last_op < len(self.image.operations) - 1
        return f"{name} of {c.first_op} to {c.last_op}" if some else name

    @property
    def signature(self) -> str:
        """The same for nets of the same shape and method, whatever their weights: they take the same work."""
        tensors = self.image.tensors
        layers = [
            f"{op.kind} {op.binary} {op.kernel} {op.stride} {op.inputs} {op.output} {tensors[op.output].shape}"
            for op in self.image.operations
        ]
        text = ";".join([str(tensors[self.image.input].shape), *layers])
        shape = hashlib.sha256(text.encode()).hexdigest()[:16]
        return shape if self.method == "sr" else f"{shape} {self.method}"

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one forward run."""
        tensors = self.image.tensors
        return sum(self._taps(op) * tensors[op.output].size for op in self.image.operations if op.weights is not None)

    @property
    def weights(self) -> int:
        """Trained bits and biases."""
        tensors, c = self.image.tensors, self.config
        return sum(
            (self._taps(op) * (c.bits and op.binary and op.flags & TRAINABLE != 0) + c.bias)
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
        learner = Learner(self.bytes, self.config, arena)
        x: np.ndarray = np.zeros((1, learner.input_size), np.int8)
        # A first step finds the scales of gradients in one pass; then measures, then updates, in the same passes.
        return (learner.step(x, np.zeros(1, int)).passes - 1) // 2

    def _taps(self, op: Operation) -> int:
        """Weights of a filter."""
        source = self.image.tensors[op.inputs[0]]
        return op.taps * source.channels
