"""Which layers bring most: trials that write nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from flipbit.runtime.core.learner import Learner
from flipbit.runtime.core.model import Model
from flipbit.runtime.errors import ArgumentError
from flipbit.runtime.image.reader import read_image
from flipbit.runtime.tune.job import Job
from flipbit.runtime.tune.plan import plan, plan_table
from tests.nets.small_nets import small_image
from tests.runtime.tune.labelled import labelled, some_samples


def test_every_layer_is_tried_alone_and_with_all_behind_it(tmp_path: Path) -> None:
    image, job = small_image(), Job("bias", rate_bias=1.0)
    trials = plan(image, some_samples(labelled(tmp_path)), job)
    layers = [i for i, op in enumerate(read_image(image).operations) if op.weights is not None]
    assert [(t.first, t.last) for t in trials[: len(layers)]] == [(i, i) for i in layers]
    assert {(t.first, t.last) for t in trials[len(layers) :]} == {(i, layers[-1]) for i in layers[:-1]}
    whole = next(t for t in trials if (t.first, t.last) == (layers[0], layers[-1]))
    learner = Learner(image, Job("bias").config)
    assert (whole.state, whole.arena) == (len(learner.state), learner.arena_least)
    assert whole.macs == max(t.macs for t in trials)
    assert len(plan_table(read_image(image), trials).splitlines()) == 2 + len(trials)


def test_a_trial_is_measured_on_samples_it_did_not_learn_from(tmp_path: Path) -> None:
    image, job, samples = small_image(), Job("bias", 8, rate_bias=1.0), some_samples(labelled(tmp_path))
    given = Model(image).predict(samples.pixels, raw=True).reshape(len(samples.y), -1).argmax(1)
    others = (given + 1) % 5
    won = [t.points for t in plan(image, replace(samples, y=others), job)]
    lost = [t.points for t in plan(image, replace(samples, y=np.concatenate([others[:16], given[16:]])), job)]
    assert min(won) >= 0 < max(won) and max(lost) <= 0 > min(lost)


def test_a_plan_of_one_sample_is_refused(tmp_path: Path) -> None:
    samples = some_samples(labelled(tmp_path))
    with pytest.raises(ArgumentError, match="at least 2 samples"):
        plan(small_image(), replace(samples, x=samples.x[:1], y=samples.y[:1]), Job("bias"))
