"""Rounds of a fleet in this process: the C core on every device, messages handed over by a function."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from flipbit.runtime import files
from flipbit.runtime.core.exchange import Exchange
from flipbit.runtime.core.learner import Learner, LearnerConfig
from flipbit.runtime.core.model import Model
from flipbit.runtime.errors import ArgumentError, InputError
from flipbit.runtime.tune.samples import Samples, load_samples
from flipbit.studies.fleet.device import FleetDevice, crc_of
from flipbit.studies.fleet.lead import Ask, Lead, NoDevicesError, Plan, Round
from flipbit.studies.fleet.messages import Answer, Change, Reply, Request, Task
from flipbit.studies.fleet.run import CHECKPOINT, FleetJob, Liar, Run, in_process
from flipbit.studies.fleet.split import by_group, dirichlet
from flipbit.studies.fleet.vote import winners
from tests.checkout import ROOT
from tests.nets.small_nets import photos, referenced_image, small_image
from tests.patience import PATIENCE

SR = LearnerConfig(seed=5)
SHARES = (7, 3, 10, 4)
DIGITS = ROOT / "models" / "digits-vgg-small" / "model.fbit"


def samples(n: int = sum(SHARES), seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    inputs = (photos(n, seed).astype(int) - 128).astype(np.int8).transpose(0, 3, 1, 2)
    return inputs, np.random.default_rng(seed).integers(0, 5, n)


def fleet(image: bytes, config: LearnerConfig = SR, kind: type[FleetDevice] = FleetDevice) -> dict[int, FleetDevice]:
    x, y = samples()
    ends = np.cumsum(SHARES)
    return {
        100 + i: kind(image, config, x[end - n : end], y[end - n : end], seed=i + 1)
        for i, (n, end) in enumerate(zip(SHARES, ends))
    }


def rounds(lead: Lead, ask: Ask, devices: list[int], count: int) -> list[Round]:
    return [lead.round(ask, devices, number) for number in range(count)]


# The same bits


@pytest.mark.parametrize(
    "config", [SR, replace(SR, bias=True), replace(SR, buffer_bits=2)], ids=["sr", "bias", "buffer"]
)
def test_sums_of_a_fleet_give_the_bits_of_one_device_with_all_samples(config: LearnerConfig) -> None:
    image, plan = small_image(1), Plan("sum", 3, rate=0.02, rate_bias=0.3)
    lead, devices, alone = Lead(image, config, plan), fleet(image, config), Learner(image, config)
    rows = rounds(lead, in_process(devices), list(devices), 3)
    for number in range(3):
        alone.step(*samples(), 0.02 * (1 - number / 3), 0.3 * (1 - number / 3))
    assert (lead.image, lead.learner.state) == (alone.image, alone.state)
    assert [row.samples for row in rows] == [sum(SHARES)] * 3
    assert not any(row.refused or row.clipped for row in rows)


def test_a_fleet_recalibrates_as_one_device_with_all_samples() -> None:
    image, config = referenced_image(1), LearnerConfig(bits=False, recalibrate=1, prior=10)
    lead, devices, alone = Lead(image, config, Plan("recalibrate", 1)), fleet(image, config), Learner(image, config)
    rounds(lead, in_process(devices), list(devices), 1)
    alone.step(*samples())
    assert lead.image == alone.image != image


# Flips


def test_flips_reach_every_device_and_all_have_the_same_image() -> None:
    image = small_image(1)
    lead, devices = Lead(image, SR, Plan("flips", 4, rate=0.05, quorum=1)), fleet(image)
    rows = rounds(lead, in_process(devices), list(devices), 4)
    assert sum(row.flips for row in rows) > 10
    one_more = lead.request(101, Task.HELLO)
    Reply.unpack(devices[101].answer(one_more))
    assert devices[101].image == lead.image != image


def test_a_device_that_was_away_gets_the_difference_as_a_list_of_flips() -> None:
    image = small_image(1)
    lead, devices = Lead(image, SR, Plan("flips", 6, rate=0.05, quorum=1)), fleet(image)
    present = [100, 101, 102]
    rounds(lead, in_process(devices), present, 4)
    late = lead.request(103, Task.HELLO)
    assert Request.unpack(late).change == Change.FLIPS
    assert len(late) < len(image) / 4
    row = lead.round(in_process(devices), list(devices), 4)
    assert (row.answered, row.stale) == (4, 0)
    assert devices[103].image != image


def test_a_device_with_an_image_that_nobody_knows_gets_the_whole_one() -> None:
    image = small_image(1)
    other = Learner(image, SR)
    other.step(*samples(), 0.1)
    lead, devices = Lead(image, SR, Plan("flips", 4, rate=0.05, quorum=1)), fleet(image)
    devices[102].image = other.image
    row = lead.round(in_process(devices), list(devices), 0)
    assert row.stale == 1  # it said what it has, was asked again, and took part
    assert row.answered == 4
    assert crc_of(devices[102].image) == crc_of(image)


def test_a_device_that_restarts_from_older_flash_goes_on(tmp_path: Path) -> None:
    image = small_image(1)
    lead, devices = Lead(image, SR, Plan("flips", 6, rate=0.05, quorum=1)), fleet(image)
    devices[101].folder = tmp_path
    rounds(lead, in_process(devices), list(devices), 1)
    old = (tmp_path / "device").read_bytes()
    assert rounds(lead, in_process(devices), list(devices), 2)[-1].stale == 0
    (tmp_path / "device").write_bytes(old)
    devices[101] = replace(devices[101], image=image)  # as after a reset: only flash is left
    stale = lead.round(in_process(devices), list(devices), 3)
    after = lead.round(in_process(devices), list(devices), 4)
    assert (stale.answered, stale.stale, after.answered, after.stale) == (3, 1, 4, 0)


@pytest.mark.parametrize("damage", [b"", b"FBDV", bytes(300), None])
def test_damaged_flash_is_left_alone(tmp_path: Path, damage: bytes | None) -> None:
    image, (x, y) = small_image(1), samples()
    device = FleetDevice(image, SR, x, y, folder=tmp_path)
    device.answer(Request(Task.HELLO, crc_of(image)).pack())
    saved = bytearray((tmp_path / "device").read_bytes())
    saved[50] ^= 1
    (tmp_path / "device").write_bytes(bytes(saved) if damage is None else damage)
    assert FleetDevice(image, SR, x, y, folder=tmp_path).image == image


# Devices that come late, vanish, or have the wrong net


def test_a_round_goes_on_without_devices_that_vanish() -> None:
    image = small_image(1)
    for way in ("flips", "sum"):
        lead, devices = Lead(image, SR, Plan(way, 4, rate=0.05, quorum=1)), fleet(image)
        first = lead.round(in_process(devices), list(devices), 0)

        def without(requests: Mapping[int, bytes], devices: dict[int, FleetDevice] = devices) -> dict[int, bytes]:
            return {device: devices[device].answer(data) for device, data in requests.items() if device != 102}

        row = lead.round(without, list(devices), 1)
        assert (first.answered, row.answered, row.samples) == (4, 3, sum(SHARES) - 10)
        assert row.flips


def test_nobody_there_is_said_in_one_line() -> None:
    image = small_image(1)
    with pytest.raises(NoDevicesError, match="none of 4 devices"):
        Lead(image, SR, Plan("flips")).round(lambda requests: {}, list(fleet(image)), 0)


def test_a_device_with_another_net_is_left_out_and_named() -> None:
    image = small_image(1)
    lead, devices = Lead(image, SR, Plan("flips", 4, rate=0.05, quorum=1)), fleet(image)
    x, y = samples(3)
    devices[102] = FleetDevice(referenced_image(1), SR, x, y, seed=9)
    row = lead.round(in_process(devices), list(devices), 0)
    assert row.answered == 3
    assert any("device 102: the server's image has" in note for note in row.notes)
    assert devices[102].image == referenced_image(1)


def test_ways_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(ArgumentError, match="flips"):
        Lead(small_image(1), replace(SR, bias=True), Plan("flips"))
    with pytest.raises(ArgumentError, match="adds up by"):
        Plan("none")


# Liars


def test_a_device_has_one_vote_per_weight() -> None:
    lists = [np.array([1, 2, 3]), np.array([2, 3]), np.array([3, 7, 7, 7, 7])]
    assert winners(lists, 10, 2, 2, 0).tolist() == [2, 3]
    assert winners(lists, 10, 9, 1, 0).tolist() == [1, 2, 3, 7]


def test_a_flip_needs_its_votes_also_where_few_devices_answer() -> None:
    image = small_image(1)
    lead, devices = Lead(image, SR, Plan("flips", 4, rate=0.05, quorum=2)), fleet(image)
    lead.greet(in_process(devices), list(devices), Round(0))

    def one(requests: Mapping[int, bytes]) -> dict[int, bytes]:
        return {device: devices[device].answer(data) for device, data in requests.items() if device == 101}

    row = lead.round(one, list(devices), 0)
    assert (row.asked, row.answered, row.flips) == (4, 1, 0)
    assert lead.image == image


@pytest.mark.parametrize("way", ["flips", "sum"])
def test_malformed_replies_are_refused_and_named(way: str) -> None:
    image = small_image(1)
    lead, devices = Lead(image, SR, Plan(way, 4, rate=0.05, quorum=1)), fleet(image)
    lead.round(in_process(devices), list(devices), 0)
    garbage = {100: b"", 101: bytes(40), 102: Reply(Answer.DONE, crc_of(lead.image), 10, body=b"no zlib").pack()}

    def ask(requests: Mapping[int, bytes]) -> dict[int, bytes]:
        return {
            device: garbage[device] if device in garbage else devices[device].answer(data)
            for device, data in requests.items()
        }

    row = lead.round(ask, list(devices), 1)
    assert row.answered == 1
    assert row.refused == 3
    assert all("device 10" in note for note in row.notes)


@lru_cache(maxsize=1)
def damaged_digits() -> tuple[bytes, Samples]:
    """The digits net with flipped bits, from which it recovers; samples."""
    model = Model(DIGITS)
    damaged = Exchange(model.image.data, SR)
    places = np.random.default_rng(3).choice(len(damaged.bits()) - 8, 2500, replace=False)
    for place in places:
        try:
            damaged.flip([place])
        except ArgumentError:
            continue
    return damaged.image, load_samples(model, "digits", 200, 150, 1)


def accuracy_with(liars: int, way: str) -> tuple[float, float]:
    image, data = damaged_digits()
    shares = dirichlet(data.y, [20] * 10, 10.0, 1)
    devices = {
        i: (Liar if i >= 10 - liars else FleetDevice)(image, SR, data.x[mine], data.y[mine], seed=i + 1)
        for i, mine in enumerate(shares)
    }
    job = FleetJob(image, SR, Plan(way, 6, rate=0.004 if way == "sum" else 0.003, wish=4.0))
    lead = Lead(image, SR, job.plan)
    before = accuracy(image, data)
    rounds(lead, in_process(devices), list(devices), job.plan.rounds)
    return before, accuracy(lead.image, data)


def accuracy(image: bytes, data: Samples) -> float:
    answers = Model(image).predict(data.held_x, raw=True).reshape(len(data.held_y), -1).argmax(1)
    return float((answers == data.held_y).mean())


@pytest.mark.slow
@pytest.mark.parametrize("way", ["flips", "sum"])
def test_one_of_ten_that_sends_garbage_costs_less_than_two_points(way: str) -> None:
    before, honest = accuracy_with(0, way)
    _, lied_to = accuracy_with(1, way)
    assert honest > before + 0.02
    assert lied_to > honest - 0.02


# Runs that stop and go on


def run_of(folder: Path, way: str = "flips", count: int = 4) -> Run:
    return Run(FleetJob(small_image(1), SR, Plan(way, count, rate=0.05, quorum=1)), folder)


@pytest.mark.parametrize("way", ["flips", "sum"])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path: Path, way: str) -> None:
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    straight.mkdir()
    stopped.mkdir()
    devices = fleet(small_image(1))
    whole = run_of(straight, way)
    whole.rounds(in_process(devices, whole.flash), lambda: list(devices), lambda row: None)

    def stop(row: Round) -> None:
        if row.number == 1:
            raise KeyboardInterrupt

    first = run_of(stopped, way)
    with pytest.raises(KeyboardInterrupt):
        first.rounds(in_process(fleet(small_image(1)), first.flash), lambda: list(devices), stop)
    again = run_of(stopped, way)
    assert len(again.rows) == 2
    # Another process: what the devices had in memory is gone.
    again.rounds(in_process(fleet(small_image(1)), again.flash), lambda: list(devices), lambda row: None)
    assert again.lead.image == whole.lead.image != small_image(1)
    assert (stopped / "model.fbit").read_bytes() == whole.lead.image


def test_a_run_of_other_settings_is_not_continued(tmp_path: Path) -> None:
    devices = fleet(small_image(1))
    run_of(tmp_path).rounds(in_process(devices), lambda: list(devices), lambda row: None)
    with pytest.raises(InputError, match="another run"):
        run_of(tmp_path, count=5)
    (tmp_path / CHECKPOINT).write_bytes(b"no archive")
    with pytest.raises(InputError, match="delete it"):
        run_of(tmp_path)


def test_a_full_disk_ends_the_run_and_loses_no_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    devices = fleet(small_image(1))
    run = run_of(tmp_path)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def fill(row: Round) -> None:
        if row.number == 1:
            monkeypatch.setattr(files.os, "fsync", full)

    with pytest.raises(OSError, match="No space left"):
        run.rounds(in_process(devices), lambda: list(devices), fill)
    monkeypatch.undo()
    assert len(run_of(tmp_path).rows) == 2
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("room", [300, 3000])
def test_a_file_that_does_not_fit_is_told_once(tmp_path: Path, room: int) -> None:
    """Really: in a process that may write no more than so many bytes to a file."""
    code = (
        "import resource, signal, sys; import numpy as np; from pathlib import Path; "
        "from flipbit.runtime.exits import guarded; from flipbit.studies.fleet.run import write_shares; "
        "shares = [(np.random.default_rng(1).integers(-128, 128, (90, 1, 8, 8), np.int8), np.zeros(90, int))]; "
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room})); "
        f"sys.exit(guarded(lambda: write_shares(Path({str(tmp_path / 'shares.npz')!r}), shares, 0)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


# Who has what


def test_dirichlet_deals_every_sample_once_and_a_small_alpha_few_classes() -> None:
    labels = np.random.default_rng(1).integers(0, 10, 2000)
    classes = {}
    for alpha in (0.1, 1.0, 100.0):
        dealt = dirichlet(labels, [20] * 50, alpha, 1)
        assert len(np.unique(np.concatenate(dealt))) == 1000
        classes[alpha] = np.mean([len(np.unique(labels[mine])) for mine in dealt])
    assert classes[0.1] < 4 < classes[1.0] < 8 < classes[100.0]
    with pytest.raises(ArgumentError, match="need 3,000"):
        dirichlet(labels, [20] * 150, 1.0, 1)


def test_a_device_has_samples_of_one_person_only() -> None:
    groups = np.repeat(np.arange(6), [5, 50, 40, 30, 60, 3])
    dealt = by_group(groups, [20] * 3, 1)
    assert [set(groups[mine]) for mine in dealt] == [{4}, {1}, {2}]
    assert [len(mine) for mine in dealt] == [20, 20, 20]
    with pytest.raises(ArgumentError, match="6 groups"):
        by_group(groups, [20] * 7, 1)
