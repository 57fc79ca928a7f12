"""The simulated device: memory, energy, sleep, and losses of power that change nothing of what is learned."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flipbit.runtime.core.learner import Learner, LearnerConfig
from flipbit.runtime.core.target import Rates, run_steps
from flipbit.runtime.errors import ArenaError, ArgumentError
from flipbit.runtime.simulate.power import PROGRAM_RAM, load_device
from flipbit.runtime.simulate.simulator import Policy, SimulatedDevice, memory_of
from flipbit.runtime.simulate.supply import Battery, Capacitor, SupplyEmptyError, Trace, parse_supply
from tests.nets.small_nets import photos, referenced_image, small_image

SR = LearnerConfig()
BOTH = LearnerConfig(bits=True, bias=True, buffer_bits=2, start=1)
RATES = Rates([0.05, 0.03], [0.1, 0.05])
BOARD = load_device("nrf52840-dk")


def samples(n: int = 6) -> tuple[np.ndarray, np.ndarray]:
    inputs = (photos(n).astype(int) - 128).astype(np.int8).transpose(0, 3, 1, 2)
    return inputs, np.random.default_rng(3).integers(0, 5, n)


def learned(config: LearnerConfig) -> tuple[bytes, bytes]:
    """Without a device."""
    learner = Learner(small_image(), config)
    for bits, bias in zip(RATES.bits, RATES.bias):
        learner.step(*samples(), bits, bias)
    return learner.image, learner.state


EXPECTED = {config: learned(config) for config in (SR, BOTH)}


def arena(config: LearnerConfig, share: float = 0.3) -> int:
    """Between the least and the most: several passes per step."""
    learner = Learner(small_image(), config)
    return int(learner.arena_least + share * (learner.arena_fast - learner.arena_least))


def run(device: SimulatedDevice) -> tuple[bytes, bytes]:
    for _ in run_steps(device, *samples(), RATES):
        pass
    return device.image, device.state


def test_a_device_recalibrates_some_of_its_layers() -> None:
    config = LearnerConfig(bits=False, recalibrate=1, last_op=1)
    learner = Learner(referenced_image(), config)
    learner.step(*samples(), 0, 0)
    device = SimulatedDevice(BOARD, referenced_image(), config)
    for _ in run_steps(device, *samples(), Rates([0.0], [0.0])):
        pass
    assert device.image == learner.image != referenced_image()


# Power failures


@pytest.mark.parametrize("config", [SR, BOTH])
@pytest.mark.parametrize("every_pass", [False, True])
def test_a_device_learns_what_the_core_learns(config: LearnerConfig, every_pass: bool) -> None:
    device = SimulatedDevice(BOARD, small_image(), config, arena(config), every_pass=every_pass)
    assert run(device) == EXPECTED[config]
    steps, sweeps = 2, 3  # measuring, and two updates
    assert device.meter.passes == 1 + sweeps * len(device.cost.sweep)
    assert [e.kind for e in device.timeline].count("step") == steps
    assert device.meter.brown_outs == 0


@settings(max_examples=12)
@given(st.sets(st.integers(0, 600), max_size=8), st.booleans(), st.sampled_from([SR, BOTH]))
def test_losses_of_power_at_any_points_change_nothing(
    points: set[int], every_pass: bool, config: LearnerConfig
) -> None:
    """Points are samples, ends of passes and flash operations of saves."""
    device = SimulatedDevice(
        BOARD, small_image(), config, arena(config, 0.6), policy=Policy(save_when=0.0), every_pass=every_pass,
        fails=lambda n: n in points,
    )  # fmt: skip
    assert run(device) == EXPECTED[config]
    assert device.meter.brown_outs == len(points) or device._point <= max(points)


def test_a_loss_of_power_in_every_part_of_a_save_keeps_a_committed_state() -> None:
    """The first save begins after the first pass; each of its operations is cut in turn."""
    first = SimulatedDevice(BOARD, small_image(), SR, policy=Policy(save_when=0.0))
    run(first)
    operations = first.flash.counts.operations // first.meter.saves
    begin = len(samples()[0]) + 1  # points before the first save
    for cut in range(begin, begin + operations, max(1, operations // 12)):
        device = SimulatedDevice(
            BOARD, small_image(), SR, policy=Policy(save_when=0.0), fails=lambda n, cut=cut: n == cut
        )
        assert run(device) == EXPECTED[SR], f"cut at {cut}"
        assert device.meter.brown_outs == 1
        assert device.flash.violation == ""


def test_work_that_was_not_saved_is_done_again_and_counted() -> None:
    never = Policy(save_when=1e9)
    device = SimulatedDevice(BOARD, small_image(), SR, policy=never, fails=lambda n: n == 25)
    assert run(device) == EXPECTED[SR]
    plain = SimulatedDevice(BOARD, small_image(), SR, policy=never)
    run(plain)
    assert device.meter.lost > 0
    assert device.meter.computing == pytest.approx(plain.meter.computing + device.meter.lost)


# Energy


def harvest(watts: list[float], step: float) -> Trace:
    return Trace("test", step, np.array(watts))


def tight(device: SimulatedDevice, trace: Trace) -> Capacitor:
    """Holds energy for a few samples and a save."""
    need = 3 * device.device.joules(device.cost.scale) + device.policy.margin * device._save_joules
    volts = BOARD.figure("voltage", "brown_out")
    return Capacitor(2 * need / 0.85 / (25 - volts**2), 5.0, volts, trace)


def test_a_device_sleeps_until_there_is_energy_and_loses_nothing() -> None:
    plain = SimulatedDevice(BOARD, small_image(), SR)
    run(plain)
    supply = tight(plain, harvest([0.001, 0.001], 60))
    device = SimulatedDevice(BOARD, small_image(), SR, supply=supply)
    assert run(device) == EXPECTED[SR]
    assert device.meter.sleeps > 0 and device.meter.brown_outs == 0
    assert supply.time > device.meter.busy + 1  # it waited
    spent = device.meter.joules
    assert spent == pytest.approx(supply.capacity - supply.level + 0.001 * supply.time, rel=0.02)


def test_a_long_darkness_browns_a_device_out_and_it_goes_on_when_light_returns() -> None:
    hungry = replace(BOARD, figures={**BOARD.figures, "current": {
        "active": BOARD.figures["current"]["active"],
        "sleep": replace(BOARD.figures["current"]["sleep"], value=2000.0)}})  # fmt: skip
    plain = SimulatedDevice(hungry, small_image(), SR)
    run(plain)
    supply = tight(plain, harvest([0.0] * 50 + [0.05] * 10, 1.0))
    device = SimulatedDevice(hungry, small_image(), SR, supply=supply, policy=Policy(save_when=0.0))
    assert run(device) == EXPECTED[SR]
    assert device.meter.brown_outs > 0


def test_a_battery_that_is_too_small_ends_with_what_was_saved() -> None:
    plain = SimulatedDevice(BOARD, small_image(), SR)
    run(plain)
    joules = plain.policy.margin * plain._save_joules + 0.9 * plain.meter.computing
    battery = Battery(joules / 3.6 / BOARD.volts, BOARD.volts)
    device = SimulatedDevice(BOARD, small_image(), SR, supply=battery)
    with pytest.raises(SupplyEmptyError, match="left"):
        run(device)
    assert device.steps == 1
    assert device.saved_image == device.image != small_image()  # it saw the end coming


def test_a_capacitor_that_cannot_hold_one_sample_is_refused_with_numbers() -> None:
    with pytest.raises(ArgumentError, match="for one sample"):
        SimulatedDevice(BOARD, small_image(), SR, supply=parse_supply("capacitor:0.000001:rf", 3.0, 1.7))


def test_a_board_that_keeps_nothing_without_power_needs_the_mains() -> None:
    esp = load_device("esp32-c3")
    assert run(SimulatedDevice(esp, small_image(), SR)) == EXPECTED[SR]
    with pytest.raises(ArgumentError, match="in RAM only"):
        SimulatedDevice(esp, small_image(), SR, supply=parse_supply("battery:100", 3.3, 3.0))


def test_saves_are_rare_where_work_is_cheap() -> None:
    often, seldom = (SimulatedDevice(BOARD, small_image(), SR, policy=Policy(save_when=when)) for when in (0.0, 1e6))
    run(often), run(seldom)
    assert often.meter.saves == often.meter.passes and seldom.meter.saves == 0
    seldom.close()
    assert seldom.meter.saves == 1


# Memory


def test_ram_is_a_wall_with_numbers_on_it() -> None:
    with pytest.raises(ArenaError, match="8,192 bytes of RAM"):
        memory_of(load_device("stm32vldiscovery"), small_image(), SR)
    learner = Learner(small_image(), SR)
    with pytest.raises(ArenaError, match=f"{BOARD.ram:,}"):
        memory_of(BOARD, small_image(), SR, BOARD.ram)
    exactly = BOARD.ram - BOARD.stack - PROGRAM_RAM - len(small_image()) - len(learner.state) - learner.input_size
    assert memory_of(BOARD, small_image(), SR, exactly).total == BOARD.ram
    with pytest.raises(ArenaError):
        memory_of(BOARD, small_image(), SR, exactly + 1)
    assert memory_of(BOARD, small_image(), SR).arena == learner.arena_fast  # more would not help
