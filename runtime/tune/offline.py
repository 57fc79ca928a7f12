"""BinaryConnect on a computer, which learning on a device is compared with: found if a package offers it.

It needs all of training and export, so it lives above this package and is an entry point of the group
``flipbit.offline`` (pyproject.toml).
"""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import numpy as np

from flipbit.runtime.errors import ArgumentError

NAME = "BC offline"
GROUP = "flipbit.offline"


def tune_offline(model: Path, pixels: np.ndarray, labels: np.ndarray, seed: int) -> bytes:
    """Train the net of a ``model.h5`` further on uint8 images; the result as an image for devices."""
    for entry in entry_points(group=GROUP, name="bc"):
        tuned: bytes = entry.load()(model, pixels, labels, seed)
        return tuned
    raise ArgumentError(f"{NAME} is not part of this installation: pip install 'flipbit[train,export]'")
