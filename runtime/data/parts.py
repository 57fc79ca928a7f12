"""Both parts of a data set as images: in memory, or read from disk as they are needed.

:mod:`flipbit.runtime.data.sets` reads the files. An image is uint8, height × width × channels. Training makes batches
of these (:mod:`flipbit.train.data.batches`); export calibrates and compares with them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.runtime.data import pictures, sets, traps
from flipbit.runtime.data.data_set import DataSet, Examples
from flipbit.runtime.data.sets import DATA_NAMES, Labelled
from flipbit.runtime.errors import InputError
from flipbit.runtime.recordings.cache import counted
from flipbit.runtime.recordings.front_ends import FrontEndInput

Batch = tuple[np.ndarray, np.ndarray]


@dataclass
class PartsInMemory:
    """A data set held in memory."""

    name: str
    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: list[str]
    notes: list[str] = field(default_factory=list, kw_only=True)  # what a person should know about the data
    kind: str = field(default="", kw_only=True)  # the standard set it is laid out as
    front_end: FrontEndInput | None = field(default=None, kw_only=True)  # of recordings
    groups: np.ndarray | None = field(default=None, kw_only=True)  # of training images: see data_set.Examples
    validation: np.ndarray | None = field(default=None, kw_only=True)
    variants: Callable[[], np.ndarray] | None = field(default=None, kw_only=True)
    values: tuple[int, ...] | None = field(default=None, kw_only=True)  # in place of labels: see data_set.DataSet

    @property
    def outputs(self) -> int:
        """How many numbers a net gives for an image: a score of each class, or the values."""
        return len(self.classes) if self.values is None else math.prod(self.values)

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

    def samples(self, count: int) -> np.ndarray:
        """Training images, taken evenly from the whole set: sorted ones are not of one class then."""
        return self.x_train[np.linspace(0, self.train_size - 1, min(count, self.train_size)).astype(int)]

    def test_batches(self, batch: int, first: int = 0, every: int = 1) -> Iterator[Batch]:
        """Test images in order; of workers that share them, each takes ``every`` so many batches."""
        for start in range(first * batch, len(self.x_test), every * batch):
            yield self.x_test[start : start + batch], self.y_test[start : start + batch]

    def limit(self, count: int | None) -> None:
        """Keep at most ``count`` images of each part (for trials and tests)."""
        self.x_train, self.y_train, extra = self.x_train[:count], self.y_train[:count], self.extra(slice(count))
        self.groups, self.validation, self.variants = extra["groups"], extra["validation"], extra["variants"]
        self.x_test, self.y_test = self.x_test[:count], self.y_test[:count]

    def extra(self, kept: slice | np.ndarray) -> dict[str, Any]:
        """Groups, validation part and variants of some training images only."""
        variants = self.variants
        return {
            "groups": None if self.groups is None else self.groups[kept],
            "validation": None if self.validation is None else self.validation[kept],
            "variants": None if variants is None else lambda: variants()[:, kept],
        }


@dataclass
class PartsInFiles:
    """A data set that stays on disk: ImageNet, or any folder too large for memory.

    An image: shorter side to 8/7 of ``size``, then the centre.
    """

    name: str
    train_files: list[Labelled]
    test_files: list[Labelled]
    classes: list[str]
    size: int = 224
    workers: int = field(default=4, kw_only=True)
    notes: list[str] = field(default_factory=list, kw_only=True)

    @property
    def values(self) -> None:
        """Files lie in the folders of their classes."""
        return None

    @property
    def outputs(self) -> int:
        return len(self.classes)

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.size, self.size, 3

    @property
    def train_size(self) -> int:
        return len(self.train_files)

    @property
    def test_size(self) -> int:
        return len(self.test_files)

    def samples(self, count: int) -> np.ndarray:
        """Training images, drawn from the whole set: always the same ones."""
        order = np.random.default_rng([0, 0]).permutation(self.train_size)[:count]
        images, _ = next(self._batches(self.train_files, order, count))
        return images

    def test_batches(self, batch: int, first: int = 0, every: int = 1) -> Iterator[Batch]:
        order = np.arange(self.test_size)
        kept = order[order // batch % every == first]
        return self._batches(self.test_files, kept, batch)

    def limit(self, count: int | None) -> None:
        """Keep at most ``count`` images of each part (for trials and tests)."""
        self.train_files, self.test_files = self.train_files[:count], self.test_files[:count]

    def _scaled(self, path: Path) -> Any:
        """A picture whose shorter side is 8/7 of ``size``."""
        image = pictures.open_picture(path, 3)
        short = round(self.size * 8 / 7)
        scale = short / min(image.size)
        return image.resize([max(short, round(side * scale)) for side in image.size])

    def _read(self, path: Path, index: int) -> np.ndarray:
        image = self._scaled(path)
        left, top = [(side - self.size) // 2 for side in image.size]
        return np.asarray(image)[top : top + self.size, left : left + self.size]

    def _batches(
        self,
        files: list[Labelled],
        order: Sequence[int] | np.ndarray,
        batch: int,
        read: Callable[[Path, int], np.ndarray] | None = None,
        share: Callable[[int], np.ndarray] | None = None,
    ) -> Iterator[Batch]:
        """Files in an order, read by several threads; ``read`` is told their place in ``files``.

        ``share`` gives the places in a batch of so many images that are read; without, all are.
        """
        read_one = read or self._read
        with ThreadPoolExecutor(self.workers) as pool:
            for start in range(0, len(order), batch):
                part = order[start : start + batch]
                if share is not None:
                    part = np.asarray(part)[share(len(part))]
                images = list(pool.map(lambda i: read_one(files[i][0], int(i)), part))
                pixels = np.stack(images) if images else np.zeros((0, *self.shape), np.uint8)
                yield pixels, np.array([files[i][1] for i in part], np.int64)


Images = PartsInMemory | PartsInFiles


def read_images(
    name: str,
    data_dir: str | None = None,
    image_size: int | None = None,
    downloads: Callable[[], Any] | None = None,
) -> Images:
    """The data set called ``name``, or the ``.npz`` or image folder at that path.

    ``downloads`` gives Keras' ``datasets`` (this package does not know Keras), which fetch official files that are not
    here; they are not asked when the user named a folder.
    """
    if name == "imagenet":
        found = sets.image_net(data_dir)
        data = PartsInFiles(name, found.train, found.test, found.classes, image_size or 224)
        data.notes = _traps(found)
        return data
    if name == "vww":
        return replace(_image_folder(str(sets.visual_wake_words(data_dir)), image_size or 96), name=name, kind=name)
    return _arrays(name, data_dir, downloads) or _image_folder(name, image_size or 32)


def _arrays(name: str, data_dir: str | None, downloads: Callable[[], Any] | None) -> PartsInMemory | None:
    """The set called ``name``, or in the ``.npz`` or official files at that path; None for other things."""
    try:
        found = sets.open_arrays(name, data_dir)
    except sets.MissingError as missing:
        if downloads is None or data_dir or os.environ.get("FLIPBIT_DATA"):
            raise
        return _download(name, downloads(), missing)
    if found is None:
        return None
    if found.examples is not None:
        return _recordings(name, found, found.examples("train"), found.examples("test"))
    (x, y), (x_test, y_test) = found.read("train"), found.read("test")
    data = PartsInMemory(found.name, x, y, x_test, y_test, found.classes, kind=found.kind, values=found.values)
    data.notes = list(found.notes)
    if found.values is not None:
        data.notes += traps.repeats(data.x_train, data.x_test)
    elif name not in DATA_NAMES:
        data.notes = traps.label_traps(data.y_train, data.y_test, data.classes)
        data.notes += traps.repeats(data.x_train, data.x_test)
    return data


def _recordings(source: str, found: DataSet, train: Examples, test: Examples) -> PartsInMemory:
    data = PartsInMemory(
        found.name, train.x, train.y, test.x, test.y, found.classes, kind=found.kind, front_end=found.front_end,
        groups=train.groups, validation=train.validation, variants=train.variants,
        notes=list(dict.fromkeys([*train.notes, *test.notes])),
    )  # fmt: skip
    if source not in DATA_NAMES:
        data.notes += traps.label_traps(data.y_train, data.y_test, data.classes)
    return data


def _download(name: str, datasets: Any, missing: sets.MissingError) -> PartsInMemory:
    """By Keras' downloader, into its cache."""
    source = getattr(datasets, name.replace("-", "_"))
    try:
        (x_train, y_train), (x_test, y_test) = source.load_data()
    except Exception as error:  # whatever the network or the cache said
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{missing.message}; not downloaded either ({reason})") from None
    channels = (*x_train.shape[1:], 1)[:3]
    return PartsInMemory(
        name,
        x_train.reshape(-1, *channels),
        y_train.reshape(-1).astype(np.int64),
        x_test.reshape(-1, *channels),
        y_test.reshape(-1).astype(np.int64),
        sets.CLASSES.get(name) or [str(i) for i in range(int(y_train.max()) + 1)],
        kind=name,
    )


def _image_folder(name: str, size: int) -> PartsInMemory:
    """A user's folder, small enough for memory: fitted to a square as `flipbit run` does, grey if all images are."""
    if not Path(name).is_dir():
        raise InputError(
            f"--data {name}: no such data set or folder; "
            f"known are {', '.join(DATA_NAMES)}, or give an .npz file or a folder with one folder of images per class"
        )
    found = sets.picture_folder(Path(name))
    channels = 1 if _all_grey(found.train[:50]) else 3
    failed: list[pictures.PictureError] = []

    def read(files: list[Labelled]) -> tuple[list[Labelled], np.ndarray]:
        kept, images, show = [], [], counted("pictures", len(files))
        for number, (path, label) in enumerate(files, 1):
            show(number)
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
    data = PartsInMemory(found.folder.name, x_train, y_train, x_test, y_test, found.classes)
    if failed:
        total = len(failed) + len(train) + len(test)
        named = traps.some([error.message for error in failed])
        data.notes.append(f"{len(failed)} of {total} pictures left out: {named}")
    data.notes += [*_traps(found), *traps.repeats(data.x_train, data.x_test)]
    return data


def _all_grey(files: list[Labelled]) -> bool:
    for path, _ in files:
        try:
            if not pictures.is_grey(path):
                return False
        except pictures.PictureError:  # named when it is read
            continue
    return True


def _traps(found: sets.PictureFolder) -> list[str]:
    train, test = ([label for _, label in files] for files in (found.train, found.test))
    return [*traps.label_traps(train, test, found.classes), *traps.stray_files(found)]
