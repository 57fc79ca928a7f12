"""Labelled images for a tuning run: some to learn from, others held back to measure accuracy on."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from flipbit.runtime.core.model import Model
from flipbit.runtime.data.drift import apply_drift
from flipbit.runtime.data.load import load_data
from flipbit.runtime.data.pictures import FIT
from flipbit.runtime.data.traps import some
from flipbit.runtime.errors import ArgumentError, InputError
from flipbit.runtime.image.inputs import Array, to_planes

SAMPLES, HELD_BACK = 500, 500


@dataclass(frozen=True)
class Samples:
    """int8 inputs as the core takes them, and their labels: to learn from, and held back to measure accuracy on.
    ``pixels`` are those to learn from as they came; ``notes`` are for the person."""

    name: str
    x: Array
    y: Array
    held_x: Array
    held_y: Array
    pixels: Array
    notes: list[str] = field(default_factory=list)


def load_samples(
    model: Model,
    source: str,
    count: int | None,
    held_back: int,
    seed: int,
    drift: str | None = None,
    resize: str = FIT,
) -> Samples:
    """Labelled images, shuffled, after a change of the camera if one is given."""
    if model.values:
        raise InputError(f"{model.path}: its outputs are values; devices learn to tell classes apart, not values")
    data = load_data(source, model.input_shape, model.labels, resize, front_end=model.image.front_end)
    classes = int(np.prod(model.output_shape))
    if not data.labelled or data.y.max() >= classes:
        without = int(np.sum((data.y < 0) | (data.y >= classes)))
        raise InputError(
            f"{source}: every image needs a label from 0 to {classes - 1}, {without} of {len(data.y)} have none: "
            "give an .npz with x_test and y_test, a data set, or pictures in folders named after the net's classes"
            + (f" ({some(model.labels)})" if model.labels else "")
        )
    chosen = min(SAMPLES, len(data.x) * 2 // 3) if count is None else count
    if held_back < 1:
        raise ArgumentError(f"--held-back {held_back}: at least 1")
    if chosen < 1 or chosen >= len(data.x) or chosen > 65535:
        raise ArgumentError(
            f"--samples {chosen}: {source} has {len(data.x)} images; at least 1 to learn from, at most 65,535, and "
            "others to hold back"
        )
    order = np.random.default_rng(seed).permutation(len(data.x))[: chosen + held_back]
    pixels, labels = data.x[order], data.y[order]
    if drift:
        pixels = apply_drift(pixels, drift, seed)
    planes, _ = to_planes(pixels, model.image.tensors[model.image.input], model.pixels)
    return Samples(
        data.name, planes[:chosen], labels[:chosen], pixels[chosen:], labels[chosen:], pixels[:chosen],
        [*data.notes, *_traps(labels[:chosen], labels[chosen:], model.labels or [str(i) for i in range(classes)])],
    )  # fmt: skip


def _traps(learned: Array, held: Array, names: list[str]) -> list[str]:
    """Notes on what is learned from: a single class, or classes that only the held-back images have."""
    known = sorted({int(label) for label in learned})
    if len(known) == 1:
        return [f"all samples are of one class, {_named(known[0], names)}: the net may forget the others"]
    only = sorted({int(label) for label in held} - set(known))
    return [f"no samples to learn from of {some([_named(i, names) for i in only])}, but held-back ones"] if only else []


def _named(label: int, names: list[str]) -> str:
    return names[label] if label < len(names) else str(label)


def accuracy(image: bytes, samples: Samples) -> float:
    """On what was held back."""
    model = Model(image)
    answers = model.predict(samples.held_x, raw=True).reshape(len(samples.held_y), -1).argmax(1)
    return float(np.mean(answers == samples.held_y))
