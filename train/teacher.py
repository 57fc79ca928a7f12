"""A trained net whose answers another one learns from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.train.data.batches import DataSet
from flipbit.train.keras_larq import tf
from flipbit.train.nets.model_file import load_model
from flipbit.train.settings import InputError


@dataclass
class Teacher:
    """A model and its own formula for pixels: (pixel − mean) / 128."""

    model: Any
    mean: float | np.ndarray = 128.0
    path: Path | None = None

    def logits(self, pixels: Any) -> Any:
        """Its answers as at inference. Of a softmax the logarithm, which differs from the logits by a constant."""
        answers = self.model((tf.cast(pixels, tf.float32) - self.mean) / 128.0, training=False)
        return tf.math.log(answers + 1e-9) if ends_in_softmax(self.model) else answers

    def error(self, data: DataSet, images: int = 1000) -> float:
        """The share of wrong answers on some training images: a teacher for other pixels or labels shows here."""
        wrong = seen = 0
        for x, y in data.train_batches(500, 0, 0):
            wrong += int(np.sum(self.logits(x).numpy().argmax(1) != y))
            seen += len(y)
            if seen >= images:
                break
        return wrong / max(1, seen)


def ends_in_softmax(model: Any) -> bool:
    last = model.layers[-1]
    return type(last).__name__ == "Softmax" or getattr(getattr(last, "activation", None), "__name__", "") == "softmax"


def load_teacher(path: Path, data: DataSet) -> Teacher:
    """The model at ``path``; its input formula and classes are what the ``run.json`` beside it says."""
    model = load_model(path)
    shape, classes = tuple(model.input_shape[1:]), int(model.output_shape[-1])
    if shape != tuple(data.shape) or classes != len(data.classes):
        raise InputError(
            f"--teacher {path}: takes images of {_times(shape)} and knows {classes} classes, "
            f"{data.name} has {_times(data.shape)} and {len(data.classes)}: use a teacher trained on the same data"
        )
    teacher = Teacher(model, path=path)
    described = path.with_name("run.json")
    if described.is_file():
        try:
            run = json.loads(described.read_text(encoding="utf-8"))
            names, offset = run["classes"], run["input"]["offset"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{described}: not readable as a run's description ({error!r})") from None
        if list(names) != list(data.classes):
            raise InputError(f"--teacher {path}: its classes are not those of {data.name}, or in another order")
        if isinstance(offset, str):
            try:
                teacher.mean = np.load(path.with_name(offset), allow_pickle=False)
            except (OSError, ValueError) as error:
                raise InputError(
                    f"{path.with_name(offset)}: the teacher's mean image is not readable ({error})"
                ) from None
        else:
            teacher.mean = float(offset)
    return teacher


def _times(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))
