"""How many signs changed in the last few epochs, kept so that a resumed run still knows.

A record of history says what changed since the start and in its own epoch. Between the two lies the paper's
Figure 5c, changes per five epochs, which cannot be had from either: a weight that flipped there and back counts in
two epochs, and not at all in five.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from flipbit.runtime.files import replacing
from flipbit.train.trainer import Trainer, Watcher

WINDOW = 5  # epochs, as in the paper's Figure 5c


class SignWindow(Watcher):
    """Notes in each record, per layer, the share of signs that differ from ``window`` epochs before.

    Signs of the last epochs are kept as bits beside the run, so that a resumed run still knows them.
    """

    def __init__(self, folder: Path, window: int = WINDOW):
        self.folder, self.window = folder, window

    def started(self, trainer: Trainer) -> None:
        self.trainer = trainer

    def epoch_done(self, record: dict[str, Any]) -> None:
        epoch, signs = record["epoch"], self.trainer.signs()
        before = self.trainer.first_signs if epoch == self.window else self._load(epoch - self.window)
        for number, layer in enumerate(record["layers"]):
            layer["changed_in_window"] = None if before is None else float(np.mean(signs[number] != before[number]))
        self._keep(epoch, signs)

    def _path(self, epoch: int) -> Path:
        return self.folder / f"signs-{epoch % (self.window + 1)}.npz"

    def _keep(self, epoch: int, signs: list[np.ndarray]) -> None:
        packed = {f"layer_{i:04}": np.packbits(s) for i, s in enumerate(signs)}
        with replacing(self._path(epoch)) as temporary:
            np.savez(temporary, epoch=np.array(epoch), **packed)

    def _load(self, epoch: int) -> list[np.ndarray] | None:
        if epoch < 1 or not self._path(epoch).exists():
            return None
        with np.load(self._path(epoch)) as saved:
            if int(saved["epoch"]) != epoch:
                return None
            return [
                np.unpackbits(saved[f"layer_{i:04}"], count=first.size).astype(bool).reshape(first.shape)
                for i, first in enumerate(self.trainer.first_signs)
            ]
