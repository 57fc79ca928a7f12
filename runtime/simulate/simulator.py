"""A simulated device that learns: RAM is a wall, energy a budget, and power may fail at any time.

>>> device = SimulatedDevice(load_device("nrf52840-dk"), image, LearnerConfig(), supply=parse_supply(...))
>>> list(run_steps(device, inputs, labels, rates))      # of flipbit.runtime.core.target; goes on after brown-outs

What it computes is the C core's, bit for bit; what that costs comes from ``power.py``. As RAM changes
the time of a step and not its result, the host computes each sweep over the samples once, in one pass, and lets the
device pay for as many passes as its arena makes necessary (``every_pass`` computes them all, with the device's arena).

When to work and when to sleep:

- before a sample, if less is stored than it takes and a save takes, sleep until the capacitor is well filled;
- after a pass, save image and state if redoing the work since the last save would cost much more than a save, or if a
  battery has too little left for another pass;
- a save begins only when there is energy for all of it.

A brown-out takes the RAM with it. What is in flash stays: the real store (firmware/core/store/) on a simulated
flash, whose every operation draws energy and may be the one in which power fails. The record is a board's, byte for
byte. Where the host computes a sweep in one pass, records saved within a sweep hold the state from before it, and the
simulator remembers how many of its passes the device had done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from flipbit.runtime.core.device_record import RECORD_HEAD, DeviceRecord
from flipbit.runtime.core.learner import Learner, LearnerConfig
from flipbit.runtime.core.store import DEVICE, FlashLostPower, SimulatedFlash, Store
from flipbit.runtime.core.target import TargetLostPower
from flipbit.runtime.errors import ArenaError, ArgumentError, StateError
from flipbit.runtime.simulate.power import LEARNING_STACK, PROGRAM_RAM, BoardPower, LearningCost, learning_cost
from flipbit.runtime.simulate.supply import Mains, Supply
from flipbit.runtime.simulate.workload import Workload

SCALE_SAMPLES = 16  # FB_CALIBRATION_SAMPLES: later samples of a run's first pass are not looked at
SCALE, MEASURE, UPDATE, RECALIBRATE = range(4)  # sweeps of a step; a first step that learns has the first three


@dataclass(frozen=True)
class Policy:
    """What the scheduler goes by."""

    save_when: float = 20.0  # times the energy of a save has been spent since the last one
    margin: float = 1.25  # of the energy kept for a save
    wake_at: float = 0.9  # of the capacity, after sleeping for lack of energy
    start_at: float = 0.5  # of the capacity, after a brown-out


@dataclass(frozen=True)
class LearningMemory:
    """Bytes of RAM a device needs to learn."""

    arena: int
    image: int
    state: int
    sample: int
    stack: int
    variables: int
    ram: int  # that it has

    @property
    def beside_arena(self) -> int:
        return self.image + self.state + self.sample + self.stack + self.variables

    @property
    def total(self) -> int:
        return self.arena + self.beside_arena


@dataclass
class Meter:
    """What has been spent so far. Joules, seconds; ``samples`` counts each sample once a pass."""

    computing: float = 0.0
    saving: float = 0.0
    sleeping: float = 0.0
    busy: float = 0.0
    samples: int = 0
    passes: int = 0
    saves: int = 0
    brown_outs: int = 0
    sleeps: int = 0
    lost: float = 0.0  # joules of work that had to be done again

    @property
    def joules(self) -> float:
        return self.computing + self.saving + self.sleeping


@dataclass(frozen=True)
class Event:
    """Something on the timeline: at ``time`` seconds with ``level`` joules stored."""

    time: float
    kind: str  # boot, sleep, wake, save, brown-out, step
    level: float
    text: str = ""


def memory_of(device: BoardPower, image: bytes, config: LearnerConfig, arena: int | None = None) -> LearningMemory:
    """The RAM that learning takes; ``arena`` bytes, or all that is left. ArenaError where it does not fit."""
    learner = Learner(image, config)
    stack = max(device.stack, LEARNING_STACK)
    parts = (len(image), len(learner.state), learner.input_size, stack, PROGRAM_RAM)
    left = (device.ram - sum(parts)) & ~7
    chosen = min(left, learner.arena_fast) if arena is None else arena
    memory = LearningMemory(chosen, *parts, device.ram)
    what = (
        f"image {parts[0]:,} + state {parts[1]:,} + sample {parts[2]:,} + stack {parts[3]:,} + variables {parts[4]:,} "
        f"= {sum(parts):,} bytes beside the arena"
    )
    if chosen < learner.arena_least or memory.total > device.ram:
        raise ArenaError(
            f"this net cannot learn on {device.title}, which has {device.ram:,} bytes of RAM: {what}, and the arena "
            f"needs {max(learner.arena_least, arena or 0):,}; take a smaller net, another board, or another method"
        )
    return memory


class SimulatedDevice:
    """A :class:`flipbit.runtime.core.target.Target` on this machine.

    ``fails(n)`` is asked at each point where power can fail, numbered from 0: before a sample, before the end of a
    pass, and in each flash operation. True lets it fail there, whatever the supply has.
    """

    def __init__(
        self,
        device: BoardPower,
        image: bytes,
        config: LearnerConfig,
        arena: int | None = None,
        supply: Supply | None = None,
        policy: Policy | None = None,
        every_pass: bool = False,
        fails: Callable[[int], bool] | None = None,
    ):
        self.device, self.config = device, config
        self.supply = supply or Mains()
        self.policy = policy or Policy()
        self.memory = memory_of(device, image, config, arena)
        self.meter = Meter()
        self.timeline: list[Event] = []
        self.every_pass = every_pass
        self._fails, self._point = fails, 0
        self._first = image
        self._owner = int.from_bytes(image[12:16], "little")
        work = Workload(image, config)
        self._trains = work.trains
        self.cost: LearningCost = learning_cost(device, work, self.memory.arena)
        if every_pass:
            self.cost = self.cost.in_passes(work.passes(self.memory.arena))
        self.flash = self._new_flash()
        self._save_joules = self._energy_of_save()
        self._check_capacity()
        self._sweep, self._pass, self._seen = self._first_sweep(0), 0, 0  # where the step is
        self._samples = 0  # of its batch
        self._places: dict[int, tuple[int, int]] = {}  # by the number of the record before: where the step was
        self._since_save = 0.0  # joules
        self._boot()

    # ---- what a target does ----

    @property
    def steps(self) -> int:
        return self._learner.steps

    @property
    def image(self) -> bytes:
        return self._learner.image

    @property
    def state(self) -> bytes:
        return self._learner.state

    @property
    def flips(self) -> int:
        return self._learner.flips

    @property
    def drift(self) -> float:
        """See :attr:`flipbit.runtime.core.learner.Learner.drift`."""
        return self._learner.drift

    def begin(self, samples: int, rate_bits: float, rate_bias: float) -> None:
        self._learner.begin(samples, rate_bits, rate_bias)
        self._samples, self._seen = samples, 0

    def sample(self, x: np.ndarray, label: int) -> tuple[int, float] | None:
        scale = self._sweep == SCALE
        cycles = self.cost.scale if scale else self.cost.sweep[self._pass].sample
        if self._sweep == RECALIBRATE:
            cycles = self.cost.recalibrate
        if not (scale and self._seen >= SCALE_SAMPLES):
            self._spend(cycles, "computing")
        self._seen += 1
        self.meter.samples += 1
        return self._learner.sample(x, label) if self._computes else None

    def end_pass(self) -> bool:
        last = self._last_of_sweep
        cycles = self.cost.sweep[0 if self._sweep in (SCALE, RECALIBRATE) else self._pass].end
        self._spend(cycles + (self.cost.update if last and self._sweep == UPDATE else 0), "computing")
        computed = self._computes
        more = self._learner.end_pass() if computed else True
        self.meter.passes += 1
        self._seen = 0
        if self._sweep == RECALIBRATE:
            self._sweep = self._first_sweep(self.steps)
        elif last:
            self._pass = 0
            self._sweep = min(UPDATE, self._sweep + 1)
        else:
            self._pass += 1
        if not more:
            self._note("step", f"step {self.steps}: {self.flips} flips")
        if self.device.keeps and (self._worth_saving or self._last_chance):
            self.save()
        return more

    def close(self) -> None:
        if self.device.keeps and self._since_save:
            self.save()

    # ---- saving, sleeping, failing ----

    @property
    def record(self) -> bytes:
        """What it keeps in flash of the end of the last pass."""
        return DeviceRecord(self.config, self._learner.image, self._learner.state).pack()

    @property
    def place(self) -> tuple[int, int]:
        """Sweep of the step, and how many of its passes are done."""
        return self._sweep, self._pass

    def restore(self, record: bytes, place: tuple[int, int]) -> None:
        """Go on from a record, as if it had been in flash when the device started."""
        sweep, done = place
        sweeps = (SCALE, MEASURE, UPDATE, *([RECALIBRATE] if self.config.recalibrate else []))
        if sweep not in sweeps or not 0 <= done < len(self.cost.sweep):
            raise StateError(f"a checkpoint after pass {done} of sweep {sweep}, of which there are none here")
        self._learner = self._resumed(record)
        self._sweep, self._pass = sweep, done

    @property
    def saved_image(self) -> bytes:
        """The image in flash; the one the device was delivered with if nothing was saved yet."""
        return self._first if self._store.current is None else DeviceRecord.unpack(self._store.read()).image

    def save(self) -> None:
        """Save image and state in flash."""
        self._await(self._save_joules * self.policy.margin)
        record, spent = self.record, 0.0

        def operation(erase: bool, _offset: int) -> bool:
            nonlocal spent
            seconds = self.device.erase_seconds if erase else self.device.program_seconds
            spent += self.device.flash_watts * seconds
            good = self.supply.draw(self.device.flash_watts * seconds, seconds)
            self.meter.busy += seconds
            return self._power_fails() or not good

        current = self._store.current
        self._places[current.sequence if current else 0] = self.place
        self.flash.watch(operation)
        try:
            self._store.save(record, DEVICE, self._owner)
        except FlashLostPower:
            self.meter.saving += spent
            self._brown_out("while saving")
        finally:
            self.flash.watch(None)
        self.meter.saving += spent
        self.meter.saves += 1
        self._since_save = 0.0
        self._note("save", f"{len(record):,} bytes")

    def _spend(self, cycles: float, kind: str) -> None:
        """Compute for so many cycles, sleeping before if there is not enough energy."""
        joules, seconds = self.device.joules(cycles), self.device.seconds(cycles)
        self._await(joules + self._save_joules * self.policy.margin)
        if self._power_fails() or not self.supply.draw(joules, seconds):
            self._brown_out("while computing")
        self.meter.computing += joules
        self.meter.busy += seconds
        self._since_save += joules

    def _await(self, joules: float) -> None:
        """Sleep, if less than that is stored, until there is plenty."""
        if self.supply.level >= joules:
            return
        self.meter.sleeps += 1
        self._note("sleep", f"{self.supply.level:.3g} J stored, {joules:.3g} needed")
        start = self.supply.time
        enough = max(joules, self.policy.wake_at * self.supply.capacity)
        good = self.supply.wait_for(min(enough, self.supply.capacity), self.device.sleep_watts)
        self.meter.sleeping += (self.supply.time - start) * self.device.sleep_watts
        if not good:
            self._brown_out("while sleeping")
        self._note("wake", f"after {self.supply.time - start:.0f} s")

    def _power_fails(self) -> bool:
        self._point += 1
        return self._fails is not None and self._fails(self._point - 1)

    def _brown_out(self, when: str) -> None:
        """RAM is gone. Wait for energy, start anew, and tell the host."""
        self.meter.brown_outs += 1
        self.meter.lost += self._since_save
        self._note("brown-out", when)
        self.supply.recover(min(self.policy.start_at * self.supply.capacity, self.supply.capacity))
        self.flash.watch(None)
        self.flash.power_on()
        self._boot()
        raise TargetLostPower(f"{self.device.title} lost power {when} and went on from step {self.steps}")

    def _boot(self) -> None:
        """Go on from what the flash holds; from the image the device was delivered with if that is nothing."""
        self._store = Store(self.flash)
        self._sweep, self._pass, self._seen, self._since_save = self._first_sweep(0), 0, 0, 0.0
        current = self._store.current
        if current is None:
            self._learner = self._learn_from(self._first)
        else:
            self._store.check(DEVICE, self._owner)
            before = max(number for number in self._places if number < current.sequence)
            self.restore(self._store.read(), self._places[before])
        self._note("boot", f"step {self.steps}")

    # ---- inside ----

    @property
    def _worth_saving(self) -> bool:
        return self._since_save >= self.policy.save_when * self._save_joules

    @property
    def _last_chance(self) -> bool:
        """Whether a supply that nothing charges ends before the next pass does."""
        if self.supply.charges:
            return False
        one = self.cost.sweep[self._pass]  # recalibrating costs less
        joules = self.device.joules(self._samples * one.sample + one.end + self.cost.update)
        return self.supply.level < joules + self._save_joules * self.policy.margin

    @property
    def _last_of_sweep(self) -> bool:
        return self._sweep in (SCALE, RECALIBRATE) or self._pass == len(self.cost.sweep) - 1

    def _first_sweep(self, steps: int) -> int:
        """Of the step after so many, in a run that has not learned from gradients yet."""
        left = steps < self.config.recalibrate or (self.config.recalibrate and not self._trains)
        return RECALIBRATE if left else SCALE

    @property
    def _computes(self) -> bool:
        """Whether the host computes this pass: the last of a sweep stands for all."""
        return self.every_pass or self._last_of_sweep

    def _learn_from(self, image: bytes, state: bytes | None = None) -> Learner:
        return Learner(image, self.config, self.memory.arena if self.every_pass else 0, state)

    def _resumed(self, record: bytes) -> Learner:
        kept = DeviceRecord.unpack(record)
        if kept.config != self.config:
            raise StateError(f"the checkpoint was saved with {kept.config}, not with {self.config}")
        return self._learn_from(kept.image, kept.state)

    def _new_flash(self) -> SimulatedFlash:
        d = self.device
        return SimulatedFlash(d.store_size or 4 * d.page, d.page, d.store_unit, d.store_slots, d.reprogram)

    def _energy_of_save(self) -> float:
        """Joules of a save that has to erase, found by making some on a flash of the same kind."""
        if not self.device.keeps:
            return 0.0
        flash, most = self._new_flash(), 0.0
        store = Store(flash)
        record = bytes(RECORD_HEAD + self.memory.image + self.memory.state)
        for _ in range(3):
            before = flash.counts
            store.save(record, DEVICE, 0)
            after = flash.counts
            seconds = (after.erased - before.erased) * self.device.erase_seconds
            seconds += (after.programmed - before.programmed) * self.device.program_seconds
            most = max(most, seconds * self.device.flash_watts)
        return most

    def _check_capacity(self) -> None:
        """A sample and a save must fit into what the supply can store."""
        if self.supply.capacity < float("inf") and not self.device.keeps:
            raise ArgumentError(
                f"{self.device.title} keeps what it learns in RAM only, which a supply that ends would lose: use mains"
            )
        update = self.cost.update + self.cost.sweep[-1].end
        most = max(self.cost.scale, self.cost.recalibrate, update, *(p.sample for p in self.cost.sweep))
        need = self.device.joules(most) + self._save_joules * self.policy.margin
        if need > self.supply.capacity:
            raise ArgumentError(
                f"the {self.supply.name} holds {self.supply.capacity:.3g} J; {self.device.title} needs {need:.3g} J "
                f"for one sample ({self.device.joules(most):.3g}) and a save ({self._save_joules:.3g})"
            )

    def _note(self, kind: str, text: str = "") -> None:
        self.timeline.append(Event(self.supply.time, kind, self.supply.level, text))
