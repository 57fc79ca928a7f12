"""One reader of pictures, for training, running, learning and boards: the same pixels everywhere.

| in the file | what a net sees |
|---|---|
| a turned camera (EXIF) | the picture upright |
| 16 bits per value | the upper 8 |
| transparent pixels | white behind them (a net with 4 channels gets the transparency itself) |
| a palette, CMYK, 1 bit per pixel | RGB, or grey |
| several frames | the first |
| colour for a grey net | luma; grey for a colour net: the same in each channel |

A picture of another size than the net's is fitted: ``crop`` cuts the middle out in the net's proportions and scales it,
``letterbox`` scales all of it and leaves black bars, ``stretch`` ignores proportions.

Needs pillow, except for binary ``.ppm`` and ``.pgm`` of the right size.
"""

from __future__ import annotations

import argparse
import functools
import re
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flipbit.runtime.errors import InputError

Array = np.ndarray
PLAIN = (".ppm", ".pgm")  # read without pillow
PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", *PLAIN)
# A file's content decides how it is decoded: no format but these, as some of Pillow's run other programs.
FORMATS = ("PNG", "JPEG", "BMP", "DIB", "GIF", "WEBP", "PPM")
FITS = ("crop", "letterbox", "stretch")
FIT = FITS[0]
MODES = {1: "L", 3: "RGB", 4: "RGBA"}
DEEP = ("I", "I;16", "I;16L", "I;16B", "I;16N")  # 16 bits per value; Pillow's own conversion clips them to white
GREY = ("1", "L", "LA", "La", *DEEP)
# EXIF's orientation: what turns the picture upright (names of Pillow's Transpose).
UPRIGHT = {
    2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE", 6: "ROTATE_270", 7: "TRANSVERSE",
    8: "ROTATE_90",
}  # fmt: skip


class PictureError(InputError):
    """A file that is no readable picture."""


def is_picture(path: Path) -> bool:
    """By its name; hidden files (such as macOS's ``._photo.jpg``) are none."""
    return path.suffix.lower() in PICTURES and not path.name.startswith(".")


def add_resize_option(parser: argparse.ArgumentParser) -> None:
    """``--resize``, the same for every command that takes pictures."""
    parser.add_argument(
        "--resize", nargs="?", type=_fit, const=FIT, default=FIT, metavar="HOW",
        help=f"pictures of another size: crop (the middle, scaled), letterbox or stretch ({FIT})",
    )  # fmt: skip


def _fit(text: str) -> str:
    if text not in FITS:
        raise argparse.ArgumentTypeError(f"{text!r}: expected {', '.join(FITS)}")
    return text


class Picture(NamedTuple):
    """uint8 pixels, height × width × channels, and the size (height, width) they had in the file."""

    pixels: Array
    size: tuple[int, int]


def read_picture(path: Path, channels: int, size: tuple[int, int] | None = None, how: str = FIT) -> Picture:
    """A picture, fitted to ``size`` (height, width) if that is given."""
    try:
        import PIL  # noqa: F401
    except ImportError:
        pixels = _plain(path, channels)
        if size is not None and pixels.shape[:2] != size:
            raise InputError(
                f"{path}: {by(pixels.shape[:2])} pixels; scaling to {by(size)} needs pillow: pip install pillow"
            ) from None
        return Picture(pixels, (pixels.shape[0], pixels.shape[1]))
    picture = open_picture(path, channels)
    original = (picture.height, picture.width)
    if size is not None:
        picture = fitted(picture, size, how)
    return Picture(np.asarray(picture).reshape(picture.height, picture.width, channels), original)


def is_grey(path: Path) -> bool:
    from PIL import Image

    try:
        with Image.open(path, formats=_formats()) as image:
            return image.mode in GREY
    except Exception as error:
        raise _unreadable(path, error) from None


def open_picture(path: Path, channels: int) -> Any:
    """A picture as Pillow's ``L``, ``RGB`` or ``RGBA``, upright."""
    try:
        from PIL import Image
    except ImportError:
        raise InputError(f"{path}: reading {path.suffix} needs pillow: pip install pillow") from None

    # About 108-megapixel photos and odd EXIF; what is really too large is an error.
    warnings.filterwarnings("ignore", module=r"PIL\..*")
    try:
        with Image.open(path, formats=_formats()) as image:
            turn = UPRIGHT.get(_orientation(image))
            image = _eight_bits(image, MODES[channels])
            return image.transpose(Image.Transpose[turn]) if turn else image
    except Exception as error:  # whatever a decoder says of a damaged or hostile file
        raise _unreadable(path, error) from None


@functools.cache
def _formats() -> tuple[str, ...]:
    """Those of FORMATS that this build of Pillow has."""
    from PIL import Image

    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def _orientation(image: Any) -> int:
    try:
        return int(image.getexif().get(0x0112, 1))
    except Exception:  # EXIF that is none; the pixels may be fine
        return 1


def _eight_bits(image: Any, mode: str) -> Any:
    from PIL import Image

    if image.mode in DEEP:
        values = np.asarray(image).astype(np.int64)
        image = Image.fromarray((np.clip(values, 0, 65535) >> 8).astype(np.uint8))
    if mode != "RGBA" and (image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info):
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image).convert("RGB")
    return image.convert(mode)


def _unreadable(path: Path, error: Exception) -> PictureError:
    from PIL import Image, UnidentifiedImageError

    if isinstance(error, UnidentifiedImageError):
        reason = "damaged, or something else"
    elif isinstance(error, Image.DecompressionBombError):
        reason = f"more than {2 * (Image.MAX_IMAGE_PIXELS or 0):,} pixels"
    elif isinstance(error, OSError) and error.strerror:
        reason = error.strerror
    else:
        reason = (str(error).splitlines() or [""])[0] or type(error).__name__
    return PictureError(f"{path}: not a readable picture ({reason})")


def fitted(picture: Any, size: tuple[int, int], how: str = FIT) -> Any:
    """A Pillow picture in ``size`` (height, width)."""
    from PIL import Image

    (height, width), (w, h) = size, picture.size
    if (h, w) == (height, width):
        return picture
    if how == "stretch":
        return picture.resize((width, height), Image.Resampling.BICUBIC)
    if how == "letterbox":
        scale = min(width / w, height / h)
        inner = max(1, round(w * scale)), max(1, round(h * scale))
        whole = Image.new(picture.mode, (width, height))
        whole.paste(
            picture.resize(inner, Image.Resampling.BICUBIC), ((width - inner[0]) // 2, (height - inner[1]) // 2)
        )
        return whole
    scale = max(width / w, height / h)
    left, top = (w - width / scale) / 2, (h - height / scale) / 2
    box = (max(0.0, left), max(0.0, top), min(float(w), w - left), min(float(h), h - top))
    return picture.resize((width, height), Image.Resampling.BICUBIC, box=box)


def by(size: tuple[int, ...]) -> str:
    return "×".join(map(str, size))


def _plain(path: Path, channels: int) -> Array:
    """A binary .ppm or .pgm: "P6" (or "P5"), width, height, 255, each followed by white space or comments; pixels."""
    if path.suffix.lower() not in PLAIN:
        raise InputError(f"{path}: reading {path.suffix} needs pillow: pip install pillow")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise PictureError(f"{path}: {error.strerror}") from None
    gap = rb"(?:\s+(?:#[^\n]*\n\s*)*)"
    head = re.match(rb"P([56])%b(\d{1,9})%b(\d{1,9})%b255\s" % (gap, gap, gap), content)
    if not head:
        raise PictureError(f"{path}: not a binary .ppm or .pgm with 255 levels; other pictures need pillow")
    found = 3 if head[1] == b"6" else 1
    width, height = int(head[2]), int(head[3])
    if len(content) - head.end() != width * height * found or not width * height:
        raise PictureError(f"{path}: cut short, or of another size than {width}×{height}")
    pixels = np.frombuffer(content, np.uint8, offset=head.end()).reshape(height, width, found)
    if found == channels:
        return pixels
    if found == 1 and channels == 3:
        return np.repeat(pixels, 3, 2)
    raise InputError(f"{path}: {found} channels, the net takes {channels}; converting needs pillow: pip install pillow")
