"""SR and BC on a convex problem, many runs side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from flipbit.train.theory.convex_problems import Problem

Array = np.ndarray

METHODS = ("sr", "bc-stochastic", "bc-deterministic")


@dataclass(frozen=True)
class Curve:
    """E[F(w̄_T) − F*] over T: mean of independent runs, and the mean's standard error."""

    steps: Array
    gap: Array
    error: Array

    def exceeds(self, bound: Array, errors: float = 3.0) -> bool:
        """Whether the gap is above a bound anywhere, beyond what chance explains."""
        return bool(np.any(self.gap - errors * self.error > bound))


def stochastic_round(w: Array, low: float, delta: float, rng: np.random.Generator) -> Array:
    """Q_s on the grid low + kΔ: up with probability equal to the remainder, so that E[Q_s(w)] = w."""
    return low + delta * np.floor((w - low) / delta + rng.random(np.shape(w)))


def deterministic_round(w: Array, low: float, delta: float) -> Array:
    """Q_d: the nearest grid value."""
    return low + delta * np.floor((w - low) / delta + 0.5)


def strong_rate(problem: Problem) -> Callable[[int], float]:
    """α_t = 1/(μ(t+1)), t from 0, of Theorems 1 and 4."""
    return lambda t: 1 / (problem.mu * (t + 1))


def weak_rate(c: float) -> Callable[[int], float]:
    """α_t = c/√t, t from 1, of Theorems 2 and 3."""
    return lambda t: c / np.sqrt(t)


def descend(
    problem: Problem,
    method: str,
    delta: float,
    rate: Callable[[int], float],
    first: int,
    steps: int,
    runs: int,
    rng: np.random.Generator,
) -> Curve:
    """Average the iterates w^1 … w^T and measure their gap at T = 10, …, ``steps``.

    ``first`` is the index of the starting point, the corner where all coordinates are ``high``: 0 for
    :func:`strong_rate`, 1 for :func:`weak_rate`. Values that leave the box are clipped to it, as the paper has
    it; clipping never takes an iterate away from w*, so the proofs stand.
    """
    marks = np.unique(np.round(np.geomspace(10, steps, 4 * int(np.log10(steps)) - 3)).astype(int))
    measured = set(marks.tolist())
    w = np.full((runs, problem.dimension), problem.high)
    total = np.zeros_like(w)
    gap, error = [], []
    for t in range(first, steps + 1):
        if t >= 1:
            total += w
            if t in measured:
                gaps = problem.gap(total / t)
                gap.append(gaps.mean())
                error.append(gaps.std(ddof=1) / np.sqrt(runs))
        if method == "sr":
            seen = w
        elif method == "bc-stochastic":
            seen = stochastic_round(w, problem.low, delta, rng)
        else:
            seen = deterministic_round(w, problem.low, delta)
        step = problem.gradient(seen)
        if problem.noise:
            step = step + problem.noise * rng.standard_normal(w.shape)
        w = w - rate(t) * step
        if method == "sr":
            w = stochastic_round(w, problem.low, delta, rng)
        w = np.clip(w, problem.low, problem.high)
    return Curve(marks, np.array(gap), np.array(error))
