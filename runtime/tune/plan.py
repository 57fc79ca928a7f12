"""Which layers bring most per byte and per multiply-accumulate: each is tried for a few steps, and measured on samples
that it did not learn from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from flipbit.runtime.core.learner import Learner, LearnerConfig
from flipbit.runtime.core.model import Model
from flipbit.runtime.core.target import Rates
from flipbit.runtime.errors import ArgumentError
from flipbit.runtime.image.inputs import Array
from flipbit.runtime.image.reader import Image
from flipbit.runtime.simulate.workload import Workload
from flipbit.runtime.text_table import text_table
from flipbit.runtime.tune.job import Job
from flipbit.runtime.tune.samples import Samples

TRIAL_STEPS = 3
TRIED = {"adapt": "gain+bias"}  # what learns after recalibrating
LEARNED = 2 / 3  # of the samples to learn from; trials are measured on the rest


@dataclass(frozen=True)
class Trial:
    """Layers ``first`` to ``last`` alone learned: points of accuracy won, and what they take."""

    first: int
    last: int
    points: float
    state: int  # bytes
    arena: int  # bytes, the least
    macs: int  # multiply-accumulates per sample: forwards, gradients of activations, of weights

    @property
    def ram(self) -> int:
        return self.state + self.arena


def plan(image: bytes, samples: Samples, job: Job, on_trial: Callable[[Trial], None] | None = None) -> list[Trial]:
    """Every layer alone, and every layer with all behind it."""
    job.check()
    model, border = Model(image), round(LEARNED * len(samples.x))
    if border < 1 or border == len(samples.x):
        raise ArgumentError(f"--plan needs at least 2 samples to learn from, these are {len(samples.x)}")
    layers = [i for i, op in enumerate(model.image.operations) if op.weights is not None]
    layers = [i for i in layers if _learns(image, replace(job, layers=(i, i)).config)]
    if not layers:
        raise ArgumentError(f"--plan: no layer of this net learns with --method {job.method}")
    before = _right(image, samples.pixels[border:], samples.y[border:])
    rates = replace(job, steps=job.steps or TRIAL_STEPS).rates
    found = []
    for first, last in dict.fromkeys([*((i, i) for i in layers), *((i, layers[-1]) for i in layers)]):
        config = replace(job, layers=(first, last)).config
        learner = Learner(image, config)
        _learn(learner, samples.x[:border], samples.y[:border], rates)
        after = _right(learner.image, samples.pixels[border:], samples.y[border:])
        macs = _macs(model.image, image, config)
        trial = Trial(first, last, 100 * (after - before), len(learner.state), learner.arena_least, macs)
        found.append(trial)
        if on_trial:
            on_trial(trial)
    return found


def _learns(image: bytes, config: LearnerConfig) -> bool:
    try:
        Learner(image, config)
    except ArgumentError:
        return False
    return True


def _learn(learner: Learner, x: Array, y: Array, rates: Rates) -> None:
    for bits, bias in zip(rates.bits, rates.bias):
        learner.step(x, y, bits, bias)


def _right(image: bytes, pixels: Array, labels: Array) -> float:
    return float(np.mean(Model(image).predict(pixels, raw=True).reshape(len(labels), -1).argmax(1) == labels))


def _macs(net: Image, image: bytes, config: LearnerConfig) -> int:
    work = Workload(image, config)
    each = {i: work.macs_of(op) for i, op in enumerate(net.operations) if op.weights is not None}
    behind = sum(macs for i, macs in each.items() if i > config.first_op)
    own = sum(macs for i, macs in each.items() if config.bits and config.first_op <= i <= config.last_op)
    return work.macs + behind + own


def plan_table(image: Image, trials: list[Trial]) -> str:
    """The trials, those that bring most per byte first."""
    rows = []
    for t in sorted(trials, key=lambda t: -t.points / t.ram):
        name = f"{image.operations[t.first].name}{'' if t.first == t.last else ' and all behind it'}"
        rows.append((
            f"{t.first}-{t.last}", name, f"{t.points:+.1f}", f"{t.state:,}", f"{t.arena:,}", f"{t.macs / 1e6:.2f} M",
            f"{1024 * t.points / t.ram:.2f}", f"{1e6 * t.points / t.macs:.2f}",
        ))  # fmt: skip
    heads = (
        "--layers", "what learns", ">points", ">state", ">least arena", ">multiply-accumulates", ">points per KB",
        ">points per M",
    )  # fmt: skip
    return text_table(heads, rows)
