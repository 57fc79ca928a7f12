"""Which images of a batch a replica takes, and how it makes only those.

Batches are the same whatever the number of workers. A replica takes places i and n − 1 − i of a batch of n together,
as mixup mixes these two. Whoever augments a share draws the random numbers of the whole batch, which costs little, and
keeps those of its images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Share = Callable[[int], np.ndarray]  # places in a batch of so many images


def places(size: int, replica: int, replicas: int) -> np.ndarray:
    """The places in a batch of ``size`` images that one of ``replicas`` takes, in ascending order."""
    pairs = (size + 1) // 2
    first, end = pairs * replica // replicas, pairs * (replica + 1) // replicas
    near = np.arange(first, end)
    far = size - 1 - near[::-1]
    return np.concatenate([near, far[far >= pairs]])


def step_sizes(images: int, batch: int) -> list[int]:
    """Images of each step of an epoch; a single one at the end is left out, as BatchNorm has no variance to take."""
    sizes = [min(batch, images - start) for start in range(0, images, batch)]
    return sizes[:-1] if len(sizes) > 1 and sizes[-1] == 1 < batch else sizes


class DrawnForAll:
    """A generator that draws for a whole batch, and gives the numbers of some of its images.

    Augmentation asks for as many as it has images: along the last axis of ``integers``, else along the first one.
    """

    def __init__(self, random: np.random.Generator, size: int, kept: np.ndarray):
        self._random, self._size, self._kept = random, size, kept

    def integers(self, low: int, high: int, size: int | Sequence[int]) -> np.ndarray:
        shape = (size,) if isinstance(size, int) else tuple(size)
        return self._random.integers(low, high, (*shape[:-1], self._size))[..., self._kept]

    def random(self, size: int | Sequence[int]) -> np.ndarray:
        return self._random.random(self._whole(size))[self._kept]

    def uniform(self, low: float, high: float, size: int | Sequence[int]) -> np.ndarray:
        return self._random.uniform(low, high, self._whole(size))[self._kept]

    def normal(self, mean: float, deviation: float, size: int | Sequence[int]) -> np.ndarray:
        return self._random.normal(mean, deviation, self._whole(size))[self._kept]

    def _whole(self, size: int | Sequence[int]) -> tuple[int, ...]:
        return (self._size, *(() if isinstance(size, int) else tuple(size)[1:]))


def drawn(random: np.random.Generator, size: int, share: Share | None) -> tuple[Any, Any]:
    """The places to take in a batch of ``size``, and what draws for their images."""
    if share is None:
        return slice(None), random
    kept = share(size)
    return kept, DrawnForAll(random, size, kept)
