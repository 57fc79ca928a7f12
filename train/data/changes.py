"""Augmentation of photographs and of motion: changes that leave the class as it is.

Random numbers come from the generator that the batch is drawn with, so that a resumed run draws what it would have
drawn. Images are uint8; of signals they hold the net's int8 value + 128, in rows of 1 × samples × channels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Array = np.ndarray


@dataclass(frozen=True)
class Photographs:
    """For pictures larger than 32×32: another part of the picture at another size, mirrored, in other light.

    The side of the part is ``smallest`` to ``largest`` times that of the picture; beyond the border it is repeated.
    """

    smallest: float = 0.7
    largest: float = 1.1
    proportion: float = 1.15  # width to height, at most
    light: float = 0.25  # brightness and contrast change by up to this share
    colour: float = 0.1  # and each colour by this

    def __call__(self, images: Array, random: np.random.Generator) -> Array:
        n, h, w, c = images.shape
        scale = np.sqrt(random.uniform(self.smallest**2, self.largest**2, n))
        stretch = np.exp(random.uniform(-1, 1, n) * np.log(self.proportion) / 2)
        mirrored = random.random(n) < 0.5
        rows = _places(h, scale / stretch, random.random(n))
        columns = _places(w, scale * stretch, random.random(n))
        columns = np.where(mirrored[:, None], columns[:, ::-1], columns)
        part = images[np.arange(n)[:, None, None], rows[:, :, None], columns[:, None, :]].astype(np.float32)
        contrast = random.uniform(1 - self.light, 1 + self.light, (n, 1, 1, 1)).astype(np.float32)
        offset = random.uniform(-self.light, self.light, (n, 1, 1, 1)).astype(np.float32) * 128
        gains = random.uniform(1 - self.colour, 1 + self.colour, (n, 1, 1, c)).astype(np.float32)
        part = ((part - 128) * contrast + 128 + offset) * gains
        return np.clip(np.rint(part), 0, 255).astype(np.uint8)


def _places(side: int, share: Array, at: Array) -> Array:
    """For each image the rows (or columns) of a part of ``share`` of the side, at a place ``at`` from 0 to 1."""
    size = share * side
    start = at * (side - size)
    places = start[:, None] + (np.arange(side) + 0.5) * (size / side)[:, None]
    return np.clip(np.floor(places), 0, side - 1).astype(np.int64)


@dataclass(frozen=True)
class Motion:
    """For sensors that people carry: turned in the hand, moved more or less, noisy, and faster or slower.

    Channels are triples of axes (acceleration, rotation), which turn together; other numbers of channels do not turn.
    """

    turn: float = 0.2  # radians: the deviation of the angle
    strength: float = 0.15  # amplitude changes by up to this share
    noise: float = 1.5  # steps of int8: the deviation
    pace: float = 0.1  # time is stretched by up to this share

    def __call__(self, images: Array, random: np.random.Generator) -> Array:
        n, _, length, channels = images.shape
        values = images[:, 0].astype(np.float32) - 128
        if self.pace:
            values = _stretched(values, 1 + random.uniform(-self.pace, self.pace, n))
        if self.turn and channels % 3 == 0:
            turns = _rotations(random.normal(0, self.turn, n), random.normal(0, 1, (n, 3))).astype(np.float32)
            triples = values.reshape(n, length, channels // 3, 3)
            values = np.einsum("nlkc,ndc->nlkd", triples, turns).reshape(n, length, channels)
        values *= random.uniform(1 - self.strength, 1 + self.strength, (n, 1, 1)).astype(np.float32)
        values += random.normal(0, self.noise, values.shape).astype(np.float32)
        return np.clip(np.rint(values + 128), 0, 255).astype(np.uint8)[:, None]


def _stretched(values: Array, pace: Array) -> Array:
    """Samples at ``pace`` times the distance around the middle, between neighbours; ends are repeated."""
    n, length, _ = values.shape
    middle = (length - 1) / 2
    at = np.clip((np.arange(length) - middle) * pace[:, None] + middle, 0, length - 1)
    left = np.minimum(at.astype(np.int64), length - 2)
    share = (at - left)[..., None].astype(np.float32)
    each = np.arange(n)[:, None]
    return values[each, left] * (1 - share) + values[each, left + 1] * share


def _rotations(angles: Array, axes: Array) -> Array:
    """Rotation matrices [n, 3, 3] by Rodrigues' formula."""
    axes = axes / np.maximum(np.linalg.norm(axes, axis=1, keepdims=True), 1e-9)
    x, y, z = axes.T
    zero = np.zeros_like(x)
    cross = np.stack([zero, -z, y, z, zero, -x, -y, x, zero], 1).reshape(-1, 3, 3)
    sine, cosine = np.sin(angles)[:, None, None], np.cos(angles)[:, None, None]
    return np.eye(3) + sine * cross + (1 - cosine) * (cross @ cross)
