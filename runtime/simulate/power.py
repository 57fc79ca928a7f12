"""What learning costs on a board: a profile of the board, counted instructions, and energy for each operation.

>>> device = load_device("nucleo-l4r5zi")
>>> cost = learning_cost(device, Workload(image, LearnerConfig()), arena=600_000)
>>> device.joules(cost.sweep[0].sample)         # of one sample in the first pass

What is known of a board is in ``firmware/boards/NAME/board.toml``. Every figure of its section ``[power]`` says where
it comes from, and the word "estimate" marks those that no document backs.

Instructions are counted on emulated cores by firmware/count/learn.py and stored in ``board/measured/counts.json``.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flipbit.runtime.board.board_toml import FIGURES, Figure
from flipbit.runtime.board.profile import COUNTED, CYCLES_PER_INSTRUCTION, BoardError, board_names, load_profile
from flipbit.runtime.errors import ArgumentError
from flipbit.runtime.simulate.workload import RECALIBRATE, Workload

COUNTS = Path(__file__).parents[1] / "board" / "measured" / "counts.json"
PROGRAM_RAM = 752  # variables of the firmware, 736 bytes on a micro:bit, and an output of 16
LEARNING_STACK = 1680  # that it keeps free at least: STACK in firmware/app/fb_commands_learn.c
UNIT_MOST = 32  # bytes the store programs at a time at most (FB_STORE_UNIT_MAX)


@dataclass(frozen=True)
class BoardPower:
    """What a board has and draws, as the simulator sees it. Bytes, hertz; ``figures`` by section and name."""

    name: str
    title: str
    core: str
    clock_hz: float
    ram: int
    stack: int
    store_kind: str
    store_size: int  # of the ledger, which keeps what is learned
    store_slots: int
    page: int
    unit: int
    counts: str  # core whose counts apply
    cycles: str  # core of the cycle model; "" without
    reprogram: bool
    figures: dict[str, dict[str, Figure]]

    def figure(self, section: str, name: str) -> float:
        return self.figures[section][name].value

    @property
    def volts(self) -> float:
        return self.figure("voltage", "supply")

    @property
    def active_watts(self) -> float:
        return self.volts * self.figure("current", "active") * 1e-3

    @property
    def sleep_watts(self) -> float:
        return self.volts * self.figure("current", "sleep") * 1e-6

    def seconds(self, cycles: float) -> float:
        return cycles / self.clock_hz

    def joules(self, cycles: float) -> float:
        """Energy of computing."""
        return self.active_watts * self.seconds(cycles)

    @property
    def flash_watts(self) -> float:
        return self.volts * self.figure("flash", "current") * 1e-3

    @property
    def erase_seconds(self) -> float:
        """Of a page."""
        return self.figure("flash", "erase") * 1e-3

    @property
    def program_seconds(self) -> float:
        """Of as many bytes as the store programs at a time: a part of the unit if that is larger."""
        return self.figure("flash", "program") * 1e-6 * self.store_unit / max(self.unit, self.store_unit)

    @property
    def store_unit(self) -> int:
        return min(self.unit, UNIT_MOST)

    @property
    def keeps(self) -> bool:
        """Whether what is stored survives a loss of power."""
        return self.store_kind == "flash"

    @property
    def estimates(self) -> list[str]:
        """Names of figures that no document backs."""
        return [f"{s}.{n}" for s, figures in self.figures.items() for n, figure in figures.items() if figure.estimate]


def device_names() -> list[str]:
    """Boards whose electrical figures are known."""
    return [name for name in board_names() if load_profile(name).power is not None]


def load_device(name: str) -> BoardPower:
    """A board for the simulator."""
    if name not in board_names():
        raise ArgumentError(f"no device {name!r} to simulate; there are {', '.join(device_names())}")
    board = load_profile(name)
    if board.power is None:
        missing = ", ".join(f"[power.{section}] ({', '.join(names)})" for section, names in FIGURES.items())
        raise ArgumentError(
            f"{name} cannot be simulated: its board.toml lacks {missing}; boards that have them: "
            f"{', '.join(device_names())}"
        )
    counts, cycles = COUNTED.get(board.core, (board.core, ""))
    return BoardPower(
        name=name,
        title=board.title,
        core=board.core,
        clock_hz=float(board.clock_hz),
        ram=board.ram.size,
        stack=int(board.facts["memory"]["stack"]),
        store_kind=board.store_kind,
        store_size=board.storage.ledger,
        store_slots=board.storage.ledger_slots,
        page=board.page,
        unit=board.unit,
        counts=counts,
        cycles=cycles,
        reprogram=board.reprogram,
        figures=board.power,
    )


@dataclass(frozen=True)
class PassCost:
    """Cycles of one sample in a pass, and of the pass's end."""

    sample: float
    end: float


@dataclass(frozen=True)
class LearningCost:
    """Cycles of a step. A sweep is the passes that take all filters once; ``source`` says how they are known.

    The first step sweeps twice, once to measure gradients, after a pass over a few samples that finds their scales
    (``scale``). The update itself comes at the end of a step.
    """

    sweep: tuple[PassCost, ...]
    scale: float  # a sample of the first pass
    update: float
    source: str
    recalibrate: float = 0.0  # a sample of a pass that recalibrates

    @property
    def sample(self) -> float:
        """Cycles of a sample in a step that is not the first."""
        return sum(p.sample for p in self.sweep)

    def in_passes(self, count: int) -> LearningCost:
        """The same work in another number of passes, each at the mean cost of these."""
        n = len(self.sweep)
        each = PassCost(self.sample / n, sum(p.end for p in self.sweep) / n)
        return replace(self, sweep=(each,) * count)


@functools.cache
def _counts() -> list[dict[str, Any]]:
    try:
        return list(json.loads(COUNTS.read_text(encoding="utf-8"))["counts"])
    except (OSError, ValueError, KeyError) as error:
        raise BoardError(f"{COUNTS}: instruction counts cannot be read ({error})") from None


def learning_cost(device: BoardPower, work: Workload, arena: int) -> LearningCost:
    """What a step costs on a device with ``arena`` bytes.

    A net and method that were counted cost what they were counted to, in the largest counted arena that is not larger
    than this one: more RAM would not make it slower. Others are scaled by multiply-accumulates from a counted net with
    the most similar method, with the number of passes that the C core plans; ``source`` then says "estimate".
    """
    found = [c for c in _counts() if c["core"] == device.counts]
    if not found:
        raise BoardError(f"{COUNTS} has no counts for {device.counts}: make them with firmware/count/learn.py --store")
    if not work.config.recalibrate:
        return _training_cost(device, work, arena, found)
    sample, source = _recalibrating(device, work, found)
    if not work.trains:
        return LearningCost((PassCost(sample, 0.0),), sample, 0.0, source, sample)
    cost = _training_cost(device, work, arena, found)
    return replace(cost, recalibrate=sample, source=f"{cost.source}; recalibrating: {source}")


def _recalibrating(device: BoardPower, work: Workload, found: list[dict[str, Any]]) -> tuple[float, str]:
    """Cycles of a sample in a pass that recalibrates, and how they are known."""
    counted = [c for c in found if c["method"] == RECALIBRATE]
    like = min(counted, key=lambda c: (c["signature"] != f"{work.shape} {RECALIBRATE}", abs(c["macs"] - work.macs)))
    passes = [p for run in like["runs"] for p in run["passes"]]
    cycles = sum(_cycles(device, p, "sample") for p in passes) / len(passes)
    if like["signature"] == f"{work.shape} {RECALIBRATE}":
        return cycles, f"counted: {like['model']} on {like['core']}"
    scaled = f"estimate: scaled by multiply-accumulates from {like['model']} on {like['core']}"
    return cycles * work.macs / like["macs"], scaled


def _cycles(device: BoardPower, one: dict[str, Any], what: str) -> float:
    """Of a counted pass: of a sample, or of its end."""
    modelled = one["cycles" if what == "sample" else "end_cycles"].get(device.cycles)
    return float(one[what] * CYCLES_PER_INSTRUCTION if modelled is None else modelled)


def _training_cost(device: BoardPower, work: Workload, arena: int, counts: list[dict[str, Any]]) -> LearningCost:
    found = [c for c in counts if c["method"] != RECALIBRATE]
    for count in found:
        runs = [run for run in count["runs"] if run["arena"] <= arena]
        if count["signature"] == work.signature and runs:
            run = max(runs, key=lambda one: one["arena"])
            source = f"counted: {count['model']} on {count['core']}, {count['method']}, arena {run['arena']:,}"
            return _cost(device, count, run, source)
    like = min(found, key=lambda c: (_unlike(c["method"], work.method), abs(c["macs"] - work.macs)))
    share = arena / work.arena_fast
    runs = sorted(like["runs"], key=lambda one: abs(one["arena"] / like["arena_fast"] - share))
    source = (
        f"estimate: scaled by multiply-accumulates from {like['model']} on {like['core']}, {like['method']}, "
        f"{runs[0]['arena']:,}"
    )
    scales = work.macs / like["macs"], max(1, work.weights) / like["weights"]
    return _cost(device, like, runs[0], source, *scales).in_passes(work.passes(arena))


def _unlike(counted: str, method: str) -> tuple[bool, int]:
    """How two methods of :attr:`Workload.method` differ: first whether weights learn, which takes most of the work."""
    a, b = (set(name.split(" of ")[0].split("+")) for name in (counted, method))
    return (a <= {"bias", "gain"}) != (b <= {"bias", "gain"}), len(a ^ b)


def _cost(
    device: BoardPower, count: dict[str, Any], run: dict[str, Any], source: str, macs: float = 1.0, weights: float = 1.0
) -> LearningCost:
    """Of a counted run, scaled to a net of so many times the multiply-accumulates and weights."""

    def cycles(one: dict[str, Any], what: str) -> float:
        return _cycles(device, one, what) * (macs if what == "sample" else weights)

    def of(one: dict[str, Any], phase: str) -> list[dict[str, Any]]:
        return [p for p in one["passes"] if p["phase"] == phase]

    whole = next(one for one in count["runs"] if of(one, "update"))
    update = sum(cycles(p, "end") for p in of(whole, "update")) - sum(cycles(p, "end") for p in of(whole, "measure"))
    sweep = tuple(PassCost(cycles(p, "sample"), cycles(p, "end")) for p in of(run, "measure"))
    how = "cycles modelled" if device.cycles else f"cycles estimated at {CYCLES_PER_INSTRUCTION} per instruction"
    return LearningCost(sweep, cycles(of(run, "scale")[0], "sample"), max(0.0, update), f"{source}; {how}")
