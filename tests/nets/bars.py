"""Pictures of a bar, and the values that a net learns to read from it: its angle in degrees, and where it lies."""

from __future__ import annotations

from pathlib import Path

import numpy as np

NET = """
from flipbit.train.keras_larq import keras

L = keras.layers


def build(shape, values):
    return keras.Sequential([
        keras.Input(shape), L.Conv2D(16, 3, 2, padding="same"), L.BatchNormalization(), L.ReLU(), L.Flatten(),
        L.Dense(16, activation="relu"), L.Dense(values),
    ])


def same_size(shape, values):
    return keras.Sequential([
        keras.Input(shape), L.Conv2D(4, 3, padding="same"), L.BatchNormalization(), L.ReLU(),
        L.Conv2D(1, 3, padding="same"),
    ])


def two_outputs(shape, values):
    image = keras.Input(shape)
    x = L.Flatten()(L.Conv2D(4, 3)(image))
    return keras.Model(image, [L.Dense(1)(x), L.Dense(1)(x)])
"""


def bars(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """uint8 images, 12×12×1, and float32 values (angle in degrees, ten times the place in pixels)."""
    random = np.random.default_rng(seed)
    angle, place = random.uniform(30, 150, count), random.uniform(4, 8, count)
    row, column = np.mgrid[:12, :12]
    turn = np.deg2rad(angle)[:, None, None]
    far = np.abs((column - place[:, None, None]) * np.sin(turn) - (row - 5.5) * np.cos(turn))
    images = np.clip(255 * (1.5 - far), 0, 255) * 0.9 + random.uniform(0, 20, (count, 12, 12))
    return images.astype(np.uint8)[..., None], np.stack([angle, 10 * place], 1).astype(np.float32)


def write_bars(folder: Path) -> None:
    """``bars.npz`` (two values), ``same.npz`` (an image each) and ``net.py``."""
    (x, y), (x_test, y_test) = bars(480), bars(120, seed=1)
    np.savez(folder / "bars.npz", x_train=x, y_train=y, x_test=x_test, y_test=y_test)
    np.savez(folder / "same.npz", x_train=x, y_train=x / 255, x_test=x_test, y_test=x_test / 255)
    (folder / "net.py").write_text(NET)
