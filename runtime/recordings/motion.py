"""Motion: MotionSense (activities of people with a phone in the pocket) and TensorFlow's magic wand (gestures).

People are left out of training to test on, and of what remains to validate on: a net that knows a person's walk is not
asked about it.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from flipbit.runtime.data.data_set import DataSet, Examples, home_of, of_recordings
from flipbit.runtime.errors import InputError
from flipbit.runtime.recordings.front_ends import SignalInput
from flipbit.runtime.recordings.signal_files import SignalError, read_signal
from flipbit.runtime.recordings.windows import Stretch, examples, read_all

Array = np.ndarray

# ---- MotionSense, 50 Hz: A_DeviceMotion_data/ACTIVITY_TRIAL/sub_PERSON.csv as published, or acceleration and rotation
# ---- alone as ACTIVITY_TRIAL_PERSON.npy, int16 [samples, 6] ----

MOTIONSENSE = "motionsense"
ACTIVITIES = {
    "dws": "downstairs", "ups": "upstairs", "wlk": "walking", "jog": "jogging", "sit": "sitting", "std": "standing",
}  # fmt: skip
TESTED_PEOPLE = range(19, 25)  # of 24
PUBLISHED = "A_DeviceMotion_data"
RECORDED = re.compile(r"(dws|ups|wlk|jog|sit|std)_(\d+)(?:_(\d+)\.npy|/sub_(\d+)\.csv)")
# Columns of the published files: attitude, gravity in g, rotation in rad/s, acceleration by the user in g.
_, GRAVITY, ROTATION, USER = (slice(3 * i, 3 * i + 3) for i in range(4))
# Acceleration in 1/512 g to ±3 g, rotation in 1/128 rad/s to ±6 rad/s: 0.1 % of the samples are beyond.
MOTION = SignalInput(
    rate=50, length=128, hop=32, channels=6, fraction=0, shift=15,
    multipliers=(2709, 2709, 2709, 5419, 5419, 5419), zeros=(0,) * 6,
)  # fmt: skip


def motionsense(data_dir: str | None = None) -> DataSet:
    """Six activities; the people 19 to 24 are for testing."""
    return motion_folder(home_of(MOTIONSENSE, (MOTIONSENSE, PUBLISHED), data_dir, is_motionsense))


def is_motionsense(folder: Path) -> bool:
    return bool(_recorded(folder))


def _recorded(folder: Path) -> dict[Path, tuple[str, int]]:
    """Activity and person of each recording."""
    for home, files in ((folder, "*.npy"), (folder / PUBLISHED, "*/*.csv"), (folder, "*/*.csv")):
        matches = ((path, RECORDED.fullmatch(path.relative_to(home).as_posix())) for path in sorted(home.glob(files)))
        found = {path: (known[1], int(known[3] or known[4])) for path, known in matches if known}
        if found:
            return found
    return {}


def motion_folder(folder: Path) -> DataSet:
    names = list(ACTIVITIES)

    def made(part: str) -> Examples:
        known = _recorded(folder)
        files = [path for path, (_, person) in known.items() if (person in TESTED_PEOPLE) == (part == "test")]
        if not files:
            raise InputError(f"{folder}: no recordings of the people for {part}ing")
        found, notes = read_all(files, _motion)
        stretches = [Stretch(values, names.index(known[path][0]), known[path][1]) for path, values in found]
        return examples(stretches, MOTION, 64 if part == "test" else 32, notes)

    return of_recordings(MOTIONSENSE, MOTIONSENSE, list(ACTIVITIES.values()), MOTION, made)


def _motion(path: Path) -> Array:
    """Acceleration in 1/512 g and rotation in 1/128 rad/s."""
    if path.suffix == ".npy":
        return _channels(path, read_signal(path), 6)
    values = _channels(path, read_signal(path), 12)
    return np.rint(np.concatenate([512 * (values[:, GRAVITY] + values[:, USER]), 128 * values[:, ROTATION]], 1))


def _channels(path: Path, values: Array, count: int) -> Array:
    if values.shape[1] != count:
        raise SignalError(f"{path}: {values.shape[1]} channels; expected {count}")
    return values


# ---- magic wand: CLASS/output_CLASS_PERSON.txt, acceleration in 1/1000 g, 25 Hz ----

MAGIC_WAND = "magic_wand"
GESTURES = ("wing", "ring", "slope", "negative")
TESTED_NAMES = ("liucx", "zhangxy", "1", "ccw_2")  # two people, and two recordings of other movements
WAND = SignalInput(
    rate=25, length=128, hop=8, channels=3, fraction=0, shift=15, multipliers=(2080,) * 3, zeros=(0,) * 3
)  # ±2 g
_SAMPLE = re.compile(r"(-?\d+(?:\.\d*)?),(-?\d+(?:\.\d*)?),(-?\d+(?:\.\d*)?)")
_WAND = re.compile(r"output_(wing|ring|slope|negative)_(\w+)\.txt")
PLACES = 6  # of a gesture within its window, in training


def magic_wand(data_dir: str | None = None) -> DataSet:
    """Wing, ring, slope and other movements; two people are for testing."""
    return wand_folder(home_of(MAGIC_WAND, ("magic-wand", MAGIC_WAND), data_dir, is_magic_wand))


def is_magic_wand(folder: Path) -> bool:
    return all(any((folder / name).glob("output_*.txt")) for name in GESTURES)


def wand_folder(folder: Path) -> DataSet:
    def made(part: str) -> Examples:
        files = []
        for path in sorted(p for name in GESTURES for p in (folder / name).glob("output_*.txt")):
            known = _WAND.fullmatch(path.name)
            if known and (known[2] in TESTED_NAMES) == (part == "test"):
                files.append(path)
        if not files:
            raise InputError(f"{folder}: no recordings of the people for {part}ing")
        people = sorted({_person(path) for path in files})
        broken: list[str] = []
        stretches = []
        for path in files:
            found = gestures(path)
            if not found:
                broken.append(f"{path}: no samples of three numbers")
            for values in found:
                label = GESTURES.index(path.parent.name)
                stretches += [Stretch(v, label, people.index(_person(path))) for v in placed(values, part == "train")]
        notes = [f"{len(broken)} of {len(files)} recordings left out: {'; '.join(broken)}"] if broken else []
        return examples(stretches, WAND, 128 if part == "test" else 32, notes)

    return of_recordings(MAGIC_WAND, MAGIC_WAND, list(GESTURES), WAND, made)


def _person(path: Path) -> str:
    known = _WAND.fullmatch(path.name)
    return known[2] if known else path.stem


def gestures(path: Path) -> list[Array]:
    """Stretches of samples between lines of dashes; what a terminal program left in the file is skipped."""
    found: list[list[list[float]]] = [[]]
    for line in path.read_bytes().decode("ascii", "replace").splitlines():
        sample = _SAMPLE.fullmatch(line.strip())
        if sample:
            found[-1].append([float(value) for value in sample.groups()])
        elif "-,-,-" in line and found[-1]:
            found.append([])
    return [np.array(stretch) for stretch in found if len(stretch) >= 16]


def placed(values: Array, training: bool) -> list[Array]:
    """A gesture in windows of 128 samples: its first and last sample stand still before and behind it.

    In the middle for testing; for training at several places. Longer recordings stay as they are, and are cut.
    """
    spare = WAND.length - len(values)
    if spare < 0:
        return [values]
    starts = np.linspace(0, spare, PLACES).astype(int) if training else [spare // 2]
    return [np.pad(values, ((int(start), spare - int(start)), (0, 0)), mode="edge") for start in starts]
