"""Where learning happens: the same few calls for a simulated device and for a real one.

A host streams samples and the target learns from them, a pass at a time::

    target.begin(samples, rate_bits, rate_bias)
    more = True
    while more:
        for x, label in batch:
            target.sample(x, label)
        more = target.end_pass()

Any of these calls may raise :class:`TargetLostPower`: the target has started anew from what it had saved.
``target.steps`` says how many steps that are; the host begins the step after them again (``begin``), and the target
takes as many passes as are left of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np


class TargetLostPower(Exception):
    """The target lost power and has started anew from what it had saved."""


class Target(Protocol):
    """A device that learns."""

    @property
    def steps(self) -> int:
        """Steps done so far."""

    @property
    def image(self) -> bytes:
        """The net as it is now."""

    @property
    def state(self) -> bytes:
        """What must be kept with the image to go on as if never stopped."""

    @property
    def flips(self) -> int:
        """Bits changed by the last step."""

    def begin(self, samples: int, rate_bits: float, rate_bias: float) -> None:
        """Begin a step over a virtual batch, or the rest of one."""

    def sample(self, x: np.ndarray, label: int) -> tuple[int, float] | None:
        """A sample: the predicted class and the loss, where the target tells."""

    def end_pass(self) -> bool:
        """After all samples: whether the step needs another pass over them."""

    def close(self) -> None:
        """Save what was learned and let go."""


@dataclass
class Progress:
    """What a step said of its samples, from before its update."""

    step: int
    loss: float
    accuracy: float
    flips: int


@dataclass
class Rates:
    """Rates of every step."""

    bits: list[float] = field(default_factory=list)
    bias: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.bits)


def run_steps(
    target: Target,
    inputs: np.ndarray,
    labels: np.ndarray,
    rates: Rates,
    after_pass: Callable[[], None] | None = None,
) -> Iterable[Progress]:
    """Stream the samples to a target until it has done all steps; yields what each step said. Goes on after losses of
    power, which may take it back by steps that were not saved."""
    while target.steps < len(rates):
        step = target.steps
        results: list[tuple[int, float] | None] = []
        try:
            target.begin(len(inputs), rates.bits[step], rates.bias[step])
            more = True
            while more:
                results = [target.sample(x, int(label)) for x, label in zip(inputs, labels)]
                more = target.end_pass()
                if after_pass:
                    after_pass()
        except TargetLostPower:
            continue
        told = [(found, label) for found, label in zip(results, labels) if found is not None]
        right = np.mean([found[0] == label for found, label in told]) if told else float("nan")
        loss = np.mean([found[1] for found, _ in told]) if told else float("nan")
        yield Progress(step + 1, float(loss), float(right), target.flips)
