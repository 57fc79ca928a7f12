"""How pixels become what a net was trained on: the one home of the pixel formula.

A formula is text in an image's metadata, ``(pixel - OFFSET) * SCALE``, with two decimal numbers; ``/ DIVISOR`` for
``* SCALE`` is read, too. A net that was trained with a mean image says ``(pixel - mean image) * SCALE``, which no
reader can follow without that image.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

Array = np.ndarray
MEAN_IMAGE = "mean image"
_NUMBER = r"([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)"
_FORMULA = re.compile(rf"\(pixel - {_NUMBER}\) ([*/]) {_NUMBER}")


@dataclass(frozen=True)
class Pixels:
    """(pixel − offset) · scale, for pixels 0 … 255; the offset may be a mean image."""

    offset: float | Array
    scale: float

    def __post_init__(self) -> None:
        if not (np.isfinite(self.offset).all() and math.isfinite(self.scale) and self.scale != 0):
            raise ValueError(f"(pixel - {self.offset}) * {self.scale}: expected finite numbers, and no scale of 0")

    @classmethod
    def parse(cls, formula: object) -> Pixels | None:
        """Of a formula, such as ``(pixel - 128) * 0.0078125``; None if it is another text."""
        found = _FORMULA.fullmatch(str(formula))
        if not found:
            return None
        try:
            offset, number = float(found[1]), float(found[3])
            return cls(offset, number if found[2] == "*" else 1 / number)
        except (ValueError, ZeroDivisionError):
            return None

    @property
    def formula(self) -> str:
        """As :meth:`parse` reads it, without loss."""
        offset = MEAN_IMAGE if isinstance(self.offset, np.ndarray) else _decimal(self.offset)
        return f"(pixel - {offset}) * {_decimal(self.scale)}"

    def __call__(self, pixels: Array) -> Array:
        return (pixels.astype(np.float64) - self.offset) * self.scale

    def then(self, inner: Pixels) -> Pixels:
        """This formula, and ``inner`` on its result: (x − inner.offset) · inner.scale."""
        return Pixels(self.offset + inner.offset / self.scale, self.scale * inner.scale)

    def int8(self) -> tuple[float, int] | None:
        """Scale and zero point with which ``pixel − 128`` is the exact int8 input, if there are such."""
        if isinstance(self.offset, np.ndarray) or self.offset != round(self.offset) or not 0 <= self.offset <= 255:
            return None
        return (self.scale, int(self.offset) - 128) if self.scale > 0 else None


def _decimal(number: float) -> str:
    return repr(int(number)) if number == int(number) else repr(float(number))
