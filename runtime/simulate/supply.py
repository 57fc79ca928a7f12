"""Where a device's energy comes from: the mains, a battery, or a capacitor that a harvester charges.

>>> supply = parse_supply("capacitor:0.1:thermal", supply_volts=3.3, least_volts=1.8)
>>> supply.draw(joules=0.002, seconds=0.1)
True

A supply has a clock: time passes when energy is drawn. ``draw`` is False when it ran out before the end: the device has
then browned out, and the clock stands at that moment.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flipbit.runtime.errors import ArgumentError, FlipbitError

TRACES = Path(__file__).with_name("traces")
CAPACITOR_VOLTS = 5.0  # that a capacitor is charged to at most
CONVERTER = 0.85  # share of the stored energy that arrives: estimate, of a switching converter


class SupplyEmptyError(FlipbitError):
    """The supply is empty and nothing charges it."""

    status = "FB_ERR_SUPPLY"

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class Trace:
    """Harvested power in steps of ``step`` seconds, repeated for ever."""

    name: str
    step: float
    watts: np.ndarray

    @property
    def length(self) -> float:
        return self.step * len(self.watts)

    @property
    def mean(self) -> float:
        return float(self.watts.mean())

    def power(self, time: float) -> float:
        return float(self.watts[int(time / self.step + 1e-9) % len(self.watts)])

    def next_change(self, time: float) -> float:
        """When the power may change next."""
        return (math.floor(time / self.step + 1e-9) + 1) * self.step


def trace_names() -> list[str]:
    return sorted(path.stem for path in TRACES.glob("*.csv"))


def load_trace(name: str) -> Trace:
    """A stored trace by its name, or a .csv file with the columns seconds and microwatts."""
    path = TRACES / f"{name}.csv" if name in trace_names() else Path(name)
    if not path.is_file():
        raise ArgumentError(f"no trace {name!r}: there are {', '.join(trace_names())}, or give a .csv file")
    try:
        with path.open(encoding="ascii", newline="") as file:
            rows = [(float(row["seconds"]), float(row["microwatts"])) for row in csv.DictReader(file)]
        times, power = (np.array(column) for column in zip(*rows))
        steps = np.diff(times)
        if len(steps) < 1 or not np.allclose(steps, steps[0]) or steps[0] <= 0 or power.min() < 0:
            raise ValueError("steps must be equal and power not negative")
    except (KeyError, TypeError, ValueError) as error:
        raise ArgumentError(f"{path}: expected the columns seconds and microwatts ({error})") from None
    return Trace(name, float(steps[0]), power * 1e-6)


class Mains:
    """As much as is asked for."""

    name = "mains"
    capacity = math.inf
    charges = True  # whether it recovers

    def __init__(self) -> None:
        self.time = 0.0
        self.level = math.inf

    def draw(self, joules: float, seconds: float) -> bool:
        self.time += seconds
        return True

    def wait_for(self, joules: float, drain: float) -> bool:
        """Let time pass until so much is stored, while ``drain`` watts are drawn. False: it ran out before."""
        return True

    def recover(self, joules: float) -> None:
        """After a brown-out: let time pass, drawing nothing, until so much is stored."""


class Battery(Mains):
    """A battery that is not charged again."""

    charges = False

    def __init__(self, milliamp_hours: float, volts: float):
        super().__init__()
        if not 0 < milliamp_hours < math.inf:
            raise ArgumentError(f"a battery of {milliamp_hours:g} mAh: expected more than 0")
        self.name = f"battery of {milliamp_hours:g} mAh at {volts:g} V"
        self.level = self.capacity = milliamp_hours * 3.6 * volts

    def draw(self, joules: float, seconds: float) -> bool:
        share = min(1.0, self.level / joules) if joules > 0 else 1.0
        self.time += seconds * share
        self.level -= joules * share
        return share == 1.0

    def wait_for(self, joules: float, drain: float) -> bool:
        if self.level < joules:
            raise SupplyEmptyError(f"the {self.name} has {self.level:.3g} J left, {joules:.3g} are needed to go on")
        return True

    def recover(self, joules: float) -> None:
        if self.level < joules:
            raise SupplyEmptyError(f"the {self.name} is empty")


class Capacitor(Mains):
    """A capacitor, full at first, charged by a harvesting trace; what comes in when it is full is lost.

    Its energy counts from the voltage below which the device stops: ½·C·(V² − V_least²), less a converter's losses.
    """

    def __init__(self, farads: float, most_volts: float, least_volts: float, trace: Trace):
        super().__init__()
        if farads <= 0 or most_volts <= least_volts:
            raise ArgumentError(f"a capacitor of {farads:g} F from {least_volts:g} to {most_volts:g} V holds nothing")
        self.name = f"capacitor of {farads:g} F at {most_volts:g} V, charged by {trace.name}"
        self.trace = trace
        self.level = self.capacity = farads / 2 * (most_volts**2 - least_volts**2) * CONVERTER

    def draw(self, joules: float, seconds: float) -> bool:
        if seconds <= 0:
            self.level -= joules
            if self.level < 0:
                self.level = 0.0
                return False
            return True
        return self._run(joules / seconds, self.time + seconds, math.inf)

    def wait_for(self, joules: float, drain: float) -> bool:
        return self._until(joules, drain)

    def recover(self, joules: float) -> None:
        self._until(joules, 0.0)

    def _until(self, joules: float, drain: float) -> bool:
        if joules > self.capacity:
            raise SupplyEmptyError(f"the {self.name} holds {self.capacity:.3g} J, {joules:.3g} are needed at once")
        start, level = self.time, self.level
        while self.level < joules:
            if not self._run(drain, self.time + self.trace.length, joules):
                return False
            if self.time - start >= 2 * self.trace.length and self.level <= level:
                raise SupplyEmptyError(
                    f"the {self.name} does not charge: {self.trace.mean * 1e6:.0f} uW come in on average, the sleeping "
                    f"device takes {drain * 1e6:.0f} uW"
                )
        return True

    def _run(self, watts: float, end: float, enough: float) -> bool:
        """Draw ``watts`` until ``end``, or until ``enough`` is stored. False if it ran out before."""
        while self.time < end and self.level < enough:
            until = min(end, self.trace.next_change(self.time))
            net = self.trace.power(self.time) - watts
            after = self.level + net * (until - self.time)
            if after < 0:
                self.time += self.level / -net
                self.level = 0.0
                return False
            if after >= enough:
                self.time += (enough - self.level) / net
                self.level = enough
                return True
            self.level = min(self.capacity, after)
            self.time = until
        return True


Supply = Mains


def parse_supply(text: str, supply_volts: float, least_volts: float) -> Supply:
    """``mains``, ``battery:220`` (mAh) or ``capacitor:0.1:thermal`` (farads, trace), with the device's voltages."""
    kind, *rest = text.split(":")
    try:
        if kind == "mains" and not rest:
            return Mains()
        if kind == "battery" and len(rest) == 1:
            return Battery(float(rest[0]), supply_volts)
        if kind == "capacitor" and len(rest) == 2:
            return Capacitor(float(rest[0]), CAPACITOR_VOLTS, least_volts, load_trace(rest[1]))
    except ArgumentError:
        raise
    except ValueError:
        pass
    raise ArgumentError(
        f"supply {text!r}: expected mains, battery:MILLIAMPHOURS, or capacitor:FARADS:TRACE with a trace of "
        f"{', '.join(trace_names())} or a .csv file"
    )
