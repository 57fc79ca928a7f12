"""Data sets to train on: batches, augmentation, prefetching. :mod:`flipbit.runtime.data.sets` reads the files.

An image is uint8, height × width × channels. Nets see ``(pixel − 128) / 128``, so that a device can feed
``pixel − 128`` as int8 without any arithmetic (``--input fixed``), or ``(pixel − mean image) / 128`` as in the
ResNet paper (``--input mean``).

Batches are made by NumPy from (seed, epoch) alone: a resumed run sees what the uninterrupted one saw.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from flipbit.runtime.data import pictures
from flipbit.runtime.data import sets as data_sets
from flipbit.runtime.data import traps as data_traps
from flipbit.runtime.data.sets import CIFAR10_CLASSES, DATA_NAMES, FASHION_CLASSES, FOLDER, MD5, Labelled, located
from flipbit.runtime.errors import InputError

__all__ = [
    "AUGMENT", "AUGMENT_DEFAULT", "CIFAR10_CLASSES", "FASHION_CLASSES", "FOLDER", "IMAGE_SUFFIXES", "MD5", "Augment",
    "Batch", "DataSet", "ImageArrays", "ImageFiles", "load", "located", "prefetch", "read_image", "require_classes",
]  # fmt: skip

Batch = tuple[np.ndarray, np.ndarray]
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
AUGMENT = {
    "digits": Augment(pad=1),
    "mnist": Augment(pad=2),
    "fashion-mnist": Augment(pad=2, flip=True),
    "cifar10": AUGMENT_DEFAULT,
    "cifar100": AUGMENT_DEFAULT,
}


@dataclass
class ImageArrays:
    """A data set held in memory."""

    name: str
    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: list[str]
    augment: Augment = field(default_factory=Augment)
    notes: list[str] = field(default_factory=list)  # what a person should know about the data
    kind: str = ""  # the standard set it is laid out as

    @property
    def shape(self) -> tuple[int, int, int]:
        h, w, c = self.x_train.shape[1:]
        return h, w, c

    @property
    def train_size(self) -> int:
        return len(self.x_train)

    @property
    def test_size(self) -> int:
        return len(self.x_test)

    def mean_image(self) -> np.ndarray:
        return self.x_train.mean(0, dtype=np.float64).astype(np.float32)

    def train_batches(self, batch: int, seed: int, epoch: int) -> Iterator[Batch]:
        """One epoch, shuffled and augmented."""
        random = np.random.default_rng([seed, epoch])
        order = random.permutation(len(self.x_train))
        for start in range(0, len(order), batch):
            part = order[start : start + batch]
            if len(part) == 1 and len(order) > 1:
                return  # BatchNorm has no variance to take from a single image
            yield self.augment(self.x_train[part], random), self.y_train[part]

    def test_batches(self, batch: int) -> Iterator[Batch]:
        for start in range(0, len(self.x_test), batch):
            yield self.x_test[start : start + batch], self.y_test[start : start + batch]

    def limited(self, limit: int | None) -> ImageArrays:
        """The same with at most ``limit`` images of each part (for trials and tests)."""
        if limit is not None:
            self.x_train, self.y_train = self.x_train[:limit], self.y_train[:limit]
            self.x_test, self.y_test = self.x_test[:limit], self.y_test[:limit]
        return self


@dataclass
class ImageFiles:
    """A data set read from disk while training: ImageNet, or any folder too large for memory.

    Training images: shorter side to 8/7 of ``size``, random crop, mirrored at random; test images: centre crop.
    """

    name: str
    train_files: list[tuple[Path, int]]
    test_files: list[tuple[Path, int]]
    classes: list[str]
    size: int = 224
    augmented: bool = True
    workers: int = 4
    notes: list[str] = field(default_factory=list)

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.size, self.size, 3

    @property
    def train_size(self) -> int:
        return len(self.train_files)

    @property
    def test_size(self) -> int:
        return len(self.test_files)

    def mean_image(self) -> np.ndarray:
        # ResNet's ImageNet recipe subtracts one colour; a sample of the images tells it well enough.
        sample = self.train_files[:: max(1, len(self.train_files) // 1000)]
        colour = np.mean([self._read(path, None).mean((0, 1)) for path, _ in sample], 0)
        return np.broadcast_to(colour, self.shape).astype(np.float32)

    def _read(self, path: Path, random: np.random.Generator | None) -> np.ndarray:
        image = pictures.open_picture(path, 3)
        short = round(self.size * 8 / 7)
        scale = short / min(image.size)
        image = image.resize([max(short, round(side * scale)) for side in image.size])
        spare = [side - self.size for side in image.size]
        left, top = [int(random.integers(s + 1)) if random else s // 2 for s in spare]
        pixels = np.asarray(image)[top : top + self.size, left : left + self.size]
        return pixels[:, ::-1] if random and random.random() < 0.5 else pixels

    def _batches(self, files: list[tuple[Path, int]], batch: int, key: list[int] | None) -> Iterator[Batch]:
        from concurrent.futures import ThreadPoolExecutor

        order = np.random.default_rng(key).permutation(len(files)) if key else np.arange(len(files))

        def read(i: int) -> np.ndarray:
            random = np.random.default_rng([*key, int(i)]) if key and self.augmented else None
            return self._read(files[i][0], random)

        with ThreadPoolExecutor(self.workers) as pool:
            for start in range(0, len(order), batch):
                part = order[start : start + batch]
                if key and len(part) == 1 and len(order) > 1:
                    return
                yield np.stack(list(pool.map(read, part))), np.array([files[i][1] for i in part], np.int64)

    def train_batches(self, batch: int, seed: int, epoch: int) -> Iterator[Batch]:
        return self._batches(self.train_files, batch, [seed, epoch])

    def test_batches(self, batch: int) -> Iterator[Batch]:
        return self._batches(self.test_files, batch, None)

    def limited(self, limit: int | None) -> ImageFiles:
        if limit is not None:
            self.train_files, self.test_files = self.train_files[:limit], self.test_files[:limit]
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
    if name == "imagenet":
        found = data_sets.image_net(data_dir)
        data: DataSet = ImageFiles(name, found.train, found.test, found.classes, image_size or 224)
        data.notes = _traps(found)
    else:
        data = _arrays(name, data_dir) or _image_folder(name, image_size or 32)
    if isinstance(data, ImageArrays):
        data.augment = Augment() if augment == "none" else AUGMENT.get(data.kind, Augment())
    else:
        data.augmented = augment != "none"
    return data.limited(limit)


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


def _arrays(name: str, data_dir: str | None) -> ImageArrays | None:
    """The set called ``name``, or in the ``.npz`` or official files at that path; None for other things."""
    try:
        found = data_sets.open_arrays(name, data_dir)
    except data_sets.MissingError as missing:
        return _download(name, data_dir, missing)
    if found is None:
        return None
    (x, y), (x_test, y_test) = found.read("train"), found.read("test")
    data = ImageArrays(found.name, x, y, x_test, y_test, found.classes, kind=found.kind)
    if name not in DATA_NAMES:
        data.notes = data_traps.label_traps(data.y_train, data.y_test, data.classes)
        data.notes += data_traps.repeats(data.x_train, data.x_test)
    return data


def _download(name: str, data_dir: str | None, missing: data_sets.MissingError) -> ImageArrays:
    """Keras' own downloader and cache; not used when the user named a folder."""
    if data_dir or os.environ.get("FLIPBIT_DATA"):
        raise missing
    from flipbit.train.keras_larq import keras

    source = getattr(keras.datasets, name.replace("-", "_"))
    try:
        (x_train, y_train), (x_test, y_test) = source.load_data()
    except Exception as error:  # whatever the network or the cache said
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{missing.message}; not downloaded either ({reason})") from None
    channels = (*x_train.shape[1:], 1)[:3]
    return ImageArrays(
        name,
        x_train.reshape(-1, *channels),
        y_train.reshape(-1).astype(np.int64),
        x_test.reshape(-1, *channels),
        y_test.reshape(-1).astype(np.int64),
        data_sets.CLASSES.get(name) or [str(i) for i in range(int(y_train.max()) + 1)],
        kind=name,
    )


def _image_folder(name: str, size: int) -> ImageArrays:
    """A user's folder, small enough for memory: fitted to a square as `flipbit run` does, grey if all images are."""
    if not Path(name).is_dir():
        raise InputError(
            f"--data {name}: no such data set or folder; "
            f"known are {', '.join(DATA_NAMES)}, or give an .npz file or a folder with one folder of images per class"
        )
    found = data_sets.picture_folder(Path(name))
    channels = 1 if _all_grey(found.train[:50]) else 3
    failed: list[pictures.PictureError] = []

    def read(files: list[Labelled]) -> tuple[list[Labelled], np.ndarray]:
        kept, images = [], []
        for path, label in files:
            try:
                images.append(pictures.read_picture(path, channels, (size, size)).pixels)
            except pictures.PictureError as error:
                failed.append(error)
                continue
            kept.append((path, label))
        if not kept:
            raise InputError(f"{name}: none of {len(files)} pictures could be read; the first: {failed[-1].message}")
        return kept, np.stack(images)

    (train, x_train), (test, x_test) = read(found.train), read(found.test)
    found = replace(found, train=train, test=test)
    y_train, y_test = (np.array([label for _, label in part], np.int64) for part in (train, test))
    data = ImageArrays(found.folder.name, x_train, y_train, x_test, y_test, found.classes)
    if failed:
        total = len(failed) + len(train) + len(test)
        named = data_traps.some([error.message for error in failed])
        data.notes.append(f"{len(failed)} of {total} pictures left out: {named}")
    data.notes += [*_traps(found), *data_traps.repeats(data.x_train, data.x_test)]
    return data


def _all_grey(files: list[Labelled]) -> bool:
    for path, _ in files:
        try:
            if not pictures.is_grey(path):
                return False
        except pictures.PictureError:  # named when it is read
            continue
    return True


def _traps(found: data_sets.PictureFolder) -> list[str]:
    labels = ([label for _, label in files] for files in (found.train, found.test))
    return [*data_traps.label_traps(*labels, found.classes), *data_traps.stray_files(found)]
