"""What devices may do to the fleet, at most: one vote per weight, and sums no longer than others'."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flipbit.runtime.core.exchange import Sums

Array = np.ndarray
LONGEST = 3.0  # times the median device's sums, per sample
FEW = 4  # devices; of fewer, a median says nothing


def winners(lists: Sequence[Array], places: int, most: int, quorum: int, seed: int) -> Array:
    """The ``most`` places that most devices want to flip; of places with as many votes, chance decides. A device has
    one vote per place, and a place needs ``quorum`` votes."""
    votes = np.zeros(places, np.int64)
    for wanted in lists:
        votes[np.unique(wanted)] += 1
    candidates = np.flatnonzero(votes >= max(quorum, 1))
    order = np.lexsort((np.random.default_rng(seed).random(len(candidates)), -votes[candidates]))
    return np.sort(candidates[order[:most]])


def norms(sums: Sequence[Array], counts: int, samples: Sequence[int]) -> Array:
    """Mean size of a device's sums, per √sample: what chance alone makes of them does not grow with samples."""
    values = [words[counts:].view(np.int32).astype(np.float64) for words in sums]
    return np.array([np.abs(v).mean() / np.sqrt(n) if len(v) else 0.0 for v, n in zip(values, samples)])


def clip(words: Array, counts: int, keep: int) -> Array:
    """Sums × keep / 2^16, towards 0."""
    values = words[counts:].view(np.int32).astype(np.int64) * keep
    return np.concatenate([words[:counts], (np.sign(values) * (np.abs(values) >> 16)).astype(np.int32).view(np.uint32)])


def bounded(sums: Sequence[Array], counts: int, samples: Sequence[int]) -> tuple[list[Array], int]:
    """Sums of devices, those that are too long clipped to :data:`LONGEST` medians; how many were."""
    if len(sums) < FEW:
        return list(sums), 0
    sizes = norms(sums, counts, samples)
    bound = LONGEST * np.median(sizes)
    clipped = [clip(w, counts, int(65536 * bound / size)) if size > bound else w for w, size in zip(sums, sizes)]
    return clipped, int((sizes > bound).sum())


def believable(moments: Sequence[Array], counts: int, samples: Sequence[int]) -> Array:
    """Which devices' moments are like the others': whose channels' means and mean squares are, on average, within
    :data:`LONGEST` times the median device's distance from the median."""
    if len(moments) < FEW:
        return np.ones(len(moments), bool)
    pairs = np.stack([m[:counts].view(np.int64).reshape(-1, 2) / max(n, 1) for m, n in zip(moments, samples)])
    middle = np.median(pairs, axis=0)
    away = np.abs(pairs - middle)
    usual = np.median(away, axis=0) + 1e-9
    distance = np.minimum(away / usual, 1000).mean(axis=(1, 2))
    return distance <= LONGEST * np.median(distance)


def plausible(words: Array, like: Sums, samples: int) -> bool:
    """Whether sums could be those of so many samples at all: 31 bits each, before they are added up."""
    if like.recalibrating:
        classes = words[like.counts :].astype(np.int64)
        squares = words[: like.counts].view(np.uint64)[1::2]
        return int(classes.sum()) == samples and bool((squares < 1 << 52).all())
    return bool((np.abs(words[like.counts :].view(np.int32).astype(np.int64)) < 1 << 30).all())
