"""Data sets, each with one reader: what ``--data`` means to every command.

| source | what it is |
|---|---|
| `digits` | scikit-learn's digits |
| `mnist`, `fashion-mnist`, `cifar10`, `cifar100`, `imagenet` | the official files, checked by MD5 |
| `cifar-10-batches-py/`, `mnist/`, … | a folder of such files, official or in their layout |
| `own.npz` | `x_train`, `y_train` and, with a test set, `x_test`, `y_test`; `y` of floats are values to predict |
| `photos/` | a folder of pictures per class, or `train/CLASS/` and `test/CLASS/` (or `val/`) |
| `vww` | 96×96 pictures, `train/` and `test/` with `person/` and `no person/` |
| `speech_commands`, `motionsense`, `magic_wand`, `cwru` | recordings: :mod:`flipbit.runtime.recordings` |
| `my_words/`, `my_signals/` | a folder of `.wav`, `.csv` or `.npy` per class |

Official files are looked for under `--data-dir`, or `FLIPBIT_DATA`, or in Keras' cache and the current folder.

A set has a part to train on and a part to test on. One that comes without a test part gives every fifth image of each
class: training never sees those, and everything that measures takes them.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import struct
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from flipbit.runtime.data.arrays import read_arrays
from flipbit.runtime.data.cifar_files import FlatPickleError, read_cifar
from flipbit.runtime.data.data_set import DataSet, MissingError, Part, home_of, homes
from flipbit.runtime.data.pictures import is_picture
from flipbit.runtime.errors import InputError
from flipbit.runtime.recordings.bearings import bearings_folder, cwru, is_cwru
from flipbit.runtime.recordings.motion import (
    is_magic_wand,
    is_motionsense,
    magic_wand,
    motion_folder,
    motionsense,
    wand_folder,
)
from flipbit.runtime.recordings.own_signals import own_signals
from flipbit.runtime.recordings.signal_files import is_signal
from flipbit.runtime.recordings.words import is_speech, own_words, speech_commands, speech_folder

Array = np.ndarray

RECORDINGS: dict[str, Callable[[str | None], DataSet]] = {
    "speech_commands": speech_commands, "motionsense": motionsense, "magic_wand": magic_wand, "cwru": cwru,
}  # fmt: skip
DATA_NAMES = ("digits", "mnist", "fashion-mnist", "cifar10", "cifar100", "imagenet", "vww", *RECORDINGS)
# Folders in an official layout, whoever recorded what is in them.
LAYOUTS: list[tuple[Callable[[Path], bool], Callable[[Path], DataSet]]] = [
    (is_speech, speech_folder),
    (is_motionsense, motion_folder),
    (is_magic_wand, wand_folder),
    (is_cwru, bearings_folder),
]

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
DIGITS = [str(i) for i in range(10)]
CIFAR10_CLASSES = "airplane automobile bird cat deer dog frog horse ship truck".split()
FASHION_CLASSES = "T-shirt trouser pullover dress coat sandal shirt sneaker bag ankle-boot".split()
CLASSES = {"mnist": DIGITS, "fashion-mnist": FASHION_CLASSES, "cifar10": CIFAR10_CLASSES}
LARGEST = 1 << 30  # bytes that a .gz may unpack to: twenty times MNIST


# ---- which set a name stands for ----


def absolute_source(source: str) -> str:
    """A path that means the same in every folder; names of data sets, and what is not there, stay as they are."""
    return source if source in DATA_NAMES or not os.path.exists(source) else os.path.abspath(source)


def located(source: str, beside: Path | None) -> str:
    """``source``, looked for in the current folder and then in ``beside``, where the file that names it lies."""
    if source in DATA_NAMES or beside is None or os.path.exists(source):
        return source
    return str(beside / source) if (beside / source).exists() else source


def open_arrays(source: str, data_dir: str | None = None) -> DataSet | None:
    """The data set that ``source`` names, if it is one of arrays: not pictures, nothing else."""
    if source == "digits":
        return _digits()
    if source in MD5:
        return standard(source, data_dir)
    if source in RECORDINGS:
        return RECORDINGS[source](data_dir)
    path = Path(source)
    if path.is_dir() and source not in DATA_NAMES:
        return official_folder(path) or recordings_folder(path)
    return own_npz(path) if path.suffix == ".npz" else None


def standard(name: str, data_dir: str | None = None) -> DataSet:
    """A set by its name, from the official files; raises :class:`MissingError` if they are not there."""
    folder = FOLDER.get(name, name)
    for home in homes(data_dir):
        for place in (home / folder, home / folder / folder, home):
            if all(_there(place / file) for file in MD5[name]):
                return _files_of(name, name, place, MD5[name])
        if name == "mnist" and (home / "mnist.npz").is_file():  # as Keras keeps it
            return replace(own_npz(home / "mnist.npz"), kind=name)
    first = homes(data_dir)[0]
    found = "files are missing" if (first / folder).is_dir() else "not found"
    raise MissingError(
        f"{name}: {found}: put the official files into {first / folder}, or name the folder that holds them with "
        "--data-dir or FLIPBIT_DATA"
    )


def official_folder(path: Path) -> DataSet | None:
    """The set in a folder laid out as CIFAR-10, CIFAR-100, MNIST or Fashion-MNIST are published; their content may be
    another. None for other folders."""
    for name, telling in (("cifar10", ("test_batch",)), ("cifar100", ("train", "test"))):
        for place in (path, path / FOLDER[name]):
            if all(_there(place / file) for file in telling):
                return _files_of(name, str(place), place, {})
    if _there(path / "t10k-images-idx3-ubyte"):
        return _files_of("fashion-mnist" if path.name == "fashion-mnist" else "mnist", str(path), path, {})
    return None


def recordings_folder(path: Path) -> DataSet | None:
    """The set in a folder of recordings: in an official layout, or a user's with a folder per class."""
    for is_laid_out, opened in LAYOUTS:
        if is_laid_out(path):
            return opened(path)
    folders = [each for each in path.iterdir() if each.is_dir()]
    pictures = sum(len(pictures_below(each)) for each in folders)
    if pictures and pictures >= sum(is_signal(file) for each in folders for file in each.iterdir()):
        return None
    return own_signals(path) or own_words(path)


def _there(path: Path) -> bool:
    return any(Path(f"{path}{end}").is_file() for end in ("", ".gz"))


def _files_of(name: str, title: str, folder: Path, md5: dict[str, str]) -> DataSet:
    """A set in its official files; with ``md5``, checked."""

    def content(file: str) -> bytes:
        return _content(folder / file, md5.get(file))

    def cifar(part: str) -> Part:
        *train, test = MD5[name]
        ten = name == "cifar10"
        read = []
        for file in train if part == "train" else [test]:
            try:
                read.append(read_cifar(content(file), "labels" if ten else "fine_labels", 10 if ten else 100))
            except FlatPickleError as error:
                raise InputError(f"{folder / file}: not laid out as CIFAR's official file ({error})") from None
        x, y = (np.concatenate(arrays) for arrays in zip(*read))
        return np.ascontiguousarray(x), y

    def idx(part: str) -> Part:
        start = "train" if part == "train" else "t10k"
        images, labels = f"{start}-images-idx3-ubyte", f"{start}-labels-idx1-ubyte"
        x, y = _idx(folder / images, content(images), 3), _idx(folder / labels, content(labels), 1)
        if len(x) != len(y) or not len(x):
            raise InputError(f"{folder / labels}: {len(y)} labels for {len(x)} images")
        return x[..., None], y.astype(np.int64)

    classes = CLASSES.get(name, [str(i) for i in range(100)])
    return DataSet(title, classes, cifar if name in FOLDER else idx, kind=name)


def _content(path: Path, md5: str | None) -> bytes:
    """A file's bytes, unzipped where needed; checked against the published MD5 if that is given."""
    try:
        if path.is_file():
            content = path.read_bytes()
        else:
            with gzip.open(f"{path}.gz") as packed:
                content = packed.read(LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read ({error}); download it again") from None
    if len(content) > LARGEST:
        raise InputError(f"{path}: more than {LARGEST:,} bytes; expected an official file")
    if md5 is not None and hashlib.md5(content).hexdigest() != md5:
        raise InputError(f"{path}: damaged (MD5 {hashlib.md5(content).hexdigest()}, want {md5}); download it again")
    return content


def _idx(path: Path, content: bytes, axes: int) -> Array:
    """An IDX file of bytes: 0, 0, 8 (for bytes), the number of axes, the length of each in 32 bits, the values."""
    head = 4 + 4 * axes
    if len(content) < head or content[:4] != bytes([0, 0, 8, axes]):
        raise InputError(f"{path}: not an IDX file of bytes with {axes} axes; download it again")
    shape = struct.unpack(f">{axes}I", content[4:head])
    size = 1
    for length in shape:
        size *= length
    if len(content) - head != size:
        raise InputError(f"{path}: {len(content) - head} bytes, its head says {'×'.join(map(str, shape))}")
    return np.frombuffer(content, np.uint8, offset=head).reshape(shape)


def _digits() -> DataSet:
    """scikit-learn's 1797 handwritten digits, 8×8."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise InputError("digits: needs scikit-learn: pip install scikit-learn") from None
    digits = load_digits()
    x = np.round(digits.images * (255 / 16)).astype(np.uint8)[..., None]
    return replace(_split_arrays("digits", DIGITS, x, digits.target.astype(np.int64)), kind="digits")


def every_fifth(labels: Array) -> Array:
    """A mask of every fifth image of each class: the test part of a set that has none."""
    test = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        test[np.flatnonzero(labels == label)[4::5]] = True
    return test


def _split_arrays(name: str, classes: list[str], x: Array, y: Array) -> DataSet:
    test = every_fifth(y)
    return DataSet(name, classes, lambda part: (x[test], y[test]) if part == "test" else (x[~test], y[~test]), True)


# ---- a user's arrays ----


def own_npz(path: Path) -> DataSet:
    """A user's arrays: x_train, y_train and, if there is a test set, x_test, y_test."""
    arrays = read_arrays(path)
    missing = [key for key in ("x_train", "y_train") if key not in arrays]
    if missing:
        raise InputError(
            f"{path}: lacks {' and '.join(missing)}; expected x_train, y_train and, with a test set, x_test, y_test; "
            f"found {', '.join(arrays) or 'nothing'}"
        )
    if is_values(arrays["y_train"]):
        return _values_npz(path, arrays)
    x, y = image_array(path, "x_train", arrays["x_train"]), label_array(path, "y_train", arrays)
    if "x_test" not in arrays or "y_test" not in arrays:
        if not every_fifth(y).any():
            raise InputError(f"{path}: no class has five images, and without x_test every fifth one is for testing")
        return _split_arrays(path.stem, numbered(path, y), x, y)
    x_test, y_test = image_array(path, "x_test", arrays["x_test"]), label_array(path, "y_test", arrays)
    if x_test.shape[1:] != x.shape[1:]:
        raise InputError(f"{path}: x_test has images of {x_test.shape[1:]}, x_train of {x.shape[1:]}")
    classes = numbered(path, np.concatenate([y, y_test]))
    return DataSet(path.stem, classes, lambda part: (x_test, y_test) if part == "test" else (x, y))


def is_values(y: Array) -> bool:
    """Whether an array holds values to predict, not labels: floats, unless they are one-hot labels; images."""
    if y.ndim > 2:
        return True
    if not np.issubdtype(y.dtype, np.floating):
        return False
    one_hot = y.ndim == 2 and y.shape[1] > 1 and ((y == 0) | (y == 1)).all() and (y.sum(1) == 1).all()
    return not one_hot


def _values_npz(path: Path, arrays: dict[str, Array]) -> DataSet:
    """Images, and values to predict for each."""
    x, y = image_array(path, "x_train", arrays["x_train"]), value_array(path, "y_train", arrays)
    shape = arrays["y_train"].shape[1:] or (1,)
    notes = []
    if shape == (1,) and len(np.unique(y)) <= 100 and (y == np.round(y)).all():
        notes.append(
            f"{path}: y_train holds whole numbers as {arrays['y_train'].dtype}: they are learned as values; if they "
            "are classes, store integers"
        )
    if "x_test" not in arrays or "y_test" not in arrays:
        test = every_fifth(np.zeros(len(y)))
        if not test.any():
            raise InputError(f"{path}: {len(y)} images; without x_test every fifth one is for testing")
        parts = {"train": (x[~test], y[~test]), "test": (x[test], y[test])}
        return DataSet(path.stem, [], parts.__getitem__, True, values=shape, notes=notes)
    x_test, y_test = image_array(path, "x_test", arrays["x_test"]), value_array(path, "y_test", arrays)
    if x_test.shape[1:] != x.shape[1:] or y_test.shape[1:] != y.shape[1:]:
        raise InputError(
            f"{path}: x_test and y_test have images of {x_test.shape[1:]} and {y_test.shape[1]} values, x_train and "
            f"y_train of {x.shape[1:]} and {y.shape[1]}"
        )
    parts = {"train": (x, y), "test": (x_test, y_test)}
    return DataSet(path.stem, [], parts.__getitem__, values=shape, notes=notes)


def numbered(path: Path, labels: Array) -> list[str]:
    """Names for classes that have only numbers; refuses numbers most of which no image has."""
    used = np.unique(labels)
    count = int(used[-1]) + 1
    if 2 * len(used) < count:
        some = ", ".join(map(str, used[:5])) + (f", … {used[-1]}" if len(used) > 5 else "")
        raise InputError(
            f"{path}: {len(used)} different labels ({some}), the largest of which would make {count} classes; "
            f"number them from 0 to {len(used) - 1}, and look for a stray one"
        )
    return [str(i) for i in range(count)]


def as_pixels(path: Path, key: str, x: Array) -> Array:
    """uint8 from whole numbers 0 … 255, or floats 0 … 1."""
    if x.dtype == np.uint8:
        return x
    if not (np.issubdtype(x.dtype, np.integer) or np.issubdtype(x.dtype, np.floating) or x.dtype == bool):
        raise InputError(f"{path}: {key} holds {x.dtype}; expected pixels, 0 to 255")
    low, high = (float(x.min()), float(x.max())) if x.size else (0.0, 0.0)
    if np.issubdtype(x.dtype, np.floating) and 0 <= low and high <= 1:
        x = np.round(x * 255)
    elif not (0 <= low and high <= 255):
        raise InputError(f"{path}: {key} holds {low:g} to {high:g}; expected 0 to 255, or floats from 0 to 1")
    return x.astype(np.uint8)


def image_array(path: Path, key: str, x: Array) -> Array:
    """N×H×W×C pixels."""
    found = x.shape
    x = x[..., None] if x.ndim == 3 else x
    if x.ndim != 4 or not x.size or x.shape[3] not in (1, 3, 4):
        raise InputError(f"{path}: {key} has shape {found}; expected N×H×W or N×H×W×C with C = 1, 3 or 4")
    return as_pixels(path, key, x)


def label_array(path: Path, key: str, arrays: dict[str, Array], unknown: bool = False) -> Array:
    """Class numbers, one for each image of the array that ``key`` belongs to; with ``unknown``, −1 is allowed."""
    y, count = arrays[key], len(arrays[key.replace("y", "x")]) if arrays[key.replace("y", "x")].ndim else 0
    if y.ndim == 2 and y.shape[0] == count and y.shape[1] > 1:
        raise InputError(
            f"{path}: {key} has {y.shape[1]} numbers per image; expected one, the class (np.argmax(y, 1)), or floats, "
            "the values to predict"
        )
    y = y.reshape(-1)
    if not np.issubdtype(y.dtype, np.integer) or (len(y) and (y.min() < -unknown or y.max() >= 2**31)):
        raise InputError(f"{path}: {key} must be class numbers from 0 (got {y.dtype})")
    if len(y) != count:
        raise InputError(f"{path}: {key} has {len(y)} labels for {count} images")
    return y.astype(np.int64)


def value_array(path: Path, key: str, arrays: dict[str, Array]) -> Array:
    """float32 values, images × numbers, for each image of the array that ``key`` belongs to."""
    y, images = arrays[key], arrays[key.replace("y", "x")]
    if not y.ndim or not images.ndim or len(y) != len(images):
        raise InputError(f"{path}: {key} has {len(y) if y.ndim else 1} values for {len(images)} images")
    if not (np.issubdtype(y.dtype, np.floating) or np.issubdtype(y.dtype, np.integer)) or not y.size:
        raise InputError(f"{path}: {key} holds {y.dtype} {y.shape}; expected values to predict, a row for each image")
    y = y.reshape(len(y), -1).astype(np.float32)
    if not np.isfinite(y).all():
        raise InputError(f"{path}: {key} holds NaN, infinity or numbers beyond float32; leave those images out")
    return y


# ---- a user's pictures ----

Labelled = tuple[Path, int]  # a file and its class


@dataclass(frozen=True)
class PictureFolder:
    """Pictures by class. ``strays`` are those that belong to no class; ``held_out`` as in :class:`DataSet`."""

    folder: Path
    classes: list[str]
    train: list[Labelled]
    test: list[Labelled]
    held_out: bool
    strays: list[str] = field(default_factory=list)


def testing_folder(folder: Path) -> Path | None:
    """Its test/ or val/, if it is divided into train/ and such a part."""
    parts = [folder / name for name in ("test", "val") if (folder / name).is_dir()]
    return parts[0] if parts and (folder / "train").is_dir() else None


def picture_folder(folder: Path) -> PictureFolder:
    """Classes, training files and test files of a folder: train/ and test/ (or val/), or classes alone."""
    divided = testing_folder(folder)
    if divided:
        classes = _folders(folder / "train")
        train, test = _class_files(folder / "train", classes), _class_files(divided, classes)
        strays = [f"{divided.name}/{name}/" for name in _folders(divided) if name not in classes]
        strays += [f"{part.name}/{name}" for part in (folder / "train", divided) for name in _loose(part)]
    else:
        classes = _folders(folder)
        files = _class_files(folder, classes)
        held = every_fifth(np.array([label for _, label in files], np.int64))
        train = [file for file, out in zip(files, held) if not out]
        test = [file for file, out in zip(files, held) if out]
        strays = _loose(folder)
    if len(classes) < 2 or not train or not test:
        raise InputError(
            f"{folder}: found {len(classes)} classes, {len(train)} training and {len(test)} test images; expected one "
            "folder of at least five images per class, or train/CLASS/ and test/CLASS/ (or val/CLASS/)"
        )
    return PictureFolder(folder, [class_name(name) for name in classes], train, test, divided is None, strays)


def class_name(folder: str) -> str:
    r"""The class a folder is named after, as text, which images and JSON want: bytes that are none become ``\xff``."""
    try:
        return folder.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # not of a file system's making
        return folder.encode("utf-8", "backslashreplace").decode("utf-8")


def image_net(data_dir: str | None) -> PictureFolder:
    given = data_dir or os.environ.get("FLIPBIT_DATA")
    if not given:
        raise InputError(
            "imagenet: name its folder (with train/ and val/, a folder per class) with --data-dir or FLIPBIT_DATA"
        )
    folder = next((p for p in (Path(given) / "imagenet", Path(given)) if (p / "train").is_dir()), None)
    if folder is None:
        raise InputError(f"imagenet: {given} has no train/ folder; expected train/CLASS/ and val/CLASS/ with images")
    return picture_folder(folder)


def visual_wake_words(data_dir: str | None) -> Path:
    """The folder of 96×96 pictures, vww/{train,test}/{person,no person}."""
    return home_of("vww", ("vww",), data_dir, lambda place: (place / "train" / "person").is_dir())


def pictures_below(folder: Path) -> list[Path]:
    """All pictures of a folder and the folders in it, sorted; nothing hidden."""
    return sorted(
        path
        for path in folder.rglob("*")
        if is_picture(path)
        and path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )


def _class_files(folder: Path, classes: Iterable[str]) -> list[Labelled]:
    return [(path, label) for label, name in enumerate(classes) for path in pictures_below(folder / name)]


def _folders(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def _loose(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if is_picture(p) and p.is_file())
