"""Vibration: Case Western's bearings, drive end, 12 kHz: ``NUMBER.mat`` as published, or ``FAULT_LOAD.npy``, int16 in
1/400 g.

Ten classes, as usual for this set: no fault, and ball, inner and outer race (at 6 o'clock) with faults of 7, 14 and
21 mil. Training sees load 0 only, tests are on loads 1 to 3. Where there is the faultless bearing at load 0 alone, its
last 30 % are for testing, which says nothing about other loads; look at the other nine classes for that.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from flipbit.runtime.data.data_set import DataSet, Examples, home_of, of_recordings
from flipbit.runtime.errors import InputError
from flipbit.runtime.recordings.front_ends import SignalInput
from flipbit.runtime.recordings.mat_files import parse_mat
from flipbit.runtime.recordings.signal_files import SignalError, read_signal
from flipbit.runtime.recordings.windows import Stretch, examples, read_all, segments

CWRU = "cwru"
NORMAL = "Normal"
FAULTS = (
    NORMAL, "B007", "B014", "B021", "IR007", "IR014", "IR021", "OR007@6", "OR014@6", "OR021@6",
)  # fmt: skip
NAMES = [
    "normal", "ball 7", "ball 14", "ball 21", "inner 7", "inner 14", "inner 21", "outer 7", "outer 14", "outer 21",
]  # fmt: skip
NORMAL_TRAINED = 0.7  # of the recording, from its start
SEGMENTS = 10  # of a training recording: validation takes whole ones
VIBRATION = SignalInput(
    rate=12000, length=1024, hop=1024, channels=1, fraction=0, shift=15, multipliers=(8192,), zeros=(0,)
)  # 1/100 g per step: ±1.27 g
LOADED = re.compile(r"(.+)_([0-3])\.npy")
# Numbers of the published files at load 0; loads 1 to 3 follow. Names end in them: 105.mat, IR007_0_105.mat.
PUBLISHED = dict(zip(FAULTS, (97, 118, 185, 222, 105, 169, 209, 130, 197, 234)))
NUMBERED = re.compile(r"(?:.*\D)?(\d+)\.mat")
PER_G = 400


def cwru(data_dir: str | None = None) -> DataSet:
    return bearings_folder(home_of(CWRU, (CWRU,), data_dir, is_cwru))


def is_cwru(folder: Path) -> bool:
    faults = {fault for fault, _ in _recorded(folder).values()}
    return {NORMAL, "IR007"} <= faults


def _recorded(folder: Path) -> dict[Path, tuple[str, int]]:
    """Fault and load of each recording of the ten classes."""
    found = {}
    for path in sorted(folder.glob("*.npy")):
        known = LOADED.fullmatch(path.name)
        if known and known[1] in FAULTS:
            found[path] = known[1], int(known[2])
    numbers = {first + load: (fault, load) for fault, first in PUBLISHED.items() for load in range(4)}
    for path in sorted(folder.glob("*.mat")) if not found else []:
        known = NUMBERED.fullmatch(path.name)
        if known and int(known[1]) in numbers:
            found[path] = numbers[int(known[1])]
    return found


def bearings_folder(folder: Path) -> DataSet:
    def made(part: str) -> Examples:
        known = _recorded(folder)
        divided = not any(fault == NORMAL and load for fault, load in known.values())
        files = [
            path for path, (fault, load) in known.items()
            if (load == 0) == (part == "train") or (divided and fault == NORMAL)
        ]  # fmt: skip
        if not files:
            raise InputError(f"{folder}: no recordings for {part}ing")
        found, notes = read_all(files, _vibration)
        stretches = []
        for path, values in found:
            fault, _ = known[path]
            label = FAULTS.index(fault)
            if divided and fault == NORMAL:
                end = int(NORMAL_TRAINED * len(values))
                values = values[:end] if part == "train" else values[end:]
            parts = segments(values, SEGMENTS) if part == "train" else [values]
            stretches += [Stretch(values, label, number) for number, values in enumerate(parts)]
        return examples(stretches, VIBRATION, 512 if part == "test" else 64, notes)

    return of_recordings(CWRU, CWRU, NAMES, VIBRATION, made)


def _vibration(path: Path) -> np.ndarray:
    """In 1/400 g."""
    if path.suffix == ".mat":
        return _drive_end(path)
    values = read_signal(path)
    if values.shape[1] != 1:
        raise SignalError(f"{path}: {values.shape[1]} channels; expected 1")
    return values


def _drive_end(path: Path) -> np.ndarray:
    """``X105_DE_time`` of ``105.mat``; a file may hold another recording, too."""
    try:
        arrays = parse_mat(path.read_bytes())
    except OSError as error:
        raise SignalError(f"{path}: {error.strerror or error}") from None
    except InputError as error:
        raise SignalError(f"{path}: {error.message}") from None
    known = NUMBERED.fullmatch(path.name)
    assert known
    names = [name for name in arrays if name.endswith("DE_time")]
    name = next((name for name in names if int(known[1]) == _number(name)), names[-1] if names else None)
    if name is None:
        raise SignalError(f"{path}: no array of the drive end (…_DE_time); found {', '.join(arrays) or 'none'}")
    values = np.rint(PER_G * arrays[name]).reshape(-1, 1)
    if not np.isfinite(values).all():
        raise SignalError(f"{path}: holds numbers that are none (NaN or infinite)")
    return values


def _number(name: str) -> int | None:
    """105 of X105_DE_time."""
    digits = re.match(r"X(\d+)_", name)
    return int(digits[1]) if digits else None
