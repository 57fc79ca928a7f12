"""Images to run a net on: pictures, arrays, and the test part of the data sets that training knows.

| source | what it is |
|---|---|
| `cat.png`, `.jpg`, … | a picture; needs pillow, except for binary `.ppm` and `.pgm` |
| `photos/` | pictures, all of them; in a folder named after a class, they have that label |
| `photos/` with `train/` and `test/` | the pictures below `test/` (or `val/`) |
| `x.npy` | one array |
| `own.npz` | `x_test`, `y_test`; without them the fifth of `x_train` that training holds back; `x`, `y`; or one array |
| `digits`, `mnist`, `fashion-mnist`, `cifar10`, `cifar100`, `imagenet`, `vww` | their test part: see data_sets |
| `speech_commands`, `motionsense`, `magic_wand`, `cwru` | recordings, their test part, as the net sees them |
| `my_words/`, `my_signals/` | a folder of recordings per class: the fifth that training holds back |
| `cifar-10-batches-py/`, `mnist/`, … | the test part in official files |

A net whose image describes a front end also takes recordings, by that front end:

| source | what it is |
|---|---|
| `yes.wav`, `walk.csv`, `walk.npy` | all windows of a recording, one per hop |
| `words/` | all recordings below it; in a folder named after a class, they have that label |
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from flipbit.runtime.data import sets as data_sets
from flipbit.runtime.data.pictures import FIT, MODES, PICTURES, PictureError, by, is_picture, read_picture
from flipbit.runtime.data.traps import some
from flipbit.runtime.errors import InputError
from flipbit.runtime.image.inputs import Array, as_text
from flipbit.runtime.recordings.front_ends import FrontEndInput
from flipbit.runtime.recordings.inputs import read_inputs, recordings_below, same_input, suffixes
from flipbit.runtime.recordings.signal_files import SIGNALS


@dataclass(frozen=True)
class Data:
    """A batch of images, the class number of each (−1 where it is not known), their names, and what a person should
    know about how they were read. For a net that gives values, ``y`` may hold such: floats, images × numbers."""

    name: str
    x: Array
    y: Array
    names: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def labelled(self) -> bool:
        return not self.has_values and bool(len(self.y)) and bool((self.y >= 0).all())

    @property
    def has_values(self) -> bool:
        """Whether the values are known that a net is to give."""
        return bool(np.issubdtype(self.y.dtype, np.floating))

    def first(self, count: int | None) -> Data:
        if count is None:
            return self
        return Data(self.name, self.x[:count], self.y[:count], self.names[:count], self.notes)


def load_data(
    source: str,
    shape: tuple[int, ...],
    labels: list[str],
    resize: str = FIT,
    limit: int | None = None,
    front_end: FrontEndInput | None = None,
    values: int | None = None,
) -> Data:
    """What ``source`` names, for a net that takes ``shape`` and knows ``labels``: at most ``limit`` images.

    ``front_end`` is that of the net's image: how recordings become its input. ``values``: how many values the net
    gives, if it does not know classes.
    """
    data = _recordings(source, shape, labels, limit, front_end) if front_end else None
    if data is None:
        data = _load(source, shape, labels, resize, limit, front_end)
    if data.has_values and values is None:
        raise InputError(f"{source}: its y holds values, and the net knows classes; store class numbers as integers")
    if data.has_values and values is not None and data.y.shape[1] != values:
        raise InputError(f"{source}: its y holds {data.y.shape[1]} values for an image; the net gives {values}")
    if values is not None and not data.has_values:
        data = replace(data, y=np.full(len(data.x), -1))  # labels say nothing of values
    if not len(data.x) and limit != 0:
        raise InputError(f"{source}: holds no images")
    return data


def _recordings(
    source: str, shape: tuple[int, ...], labels: list[str], limit: int | None, front_end: FrontEndInput
) -> Data | None:
    """A recording, or a folder of them; None for anything else."""
    path = Path(source)
    if source in data_sets.DATA_NAMES or not (path.is_file() or path.is_dir()):
        return None
    folder = path if path.is_dir() else None
    if folder is None:
        if path.suffix.lower() not in SIGNALS or (path.suffix == ".npy" and _are_inputs(path, shape)):
            return None
        files = [path]
    else:
        below = data_sets.testing_folder(path) or path
        folder, files = below, recordings_below(below, front_end)
        if not files:
            return None
    found = read_inputs(files, front_end, shape, limit, whole=folder is None)
    if folder is None:
        return Data(source, found.x, np.full(len(found.x), -1), found.names, found.notes)
    y = [_label(file, folder, labels) for file in found.files]
    names = [str(file.relative_to(folder)) for file in found.files]
    notes = [*found.notes, *_unknown_classes(folder, names, y, labels, "recordings")]
    return Data(source, found.x, np.array(y, np.int64), found.names, notes)


def _are_inputs(path: Path, shape: tuple[int, ...]) -> bool:
    """Whether an array holds inputs of the net, and not a recording."""
    x = data_sets.read_arrays(path)[path.stem]
    return x.shape == shape or x.shape[1:] == shape


def _load(
    source: str,
    shape: tuple[int, ...],
    labels: list[str],
    resize: str,
    limit: int | None,
    front_end: FrontEndInput | None,
) -> Data:
    path = Path(source)
    if front_end is not None and (source in ("imagenet", "vww") or path.suffix.lower() in PICTURES):
        raise _no_recordings(source, front_end)
    if source == "imagenet":
        found = data_sets.image_net(None)
        return _pictures(source, found.folder, [file for file, _ in found.test], shape, labels, resize, limit)
    if source == "vww":
        return _folder(data_sets.visual_wake_words(None), shape, labels, resize, limit)
    if source not in data_sets.DATA_NAMES and not path.is_dir():
        if not path.is_file():
            raise InputError(
                f"{source}: no such file, folder or data set (known by name: {', '.join(data_sets.DATA_NAMES)})"
            )
        if path.suffix.lower() in PICTURES:
            return _pictures(source, None, [path], shape, labels, resize, limit)
        if path.suffix == ".npy":
            return _unlabelled(source, data_sets.read_arrays(path)[path.stem], shape).first(limit)
        if path.suffix == ".npz":
            return _npz(path, shape).first(limit)
        if path.suffix.lower() in SIGNALS:
            raise InputError(
                f"{source}: a recording, but the net does not say how recordings become its input: it was trained on "
                "pictures or arrays"
            )
        if front_end is not None:
            raise InputError(f"{source}: expected a recording ({', '.join(suffixes(front_end))}) or a folder of them")
        raise InputError(f"{source}: expected a picture ({', '.join(PICTURES)}), .npy, .npz or a folder")
    arrays = data_sets.open_arrays(source)
    if arrays is None:
        if front_end is not None:
            raise _no_recordings(source, front_end)
        return _folder(path, shape, labels, resize, limit)
    if arrays.front_end is not None and front_end is not None and not same_input(front_end, arrays.front_end):
        raise InputError(
            f"{source}: is prepared for nets with the front end {arrays.front_end}; this net's is {front_end}: name a "
            "folder of recordings instead"
        )
    x, y = arrays.read("test")
    name = f"{arrays.name}, test {'part' if source in data_sets.DATA_NAMES else 'set'}"
    return Data(name, x, y, [], _other_classes(arrays, labels)).first(limit)


def _no_recordings(source: str, front_end: FrontEndInput) -> InputError:
    return InputError(f"{source}: the net takes recordings ({', '.join(suffixes(front_end))}), not pictures")


def _other_classes(arrays: data_sets.DataSet, labels: list[str]) -> list[str]:
    """A note if the net's classes have other names than those of the set: numbers are all there is to compare."""
    if not labels or labels == arrays.classes or arrays.classes[-1].isdigit():
        return []
    return [
        f"{arrays.name}: its classes are {some(arrays.classes)}; the net's are {some(labels)}: numbers are compared"
    ]


def _unlabelled(name: str, x: Array, shape: tuple[int, ...]) -> Data:
    """An array of images, or a single one."""
    single = x.shape == shape or not x.ndim or (shape[2:] == (1,) and x.shape == shape[:2])
    x = x[None] if single else x
    return Data(name, x, np.full(len(x), -1))


def _npz(path: Path, shape: tuple[int, ...]) -> Data:
    arrays = data_sets.read_arrays(path)
    for x_key, y_key in (("x_test", "y_test"), ("x", "y")):
        if x_key in arrays:
            x = _as_trained(path, x_key, arrays[x_key]) if x_key == "x_test" else arrays[x_key]
            if y_key not in arrays:
                return _unlabelled(str(path), x, shape)
            if data_sets.is_values(arrays[y_key]):
                return Data(str(path), x, data_sets.value_array(path, y_key, arrays))
            return Data(str(path), x, data_sets.label_array(path, y_key, arrays, unknown=True))
    if "x_train" in arrays and "y_train" in arrays:
        x, y = data_sets.own_npz(path).read("test")
        each = "" if data_sets.is_values(arrays["y_train"]) else " of each class"
        note = f"{path}: no x_test; these are the images that training holds back, every fifth{each}"
        return Data(f"{path}, test part", x, y, [], [note])
    if len(arrays) == 1:
        ((_, x),) = arrays.items()
        return _unlabelled(str(path), x, shape)
    raise InputError(
        f"{path}: holds {', '.join(arrays) or 'nothing'}; expected x_test and y_test, x_train and y_train, x and y, "
        "or one array"
    )


def _as_trained(path: Path, key: str, x: Array) -> Array:
    """Pixels, as training reads an .npz data set; int8, and real numbers below 0, are for the net as they are."""
    if x.dtype == np.int8 or (np.issubdtype(x.dtype, np.floating) and x.size and not x.min() >= 0):
        return x
    return data_sets.as_pixels(path, key, x)


def _folder(path: Path, shape: tuple[int, ...], labels: list[str], resize: str, limit: int | None) -> Data:
    below = data_sets.testing_folder(path) or path
    files = data_sets.pictures_below(below)
    if not files:
        others = Counter(p.suffix.lower() or "no suffix" for p in below.rglob("*") if p.is_file())
        found = f"; found {', '.join(f'{n} {suffix}' for suffix, n in others.most_common(3))}" if others else ""
        raise InputError(f"{below}: no pictures in this folder ({', '.join(PICTURES)}){found}")
    name = str(path) if below == path else f"{path}, test part"
    return _pictures(name, below, files, shape, labels, resize, limit)


def _pictures(
    name: str,
    folder: Path | None,
    files: Sequence[Path],
    shape: tuple[int, ...],
    labels: list[str],
    resize: str,
    limit: int | None,
) -> Data:
    """The first pictures that can be read; the others are named in a note."""
    if len(shape) != 3 or shape[2] not in MODES:
        raise InputError(f"{name}: pictures, but the net takes {as_text(shape)}")
    x: list[Array] = []
    y: list[int] = []
    names: list[str] = []
    failed: list[PictureError] = []
    fitted = 0
    for file in files:
        if limit is not None and len(x) >= limit:
            break
        try:
            picture = read_picture(file, shape[2], (shape[0], shape[1]), resize)
        except PictureError as error:
            failed.append(error)
            continue
        fitted += picture.size != shape[:2]
        x.append(picture.pixels)
        y.append(_label(file, folder, labels) if folder else -1)
        names.append(str(file.relative_to(folder)) if folder else str(file))
    if not x:
        raise (
            failed[0]
            if len(failed) == 1
            else InputError(f"{name}: none of {len(failed)} pictures could be read; the first: {failed[0].message}")
        )
    notes = []
    if failed:
        notes.append(f"{len(failed)} of {len(failed) + len(x)} pictures left out: {some([e.message for e in failed])}")
    if fitted:
        notes.append(f"{name}: {_fitted(fitted, len(x), shape, resize)}")
    if folder:
        notes += _unknown_classes(folder, names, y, labels)
    return Data(name, np.stack(x), np.array(y, np.int64), names, notes)


def _fitted(count: int, total: int, shape: tuple[int, ...], how: str) -> str:
    done = {
        "crop": "the middle was cut out and scaled (--resize letterbox or stretch: other ways)",
        "letterbox": "scaled as a whole, with black bars",
        "stretch": "stretched, whatever their proportions",
    }[how]
    return f"{count} of {total} pictures were not {by(shape[:2])}: {done}"


def _label(file: Path, folder: Path, labels: list[str]) -> int:
    """The class a picture lies in: the outermost folder that has a class's name, or the given folder itself."""
    known = {_plain(label): i for i, label in reversed(list(enumerate(labels)))}
    for part in (*file.relative_to(folder).parts[:-1], file.parent.name):
        if _plain(part) in known:
            return known[_plain(part)]
    return -1


def _plain(name: str) -> str:
    """Letters with marks are stored in two ways: macOS's file names and other texts."""
    return unicodedata.normalize("NFC", data_sets.class_name(name))


def _unknown_classes(
    folder: Path, names: list[str], y: list[int], labels: list[str], what: str = "pictures"
) -> list[str]:
    """A note on folders that are no classes of the net, where others are or could be."""
    unknown = sorted({Path(name).parts[0] for name, label in zip(names, y) if label < 0 and len(Path(name).parts) > 1})
    if not unknown or not labels:
        return []
    count = sum(label < 0 for label in y)
    return [
        f"{folder}: {count} {what} without a label, as {some([f'{name}/' for name in unknown])} "
        f"{'are' if len(unknown) > 1 else 'is'} no class of the net ({some(labels)})"
    ]


__all__ = ["Data", "is_picture", "load_data"]
