"""Energy: profiles, counted costs, supplies and harvesting traces."""

from __future__ import annotations

import importlib.util
import itertools
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipbit.runtime.board.profile import board_names, load_profile
from flipbit.runtime.core.learner import Learner, LearnerConfig
from flipbit.runtime.errors import ArgumentError
from flipbit.runtime.simulate.power import COUNTS, Figure, _counts, device_names, learning_cost, load_device
from flipbit.runtime.simulate.supply import (
    TRACES,
    Battery,
    Capacitor,
    Mains,
    SupplyEmptyError,
    Trace,
    load_trace,
    parse_supply,
    trace_names,
)
from flipbit.runtime.simulate.workload import Workload
from tests.nets.small_nets import small_image

SR = LearnerConfig()


# Profiles


@pytest.mark.parametrize("name", device_names())
def test_every_figure_of_a_profile_says_where_it_comes_from(name: str) -> None:
    device = load_device(name)
    board = load_profile(name).facts
    assert (device.ram, device.clock_hz) == (board["memory"]["ram"]["size"], board["clock_hz"])
    for section, figures in device.figures.items():
        for key, figure in figures.items():
            sourced = figure.estimate or any(figure.source.startswith(mark) for mark in ("[", "no flash"))
            assert sourced, f"{section}.{key}: {figure.source}"
    assert device.active_watts > device.sleep_watts > 0
    assert device.figure("voltage", "brown_out") < device.volts


@pytest.mark.parametrize("name", device_names())
def test_figures_that_are_no_estimates_are_of_documents_that_were_read(name: str) -> None:
    lines = (load_profile(name).folder / "board.toml").read_text(encoding="utf-8").splitlines()
    read = " ".join(line for line in lines if line.startswith("# Read:"))
    for figures in load_device(name).figures.values():
        for figure in figures.values():
            if figure.source.startswith("["):
                assert figure.source[: figure.source.index("]") + 1] in read, figure.source


def test_the_boards_of_the_firmware_that_exist_can_be_simulated() -> None:
    assert set(device_names()) <= set(board_names())
    real = {name for name in board_names() if load_profile(name).flash}
    assert set(device_names()) == real


def test_an_unknown_device_is_refused_with_those_there_are() -> None:
    with pytest.raises(ArgumentError, match="microbit"):
        load_device("../microbit")


def test_a_board_without_electrical_figures_is_refused_with_what_is_missing() -> None:
    with pytest.raises(ArgumentError, match="mps2-an386 cannot be simulated") as error:
        load_device("mps2-an386")
    said = str(error.value)
    assert "[power.voltage] (supply, brown_out), [power.current] (active, sleep), [power.flash]" in said
    assert "microbit" in said and "\n" not in said


def test_an_estimate_is_known_by_the_word() -> None:
    assert Figure(1, "V", "estimate: as running").estimate
    assert not Figure(1, "V", "[DS] table 3").estimate


def test_energy_is_voltage_times_current_times_time() -> None:
    device = load_device("nrf52840-dk")
    volts, milliamps = device.figure("voltage", "supply"), device.figure("current", "active")
    assert device.joules(device.clock_hz) == pytest.approx(volts * milliamps / 1000)  # a second of computing


# Costs


def test_counts_hold_the_nets_and_cores_that_the_profiles_name() -> None:
    found = {(count["core"], count["model"]) for count in _counts()}
    for name in device_names():
        assert (load_device(name).counts, "resnet8") in found, f"{COUNTS} lacks the core of {name}"
    for count in _counts():
        assert count["command"].startswith("python firmware/count/learn.py") and count["commit"]


@pytest.mark.parametrize("count", _counts(), ids=lambda count: f"{count['core']}-{count['model']}-{count['method']}")
def test_counted_passes_take_every_filter_once_and_less_memory_takes_more_work(count: dict) -> None:
    totals = []
    for run in sorted(count["runs"], key=lambda one: one["arena"]):
        passes = [p for p in run["passes"] if p["phase"] == "measure"]
        for before, after in itertools.pairwise(passes):  # each goes on where the one before ended
            assert after["high_op"] <= before["low_op"]
            assert after["first_filter"] in (0, before["end_filter"])
        totals.append(sum(p["sample"] for p in passes))
    assert all(more <= 1.01 * less for less, more in itertools.pairwise(totals))  # kernels differ by a little


def test_a_net_that_was_counted_costs_what_was_counted() -> None:
    class Resnet8(Workload):
        signature = next(count["signature"] for count in _counts() if count["model"] == "resnet8")

    device = load_device("nucleo-l4r5zi")
    count = next(c for c in _counts() if (c["core"], c["model"]) == ("M4", "resnet8"))
    run = max(count["runs"], key=lambda one: one["arena"])
    cost = learning_cost(device, Resnet8(small_image(), SR), 10**6)
    counted = [p["cycles"]["M4"] for p in run["passes"] if p["phase"] == "measure"]
    assert [p.sample for p in cost.sweep] == counted
    assert cost.source.startswith("counted: resnet8 on M4") and cost.update > 0


def test_another_net_is_scaled_by_its_work_and_says_so() -> None:
    device, work = load_device("nucleo-l4r5zi"), Workload(small_image(), SR)
    large, small = Learner(small_image(), SR).arena_fast, Learner(small_image(), SR).arena_least
    fast, lean = (learning_cost(device, work, arena) for arena in (large, small))
    assert "estimate: scaled" in fast.source
    assert len(fast.sweep) == 1 < len(lean.sweep) == work.passes(small)
    assert lean.sample > fast.sample > work.macs  # an operation or more for each multiply-accumulate


@pytest.mark.parametrize(
    ("config", "method"),
    [
        (LearnerConfig(bits=False, bias=True), "bias"),
        (LearnerConfig(bits=False, bias=True, first_op=2), "bias"),
        (LearnerConfig(bias=True), "sr+bias"),
        (LearnerConfig(buffer_bits=2, start=1), "buffer"),
        (LearnerConfig(buffer_bits=2, start=1, bias=True), "buffer"),
        (LearnerConfig(first_op=2), "sr"),
    ],
)
def test_another_net_is_scaled_from_the_most_similar_method(config: LearnerConfig, method: str) -> None:
    work = Workload(small_image(), config)
    assert f" on M4, {method}, " in learning_cost(load_device("nucleo-l4r5zi"), work, work.arena_fast).source


def test_work_is_known_by_shape_not_by_weights() -> None:
    assert Workload(small_image(0), SR).signature == Workload(small_image(1), SR).signature
    weights = 3 * 9 * 16 + 16 * 9 * 16 + 16 * 9 * 19 + 24 * 7
    assert Workload(small_image(), SR).weights == weights


def test_each_method_has_counts_of_its_own() -> None:
    biases = LearnerConfig(bits=False, bias=True)
    every = [SR, biases, LearnerConfig(bias=True), LearnerConfig(buffer_bits=2, start=1), LearnerConfig(first_op=2)]
    recalibrate = LearnerConfig(bits=False, recalibrate=1)
    assert Workload(small_image(), recalibrate).method == "recalibrate"
    adapt = LearnerConfig(bits=False, bias=True, gain=True, recalibrate=1)
    assert Workload(small_image(), adapt).method == "gain+bias"
    methods = [Workload(small_image(), config).method for config in every]
    assert methods == ["sr", "bias", "sr+bias", "buffer", "sr of 2 to 65535"]
    assert len({Workload(small_image(), config).signature for config in every}) == len(every)
    assert Workload(small_image(), biases).weights == 16 + 16 + 19 + 6 + 7 + 5
    for core in {count["core"] for count in _counts()}:
        found = {c["method"]: c["runs"][0] for c in _counts() if (c["core"], c["model"]) == (core, "resnet8")}
        expected = {"sr", "bias", "sr+bias", "buffer", "gain+bias", "recalibrate"}
        assert set(found) == expected, f"resnet8 on {core}: firmware/count/learn.py --store"
        ends = {name: sum(p["end"] for p in run["passes"] if p["phase"] == "update") for name, run in found.items()}
        assert ends["bias"] < ends["sr"] < ends["sr+bias"] < ends["buffer"]


# Supplies


def flat(watts: float, seconds: float = 10.0) -> Trace:
    return Trace("flat", seconds, np.array([watts, watts]))


def test_a_battery_gives_its_energy_and_no_more() -> None:
    battery = Battery(1, 3.0)  # 10.8 J
    assert battery.draw(10, 5)
    assert not battery.draw(1.6, 2)  # half of it is there
    assert battery.time == pytest.approx(6)
    with pytest.raises(SupplyEmptyError, match="battery of 1 mAh"):
        battery.recover(1)


def test_a_capacitor_charges_sleeps_and_browns_out_when_the_numbers_say_so() -> None:
    capacitor = Capacitor(1.0, 3.0, 1.0, flat(0.5))
    assert capacitor.capacity == pytest.approx(4 * 0.85)
    assert capacitor.draw(1.0, 1.0) and capacitor.level == pytest.approx(3.4 - 0.5)
    assert not capacitor.draw(100.0, 1.0)  # 99.5 W net: empty after 2.9 / 99.5 s
    assert capacitor.time == pytest.approx(1 + 2.9 / 99.5)
    capacitor.recover(1.0)
    assert capacitor.time == pytest.approx(1 + 2.9 / 99.5 + 2) and capacitor.level == 1.0
    assert capacitor.wait_for(2.0, 0.25) and capacitor.time == pytest.approx(1 + 2.9 / 99.5 + 2 + 4)


def test_a_capacitor_that_never_charges_is_an_error_not_an_endless_wait() -> None:
    capacitor = Capacitor(1.0, 3.0, 1.0, flat(0.0))
    capacitor.draw(capacitor.level, 1.0)
    with pytest.raises(SupplyEmptyError, match="does not charge"):
        capacitor.recover(1.0)
    with pytest.raises(SupplyEmptyError, match="holds"):
        capacitor.recover(100.0)


@given(st.lists(st.tuples(st.floats(0, 0.5), st.floats(0.001, 50)), max_size=20))
def test_energy_is_neither_made_nor_lost_but_when_full(draws: list[tuple[float, float]]) -> None:
    trace = Trace("steps", 3.0, np.array([0.02, 0.0, 0.01, 0.05]))
    capacitor = Capacitor(2.0, 5.0, 1.0, trace)
    capacitor.level = start = capacitor.capacity / 2
    spent = 0.0
    for watts, seconds in draws:
        if capacitor.draw(watts * seconds, seconds):
            spent += watts * seconds
        else:
            return
    whole, rest = divmod(capacitor.time, trace.length)
    sums = np.concatenate([[0.0], np.cumsum(trace.watts) * trace.step])
    harvested = whole * sums[-1] + np.interp(rest, np.arange(5) * trace.step, sums)
    assert capacitor.level <= capacitor.capacity
    assert (
        capacitor.level == pytest.approx(start + harvested - spent, abs=1e-9) or start + harvested > capacitor.capacity
    )


def test_supplies_are_read_from_text() -> None:
    assert isinstance(parse_supply("mains", 3.3, 1.8), Mains)
    assert parse_supply("battery:220", 3.0, 1.8).capacity == pytest.approx(220 * 3.6 * 3)
    assert parse_supply("capacitor:0.1:thermal", 3.3, 1.8).capacity == pytest.approx(0.05 * (25 - 3.24) * 0.85)
    for wrong in ("", "battery", "battery:much", "capacitor:1", "capacitor:1:moonlight", "battery:0", "mains:1"):
        with pytest.raises(ArgumentError, match=r"supply|trace|battery"):
            parse_supply(wrong, 3.3, 1.8)


# Traces


def test_stored_traces_are_what_the_generator_makes(tmp_path: Path) -> None:
    shutil.copy(TRACES / "generate.py", tmp_path)
    spec = importlib.util.spec_from_file_location("generate", tmp_path / "generate.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main()
    assert trace_names() == ["indoor-solar", "rf", "thermal"]
    for name in trace_names():
        assert (tmp_path / f"{name}.csv").read_text() == (TRACES / f"{name}.csv").read_text()
        assert 10e-6 < load_trace(name).mean < 5e-3
    assert sum(path.stat().st_size for path in TRACES.iterdir() if path.is_file()) < 100_000


def test_a_trace_that_is_no_trace_is_refused(tmp_path: Path) -> None:
    for content in ("a,b\n1,2\n2,3\n", "seconds,microwatts\n0,1\n", "seconds,microwatts\n0,1\n1,1\n5,1\n",
                    "seconds,microwatts\n0,1\n1,-1\n", ""):  # fmt: skip
        (tmp_path / "t.csv").write_text(content)
        with pytest.raises(ArgumentError, match="seconds and microwatts"):
            load_trace(str(tmp_path / "t.csv"))


def test_mains_never_end() -> None:
    mains = Mains()
    assert mains.draw(1e12, 5) and mains.time == 5 and mains.level == math.inf
