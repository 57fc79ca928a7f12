"""Who has which samples: devices are not all alike."""

from __future__ import annotations

import numpy as np

from flipbit.runtime.errors import ArgumentError

Array = np.ndarray


def amounts(least: int, most: int, devices: int, seed: int) -> list[int]:
    """How many samples each device has, all numbers equally likely."""
    return [int(n) for n in np.random.default_rng((seed, devices)).integers(least, most + 1, devices)]


def dirichlet(labels: Array, each: list[int], alpha: float, seed: int) -> list[Array]:
    """``each`` says how many samples a device has; its shares of the classes are drawn from a Dirichlet distribution:
    with an ``alpha`` of 0.1 most have one or two classes, with 1 some of all, with 100 nearly the same of each. No
    sample is dealt twice; a class that is used up gives way to what is left."""
    if sum(each) > len(labels):
        raise ArgumentError(f"{len(each)} devices need {sum(each):,} samples; there are {len(labels):,}")
    random = np.random.default_rng(seed)
    piles = [list(random.permutation(np.flatnonzero(labels == c))) for c in np.unique(labels)]
    shares = []
    for count in each:
        mine: list[int] = []
        odds = random.dirichlet(np.full(len(piles), alpha))
        while len(mine) < count:
            left = np.array([odd if pile else 0.0 for odd, pile in zip(odds, piles)])
            if left.sum() <= 1e-12:
                left = np.array([float(len(pile)) for pile in piles])
            mine.append(piles[random.choice(len(piles), p=left / left.sum())].pop())
        shares.append(np.array(mine))
    return shares


def by_group(groups: Array, each: list[int], seed: int) -> list[Array]:
    """A device per group (a person, a speaker), with at most so many of its samples: the groups that have most."""
    random = np.random.default_rng(seed)
    names, counts = np.unique(groups, return_counts=True)
    if len(each) > len(names):
        raise ArgumentError(f"{len(each)} devices, but the data has {len(names)} groups: at most one device for each")
    chosen = names[np.argsort(-counts, kind="stable")[: len(each)]]
    return [random.permutation(np.flatnonzero(groups == name))[:most] for name, most in zip(chosen, each)]
