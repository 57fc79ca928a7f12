"""Recordings as a net takes them: one input per window, by the front end that its image describes.

A file alone gives an answer per hop: windows of it, ``hop`` rows or samples apart; one that is shorter than a window is
followed by zeros (sound) or refused (signals). In a folder of words each recording is one example, as in training: the
loudest second of it. What is odd about a recording (silence, clipping, a file cut short) is noted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from flipbit.runtime.audio.config import RATE
from flipbit.runtime.audio.front_end import FrontEnd
from flipbit.runtime.audio.wav import WavError, read_wav
from flipbit.runtime.data.traps import some
from flipbit.runtime.errors import InputError
from flipbit.runtime.recordings.front_ends import AudioInput, FrontEndInput, SignalInput
from flipbit.runtime.recordings.signal_files import SIGNALS, SignalError, read_signal
from flipbit.runtime.recordings.windows import cut
from flipbit.runtime.recordings.words import CLIP, loudest

Array = np.ndarray
# Of 421 recordings of MotionSense and CWRU, none is noted: up to 49 % of a channel lies outside of the scale (the worst
# bearings), and the stillest person moves by 2 steps of int8.
OUTSIDE = 0.5  # of a channel
STEPS_LEAST = 2


@dataclass(frozen=True)
class RecordedInputs:
    """int8 inputs, height × width × channels; which file each is from, what to call it, and what a person should
    know."""

    x: Array
    files: list[Path]
    names: list[str]
    notes: list[str] = field(default_factory=list)


def suffixes(front_end: FrontEndInput) -> tuple[str, ...]:
    """What a net can read."""
    return (".wav",) if isinstance(front_end, AudioInput) else SIGNALS


def recordings_below(folder: Path, front_end: FrontEndInput) -> list[Path]:
    known = suffixes(front_end)
    return sorted(
        p for p in folder.rglob("*") if p.suffix.lower() in known and p.is_file() and not p.name.startswith(".")
    )


def read_samples(path: Path, front_end: FrontEndInput) -> tuple[Array, list[str]]:
    """int16 samples as a device gets them, [samples] of sound or [samples, channels], and notes on the recording."""
    if path.suffix.lower() not in suffixes(front_end):
        expected = " or ".join(suffixes(front_end))
        raise InputError(f"{path}: expected a recording ({expected}), which the net's front end takes")
    if isinstance(front_end, AudioInput):
        recording = read_wav(path)
        notes = [f"{path}: {note}" for note in recording.notes]
        if recording.rate != front_end.rate:
            notes.append(f"{path}: resampled from {recording.rate:,} to {front_end.rate:,.0f} Hz")
        return recording.samples, notes
    values = read_signal(path)
    if values.shape[1] != front_end.channels:
        many = "s" * (values.shape[1] != 1)
        raise SignalError(f"{path}: {values.shape[1]} channel{many}; the net takes {front_end.channels}")
    samples = front_end.samples(values)
    return samples, [f"{path}: {note}" for note in _odd_signal(path, values, samples, front_end)]


def _odd_signal(path: Path, values: Array, samples: Array, front_end: SignalInput) -> list[str]:
    """What a person should know of a recording of a sensor."""
    notes = []
    outside = front_end.outside(samples)
    if outside > OUTSIDE:
        notes.append(
            f"up to {100 * outside:.1f} % of a channel's values are outside of what the net was scaled for: "
            "is the unit the same as in training?"
        )
    if len(values) > 1 and not np.ptp(values, axis=0).any():
        notes.append("silent: each channel has the same value throughout")
    elif len(values) > 1 and np.ptp(front_end.int8(samples).astype(np.int64), axis=0).max() < STEPS_LEAST:
        notes.append("hardly moves on the net's scale: is the unit the same as in training?")
    if path.suffix.lower() == ".wav" and front_end.rate != RATE:
        notes.append(f"read at {RATE:,} samples per second; the net was trained at {front_end.rate:,g}")
    return notes


def windows(samples: Array, front_end: FrontEndInput, shape: Sequence[int]) -> Array:
    """Every window of a recording as the net takes it, one per hop."""
    if isinstance(front_end, AudioInput):
        if len(samples) < front_end.window:
            samples = np.pad(samples, (0, front_end.window - len(samples)))
        rows = FrontEnd(front_end.audio).push(samples)
    else:
        rows = front_end.int8(samples)
    return np.ascontiguousarray(cut(rows, front_end.length, front_end.hop)).reshape(-1, *shape)


def read_inputs(
    files: Sequence[Path], front_end: FrontEndInput, shape: Sequence[int], limit: int | None = None, whole: bool = True
) -> RecordedInputs:
    """Inputs of all files that can be read; the others are named in a note. ``whole``: all windows of each recording;
    else of sound one input per recording."""
    x: list[Array] = []
    owners: list[Path] = []
    names: list[str] = []
    same: dict[str, list[Path]] = {}  # a note, and the recordings that it is on
    failed: list[InputError] = []
    for path in files:
        if limit is not None and len(names) >= limit:
            break
        try:
            samples, odd = read_samples(path, front_end)
            if isinstance(front_end, AudioInput) and not whole:
                samples = loudest(samples, max(CLIP, front_end.window))[: front_end.window + front_end.step - 1]
            found = windows(samples, front_end, shape)
            if isinstance(front_end, AudioInput) and whole and len(samples) < front_end.window:
                lasts, takes = len(samples) / front_end.rate, front_end.window / front_end.rate
                odd.append(f"{path}: lasts {lasts:.2f} s; followed by zeros, as a window takes {takes:.2f}")
            if not len(found):
                many = f"{len(samples):,} sample{'s' * (len(samples) != 1)}"
                raise SignalError(f"{path}: {many}; a window of the net takes {front_end.length:,}")
        except (WavError, InputError) as error:
            failed.append(error)
            continue
        for note in odd:
            same.setdefault(note.removeprefix(f"{path}: "), []).append(path)
        x.append(found)
        owners += [path] * len(found)
        names += [str(path)] if len(found) == 1 else [f"{path} {time}" for time in times(front_end, len(found))]
    if not x:
        if len(failed) == 1:
            raise failed[0]
        raise InputError(f"none of {len(failed)} recordings could be read; the first: {failed[0].message}")
    notes = [_note(text, paths) for text, paths in same.items()]
    if failed:
        total = len(failed) + len(set(owners))
        notes.insert(0, f"{len(failed)} of {total} recordings left out: {some([e.message for e in failed])}")
    if len(notes) > 10:
        notes = [*notes[:10], f"… {len(notes) - 10} more notes on recordings"]
    return RecordedInputs(np.concatenate(x)[:limit], owners[:limit], names[:limit], notes)


def _note(text: str, paths: list[Path]) -> str:
    if len(paths) == 1:
        return f"{paths[0]}: {text}"
    return f"{len(paths)} recordings: {text} ({some([str(path) for path in paths])})"


def times(front_end: FrontEndInput, count: int) -> list[str]:
    """From when to when each window lasts, in seconds."""
    starts = np.arange(count) * front_end.step / front_end.rate
    return [f"{start:.2f} … {start + front_end.window / front_end.rate:.2f} s" for start in starts]


def same_input(mine: FrontEndInput, theirs: FrontEndInput) -> bool:
    """Whether two front ends make the same values; how far their windows are apart does not matter."""
    if isinstance(mine, SignalInput) != isinstance(theirs, SignalInput):
        return False
    left, right = mine.to_json(), theirs.to_json()
    return {**left, "hop": 0} == {**right, "hop": 0}
