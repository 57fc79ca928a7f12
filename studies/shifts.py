"""What a net meets that it was not trained on: another person, another load, a camera that hangs otherwise.

Each gives samples to learn from and others to test on. Of a recording the first part is learned from, the rest tested;
no window reaches over the border.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flipbit.runtime.data.data_set import home_of
from flipbit.runtime.data.drift import MOUNTS, apply_drift
from flipbit.runtime.data.load import Data
from flipbit.runtime.errors import InputError
from flipbit.runtime.recordings.bearings import CWRU, FAULTS, LOADED, NORMAL, VIBRATION, is_cwru
from flipbit.runtime.recordings.motion import ACTIVITIES, MOTION, MOTIONSENSE, RECORDED, TESTED_PEOPLE, is_motionsense
from flipbit.runtime.recordings.signal_files import read_signal
from flipbit.runtime.recordings.windows import Stretch, examples

Array = np.ndarray
LEARNED = 0.4  # of a recording, from its start


@dataclass(frozen=True)
class Shift:
    """What a device meets: images to learn from and to test on, with their labels."""

    name: str
    x: Array
    y: Array
    test_x: Array
    test_y: Array

    def drawn(self, count: int, seed: int) -> tuple[Array, Array]:
        """So many to learn from; a seed draws its own."""
        order = np.random.default_rng(seed).permutation(len(self.y))[:count]
        return self.x[order], self.y[order]


def people(folder: Path) -> Iterator[Shift]:
    """Each person that the net was not trained on."""
    names = list(ACTIVITIES)
    for person in TESTED_PEOPLE:
        found = ((path, RECORDED.fullmatch(path.name)) for path in sorted(folder.glob("*.npy")))
        own = [(path, names.index(known[1])) for path, known in found if known and int(known[3]) == person]
        yield _of_recordings(f"person {person}", own, lambda path: read_signal(path), MOTION, 64)


def loads(folder: Path) -> Iterator[Shift]:
    """Each load of the motor that the net was not trained on; the faultless bearing was not recorded with them."""
    for load in "123":
        found = ((path, LOADED.fullmatch(path.name)) for path in sorted(folder.glob("*.npy")))
        own = [
            (path, FAULTS.index(known[1]))
            for path, known in found
            if known and known[1] in FAULTS and known[1] != NORMAL and known[2] == load
        ]
        yield _of_recordings(f"load {load}", own, lambda path: read_signal(path)[:, :1], VIBRATION, 512)


def _of_recordings(
    name: str, files: list[tuple[Path, int]], read: Callable[[Path], Array], front_end: object, hop: int
) -> Shift:
    if not files:
        raise InputError(f"{name}: no recordings")
    first, rest = [], []
    for path, label in files:
        values = read(path)
        border = int(LEARNED * len(values))
        first.append(Stretch(values[:border], label, 0))
        rest.append(Stretch(values[border:], label, 0))
    learned, tested = (examples(part, front_end, hop) for part in (first, rest))  # type: ignore[arg-type]
    return Shift(name, learned.x, learned.y, tested.x, tested.y)


def mounts(data: Data) -> Iterator[Shift]:
    """A camera that is mounted otherwise, or whose colours change places."""
    border = int(LEARNED * len(data.y))
    for mount in MOUNTS:
        if mount == "swap" and data.x.shape[-1] != 3:
            continue
        x = apply_drift(data.x, mount)
        yield Shift(mount, x[:border], data.y[:border], x[border:], data.y[border:])


def shifts_of(source: str, data: Data) -> list[Shift]:
    """What there is to meet in a data set."""
    folder = Path(source)
    if source == MOTIONSENSE:
        folder = home_of(MOTIONSENSE, (MOTIONSENSE,), None, is_motionsense)
    elif source == CWRU:
        folder = home_of(CWRU, (CWRU,), None, is_cwru)
    if folder.is_dir() and is_motionsense(folder):
        return list(people(folder))
    if folder.is_dir() and is_cwru(folder):
        return list(loads(folder))
    return list(mounts(data))
