"""Packing of ±1 weights into bits: the one specification of bit order.

A bit is 1 for +1 and 0 for −1. Bits fill 16-bit words from the least significant bit up; words are stored
little-endian. A filter starts at a new word; the bits left over in its last word are 0.

The weights of one filter of a convolution, (kernel height, kernel width, channels), are read in one of two orders:

``taps``
    tap by tap (row by row of the kernel), all channels of a tap, one after the other; any shape.

    ====================================  ==========================
    bit k of the filter                   k = tap · channels + channel
    ====================================  ==========================

``chunks``
    for 3×3 kernels with a multiple of 16 channels: a word is 16 channels of one tap, and the nine taps of a chunk of
    16 channels stand side by side, as the table convolution reads them.

    ====================================  ==========================
    word chunk · 9 + tap, bit i           channel 16 · chunk + i
    ====================================  ==========================

A dense layer is a 1×1 convolution of a 1×1 image: ``taps``.
"""

from __future__ import annotations

import numpy as np

Array = np.ndarray
LAYOUTS = ("taps", "chunks")


def layout_of(shape: tuple[int, ...]) -> str:
    """The order used for weights of ``shape`` (…, channels, filters)."""
    return "chunks" if shape[:-2] == (3, 3) and shape[-2] % 16 == 0 else "taps"


def words_per_filter(shape: tuple[int, ...]) -> int:
    return -(-int(np.prod(shape[:-1])) // 16)


def pack(signs: Array, layout: str) -> Array:
    """±1 weights (…, channels, filters) to uint16 words (filters, words per filter)."""
    if not np.isin(signs, (-1, 1)).all():
        raise ValueError("weights to pack must be +1 or -1")
    filters = _ordered(np.moveaxis(signs, -1, 0), layout) > 0
    count = words_per_filter(signs.shape)
    padded = np.zeros((len(filters), 16 * count), np.uint8)
    padded[:, : filters.shape[1]] = filters
    octets = np.packbits(padded, axis=1, bitorder="little")
    return octets.view("<u2").astype(np.uint16)


def unpack(words: Array, shape: tuple[int, ...], layout: str) -> Array:
    """The inverse of :func:`pack`: int8 ±1 of ``shape``."""
    octets = np.ascontiguousarray(words.astype("<u2")).view(np.uint8).reshape(shape[-1], -1)
    bits = np.unpackbits(octets, axis=1, bitorder="little")[:, : int(np.prod(shape[:-1]))]
    signs = bits.astype(np.int8) * 2 - 1
    if layout == "chunks":
        kh, kw, channels, filters = shape
        chunked = signs.reshape(filters, channels // 16, kh, kw, 16)
        ordered = chunked.transpose(0, 2, 3, 1, 4).reshape(filters, kh, kw, channels)
    else:
        ordered = signs.reshape(shape[-1], *shape[:-1])
    return np.ascontiguousarray(np.moveaxis(ordered, 0, -1))


def _ordered(filters: Array, layout: str) -> Array:
    """Filters first, each as a row of weights in the layout's order."""
    if layout == "chunks":
        n, kh, kw, channels = filters.shape
        if channels % 16:
            raise ValueError(f"layout 'chunks' needs a multiple of 16 channels, not {channels}")
        return filters.reshape(n, kh, kw, channels // 16, 16).transpose(0, 3, 1, 2, 4).reshape(n, -1)
    if layout != "taps":
        raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}, not {layout!r}")
    return filters.reshape(len(filters), -1)
