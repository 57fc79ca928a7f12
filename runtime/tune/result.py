"""What a tuning run on a simulated device did, gained and cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from flipbit.runtime.simulate.simulator import SimulatedDevice

DAYS = 365.25


@dataclass(frozen=True)
class Row:
    """A step: means over its samples are from before its update, ``held_back`` is from after it."""

    step: int
    loss: float
    accuracy: float
    held_back: float
    flips: int
    joules: float | None  # None where nobody measures it
    seconds: float | None  # on the device


@dataclass
class TuningResult:
    """A tuning run on a simulated device."""

    method: str
    before: float
    rows: list[Row]
    image: bytes = field(repr=False)
    device: SimulatedDevice = field(repr=False)
    samples: int
    ended: str = ""  # why it ended early

    @property
    def after(self) -> float:
        return self.rows[-1].held_back if self.rows else self.before

    @property
    def seconds(self) -> float:
        return self.device.supply.time

    def facts(self) -> dict[str, Any]:
        """For scripts, and for the table."""
        meter, memory, device = self.device.meter, self.device.memory, self.device.device
        joules, hours = meter.joules, self.seconds / 3600
        gained = self.after - self.before
        worst = max(self.device.flash.erases)
        return {
            "method": self.method,
            "device": device.name,
            "supply": self.device.supply.name,
            "accuracy_before": self.before,
            "accuracy_after": self.after,
            "points_per_joule": 100 * gained / joules if joules else 0.0,
            "joules": joules,
            "joules_computing": meter.computing,
            "joules_saving": meter.saving,
            "joules_sleeping": meter.sleeping,
            "joules_lost": meter.lost,
            "seconds": self.seconds,
            "samples_per_hour": self.samples * len(self.rows) / hours if hours else 0.0,
            "passes_per_step": len(self.device.cost.sweep),
            "brown_outs": meter.brown_outs,
            "sleeps": meter.sleeps,
            "saves": meter.saves,
            "ram": memory.total,
            "arena": memory.arena,
            "state": memory.state,
            "flash": memory.image + memory.state,
            "erases": sum(self.device.flash.erases),
            "worst_erases": worst,
            "years": device.figure("flash", "endurance") / worst / DAYS if worst else None,
            "costs": self.device.cost.source,
            "estimates": device.estimates,
            "ended": self.ended,
        }
