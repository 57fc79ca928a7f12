"""The running guard: the application watches what it classifies, and recalibrates as the host does."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from flipbit.runtime import Model
from flipbit.runtime.core.learner import Learner, LearnerConfig
from flipbit.runtime.errors import ArgumentError
from flipbit.runtime.link.device import RefusedError
from flipbit.runtime.link.guard import Guard
from flipbit.runtime.link.learn_device import DeviceTarget
from flipbit.runtime.link.protocol import Command, Status
from tests.firmware.host_app import HostApp, build_app
from tests.nets.small_nets import photos, referenced_image, small_image

CONFIG = LearnerConfig(bits=False, recalibrate=1, prior=30)
WINDOW = 12


@pytest.fixture
def app(tmp_path: Path) -> Iterator[HostApp]:
    with HostApp(build_app(referenced_image()), tmp_path / "flash") as running:
        running.device.hello()
        yield running


def stream(windows: int, dim: int = 1) -> np.ndarray:
    pixels = photos(windows * WINDOW, 5).astype(int) - 128
    return (pixels // dim).astype(np.int8).transpose(0, 3, 1, 2)


def show(app: HostApp, inputs: np.ndarray) -> list[list[int]]:
    answers = []
    for x in inputs:
        app.device.load(x)
        answers.append(app.device.run().values.tolist())
    return answers


def test_a_guarded_net_answers_as_ever_and_learns_nothing_from_what_has_not_changed(app: HostApp) -> None:
    guard = Guard(app.device, prior=30)
    guard.start(WINDOW, threshold=0.3)
    inputs = stream(3)
    model = Model(referenced_image())
    expected = [model.predict(x[None], raw=True)[0].tolist() for x in inputs.transpose(0, 2, 3, 1)]
    assert show(app, inputs) == expected
    state = guard.state()
    assert state.on and (state.windows, state.passes, state.steps, state.seen) == (3, 0, 0, 0)
    assert 0 < state.drift < 0.3
    assert guard.target.image == referenced_image()


def test_drift_above_the_threshold_is_recalibrated_as_on_the_host_and_undone(app: HostApp, tmp_path: Path) -> None:
    guard = Guard(app.device, prior=30)
    guard.start(WINDOW, threshold=0.3)
    host = Learner(referenced_image(), CONFIG)
    host.begin(WINDOW)
    windows, first = 0, 0.0
    more = True
    while more:
        inputs = stream(1, dim=3)
        show(app, inputs)
        first = first or guard.state().drift
        for x in inputs:
            host.sample(x, 0)
        more = host.end_pass()
        windows += 1
        if more:
            host.begin(WINDOW)
    before = guard.state()
    assert first > 0.3 and before.passes == before.windows == windows > 1 and before.steps == 1
    assert guard.target.image == host.image != referenced_image()
    show(app, stream(1, dim=3))
    after = guard.state()
    assert after.settled == after.drift < first and after.passes == windows  # what is left does not set it off again
    app.device.reset()
    assert DeviceTarget(app.device, CONFIG).image == host.image  # saved by itself
    guard = Guard(app.device, prior=30)
    guard.undo()
    assert guard.target.image == referenced_image() and not guard.state().on


def test_a_threshold_of_nothing_recalibrates_when_told_to_and_none_never(app: HostApp) -> None:
    guard = Guard(app.device, prior=30)
    guard.start(WINDOW, threshold=None)
    show(app, stream(2, dim=3))
    assert guard.state().passes == 0
    guard.start(WINDOW, threshold=0)
    show(app, stream(2))
    assert guard.state().passes == 2
    guard.stop()
    show(app, stream(1))
    assert guard.state().windows == 0


def test_the_host_takes_over_from_the_guard_and_cannot_mix_with_it(app: HostApp) -> None:
    guard = Guard(app.device, prior=30)
    guard.start(WINDOW, threshold=None)
    app.device.load(stream(1)[0])
    with pytest.raises(RefusedError):
        app.device.request(Command.LEARN_SAMPLE, struct.pack("<2I", 0, 0))
    guard.target.begin(2, 0.0, 0.0)
    assert not guard.state().on


def test_a_guard_needs_a_net_that_recalibrates(app: HostApp, tmp_path: Path) -> None:
    with pytest.raises(RefusedError) as caught:
        app.device.request(Command.LEARN_GUARD, struct.pack("<2I", 5, 0))
    assert caught.value.code == Status.STATE
    DeviceTarget(app.device, LearnerConfig(bits=False, bias=True))
    with pytest.raises(RefusedError):
        app.device.request(Command.LEARN_GUARD, struct.pack("<2I", 5, 0))
    with HostApp(build_app(small_image()), tmp_path / "other") as other:
        other.device.hello()
        with pytest.raises(ArgumentError, match="references"):
            Guard(other.device)
    with pytest.raises(ArgumentError, match="threshold"):
        Guard(app.device, fresh=True).start(5, 9.0)
