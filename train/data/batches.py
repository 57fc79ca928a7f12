"""Data sets to train on: batches, augmentation, prefetching. :mod:`flipbit.runtime.data.parts` reads the images.

An image is uint8, height × width × channels. Nets see ``(pixel − 128) / 128``, so that a device can feed
``pixel − 128`` as int8 without any arithmetic (``--input fixed``), or ``(pixel − mean image) / 128`` as in the
ResNet paper (``--input mean``).

Batches are made by NumPy from (seed, epoch) alone: a resumed run sees what the uninterrupted one saw.
"""

from __future__ import annotations

import hashlib
import queue
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from flipbit.runtime.data import parts, pictures
from flipbit.runtime.data.parts import Batch
from flipbit.runtime.data.sets import CIFAR10_CLASSES, FASHION_CLASSES, FOLDER, MD5, located
from flipbit.runtime.errors import InputError
from flipbit.train.data.changes import Motion, Photographs
from flipbit.train.data.shares import Share, drawn, step_sizes

__all__ = [
    "AUGMENT", "AUGMENT_DEFAULT", "CIFAR10_CLASSES", "FASHION_CLASSES", "FOLDER", "IMAGE_SUFFIXES", "MD5", "Augment",
    "Batch", "DataSet", "ImageArrays", "ImageFiles", "load", "located", "prefetch", "read_image", "require_classes",
]  # fmt: skip

T = TypeVar("T")
IMAGE_SUFFIXES = set(pictures.PICTURES)


@dataclass(frozen=True)
class Augment:
    """The paper's augmentation: pad by ``pad`` on each side, crop at random, mirror half of the images."""

    pad: int = 0
    flip: bool = False

    def __call__(self, images: np.ndarray, random: np.random.Generator) -> np.ndarray:
        n, h, w, c = images.shape
        if self.pad:
            p = self.pad
            padded = np.zeros((n, h + 2 * p, w + 2 * p, c), np.uint8)
            padded[:, p : p + h, p : p + w] = images
            windows = np.lib.stride_tricks.sliding_window_view(padded, (h, w), (1, 2))  # type: ignore[call-overload]
            top, left = random.integers(0, 2 * p + 1, (2, n))
            images = windows[np.arange(n), top, left].transpose(0, 2, 3, 1)
        if self.flip:
            mirrored = random.random(n) < 0.5
            images = np.where(mirrored[:, None, None, None], images[:, :, ::-1], images)
        return np.ascontiguousarray(images)


AUGMENT_DEFAULT = Augment(pad=4, flip=True)
AUGMENT: dict[str, Augment | Photographs | Motion] = {
    "digits": Augment(pad=1),
    "mnist": Augment(pad=2),
    "fashion-mnist": Augment(pad=2, flip=True),
    "cifar10": AUGMENT_DEFAULT,
    "cifar100": AUGMENT_DEFAULT,
    "vww": Photographs(),
    "motionsense": Motion(),
    "magic_wand": Motion(strength=0.25, pace=0.2),
    "cwru": Motion(turn=0, noise=0.5, pace=0, strength=0.2),
    "signals": Motion(turn=0, strength=0.1, pace=0),
}


@dataclass
class ImageArrays(parts.PartsInMemory):
    """A data set held in memory."""

    augment: Augment | Photographs | Motion = field(default_factory=Augment)
    _copies: np.ndarray | None = field(default=None, init=False, repr=False)

    def mean_image(self) -> np.ndarray:
        return self.x_train.mean(0, dtype=np.float64).astype(np.float32)

    def train_batches(self, batch: int, seed: int, epoch: int, share: Share | None = None) -> Iterator[Batch]:
        """One epoch, shuffled and augmented; with ``share``, that part of each batch."""
        random = np.random.default_rng([seed, epoch])
        order = random.permutation(len(self.x_train))
        start = 0
        for size in step_sizes(len(order), batch):
            kept, draws = drawn(random, size, share)
            part = order[start : start + size][kept]
            yield self.augment(self._drawn(part, draws), draws), self.y_train[part]
            start += size

    def _drawn(self, part: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Training images; of recordings with variants, one of these or the recording as it is."""
        if self.variants is None:
            return self.x_train[part]
        if self._copies is None:
            self._copies = self.variants()
        which = random.integers(0, len(self._copies) + 1, len(part))
        images = self._copies[which - 1, part]
        images[which == 0] = self.x_train[part[which == 0]]
        return images

    def digest(self) -> str:
        """Of all images and labels: workers of a run compare it."""
        sha = hashlib.sha256(repr(self.classes).encode())
        for array in (self.x_train, self.y_train, self.x_test, self.y_test):
            sha.update(repr(array.shape).encode())
            sha.update(np.ascontiguousarray(array).data)
        return sha.hexdigest()

    def limited(self, limit: int | None) -> ImageArrays:
        """The same with at most ``limit`` images of each part (for trials and tests)."""
        self.limit(limit)
        return self


@dataclass
class ImageFiles(parts.PartsInFiles):
    """A data set read from disk while training: ImageNet, or any folder too large for memory.

    Training images: shorter side to 8/7 of ``size``, random crop, mirrored at random; test images: centre crop.
    """

    augmented: bool = True

    def mean_image(self) -> np.ndarray:
        # ResNet's ImageNet recipe subtracts one colour; a sample of the images tells it well enough.
        sample = self.train_files[:: max(1, len(self.train_files) // 1000)]
        colour = np.mean([self._read(path, 0).mean((0, 1)) for path, _ in sample], 0)
        return np.broadcast_to(colour, self.shape).astype(np.float32)

    def train_batches(self, batch: int, seed: int, epoch: int, share: Share | None = None) -> Iterator[Batch]:
        order = np.random.default_rng([seed, epoch]).permutation(self.train_size)
        order = order[: sum(step_sizes(len(order), batch))]

        def cropped(path: Path, index: int) -> np.ndarray:
            """Drawn from the image's number: the order in which threads read does not matter."""
            random = np.random.default_rng([seed, epoch, index])
            image = self._scaled(path)
            left, top = [int(random.integers(side - self.size + 1)) for side in image.size]
            pixels = np.asarray(image)[top : top + self.size, left : left + self.size]
            return pixels[:, ::-1] if random.random() < 0.5 else pixels

        return self._batches(self.train_files, order, batch, cropped if self.augmented else None, share)

    def digest(self) -> str:
        """Of the files' names, sizes and labels: reading them all takes as long as an epoch."""
        sha = hashlib.sha256(repr((self.classes, self.size)).encode())
        for path, label in (*self.train_files, *self.test_files):
            sha.update(repr((path.parent.name, path.name, path.stat().st_size, label)).encode())
        return sha.hexdigest()

    def limited(self, limit: int | None) -> ImageFiles:
        self.limit(limit)
        return self


DataSet = ImageArrays | ImageFiles


def load(
    name: str,
    data_dir: str | None = None,
    augment: str = "auto",
    image_size: int | None = None,
    limit: int | None = None,
) -> DataSet:
    """The data set called ``name``, or the ``.npz`` or image folder at that path."""
    found = parts.read_images(name, data_dir, image_size, _keras_datasets)
    if isinstance(found, parts.PartsInMemory):
        chosen = Augment() if augment == "none" else AUGMENT.get(found.kind, Augment())
        if augment == "photos":
            chosen = Photographs()
        if augment == "none":
            found.variants = None
        return ImageArrays(**vars(found), augment=chosen).limited(limit)
    return ImageFiles(**vars(found), augmented=augment != "none").limited(limit)


def _keras_datasets() -> Any:
    from flipbit.train.keras_larq import keras

    return keras.datasets


def require_classes(data: DataSet) -> None:
    """Refuse to train on images of a single class; to calibrate with, they would do."""
    labels = data.y_train if isinstance(data, ImageArrays) else np.array([label for _, label in data.train_files])
    if labels.min() == labels.max():
        name = data.classes[int(labels[0])]
        raise InputError(
            f"{data.name}: all {len(labels)} training images are of class {name}: a net needs two to learn"
        )


def prefetch(batches: Iterable[T], depth: int = 4) -> Iterator[T]:
    """Make batches in a thread of their own while the net works on the previous one."""
    ready: queue.Queue[Any] = queue.Queue(depth)
    stopped = threading.Event()
    end = object()

    def put(item: Any) -> None:
        while not stopped.is_set():
            try:
                return ready.put(item, timeout=0.1)
            except queue.Full:
                continue

    def work() -> None:
        try:
            for item in batches:
                put(item)
                if stopped.is_set():
                    return
            put(end)
        except BaseException as error:  # handed to the reader, who raises it
            put(error)

    threading.Thread(target=work, name="prefetch", daemon=True).start()
    try:
        while (item := ready.get()) is not end:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()


def read_image(path: Path, mode: str) -> Any:
    """A picture as Pillow's ``L``, ``RGB`` or ``RGBA``."""
    return pictures.open_picture(path, {mode: channels for channels, mode in pictures.MODES.items()}[mode])
