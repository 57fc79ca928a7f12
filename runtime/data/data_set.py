"""What a reader of a data set gives: a part to train on, a part to test on, and what is known about them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flipbit.runtime.errors import InputError
from flipbit.runtime.recordings.front_ends import FrontEndInput

Array = np.ndarray
Part = tuple[Array, Array]  # images, and labels or values


class MissingError(InputError):
    """An official data set is not on this machine."""


@dataclass(frozen=True)
class Examples:
    """One part of a set of recordings, as images (uint8: the net's int8 value + 128).

    ``groups`` numbers what belongs together (a speaker, a person, a stretch of a recording): validation takes whole
    groups. ``validation`` marks the official validation part, where there is one; ``variants`` makes changed copies to
    train on, [copies, examples, height, width, channels].
    """

    x: Array
    y: Array
    groups: Array | None = None
    validation: Array | None = None
    variants: Callable[[], Array] | None = None
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class DataSet:
    """Images in memory. ``read`` gives a part, "train" or "test"; ``held_out`` says that the test part is every fifth
    image of each class, as the set has none of its own; ``kind`` is the standard set it is laid out as. A set of
    recordings has a ``front_end``, and ``examples`` says more of a part than ``read``. ``values``: in place of labels
    there are real numbers for each image, of this shape; a part has them as float32, images × numbers."""

    name: str
    classes: list[str]
    read: Callable[[str], Part]
    held_out: bool = False
    kind: str = ""
    values: tuple[int, ...] | None = None
    notes: Sequence[str] = ()
    front_end: FrontEndInput | None = None
    examples: Callable[[str], Examples] | None = None


def of_recordings(
    name: str, kind: str, classes: list[str], front_end: FrontEndInput, examples: Callable[[str], Examples]
) -> DataSet:
    """A set of recordings by what it has in each part."""

    def read(part: str) -> Part:
        found = examples(part)
        return found.x, found.y

    return DataSet(name, classes, read, kind=kind, front_end=front_end, examples=examples)


def homes(data_dir: str | None) -> list[Path]:
    """Where official files may lie, in the order they are looked for."""
    given = data_dir or os.environ.get("FLIPBIT_DATA")
    if given:
        return [Path(given)]
    return [Path(os.environ.get("KERAS_HOME", Path.home() / ".keras")) / "datasets", Path()]


def home_of(name: str, folders: Sequence[str], data_dir: str | None, holds: Callable[[Path], bool]) -> Path:
    """The folder of an official set, by what it ``holds``; :class:`MissingError` if it is nowhere."""
    for home in homes(data_dir):
        for place in (*(home / folder for folder in folders), home):
            if place.is_dir() and holds(place):
                return place
    raise MissingError(
        f"{name}: not found: put the official files into {homes(data_dir)[0] / folders[0]}, or name the folder that "
        "holds them with --data-dir or FLIPBIT_DATA"
    )


def every_nth_group(labels: Array, groups: Array, n: int) -> Array:
    """A mask of every ``n``-th group, counted class by class: a group of several classes counts in its first."""
    first = {int(g): i for i, g in reversed(list(enumerate(groups)))}
    mask = np.zeros(len(labels), bool)
    by_class: dict[int, list[int]] = {}
    for group in sorted(first):
        by_class.setdefault(int(labels[groups == group].min()), []).append(group)
    for known in by_class.values():
        mask |= np.isin(groups, known[n - 1 :: n])
    return mask
