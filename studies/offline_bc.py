"""BinaryConnect on a computer, to compare learning on a device with: real-valued copies of the weights, floating point,
Adam, as much memory as it takes.

Needs the ``model.h5`` an image was made of, with its ``run.json``, and ``pip install 'flipbit[train]'``, which is not
imported before :func:`tune_offline` is called.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from flipbit.runtime.errors import ArgumentError
from flipbit.runtime.tune.offline import NAME


@dataclass(frozen=True)
class Recipe:
    """As many samples seen as on the device: 20 epochs of 500. The rate was chosen on a draw of samples that no result
    uses (docs/results/learning.md); it falls to 0 along a cosine."""

    epochs: int = 20
    batch: int = 50
    rate: float = 0.0003


RECIPE = Recipe()


def tune_offline(model: Path, pixels: np.ndarray, labels: np.ndarray, seed: int, recipe: Recipe = RECIPE) -> bytes:
    """Train the net of a ``model.h5`` further on uint8 images; the result as an image for devices.

    BatchNorm takes its statistics from these images, and so do the ranges of the activations.
    """
    if pixels.dtype != np.uint8:
        raise ArgumentError(f"{NAME} learns from pixels (uint8), these samples are {pixels.dtype}")
    try:
        from flipbit.export.conversion import open_source, to_int8
        from flipbit.export.graph import ExportError
        from flipbit.export.write.fbit import fbit_bytes
        from flipbit.train.data.batches import ImageArrays
        from flipbit.train.settings import InputError, Settings
        from flipbit.train.trainer import Trainer, Watcher
    except ImportError as error:
        raise ArgumentError(f"{NAME} needs TensorFlow and Larq ({error}): pip install 'flipbit[train]'") from None

    class Tuner(Trainer):
        def settle(self, epoch: int) -> None:
            """BatchNorm's statistics are used after the last epoch only."""
            if epoch + 1 == recipe.epochs:
                super().settle(epoch)

    try:
        source = open_source(model)
        if "settings" not in source.run:
            raise InputError(f"{model}: the run.json that training wrote is not beside it; {NAME} needs its settings")
        settings = replace(
            Settings.from_json(source.run["settings"]).without_recipes(), method="bc", lr=recipe.rate,
            batch=recipe.batch, epochs=recipe.epochs, schedule="cosine", augment="none", limit=None, init=None,
            buffer_bits=None, seed=seed,
        ).resolve()  # fmt: skip
        data = ImageArrays(
            "samples", pixels, labels.astype(np.int64), pixels[:1], labels[:1].astype(np.int64), source.labels
        )
        mean = source.pixels.offset if isinstance(source.pixels.offset, np.ndarray) else None
        trainer = Tuner(settings, data, mean)
        trainer.model.set_weights(source.model.get_weights())
        for _ in range(recipe.epochs):
            trainer.run_epoch(Watcher())
        tuned = replace(source, model=trainer.model)
        return fbit_bytes(to_int8(tuned.real(), tuned, pixels), source.pixels.formula)
    except (InputError, ExportError) as error:
        raise ArgumentError(str(error)) from None
