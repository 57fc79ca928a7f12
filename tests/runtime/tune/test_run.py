"""Tuning runs: every method learns what it says, and a board that restarts ends with the same bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from flipbit.runtime.core.learner import Learner
from flipbit.runtime.core.target import TargetLostPower
from flipbit.runtime.image.reader import read_image
from flipbit.runtime.tune.job import Job
from flipbit.runtime.tune.methods import METHODS, augmenting, default_method
from flipbit.runtime.tune.run import tune, tune_on_board
from tests.nets.small_nets import referenced_image, small_image
from tests.runtime.tune.labelled import labelled, some_samples


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return labelled(tmp_path)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_what_its_name_says(files: Path, method: str) -> None:
    image = referenced_image() if METHODS[method].recalibrate else small_image()
    result = tune(image, some_samples(files), "nrf52840-dk", Job(method, 3, seed=2))
    before, after = read_image(image), read_image(result.image)
    bits = any(
        not np.array_equal(a.weights, b.weights) for a, b in zip(before.operations, after.operations) if a.binary
    )
    int8 = [(a, b) for a, b in zip(before.operations, after.operations) if a.weights is not None and not a.binary]
    assert bits == METHODS[method].bits == (sum(row.flips for row in result.rows) > 0)
    last = int8[-1]  # has no reference
    assert (not np.array_equal(last[0].bias, last[1].bias)) == METHODS[method].bias
    assert (not np.array_equal(last[0].multiplier, last[1].multiplier)) == METHODS[method].gain
    first = before.operations[0], after.operations[0]
    moves = METHODS[method].gain or METHODS[method].recalibrate
    assert (not np.array_equal(first[0].multiplier, first[1].multiplier)) == moves


def test_an_image_with_references_is_adapted_and_another_moves_its_biases() -> None:
    assert [default_method(read_image(image)) for image in (referenced_image(), small_image())] == ["adapt", "bias"]


def test_photos_are_mirrored_and_shifted_and_other_inputs_are_not() -> None:
    image = read_image(small_image())  # 9×8 pixels: no photo
    assert augmenting(None, image) == 0 and augmenting("both", image) == 18 and augmenting("mirror", image) == 16
    tensors = [replace(t, height=32, width=32) if i == image.input else t for i, t in enumerate(image.tensors)]
    assert augmenting(None, replace(image, tensors=tensors)) == 18 and augmenting("none", image) == 0


class Restarting(Learner):
    """A board that restarts while its image is read, as many times as it is told, and goes on from its last save."""

    seconds = None

    def __init__(self, restarts: set[int], saves: bool):
        super().__init__(small_image(), Job("sr").config)
        self.restarts, self.saves, self.reads = restarts, saves, 0

    @property
    def image(self) -> bytes:
        self.reads += 1
        if self.reads in self.restarts:
            saved = (super().image, super().state) if self.saves else (small_image(), None)
            Learner.__init__(self, saved[0], self.config, state=saved[1])
            raise TargetLostPower
        return super().image

    def close(self) -> None:
        pass


@pytest.mark.parametrize("saves", [True, False])
@pytest.mark.parametrize("restarts", [{1}, {3}, {4}, {2, 3, 5}, {1, 2, 3, 4, 5, 6, 7, 8}])
def test_a_board_that_restarts_while_it_is_read_ends_with_the_same_bits(
    files: Path, restarts: set, saves: bool
) -> None:
    samples, job = some_samples(files), Job("sr", steps=3, rate_bits=0.05)
    whole = Learner(small_image(), job.config)
    for rate in job.rates.bits:
        whole.step(samples.x, samples.y, rate)
    rows, image = tune_on_board(Restarting(restarts, saves), samples, job)
    assert image == whole.image != small_image()
    assert [row.step for row in rows] == sorted({row.step for row in rows})
