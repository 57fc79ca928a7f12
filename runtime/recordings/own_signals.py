"""A user's folder of sensor recordings: ``class/recording.csv`` (or ``.npy``; ``.wav`` if ``front_end.json`` says so).

``front_end.json`` in the folder, if there is one, says how to cut them: ``{"rate": 50, "length": 128, "hop": 64}``.
The rate is in samples per second, length and hop are in samples. Scales are taken from the training recordings: all
but 0.1 % of the values are within −127 … 127.

Every fifth recording of each class is for testing. Where a class has fewer than five, each recording is cut into ten
stretches, of which the fifth and the tenth are for testing.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flipbit.runtime.data.data_set import DataSet, Examples, every_nth_group, of_recordings
from flipbit.runtime.errors import ArgumentError, InputError
from flipbit.runtime.recordings.front_ends import FRACTIONS, SCALES_MOST, SignalInput
from flipbit.runtime.recordings.signal_files import SIGNALS, is_signal, read_signal
from flipbit.runtime.recordings.windows import Stretch, examples, left_out, no_recordings, read_all, segments

Array = np.ndarray
FILE = "front_end.json"
DEFAULTS = {"rate": 50, "length": 128, "hop": 64}
LEAST = 5  # recordings of a class, of which one is for testing
PIECES = 10
OUTSIDE = 0.1  # percent of the values that may be cut off
VALUE_MOST = 32767 * 2.0 ** -FRACTIONS[0]  # that an int16 sample can stand for


@dataclass(frozen=True)
class Cutting:
    """What ``front_end.json`` says."""

    rate: float
    length: int
    hop: int
    sound: bool  # whether .wav files are signals


def own_signals(folder: Path) -> DataSet | None:
    """None for a folder without such recordings."""
    cutting = _cutting(folder)
    suffixes = SIGNALS if cutting.sound else SIGNALS[:2]
    names = sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith((".", "_")))
    files = {
        name: sorted(p for p in (folder / name).iterdir() if is_signal(p) and p.suffix.lower() in suffixes)
        for name in names
    }
    names = [name for name in names if files[name]]
    sounds = 0 if cutting.sound else len({p.parent for p in folder.glob("*/*.[wW][aA][vV]")})
    if not names or (len(names) < 2 <= sounds):  # words, and a list of them
        return None
    if len(names) < 2:
        raise InputError(f"{folder}: {len(names)} folder of recordings; expected one per class, two or more")
    every = [path for name in names for path in files[name]]
    found, notes = _same_channels(folder, *read_all(every, read_signal))
    notes += no_recordings(folder, names, suffixes)
    if sounds:
        notes.append(f'.wav files are left out: as signals they need {folder / FILE} with "kind": "signal"')
    stretches, test = _divided(found, names, notes)
    trained = [s.values for s, held in zip(stretches, test) if not held]
    front_end = _scaled(cutting, trained, found[0][1].shape[1])
    notes += _lost(front_end, np.concatenate(trained))
    if not (folder / FILE).is_file():
        notes.append(
            f"windows of {cutting.length} samples, {cutting.hop} from one to the next, {cutting.rate:g} per second; "
            f'other numbers: {folder / FILE} with {{"rate": …, "length": …, "hop": …}}'
        )

    def made(part: str) -> Examples:
        chosen = [s for s, held in zip(stretches, test) if held == (part == "test")]
        return examples(chosen, front_end, cutting.hop, notes)

    return of_recordings(folder.name, "signals", names, front_end, made)


def _same_channels(
    folder: Path, found: list[tuple[Path, Array]], notes: list[str]
) -> tuple[list[tuple[Path, Array]], list[str]]:
    """The recordings that have as many channels as most have, and a note on the others."""
    counts = Counter(values.shape[1] for _, values in found)
    (usual, most), *others = counts.most_common()
    if 2 * most <= len(found):
        raise InputError(
            f"{folder}: recordings of {' and '.join(map(str, sorted(counts)))} channels; all need the same number"
        )
    odd = [f"{path}: {values.shape[1]} channels" for path, values in found if values.shape[1] != usual]
    if others:
        notes = [*notes, *left_out([f"{each}; most have {usual}" for each in odd], len(found))]
    return [(path, values) for path, values in found if values.shape[1] == usual], notes


def _lost(front_end: SignalInput, values: Array) -> list[str]:
    """A note on channels of which nothing is left in int8."""
    kept = front_end.int8(front_end.samples(values))
    still = [str(i + 1) for i in np.flatnonzero(np.ptp(kept.astype(int), axis=0) == 0)]
    if not still:
        return []
    return [
        f"{'channels' if len(still) > 1 else 'channel'} {', '.join(still[:8])} of {values.shape[1]}: always the same "
        "value, to what 8 bits can tell"
    ]


def _divided(found: list[tuple[Path, Array]], names: list[str], notes: list[str]) -> tuple[list[Stretch], Array]:
    """Stretches, each a group of its own, and which of them are for testing."""
    labels = [names.index(path.parent.name) for path, _ in found]
    whole = min(Counter(labels).values()) >= LEAST  # a class of which nothing could be read does not count
    stretches: list[Stretch] = []
    for (_, values), label in zip(found, labels):
        for piece in [values] if whole else segments(values, PIECES):
            stretches.append(Stretch(piece, label, len(stretches)))
    if not whole:
        notes.append(
            f"a class has fewer than {LEAST} recordings: stretches of the same recordings are trained and tested on, "
            "which flatters the net; record more"
        )
    labels_of = np.array([s.label for s in stretches])
    return stretches, every_nth_group(labels_of, np.array([s.group for s in stretches]), LEAST)


def _scaled(cutting: Cutting, trained: list[Array], channels: int) -> SignalInput:
    values = np.concatenate(trained)
    if channels > SCALES_MOST:
        values = values.reshape(-1, 1)
    low, high = np.percentile(values, [OUTSIDE / 2, 100 - OUTSIDE / 2], axis=0)
    largest = float(np.abs([low, high]).max())
    if largest > VALUE_MOST:
        raise InputError(f"values reach {largest:.3g}; expected up to {VALUE_MOST:.3g}: use a larger unit")
    still = high - low < 1e-9  # a channel that never moves
    try:
        return SignalInput.scaled(
            cutting.rate, cutting.length, cutting.hop, np.where(still, low - 1, low).tolist(),
            np.where(still, high + 1, high).tolist(), channels if channels > SCALES_MOST else 0,
        )  # fmt: skip
    except ArgumentError as error:
        raise InputError(str(error)) from None


def _cutting(folder: Path) -> Cutting:
    path = folder / FILE
    if not path.is_file():
        return Cutting(**DEFAULTS, sound=False)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict) or set(found) - {*DEFAULTS, "kind"}:
            raise ValueError(f"expected {', '.join(DEFAULTS)}")
        given = {**DEFAULTS, **{name: value for name, value in found.items() if name != "kind"}}
        if not all(isinstance(value, (int, float)) and value > 0 for value in given.values()):
            raise ValueError(f"expected numbers above 0 for {', '.join(DEFAULTS)}")
        return Cutting(float(given["rate"]), int(given["length"]), int(given["hop"]), found.get("kind") == "signal")
    except (OSError, ValueError) as error:
        raise InputError(f'{path}: {error}; such as {{"rate": 50, "length": 128, "hop": 64}}') from None
