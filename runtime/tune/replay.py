"""Adding a class: a device learns from samples of it, and replays a few of the others, or it forgets them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flipbit.runtime.core.model import Model
from flipbit.runtime.data.load import load_data
from flipbit.runtime.data.traps import some
from flipbit.runtime.errors import ArgumentError, InputError
from flipbit.runtime.image.inputs import Array, to_planes
from flipbit.runtime.tune.samples import Samples


def balanced(labels: Array, new: int, each: int) -> Array:
    """Which samples make a batch: all of class ``new``, and the first ``each`` of every other class, repeated so that a
    class counts about as much as the new one. Copies cost time, no memory."""
    fresh = np.flatnonzero(labels == new)
    chosen = [fresh]
    for other in np.unique(labels[labels != new]):
        stored = np.flatnonzero(labels == other)[:each]
        if len(stored):
            chosen.append(np.repeat(stored, max(1, round(len(fresh) / len(stored)))))
    return np.concatenate(chosen)


def add_class(model: Model, samples: Samples, name: str, stored: str | None, resize: str) -> Samples:
    """The samples to learn from when class ``name`` is added: ``stored`` is how many of each other class the device has
    kept, or what holds them; None: it has none."""
    classes = model.labels or [str(i) for i in range(int(np.prod(model.output_shape)))]
    if name not in classes:
        raise ArgumentError(f"--new {name}: expected a class of the net ({some(classes)})")
    new, x, y, pixels = classes.index(name), samples.x, samples.y, samples.pixels
    if not (y == new).any():
        raise InputError(f"--new {name}: no sample to learn from is of this class")
    each = 0
    if stored is not None and stored.lstrip("-").isdigit():
        each = int(stored)
        if each < 1:
            raise ArgumentError(f"--replay {each}: expected at least 1 sample of each other class")
    elif stored is not None:
        kept = load_data(stored, model.input_shape, model.labels, resize, front_end=model.image.front_end)
        if not kept.labelled or kept.y.max() >= len(classes):
            raise InputError(f"{stored}: every stored sample needs a label from 0 to {len(classes) - 1}")
        planes, _ = to_planes(kept.x, model.image.tensors[model.image.input], model.pixels)
        fresh = y == new
        x, y = np.concatenate([x[fresh], planes]), np.concatenate([y[fresh], kept.y])
        pixels, each = np.concatenate([pixels[fresh], kept.x]), len(y)
    batch = balanced(y, new, each)
    if len(batch) > 0xFFFF:
        raise ArgumentError(f"a batch of {len(batch):,} samples with those replayed; at most 65,535")
    count = len(np.unique(batch[y[batch] != new]))
    note = f"{int((y == new).sum())} samples of class {name}; replays {count}, which take {count * x[0].size:,} bytes"
    notes = [one for one in samples.notes if not one.startswith("no samples to learn from of")]
    return replace(samples, x=x[batch], y=y[batch], pixels=pixels[batch], notes=[*notes, note])
