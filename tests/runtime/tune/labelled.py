"""A small net and labelled images of it to tune on."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from flipbit.runtime.core.model import Model
from flipbit.runtime.tune.samples import Samples, load_samples
from tests.nets.small_nets import photos, small_image


def labelled(folder: Path) -> Path:
    """``net.fbit``, and ``data.npz`` with labels that the net does not give yet."""
    (folder / "net.fbit").write_bytes(small_image())
    x = photos(40)
    y = Model(small_image()).predict(x, raw=True).argmax(1) % 5
    y[::3] = (y[::3] + 1) % 5  # something to learn
    np.savez(folder / "data.npz", x_test=x, y_test=y)
    return folder


def some_samples(folder: Path) -> Samples:
    return load_samples(Model(folder / "net.fbit"), str(folder / "data.npz"), 24, 16, 1)
