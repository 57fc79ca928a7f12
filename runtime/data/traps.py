"""What often goes wrong with one's own data, found before a training is spent on it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flipbit.runtime.data.sets import PictureFolder

UNBALANCED = 10  # times as many images in the largest class as in the smallest
NAMED = 5  # names in a note before it says "and others"


def label_traps(train: Sequence[int] | np.ndarray, test: Sequence[int] | np.ndarray, classes: list[str]) -> list[str]:
    """Notes on the labels of a set to train on: classes that are empty, tiny, or only tested."""
    counts, tested = (np.bincount(np.asarray(y, np.int64), minlength=len(classes)) for y in (train, test))
    notes = []
    untrained = [i for i in range(len(classes)) if not counts[i]]
    if any(tested[i] for i in untrained):
        only = [i for i in untrained if tested[i]]
        notes.append(
            f"{_names(only, classes)}: {int(tested[only].sum())} test images, but no training images; "
            "the net cannot get them right"
        )
    empty = [i for i in untrained if not tested[i]]
    if empty:
        hint = "; do labels count from 1? they should from 0" if empty == [0] and classes[0] == "0" else ""
        notes.append(f"{_names(empty, classes)}: no images{hint}")
    untested = [i for i in range(len(classes)) if counts[i] and not tested[i]]
    if untested:
        notes.append(f"{_names(untested, classes)}: no test images")
    present = [i for i in range(len(classes)) if counts[i]]
    if present:
        least, most = min(present, key=lambda i: counts[i]), max(present, key=lambda i: counts[i])
        if counts[most] >= UNBALANCED * counts[least]:
            notes.append(
                f"unbalanced: {counts[most]} training images of {classes[most]}, {counts[least]} of {classes[least]}"
            )
    return notes


def repeats(train: np.ndarray, test: np.ndarray) -> list[str]:
    """A note on test images that are training images, too: accuracy on them says little."""
    seen = {hash(image.tobytes()) for image in train}
    count = sum(hash(image.tobytes()) in seen for image in test)
    return [f"{count} of {len(test)} test images are training images, too"] if count else []


def stray_files(found: PictureFolder) -> list[str]:
    """A note on pictures that belong to no class."""
    if not found.strays:
        return []
    return [f"left out, as they are in no class's folder: {some(found.strays)}"]


def some(names: list[str]) -> str:
    """The first few of many names."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _names(indices: list[int], classes: list[str]) -> str:
    plural = "classes" if len(indices) > 1 else "class"
    return f"{plural} {some([classes[i] for i in indices])}"
