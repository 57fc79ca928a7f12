"""A run that was stopped goes on to the same bits, from a checkpoint that knows what it belongs to."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from flipbit.runtime.errors import ArgumentError, FlipbitError
from flipbit.runtime.simulate.simulator import SimulatedDevice
from flipbit.runtime.tune.job import Job
from flipbit.runtime.tune.run import tune
from tests.nets.small_nets import small_image
from tests.runtime.tune.labelled import labelled, some_samples


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return labelled(tmp_path)


def test_a_run_stopped_anywhere_goes_on_to_the_same_bits(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples, job = some_samples(files), Job("sr", steps=3, rate_bits=0.05, arena=12_000)
    whole = tune(small_image(), samples, "nrf52840-dk", job)
    plain = SimulatedDevice.sample
    for stop in (5, 60, 200, 333):
        folder, seen = files / f"stop{stop}", 0

        def interrupted(self, x, label, stop=stop):
            nonlocal seen
            seen += 1
            if seen == stop:
                raise KeyboardInterrupt
            return plain(self, x, label)

        monkeypatch.setattr(SimulatedDevice, "sample", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tune(small_image(), samples, "nrf52840-dk", job, checkpoint=folder)
        monkeypatch.setattr(SimulatedDevice, "sample", plain)
        result = tune(small_image(), samples, "nrf52840-dk", job, checkpoint=folder)
        assert result.image == whole.image
        assert [(r.step, r.held_back, r.flips) for r in result.rows] == [
            (r.step, r.held_back, r.flips) for r in whole.rows
        ]
        assert [p.name for p in folder.iterdir()] == ["tuning.ckpt"]


def test_a_checkpoint_knows_its_data_by_every_byte_in_order(files: Path) -> None:
    samples, folder, job = some_samples(files), files / "c", Job(steps=1)
    tune(small_image(), samples, "nrf52840-dk", job, checkpoint=folder)
    tune(small_image(), samples, "nrf52840-dk", job, checkpoint=folder)
    swapped = samples.x.copy()
    swapped[[0, 1]] = swapped[[1, 0]]  # the same sum
    moved = samples.x.copy()
    moved.flat[:2] += np.array([1, -1], np.int8)  # the same sum
    others = [
        (replace(samples, x=swapped), "samples differ"),
        (replace(samples, x=moved), "samples differ"),
        (replace(samples, y=np.roll(samples.y, 1)), "samples differ"),
        (replace(samples, held_x=samples.held_x[::-1]), "held-back images differ"),
    ]
    for other, says in others:
        with pytest.raises(ArgumentError, match=says):
            tune(small_image(), other, "nrf52840-dk", job, checkpoint=folder)
    with pytest.raises(ArgumentError, match="image differ"):
        tune(small_image(1), samples, "nrf52840-dk", job, checkpoint=folder)


def test_a_checkpoint_of_an_older_version_is_refused_by_name(files: Path) -> None:
    samples, folder = some_samples(files), files / "c"
    tune(small_image(), samples, "nrf52840-dk", Job(steps=1), checkpoint=folder)
    kept = folder / "tuning.ckpt"
    for older in (b"FBTUNE01", b"FBTUNE02"):
        kept.write_bytes(older + kept.read_bytes()[8:])
        with pytest.raises(ArgumentError, match=r"of another version of flipbit.*; remove it and start anew"):
            tune(small_image(), samples, "nrf52840-dk", Job(steps=1), checkpoint=folder)


@pytest.mark.parametrize("length", [0, 7, 8, 11, 12, 40, -1, -40])
def test_a_checkpoint_cut_short_is_refused(files: Path, length: int) -> None:
    samples, folder = some_samples(files), files / "c"
    tune(small_image(), samples, "nrf52840-dk", Job(steps=1), checkpoint=folder)
    kept = folder / "tuning.ckpt"
    kept.write_bytes(kept.read_bytes()[:length])
    with pytest.raises(FlipbitError, match=r"tuning\.ckpt"):
        tune(small_image(), samples, "nrf52840-dk", Job(steps=1), checkpoint=folder)


def test_a_checkpoint_of_another_run_is_refused(files: Path) -> None:
    samples, folder = some_samples(files), files / "c"
    tune(small_image(), samples, "nrf52840-dk", Job(steps=1), checkpoint=folder)
    with pytest.raises(ArgumentError, match="seed differ"):
        tune(small_image(), samples, "nrf52840-dk", Job(steps=1, seed=3), checkpoint=folder)
    (folder / "tuning.ckpt").write_bytes(b"something else")
    with pytest.raises(ArgumentError, match="not a checkpoint"):
        tune(small_image(), samples, "nrf52840-dk", Job(steps=1), checkpoint=folder)


@pytest.mark.parametrize("place", [[3, 0], [0, 10_000], [-1, 0], [0, -1], ["x", 0], [0], None])
def test_a_checkpoint_at_no_place_of_a_step_is_refused(files: Path, place: object) -> None:
    samples, folder = some_samples(files), files / "c"
    tune(small_image(), samples, "nrf52840-dk", Job(steps=1), checkpoint=folder)
    kept = folder / "tuning.ckpt"
    data = kept.read_bytes()
    size = int.from_bytes(data[8:12], "little")
    head = json.dumps({**json.loads(data[12 : 12 + size]), "place": place}).encode()
    kept.write_bytes(data[:8] + len(head).to_bytes(4, "little") + head + data[12 + size :])
    with pytest.raises(FlipbitError, match=r"tuning\.ckpt"):
        tune(small_image(), samples, "nrf52840-dk", Job(steps=1), checkpoint=folder)
