"""Boards that learn with others: the commands of a fleet give the bits that the core gives on the host."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from flipbit.runtime.core.exchange import Exchange
from flipbit.runtime.core.learner import LearnerConfig
from flipbit.runtime.errors import ArenaError, ArgumentError, StateError
from flipbit.runtime.link.device import RefusedError
from flipbit.runtime.link.exchange_device import ExchangeTarget
from flipbit.runtime.link.protocol import Command, Status
from tests.firmware.host_app import HostApp, build_app
from tests.nets.small_nets import referenced_image, small_image
from tests.nets.tiny_net import tiny_image

SR = LearnerConfig(seed=5)
IMAGE = small_image(1)
RATE = 0.05


def samples(image: bytes, count: int, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    size, classes = Exchange(image, SR).input_size, Exchange(image, SR).output_size
    random = np.random.default_rng(seed)
    return random.integers(-128, 128, (count, size)).astype(np.int8), random.integers(0, classes, count)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[HostApp]:
    with HostApp(build_app(IMAGE), tmp_path / "flash") as running:
        running.device.hello()
        yield running


def twice(app: HostApp) -> None:
    """Every request is sent twice from here on: the second must change nothing."""
    request = app.device.request

    def again(command: int, payload: bytes = b"", *more: object, **named: object) -> bytes:
        first = request(command, payload, *more, **named)  # type: ignore[arg-type]
        second = request(command, payload, *more, **named)  # type: ignore[arg-type]
        ticks = 4 if command in (Command.LEARN_SAMPLE, Command.LEARN_END) else 0
        assert first[: len(first) - ticks] == second[: len(second) - ticks], Command(command).name
        return first

    app.device.request = again  # type: ignore[method-assign]


def test_flips_of_a_step_are_taken_back_and_others_made_as_on_the_host(app: HostApp) -> None:
    twice(app)
    board, host = ExchangeTarget(app.device, SR), Exchange(IMAGE, SR)
    x, y = samples(IMAGE, 6)
    for _ in range(2):
        before = host.bits()
        assert (board.bits() == before).all()
        told, expected = board.step(x, y, RATE), host.step(x, y, RATE)
        assert (told.loss, told.accuracy, told.flips) == (expected.loss, expected.accuracy, expected.flips)
        mine = np.flatnonzero(host.bits() != before)
        assert len(mine) and (np.flatnonzero(board.bits() != before) == mine).all()
        for learner in (board, host):
            learner.flip(mine)  # back
            learner.flip(mine[1:])  # what the fleet wants
        assert (board.image, board.state) == (host.image, host.state)
        assert app.device.info().model_crc == int.from_bytes(host.image[12:16], "little")


@pytest.mark.parametrize(
    ("image", "config"),
    [
        (IMAGE, SR),
        (IMAGE, LearnerConfig(seed=5, bits=True, bias=True)),
        (referenced_image(1), LearnerConfig(bits=False, recalibrate=1, prior=10)),
    ],
    ids=["sr", "sr+bias", "recalibrate"],
)
def test_a_followed_pass_gives_the_hosts_plan_and_sums(tmp_path: Path, image: bytes, config: LearnerConfig) -> None:
    x, y = samples(image, 5)
    with HostApp(build_app(image), tmp_path / "flash") as app:
        app.device.hello()
        twice(app)
        board, host = ExchangeTarget(app.device, config), Exchange(image, config)
        leader = Exchange(image, config)
        leader.begin(len(x) + 2, RATE, RATE)
        passes = 0
        while True:
            told = []
            for follower in (board, host):
                follower.follow(leader.plan(), 2)
                told.append([follower.sample(sample, int(label)) for sample, label in zip(x, y)])
            assert told[0] == told[1]
            assert board.plan() == host.plan()
            if leader.scales:
                leader.follow(host.plan(), 0)
                leader.gather(None, len(x) + 2)
            else:
                mine, expected = board.sums(), host.sums()
                assert (mine.words == expected.words).all() and len(mine.words)
                assert (mine.counts, mine.recalibrating) == (expected.counts, expected.recalibrating)
                leader.gather(mine.words, len(x))
                leader.gather(None, 2)
            passes += 1
            if not leader.end_pass() or leader.image != image:  # recalibrating, every pass changes the image
                break
        assert passes > 1 or config.recalibrate
        assert leader.image != image


def test_after_following_a_board_takes_the_update_and_keeps_it_over_a_restart(app: HostApp) -> None:
    board, leader, x = ExchangeTarget(app.device, SR), Exchange(IMAGE, SR), samples(IMAGE, 4)[0]
    leader.begin(4, RATE)
    board.follow(leader.plan())
    board.sample(x[0], 1)
    with pytest.raises(RefusedError) as error:
        app.device.request(Command.INFER)  # its arena holds sums
    assert error.value.detail == 10
    with pytest.raises(RefusedError, match="no step"):  # nor may it end the leader's step by itself
        app.device.request(Command.LEARN_END, struct.pack("<2I", 0, 0))
    host, other = Exchange(IMAGE, SR), Exchange(IMAGE, SR)
    before = other.bits()
    other.step(x, np.zeros(4, int), RATE)
    places = np.flatnonzero(other.bits() != before)
    assert host.flip(places) == len(places) > 0
    board.flip(places)
    assert (board.image, board.steps, board.follows) == (host.image, 0, False)
    board.save()
    app.device.reset()
    again = ExchangeTarget(app.device, SR)
    assert (again.image, again.memory.resumed) == (host.image, True)
    assert again.step(x, np.zeros(4, int), RATE) == Exchange(host.image, SR).step(x, np.zeros(4, int), RATE)


def test_a_plan_that_is_not_for_this_net_is_refused_and_the_board_goes_on(app: HostApp) -> None:
    board, leader = ExchangeTarget(app.device, SR), Exchange(IMAGE, SR)
    x, y = samples(IMAGE, 3)
    leader.begin(3, RATE)
    plan = leader.plan()
    other = Exchange(tiny_image(), SR)
    other.begin(3, RATE)
    random = np.random.default_rng(2)
    forged = [other.plan(), plan[:-1], plan + b"\0", b"x", plan[:16] + b"\xff" * (len(plan) - 16)]
    for _ in range(100):  # a bit flipped anywhere: refused, or a plan that can be followed
        place = int(random.integers(8 * len(plan)))
        forged.append(plan[: place // 8] + bytes([plan[place // 8] ^ 1 << place % 8]) + plan[place // 8 + 1 :])
    refused = 0
    for bad in forged:
        try:
            board.follow(bad)
            board.sample(x[0], int(y[0]))
            board.sums()
        except (StateError, ArenaError, ArgumentError):
            refused += 1
        assert board.image == IMAGE
    assert refused > 30
    with pytest.raises(ArgumentError, match="a board takes 240"):
        board.follow(bytes(241))
    assert board.step(x, y, RATE) == Exchange(IMAGE, SR).step(x, y, RATE)


def test_lists_of_flips_that_are_none_change_nothing(app: HostApp) -> None:
    board = ExchangeTarget(app.device, SR)
    places = len(board.bits())

    def refused(*words: int) -> tuple[int, int]:
        with pytest.raises(RefusedError) as error:
            app.device.request(Command.LEARN_FLIP, struct.pack(f"<{len(words)}I", *words))
        return error.value.code, error.value.detail

    assert refused(2 * places) == (Status.RANGE, places)
    assert refused(0xFFFFFFFF) == (Status.RANGE, places)
    assert refused(9, 8) == (Status.ORDER, 5)
    assert refused(9, 1) == (Status.ORDER, 5)
    with pytest.raises(RefusedError) as error:
        app.device.request(Command.LEARN_FLIP, b"abc")
    assert (error.value.code, error.value.detail) == (Status.LENGTH, 3)
    board.begin(2, RATE, 0.0)
    assert refused(1) == (Status.STATE, 10)
    assert board.image == IMAGE


def test_without_learning_nothing_is_given_out(app: HostApp) -> None:
    for command, payload in (
        (Command.LEARN_FLIP, b""),
        (Command.LEARN_FOLLOW, bytes(40)),
        (Command.LEARN_PLAN, b""),
        (Command.LEARN_READ, struct.pack("<3I", 3, 0, 4)),
    ):
        with pytest.raises(RefusedError) as error:
            app.device.request(command, payload)
        assert (error.value.code, error.value.detail) == (Status.STATE, 8)
    ExchangeTarget(app.device, SR)
    for command, payload in ((Command.LEARN_PLAN, b""), (Command.LEARN_READ, struct.pack("<3I", 3, 0, 4))):
        with pytest.raises(RefusedError) as error:
            app.device.request(command, payload)
        assert (error.value.code, error.value.detail) == (Status.STATE, 9)
