"""Convex problems whose constants G, μ, L, L₂ and D are known, not guessed.

All are sums over coordinates, F(w) = Σ φ(w_i − w*_i) with φ(0) = 0, on a box [low, high]^d. The stochastic
gradient is ∇F + σZ with Z standard normal in each coordinate. Then, with nothing estimated:

=====  =============================================================================================
G²     max over the box of E‖∇f̃‖² = Σ max(φ'(low − w*_i)², φ'(high − w*_i)²) + dσ², as |φ'| grows outwards
μ, L   least and greatest φ'' (the Hessian is diagonal)
L₂     Lipschitz constant of φ'' (a diagonal matrix's norm is its largest entry)
D      √d·(high − low)
=====  =============================================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Array = np.ndarray


@dataclass(frozen=True)
class Problem:
    """F, its domain and its constants."""

    name: str
    low: float
    high: float
    minimiser: Array
    noise: float  # σ
    loss: Callable[[Array], Array]  # φ, of w − w*
    slope: Callable[[Array], Array]  # φ'
    mu: float
    smoothness: float  # L
    hessian_lipschitz: float  # L₂

    @property
    def dimension(self) -> int:
        return len(self.minimiser)

    @property
    def diameter(self) -> float:
        """D."""
        return float(np.sqrt(self.dimension) * (self.high - self.low))

    @property
    def gradient_bound(self) -> float:
        """G."""
        ends = [self.slope(end - self.minimiser) for end in (self.low, self.high)]
        steepest = np.maximum(np.abs(ends[0]), np.abs(ends[1]))
        return float(np.sqrt(np.sum(steepest**2) + self.dimension * self.noise**2))

    def gap(self, w: Array) -> Array:
        """F(w) − F(w*) along the last axis."""
        return self.loss(w - self.minimiser).sum(axis=-1)

    def gradient(self, w: Array) -> Array:
        """∇F(w)."""
        return self.slope(w - self.minimiser)


def _minimiser(dimension: int, reach: float) -> Array:
    """A point off every grid, the same for each run: spread over [−reach, reach] by the golden ratio."""
    golden = (np.sqrt(5) - 1) / 2
    return reach * (2 * ((0.5 + golden * np.arange(1, dimension + 1)) % 1) - 1)


def quadratic(dimension: int, mu: float = 1.0, steepest: float = 2.0, noise: float = 1.0) -> Problem:
    """½ Σ h_i u_i² with curvatures h from μ to L: strongly convex, L₂ = 0. The least-squares case."""
    h = np.linspace(mu, steepest, dimension) if dimension > 1 else np.array([mu])
    return Problem(
        "quadratic", -1.0, 1.0, _minimiser(dimension, 0.6), noise,
        loss=lambda u: 0.5 * h * u**2, slope=lambda u: h * u,
        mu=mu, smoothness=float(h.max()), hessian_lipschitz=0.0,
    )  # fmt: skip


def log_cosh(dimension: int, mu: float = 0.5, bend: float = 2.0, width: float = 0.25, noise: float = 1.0) -> Problem:
    """Σ μu²/2 + a·b²·log cosh(u/b): strongly convex with a Hessian that changes, μ + a·sech²(u/b).

    (sech²)' = −2 sech²·tanh is at most 4/(3√3), so L₂ = 4a/(3√3·b).
    """

    def loss(u: Array) -> Array:
        x = np.abs(u) / width
        return 0.5 * mu * u**2 + bend * width**2 * (x + np.log1p(np.exp(-2 * x)) - np.log(2))

    return Problem(
        "log-cosh", -1.0, 1.0, _minimiser(dimension, 0.6), noise,
        loss=loss, slope=lambda u: mu * u + bend * width * np.tanh(u / width),
        mu=mu, smoothness=mu + bend, hessian_lipschitz=bend / width * 4 / (3 * np.sqrt(3)),
    )  # fmt: skip


def huber(dimension: int, width: float = 0.25, noise: float = 1.0) -> Problem:
    """Σ u²/(2b) for |u| < b, |u| − b/2 beyond: weakly convex (straight outside), L = 1/b."""
    return Problem(
        "Huber", -1.0, 1.0, _minimiser(dimension, 0.6), noise,
        loss=lambda u: np.where(np.abs(u) < width, u**2 / (2 * width), np.abs(u) - width / 2),
        slope=lambda u: np.clip(u / width, -1.0, 1.0),
        mu=0.0, smoothness=1 / width, hessian_lipschitz=float("inf"),
    )  # fmt: skip


def incline(length: float, noise: float) -> Problem:
    """F(w) = w on [0, length]: a straight line with its minimum at the wall. L = L₂ = 0.

    The wall keeps the iterates on one side, so their average does not profit from errors that cancel.
    """
    return Problem(
        "incline", 0.0, length, np.zeros(1), noise,
        loss=lambda u: u, slope=lambda u: np.ones_like(u), mu=0.0, smoothness=0.0, hessian_lipschitz=0.0,
    )  # fmt: skip


def half_cubic(length: float) -> Problem:
    """μu²/2 + max(0, u)³/6 on [0, length], w* in the middle, μ = length/8: L₂ = 1, without noise.

    With Δ = length this is a weight of one bit. Rounding sees the chord of φ' instead of φ', whose zero lies
    elsewhere; μ = length/8 is where that costs most, length³/256.
    """
    mu = length / 8
    return Problem(
        "half-cubic", 0.0, length, np.array([length / 2]), 0.0,
        loss=lambda u: 0.5 * mu * u**2 + np.maximum(u, 0.0) ** 3 / 6,
        slope=lambda u: mu * u + 0.5 * np.maximum(u, 0.0) ** 2,
        mu=mu, smoothness=mu + length / 2, hessian_lipschitz=1.0,
    )  # fmt: skip
