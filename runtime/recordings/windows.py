"""Windows over recordings of sensors: what a net sees of a signal, one row of samples × channels.

A window never reaches over the end of its stretch of a recording, so that no sample is in two parts of a set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flipbit.runtime.data.data_set import Examples
from flipbit.runtime.errors import InputError
from flipbit.runtime.recordings.cache import counted
from flipbit.runtime.recordings.front_ends import SignalInput
from flipbit.runtime.recordings.signal_files import SignalError

Array = np.ndarray


@dataclass(frozen=True)
class Stretch:
    """A stretch of a recording: values [samples, channels], its class, and the group it belongs to."""

    values: Array
    label: int
    group: int


def cut(values: Array, length: int, hop: int) -> Array:
    """Windows [n, length, channels]; what is left at the end is dropped."""
    if len(values) < length:
        return np.empty((0, length, values.shape[1]), values.dtype)
    return np.lib.stride_tricks.sliding_window_view(values, length, 0)[::hop].transpose(0, 2, 1)


def segments(values: Array, count: int) -> list[Array]:
    """``count`` stretches of equal length, one behind the other."""
    ends = np.linspace(0, len(values), count + 1).astype(int)
    return [values[ends[i] : ends[i + 1]] for i in range(count)]


def examples(stretches: Iterable[Stretch], front_end: SignalInput, hop: int, notes: Sequence[str] = ()) -> Examples:
    """All windows of the stretches as images of 1 × length × channels, in an order that mixes classes."""
    x, y, groups = [], [], []
    for stretch in stretches:
        values = front_end.int8(front_end.samples(stretch.values))
        windows = cut(values, front_end.length, hop)
        x.append((windows.astype(np.int16) + 128).astype(np.uint8))
        y.append(np.full(len(windows), stretch.label, np.int64))
        groups.append(np.full(len(windows), stretch.group, np.int64))
    if not sum(map(len, x)):
        raise InputError(f"no recording has {front_end.length} samples, which a window takes; {'; '.join(notes)}")
    short = sum(not len(windows) for windows in x)
    if short:
        whole = f"{front_end.length} samples, which a window takes"
        notes = [*notes, f"{short} of {len(x)} recordings or stretches of them have less than {whole}"]
    order = np.random.default_rng(0).permutation(sum(map(len, x)))
    images = np.concatenate(x)[order][:, None]
    return Examples(images, np.concatenate(y)[order], np.concatenate(groups)[order], notes=tuple(notes))


def no_recordings(folder: Path, classes: Sequence[str], suffixes: Sequence[str]) -> list[str]:
    """A note on folders that are no classes, as there is no recording in them."""
    names = sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith((".", "_")))
    without = [f"{name}/" for name in names if name not in classes]
    if not without:
        return []
    named = ", ".join(without[:5]) + (" …" if len(without) > 5 else "")
    return [f"without recordings ({', '.join(suffixes)}), so no class: {named}"]


def read_all(files: Sequence[Path], read: Callable[[Path], Array]) -> tuple[list[tuple[Path, Array]], list[str]]:
    """What could be read of the files, and a note that names the others."""
    found, broken, show = [], [], counted("recordings", len(files))
    for number, path in enumerate(files, 1):
        try:
            found.append((path, read(path)))
        except (SignalError, InputError) as error:
            broken.append(error.message)
        show(number)
    if not found:
        raise InputError(f"none of {len(files)} recordings could be read; the first: {broken[0] if broken else 'none'}")
    return found, left_out(broken, len(files))


def left_out(broken: Sequence[str], total: int) -> list[str]:
    """A note on recordings that could not be read."""
    if not len(broken):
        return []
    named = "; ".join(str(message) for message in broken[:5])
    return [f"{len(broken)} of {total:,} recordings left out: {named}" + ("; …" if len(broken) > 5 else "")]
