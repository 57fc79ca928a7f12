"""Devices that share one virtual batch: the same bits as one device with all the samples."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flipbit.runtime.core.exchange import SCALING_SAMPLES, Exchange
from flipbit.runtime.core.learner import Learner, LearnerConfig
from flipbit.runtime.errors import ArenaError, ArgumentError, OrderError, StateError
from flipbit.runtime.image.reader import read_image
from tests.nets.small_nets import photos, referenced_image, small_image

SHARES = (7, 3, 10, 4)  # samples of each device
RATES = (0.02, 0.3)
SR = LearnerConfig(seed=5)


def samples(n: int = sum(SHARES), seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    inputs = (photos(n, seed).astype(int) - 128).astype(np.int8).transpose(0, 3, 1, 2)
    return inputs, np.random.default_rng(seed).integers(0, 5, n)


def together(leader: Exchange, devices: list[Exchange], inputs: np.ndarray, labels: np.ndarray) -> None:
    """One step of the leader from all devices' samples."""
    leader.begin(len(inputs), *RATES)
    while True:
        first = 0
        for device, share in zip(devices, SHARES):
            if leader.image != device.image:  # the first pass after an update
                devices[devices.index(device)] = device = Exchange(leader.image, leader.config, device.arena_fast)
            device.follow(leader.plan(), first)
            for x, y in zip(inputs[first : first + share], labels[first : first + share]):
                device.sample(x, int(y))
            if leader.scales:
                leader.follow(device.plan(), 0)
            first += share
        if leader.scales:
            leader.gather(None, len(inputs))
        else:
            for device, share in zip(devices, SHARES):
                leader.gather(device.sums().words, share)
        if not leader.end_pass():
            return


@pytest.mark.parametrize(
    "config",
    [
        SR,
        replace(SR, bias=True),
        replace(SR, buffer_bits=2, start=1),
        replace(SR, bits=False, bias=True, gain=True, augment=18),
    ],
    ids=["sr", "sr+bias", "buffer", "gain+bias, augmented"],
)
def test_sums_of_several_devices_give_the_bits_of_one_with_all_samples(config: LearnerConfig) -> None:
    image, (inputs, labels) = small_image(1), samples()
    alone, leader = Learner(image, config), Exchange(image, config)
    devices = [Exchange(image, config) for _ in SHARES]
    for _ in range(3):
        alone.step(inputs, labels, *RATES)
        together(leader, devices, inputs, labels)
        assert leader.image == alone.image
        assert leader.state == alone.state
    assert leader.image != image


def test_recalibrating_together_gives_the_parameters_of_one_device_with_all_samples() -> None:
    image, (inputs, labels) = referenced_image(1), samples()
    config = LearnerConfig(bits=False, recalibrate=1, prior=10)
    alone, leader = Learner(image, config), Exchange(image, config)
    alone.step(inputs, labels)
    together(leader, [Exchange(image, config) for _ in SHARES], inputs, labels)
    assert leader.image == alone.image != image


def test_devices_with_little_memory_take_the_same_passes() -> None:
    image, (inputs, labels) = small_image(1), samples()
    arena = Exchange(image, SR).arena_least
    alone, leader = Learner(image, SR), Exchange(image, SR, arena)
    alone.step(inputs, labels, *RATES)
    leader.begin(len(inputs), *RATES)
    passes = 0
    while True:
        device = Exchange(image, SR, arena)
        device.follow(leader.plan())
        for x, y in zip(inputs, labels):
            device.sample(x, int(y))
        if leader.scales:
            leader.follow(device.plan())
            leader.gather(None, len(inputs))
        else:
            leader.gather(device.sums().words, len(inputs))
        passes += 1
        if not leader.end_pass():
            break
    assert passes > 3
    assert leader.image == alone.image != image


def test_samples_that_did_not_come_add_nothing() -> None:
    """As sums of samples without a gradient would: the step ends with what came."""
    image, (inputs, labels) = small_image(1), samples()
    leader = Exchange(image, SR)
    leader.begin(len(inputs) + 9, *RATES)
    device = Exchange(image, SR)
    device.follow(leader.plan())
    for x, y in zip(inputs[:SCALING_SAMPLES], labels):
        device.sample(x, int(y))
    leader.follow(device.plan())
    leader.gather(None, len(inputs) + 9)
    for phase in ("measure", "update"):
        assert leader.end_pass(), phase
        device.follow(leader.plan())
        for x, y in zip(inputs, labels):
            device.sample(x, int(y))
        leader.gather(device.sums().words, len(inputs))
        with pytest.raises(ArgumentError):
            leader.end_pass()  # nine are still awaited
        leader.gather(None, 9)
    assert not leader.end_pass()
    assert leader.flips


def test_a_plan_of_another_net_image_configuration_or_arena_is_refused() -> None:
    image, other = small_image(1), small_image(2)
    inputs, labels = samples()
    leader = Exchange(image, SR)
    leader.begin(8)
    plan = leader.plan()
    learned = Learner(image, SR)
    learned.step(inputs, labels, 0.1)
    for wrong in (Exchange(other, SR), Exchange(learned.image, SR), Exchange(image, replace(SR, bias=True))):
        with pytest.raises(StateError):
            wrong.follow(plan)
    with pytest.raises(StateError):
        Exchange(image, SR).follow(plan[:-1])
    with pytest.raises(ArgumentError):
        Exchange(image, SR).follow(plan, 8)
    for at in (16, 18, 32):  # phase, operation, an exponent
        with pytest.raises(StateError):
            Exchange(image, SR).follow(plan[:at] + b"\x7f" + plan[at + 1 :])
    leader = Exchange(image, SR)
    leader.step(inputs, labels)  # the passes of the next step sum up
    leader.begin(8)
    small = Exchange(image, SR, leader.arena_least)
    with pytest.raises(ArenaError):
        small.follow(leader.plan())


def test_a_plan_needs_a_step_and_sums_need_the_right_size() -> None:
    leader = Exchange(small_image(1), SR)
    with pytest.raises(OrderError):
        leader.plan()
    leader.begin(8)
    with pytest.raises(ArgumentError):
        leader.gather(np.zeros(3, np.uint32), 1)
    with pytest.raises(ArgumentError):
        leader.gather(None, 9)


# Flips


def test_flips_that_one_device_made_give_another_the_same_image() -> None:
    """Biases that stand for inputs' zero points included."""
    image, (inputs, labels) = small_image(1), samples()
    one, two = Exchange(image, SR), Exchange(image, replace(SR, seed=99))
    before = one.bits()
    one.step(inputs, labels, 0.1)
    places = np.flatnonzero(before != one.bits())
    assert len(places) == one.flips > 5
    assert two.flip(places) == len(places)
    assert two.image == one.image
    assert two.flip(places) == len(places)
    assert two.image == image
    assert read_image(one.image)


def test_places_where_there_is_no_weight_are_refused_and_change_nothing() -> None:
    image, (inputs, _labels) = small_image(1), samples()
    device = Exchange(image, SR)
    every = len(device.bits())
    state = device.state
    refused = 0
    for place in (*range(every), every, 2**32 - 1):
        try:
            device.flip([place])
            device.flip([place])
        except ArgumentError:
            refused += 1
    assert refused >= 2
    assert (device.image, device.state[8:]) == (image, state[8:])
    device.begin(len(inputs))
    with pytest.raises(OrderError):
        device.flip([0])
