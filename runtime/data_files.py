"""Images to run a net on, from files: pictures, folders of them, arrays, and data sets as they are published.

| source | what it is |
|---|---|
| `cat.png`, `.jpg`, … | a picture; needs pillow, except for binary `.ppm` and `.pgm` |
| `photos/` | pictures; in a folder named after a class, they have that label |
| `x.npy` | one array |
| `data.npz` | `x_test`, `y_test` (or `x`, `y`; or a single array) |
| `cifar-10-batches-py/`, `mnist/`, `fashion-mnist/` | the test set in its official files |
| `digits` | scikit-learn's digits, the fifth of them that `train/run.py` keeps for testing |
"""

from __future__ import annotations

import gzip
import io
import pickle
import re
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.runtime.errors import ArgumentError
from flipbit.runtime.inputs import Array, as_text

PLAIN = (".ppm", ".pgm")  # read without pillow
PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", *PLAIN)


@dataclass(frozen=True)
class Data:
    """A batch of images, the class number of each (−1 where it is not known), and their names."""

    name: str
    x: Array
    y: Array
    names: list[str] = field(default_factory=list)

    @property
    def labelled(self) -> bool:
        return bool(len(self.y)) and bool((self.y >= 0).all())

    def first(self, count: int | None) -> Data:
        return self if count is None else Data(self.name, self.x[:count], self.y[:count], self.names[:count])


def load_data(source: str, shape: tuple[int, ...], labels: list[str], resize: bool = False) -> Data:
    """What ``source`` names, for a net that takes ``shape`` and knows ``labels``."""
    path = Path(source)
    if source == "digits" and not path.exists():
        return _digits()
    if path.is_dir():
        return _folder(path, shape, labels, resize)
    if not path.is_file():
        raise ArgumentError(f"{source}: no such file, folder or data set (known by name: digits)")
    if path.suffix == ".npy":
        return _unlabelled(source, _numpy(path), shape)
    if path.suffix == ".npz":
        return _npz(path, shape)
    if path.suffix.lower() in PICTURES:
        return Data(source, _picture(path, shape, resize)[None], np.array([-1]), [source])
    raise ArgumentError(f"{source}: expected a picture ({', '.join(PICTURES)}), .npy, .npz or a folder")


def _unlabelled(name: str, x: Array, shape: tuple[int, ...]) -> Data:
    """An array of images, or a single one."""
    single = x.shape == shape or not x.ndim or (shape[2:] == (1,) and x.shape == shape[:2])
    x = x[None] if single else x
    return Data(name, x, np.full(len(x), -1))


def _numpy(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        raise ArgumentError(f"{path}: not a readable {path.suffix} of plain arrays ({error})") from None


def _npz(path: Path, shape: tuple[int, ...]) -> Data:
    with _numpy(path) as saved:
        for x_key, y_key in (("x_test", "y_test"), ("x", "y")):
            if x_key in saved.files:
                x = _as_trained(saved[x_key]) if x_key == "x_test" else saved[x_key]
                if y_key not in saved.files:
                    return _unlabelled(str(path), x, shape)
                y = saved[y_key].reshape(-1)
                if len(y) != len(x) or not np.issubdtype(y.dtype, np.integer):
                    raise ArgumentError(f"{path}: {y_key} has {len(y)} labels of {y.dtype} for {len(x)} images")
                return Data(str(path), x, y.astype(np.int64))
        if len(saved.files) == 1:
            return _unlabelled(str(path), saved[saved.files[0]], shape)
        raise ArgumentError(
            f"{path}: holds {', '.join(saved.files) or 'nothing'}; expected x_test and y_test, x and y, or one array"
        )


def _as_trained(x: Array) -> Array:
    """Pixels, as train/ reads an .npz data set: floats from 0 to 1 are pixels / 255."""
    if np.issubdtype(x.dtype, np.floating) and x.size and x.min() >= 0 and x.max() <= 1:
        return np.round(x * 255).astype(np.uint8)
    return x


def _folder(path: Path, shape: tuple[int, ...], labels: list[str], resize: bool) -> Data:
    for place in (path, path / "cifar-10-batches-py"):
        if (place / "test_batch").is_file():
            return _cifar10(place)
    if any(path.glob("t10k-images*")):
        return _mnist(path)
    files = sorted(p for p in path.rglob("*") if p.suffix.lower() in PICTURES and p.is_file())
    if not files:
        raise ArgumentError(f"{path}: no pictures in this folder ({', '.join(PICTURES)})")
    x = np.stack([_picture(file, shape, resize) for file in files])
    y = np.array([labels.index(p.parent.name) if p.parent.name in labels else -1 for p in files])
    return Data(str(path), x, y, [str(file.relative_to(path)) for file in files])


def _picture(path: Path, shape: tuple[int, ...], resize: bool) -> Array:
    """A picture as uint8 pixels of ``shape``."""
    if len(shape) != 3 or shape[2] not in (1, 3, 4):
        raise ArgumentError(f"{path}: a picture, but the net takes {as_text(shape)}")
    try:
        from PIL import Image
    except ImportError:
        if path.suffix.lower() not in PLAIN:
            raise ArgumentError(f"{path}: reading {path.suffix} needs pillow: pip install pillow") from None
        if resize:
            raise ArgumentError("--resize needs pillow: pip install pillow") from None
        pixels = _plain(path)
    else:
        try:
            with Image.open(path) as opened:
                picture = opened.convert({1: "L", 3: "RGB", 4: "RGBA"}[shape[2]])
        except (OSError, ValueError, Image.DecompressionBombError) as error:
            raise ArgumentError(f"{path}: not a readable picture ({error})") from None
        if resize:
            picture = picture.resize((shape[1], shape[0]))
        pixels = np.asarray(picture).reshape(picture.height, picture.width, shape[2])
    if pixels.shape != shape:
        hint = "" if resize or pixels.shape[2] != shape[2] else "; --resize scales pictures"
        raise ArgumentError(f"{path}: a picture of {as_text(pixels.shape)}, the net takes {as_text(shape)}{hint}")
    return pixels


def _plain(path: Path) -> Array:
    """A binary .ppm or .pgm: "P6" (or "P5"), width, height, 255, each followed by white space or comments; pixels."""
    content = path.read_bytes()
    gap = rb"(?:\s+(?:#[^\n]*\n\s*)*)"
    head = re.match(rb"P([56])%b(\d+)%b(\d+)%b255\s" % (gap, gap, gap), content)
    if not head:
        raise ArgumentError(f"{path}: not a binary .ppm or .pgm with 255 levels; other pictures need pillow")
    channels = 3 if head[1] == b"6" else 1
    width, height = int(head[2]), int(head[3])
    if len(content) - head.end() != width * height * channels:
        raise ArgumentError(f"{path}: cut short, or of another size than {width}×{height}")
    return np.frombuffer(content, np.uint8, offset=head.end()).reshape(height, width, channels)


def _digits() -> Data:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ArgumentError("digits: needs scikit-learn: pip install scikit-learn") from None
    digits = load_digits()
    test = np.zeros(len(digits.target), bool)
    for label in range(10):
        test[np.flatnonzero(digits.target == label)[4::5]] = True  # as train/data.py splits them
    x = np.round(digits.images * (255 / 16)).astype(np.uint8)[..., None]
    return Data("digits, test part", x[test], digits.target[test].astype(np.int64))


class _ArraysOnly(pickle.Unpickler):
    """Reads the official pickles and nothing that could run code."""

    ALLOWED = frozenset(
        {("numpy.core.multiarray", "_reconstruct"), ("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode")}
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"refused {module}.{name}")
        return super().find_class(module, name)


def _cifar10(folder: Path) -> Data:
    try:
        batch = _ArraysOnly(io.BytesIO((folder / "test_batch").read_bytes()), encoding="bytes").load()
        x = np.asarray(batch[b"data"], np.uint8).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        return Data(f"{folder}, test set", x, np.asarray(batch[b"labels"], np.int64))
    except (OSError, ValueError, KeyError, TypeError, EOFError, pickle.UnpicklingError) as error:
        raise ArgumentError(f"{folder / 'test_batch'}: not CIFAR-10's official file ({error})") from None


def _mnist(folder: Path) -> Data:
    def content(name: str) -> bytes:
        path = folder / name
        try:
            return path.read_bytes() if path.is_file() else gzip.decompress(Path(f"{path}.gz").read_bytes())
        except (OSError, EOFError) as error:
            raise ArgumentError(f"{path}: cannot be read ({error})") from None

    # An IDX header is 4 bytes and one 32-bit count per axis: 16 bytes for images, 8 for labels.
    x = np.frombuffer(content("t10k-images-idx3-ubyte")[16:], np.uint8)
    y = np.frombuffer(content("t10k-labels-idx1-ubyte")[8:], np.uint8).astype(np.int64)
    if x.size != 784 * len(y):
        raise ArgumentError(f"{folder}: {len(y)} labels for {x.size} pixels; expected 28×28 images")
    return Data(f"{folder}, test set", x.reshape(-1, 28, 28, 1), y)
