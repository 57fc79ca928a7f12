"""What an experiment hands back, and the few things all of them need."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from matplotlib.figure import Figure
from PIL import Image

from flipbit.runtime.files import replacing
from flipbit.train.settings import InputError

Size = TypeVar("Size")


@dataclass(frozen=True)
class Outcome:
    """The verdict on one claim of the paper."""

    name: str
    claim: str  # a sentence that is true or false
    held: bool
    summary: str  # one line of the numbers that decided
    numbers: dict[str, Any]  # all of them, fit for JSON
    figures: list[Path]


def size_of(scale: str, sizes: Mapping[str, Size]) -> Size:
    """The entry of ``sizes`` for a scale."""
    if scale not in sizes:
        raise InputError(f"scale {scale!r}: choose from {', '.join(sizes)}")
    return sizes[scale]


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a PNG, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=100, format="png")
    # Line art needs few colours: a palette makes the file three times smaller.
    with Image.open(drawn) as image, replacing(path) as temporary:
        image.convert("RGB").quantize(64, dither=Image.Dither.NONE).save(temporary, optimize=True)
    return path
