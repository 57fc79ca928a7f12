"""Arrays as people have them to int8 planes as the core takes them, and results back.

The type of an array says what its numbers are:

| type | values |
|---|---|
| uint8 | pixels 0 … 255; become the net's input by the formula in the image's metadata |
| float | real numbers as the net saw them in training: real / scale + zero point, ties away from zero, saturated |
| int8 | what the device works with |

Images are height × width × channels, as they come from files; the core expects them plane by plane.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flipbit.runtime.errors import ArgumentError
from flipbit.runtime.image.pixels import Pixels
from flipbit.runtime.image.reader import Tensor

__all__ = [
    "Array",
    "Pixels",
    "as_text",
    "dequantize",
    "from_planes",
    "quantize",
    "to_planes",
    "user_shape",
    "value_text",
]

Array = np.ndarray
VALUES_SHOWN = 8


def user_shape(tensor: Tensor) -> tuple[int, ...]:
    """Height, width, channels of an image; units of a vector."""
    return (tensor.height, tensor.width, tensor.channels) if tensor.rank != 1 else (tensor.channels,)


def as_text(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))


def quantize(real: Array, tensor: Tensor) -> Array:
    """Real numbers to int8: nearest, ties away from zero, saturated."""
    scaled = np.asarray(real, np.float64) / tensor.scale
    if np.isnan(scaled).any():
        raise ArgumentError("the input holds NaN")
    rounded = np.copysign(np.floor(np.abs(scaled) + 0.5), scaled)
    return np.clip(rounded + tensor.zero_point, -128, 127).astype(np.int8)


def dequantize(values: Array, tensor: Tensor) -> Array:
    """int8 to the real numbers they stand for."""
    return ((values.astype(np.int32) - tensor.zero_point) * np.float64(tensor.scale)).astype(np.float32)


def value_text(values: Any) -> str:
    """The values of an output, for people: the first of many."""
    flat = np.asarray(values, np.float64).reshape(-1)
    more = f" … ({len(flat)} values)" if len(flat) > VALUES_SHOWN else ""
    return ", ".join(f"{value:.4g}" for value in flat[:VALUES_SHOWN]) + more


def to_planes(x: Array, tensor: Tensor, pixels: Pixels | None) -> tuple[Array, bool]:
    """A batch of int8 inputs as they lie in the core's memory, and whether ``x`` was a batch."""
    x = np.asarray(x)
    batch, batched = _batch(x, user_shape(tensor))
    if x.dtype == np.int8:
        values = batch
    elif x.dtype == np.uint8:
        if pixels is None:
            raise ArgumentError(
                "pixels (uint8), but the image does not say how pixels become the net's input; "
                "pass real numbers as in training (float), or int8"
            )
        values = quantize(pixels(np.arange(256)), tensor)[batch]
    elif np.issubdtype(x.dtype, np.floating):
        values = quantize(batch, tensor)
    else:
        raise ArgumentError(f"an array of {x.dtype}: expected uint8 (pixels), float (as in training) or int8")
    if values.ndim == 4:
        values = values.transpose(0, 3, 1, 2)
    return np.ascontiguousarray(values), batched


def from_planes(values: Array, tensor: Tensor) -> Array:
    """A batch as it lies in the core's memory to (batch, height, width, channels), or (batch, units)."""
    if tensor.bits:
        values = unpacked(values, tensor)
    values = values.reshape(len(values), *tensor.shape)
    return np.ascontiguousarray(values.transpose(0, 2, 3, 1)) if values.ndim == 4 else values


def unpacked(values: Array, tensor: Tensor) -> Array:
    """A batch of packed bits, as they lie in the core's memory, to planes of ±1."""
    words = values.reshape(len(values), -1, tensor.height, tensor.width, 2).view(np.uint8)
    octets = np.moveaxis(words, -1, 2).reshape(len(values), -1, tensor.height, tensor.width)
    bits = np.unpackbits(octets, axis=1, bitorder="little")[:, : tensor.channels]
    return bits.astype(np.int8) * 2 - 1


def _batch(x: Array, shape: tuple[int, ...]) -> tuple[Array, bool]:
    """``x`` with a batch axis, and whether it had one; a single channel and a sequence's height may be left out."""
    shapes = [shape]
    if len(shape) == 3 and shape[2] == 1:
        shapes.append(shape[:2])
    if len(shape) == 3 and shape[0] == 1:
        shapes.append(shape[1:])
    for expected in shapes:
        if x.shape == expected:
            return x.reshape(1, *shape), False
        if x.shape[1:] == expected:
            return x.reshape(len(x), *shape), True
    hint = ""
    planes = (shape[2], *shape[:2]) if len(shape) == 3 else None
    if planes and x.shape[-3:] == planes:
        hint = "; these are planes (channels first): pass np.moveaxis(x, -3, -1)"
    raise ArgumentError(
        f"an array of {as_text(x.shape) or 'one number'}: the net takes {as_text(shape)} or N×{as_text(shape)}{hint}"
    )
