"""Data sets: the standard ones from their official files, and a user's own.

An image is uint8, height × width × channels. Nets see ``(pixel − 128) / 128``, so that a device can feed
``pixel − 128`` as int8 without any arithmetic (``--input fixed``), or ``(pixel − mean image) / 128`` as in the
ResNet paper (``--input mean``).

Batches are made by NumPy from (seed, epoch) alone: a resumed run sees what the uninterrupted one saw.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import pickle
import queue
import threading
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.train.settings import DATA_NAMES, InputError

Batch = tuple[np.ndarray, np.ndarray]

# Content of the official files, as published (for .gz: of what is inside, as recompressing is harmless).
MD5 = {
    "cifar10": {
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
    },
    "cifar100": {"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
    "mnist": {
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    },
    "fashion-mnist": {
        "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
        "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
        "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
    },
}
FOLDER = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}
CIFAR10_CLASSES = "airplane automobile bird cat deer dog frog horse ship truck".split()
FASHION_CLASSES = "T-shirt trouser pullover dress coat sandal shirt sneaker bag ankle-boot".split()
IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm"}


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


AUGMENT = {
    "digits": Augment(pad=1),
    "mnist": Augment(pad=2),
    "fashion-mnist": Augment(pad=2, flip=True),
}
AUGMENT_DEFAULT = Augment(pad=4, flip=True)


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
        image = read_image(path, "RGB")
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
    if name == "digits":
        data: DataSet = _digits()
    elif name in ("cifar10", "cifar100"):
        data = _cifar(name, data_dir)
    elif name in ("mnist", "fashion-mnist"):
        data = _idx(name, data_dir)
    elif name == "imagenet":
        data = _image_net(data_dir, image_size or 224)
    elif Path(name).is_dir():
        data = _image_folder(Path(name), image_size or 32)
    elif name.endswith(".npz"):
        data = _npz(Path(name))
    else:
        raise InputError(
            f"--data {name}: no such data set or folder; "
            f"known are {', '.join(DATA_NAMES)}, or give an .npz file or a folder with one folder of images per class"
        )
    if isinstance(data, ImageArrays):
        known = AUGMENT.get(name, AUGMENT_DEFAULT if name.startswith("cifar") else Augment())
        data.augment = Augment() if augment == "none" else known
    else:
        data.augmented = augment != "none"
    return data.limited(limit)


def prefetch(batches: Iterable[Batch], depth: int = 4) -> Iterator[Batch]:
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
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            return image.convert(mode)
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise InputError(f"{path}: not a readable image ({error})") from None


def _digits() -> ImageArrays:
    """scikit-learn's 1797 handwritten digits, 8×8; every fifth one of each class is for testing."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    x = np.round(digits.images * (255 / 16)).astype(np.uint8)[..., None]
    y = digits.target.astype(np.int64)
    test = _every_fifth(y)
    return ImageArrays("digits", x[~test], y[~test], x[test], y[test], [str(d) for d in range(10)])


def _every_fifth(labels: np.ndarray) -> np.ndarray:
    """A mask of every fifth image of each class: the test part of a set that has none."""
    test = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        test[np.flatnonzero(labels == label)[4::5]] = True
    return test


def _homes(data_dir: str | None) -> list[Path]:
    """Where official files may lie, in the order they are looked for."""
    given = data_dir or os.environ.get("FLIPBIT_DATA")
    return [Path(given)] if given else [Path(os.environ.get("KERAS_HOME", Path.home() / ".keras")) / "datasets"]


def _find(name: str, data_dir: str | None, files: Iterable[str]) -> Path | None:
    """The folder that holds the official files of a data set, if there is one."""
    folder = FOLDER.get(name, name)
    for home in _homes(data_dir):
        for place in (home / folder, home / folder / folder, home):
            if all(any((place / (f + end)).is_file() for end in ("", ".gz")) for f in files):
                return place
    return None


def _content(path: Path, md5: str) -> bytes:
    """A file's bytes, unzipped where needed, checked against the published MD5."""
    try:
        content = path.read_bytes() if path.is_file() else gzip.decompress(Path(f"{path}.gz").read_bytes())
    except (OSError, EOFError, gzip.zlib.error) as error:  # type: ignore[attr-defined]
        raise InputError(f"{path}: cannot be read ({error}); download it again") from None
    if hashlib.md5(content).hexdigest() != md5:
        raise InputError(f"{path}: damaged (MD5 {hashlib.md5(content).hexdigest()}, want {md5}); download it again")
    return content


class _ArraysOnly(pickle.Unpickler):
    """Reads the official pickles and nothing that could run code."""

    ALLOWED = frozenset(
        {
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("_codecs", "encode"),
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"refused {module}.{name}")
        return super().find_class(module, name)


def _cifar(name: str, data_dir: str | None) -> ImageArrays:
    import io

    files = MD5[name]
    folder = _find(name, data_dir, files)
    if folder is None:
        return _download(name, data_dir)

    def part(names: list[str]) -> Batch:
        read = [_ArraysOnly(io.BytesIO(_content(folder / n, files[n])), encoding="bytes").load() for n in names]
        pixels = np.concatenate([d[b"data"] for d in read]).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        labels = np.concatenate([d[b"labels" if name == "cifar10" else b"fine_labels"] for d in read])
        return np.ascontiguousarray(pixels), labels.astype(np.int64)

    *train, test = files
    classes = CIFAR10_CLASSES if name == "cifar10" else [str(i) for i in range(100)]
    return ImageArrays(name, *part(train), *part([test]), classes)


def _idx(name: str, data_dir: str | None) -> ImageArrays:
    files = MD5[name]
    folder = _find(name, data_dir, files)
    if folder is None:
        return _download(name, data_dir)
    # An IDX header is 4 bytes and one 32-bit count per axis: 16 bytes for images, 8 for labels.
    x_train, y_train, x_test, y_test = (
        np.frombuffer(_content(folder / n, md5), np.uint8, offset=16 if "images" in n else 8)
        for n, md5 in files.items()
    )
    return ImageArrays(
        name,
        x_train.reshape(-1, 28, 28, 1),
        y_train.astype(np.int64),
        x_test.reshape(-1, 28, 28, 1),
        y_test.astype(np.int64),
        FASHION_CLASSES if name == "fashion-mnist" else [str(i) for i in range(10)],
    )


def _download(name: str, data_dir: str | None) -> ImageArrays:
    """Keras' own downloader and cache; not used when the user named a folder."""
    looked = ", ".join(str(home / FOLDER.get(name, name)) for home in _homes(data_dir))
    want = f"put the official files into {looked}"
    given = data_dir or os.environ.get("FLIPBIT_DATA")
    if given:
        damaged = (Path(given) / FOLDER.get(name, name)).is_dir()
        raise InputError(f"{name}: {'files are missing' if damaged else 'not found'}: {want}, or unset --data-dir")
    from flipbit.train.keras_larq import keras

    source = getattr(keras.datasets, name.replace("-", "_"))
    try:
        (x_train, y_train), (x_test, y_test) = source.load_data()
    except Exception as error:  # whatever the network or the cache said
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"{name}: not found and not downloaded ({reason}): {want}, or name their folder with --data-dir"
        ) from None
    channels = (*x_train.shape[1:], 1)[:3]
    classes = {"cifar10": CIFAR10_CLASSES, "fashion-mnist": FASHION_CLASSES}.get(name)
    return ImageArrays(
        name,
        x_train.reshape(-1, *channels),
        y_train.reshape(-1).astype(np.int64),
        x_test.reshape(-1, *channels),
        y_test.reshape(-1).astype(np.int64),
        classes or [str(i) for i in range(int(y_train.max()) + 1)],
    )


def _npz(path: Path) -> ImageArrays:
    """A user's arrays: x_train, y_train and, if there is a test set, x_test, y_test."""
    try:
        with np.load(path, allow_pickle=False) as saved:
            arrays = {key: saved[key] for key in saved.files}
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        raise InputError(f"{path}: not a readable .npz of plain arrays ({error})") from None
    missing = [key for key in ("x_train", "y_train") if key not in arrays]
    if missing:
        raise InputError(
            f"{path}: lacks {' and '.join(missing)}; expected x_train, y_train and, with a test set, x_test, y_test; "
            f"found {', '.join(arrays) or 'nothing'}"
        )
    x, y = _pixels(path, "x_train", arrays), _labels(path, "y_train", arrays)
    if "x_test" in arrays and "y_test" in arrays:
        x_test, y_test = _pixels(path, "x_test", arrays), _labels(path, "y_test", arrays)
        if x_test.shape[1:] != x.shape[1:]:
            raise InputError(f"{path}: x_test has images of {x_test.shape[1:]}, x_train of {x.shape[1:]}")
    else:
        test = _every_fifth(y)
        if not test.any():
            raise InputError(f"{path}: no class has five images, and without x_test every fifth one is for testing")
        x, y, x_test, y_test = x[~test], y[~test], x[test], y[test]
    classes = [str(i) for i in range(int(max(y.max(), y_test.max())) + 1)]
    return ImageArrays(path.stem, x, y, x_test, y_test, classes)


def _pixels(path: Path, key: str, arrays: dict[str, np.ndarray]) -> np.ndarray:
    x = arrays[key]
    if x.ndim == 3:
        x = x[..., None]
    if x.ndim != 4 or not len(x) or x.shape[3] not in (1, 3, 4):
        raise InputError(f"{path}: {key} has shape {arrays[key].shape}; expected N×H×W or N×H×W×C with C = 1, 3 or 4")
    if x.dtype != np.uint8:
        low, high = float(x.min()), float(x.max())
        if np.issubdtype(x.dtype, np.floating) and 0 <= low and high <= 1:
            x = np.round(x * 255)
        elif not (0 <= low and high <= 255):
            raise InputError(f"{path}: {key} holds {low:g} to {high:g}; expected 0 to 255, or floats from 0 to 1")
        x = x.astype(np.uint8)
    return x


def _labels(path: Path, key: str, arrays: dict[str, np.ndarray]) -> np.ndarray:
    y, x = arrays[key].reshape(-1), arrays[key.replace("y", "x")]
    if not np.issubdtype(y.dtype, np.integer) or (len(y) and y.min() < 0):
        raise InputError(f"{path}: {key} must be class numbers from 0 (got {y.dtype})")
    if len(y) != len(x):
        raise InputError(f"{path}: {key} has {len(y)} labels for {len(x)} images")
    return y.astype(np.int64)


def _class_files(folder: Path, classes: list[str]) -> list[tuple[Path, int]]:
    return [
        (path, label)
        for label, name in enumerate(classes)
        for path in sorted((folder / name).rglob("*"))
        if path.suffix.lower() in IMAGE_SUFFIXES
    ]


def _folders(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def _split(folder: Path) -> tuple[list[str], list[tuple[Path, int]], list[tuple[Path, int]]]:
    """Classes, training files and test files of a folder: train/ and test/ (or val/), or classes alone."""
    test_name = next((n for n in ("test", "val") if (folder / n).is_dir()), None)
    if (folder / "train").is_dir() and test_name:
        classes = _folders(folder / "train")
        train, test = _class_files(folder / "train", classes), _class_files(folder / test_name, classes)
    else:
        classes = _folders(folder)
        files = _class_files(folder, classes)
        mask = _every_fifth(np.array([label for _, label in files], np.int64))
        train = [f for f, held in zip(files, mask) if not held]
        test = [f for f, held in zip(files, mask) if held]
    if len(classes) < 2 or not train or not test:
        raise InputError(
            f"{folder}: found {len(classes)} classes, {len(train)} training and {len(test)} test images; expected one "
            "folder of at least five images per class, or train/CLASS/ and test/CLASS/ (or val/CLASS/)"
        )
    return classes, train, test


def _image_folder(folder: Path, size: int) -> ImageArrays:
    """A user's folder, small enough for memory: resized to a square, grey if all images are."""
    from PIL import Image

    classes, train, test = _split(folder)
    grey = True
    for path, _ in train[:50]:
        try:
            with Image.open(path) as image:
                grey = grey and image.mode in ("L", "1", "I", "I;16")
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: not a readable image ({error})") from None

    def read(files: list[tuple[Path, int]]) -> Batch:
        images = [np.asarray(read_image(path, "L" if grey else "RGB").resize((size, size))) for path, _ in files]
        stack = np.stack(images)
        return stack[..., None] if grey else stack, np.array([label for _, label in files], np.int64)

    return ImageArrays(folder.name, *read(train), *read(test), classes)


def _image_net(data_dir: str | None, size: int) -> ImageFiles:
    given = data_dir or os.environ.get("FLIPBIT_DATA")
    if not given:
        raise InputError("imagenet: name its folder (with train/ and val/, a folder per class) with --data-dir")
    folder = next((p for p in (Path(given) / "imagenet", Path(given)) if (p / "train").is_dir()), None)
    if folder is None:
        raise InputError(f"imagenet: {given} has no train/ folder; expected train/CLASS/ and val/CLASS/ with images")
    classes, train, test = _split(folder)
    return ImageFiles("imagenet", train, test, classes, size)
