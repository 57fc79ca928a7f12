"""The right-hand sides of Lemma 1, Theorems 1 to 4 and the corollary: as printed, and as they can be proved.

Reading the proofs, four details do not hold as printed. ``docs/theory.md`` explains each, and
:mod:`flipbit.train.theory.convex` measures a problem that breaks it.

* Theorem 2: the statement's first term is D²/(c√T), the proof's is D²/(2c√T). The derivation gives the latter.
* Theorems 2 and 3: the proof uses Σ_{t≤T} 1/√t ≤ √(T+1), false from T = 3 on; the sum is nearly 2√T. With
  Σ 1/√t ≤ 2√T − 1 the second term is (2√T − 1)cG²/(2T), almost twice the printed one.
* Theorem 4: ‖r̂‖ ≤ (L₂/2)‖r‖² becomes (L₂/2)‖r‖ in the next line. With the square kept the floor is
  DL₂dΔ²/2, more than the printed DL₂√dΔ/2 when √dΔ > 1.
* Theorem 4 and the corollary: E[r] = 0 is used, which Q_s fulfils and Q_d does not. They hold for BC with
  stochastic rounding only.

Theorem 1 holds as printed for w̄ = (1/T)Σ_{t=1}^T w^t. (Its proof averages the T + 1 iterates from t = 0 but
divides by T; starting at t = 1 instead, μ‖w¹ − w*‖ ≤ ‖∇F(w¹)‖ ≤ G repairs it.)
"""

from __future__ import annotations

import numpy as np

from flipbit.train.theory.convex_problems import Problem

Array = np.ndarray


def lemma1(dimension: int, delta: float, alpha: float, gradient_bound: float) -> float:
    """E‖r‖² ≤ √d·Δ·α·G."""
    return float(np.sqrt(dimension) * delta * alpha * gradient_bound)


def _strong_rate(steps: Array, problem: Problem) -> Array:
    """(1 + log(T+1))G²/(2μT), for α_t = 1/(μ(t+1))."""
    return (1 + np.log(steps + 1)) * problem.gradient_bound**2 / (2 * problem.mu * steps)


def _sr_floor(problem: Problem, delta: float) -> float:
    """√d·ΔG/2."""
    return float(np.sqrt(problem.dimension) * delta * problem.gradient_bound / 2)


def theorem1(steps: Array, problem: Problem, delta: float) -> Array:
    """SR, strongly convex."""
    return _strong_rate(steps, problem) + _sr_floor(problem, delta)


def _distance_term(steps: Array, problem: Problem, c: float) -> Array:
    """D²/(2c√T)."""
    return problem.diameter**2 / (2 * c * np.sqrt(steps))


def _printed_step_term(steps: Array, problem: Problem, c: float) -> Array:
    return np.sqrt(steps + 1) / (2 * steps) * c * problem.gradient_bound**2


def _step_term(steps: Array, problem: Problem, c: float) -> Array:
    """G²/(2T)·Σα_t with Σ_{t≤T} c/√t ≤ c(2√T − 1)."""
    return (2 * np.sqrt(steps) - 1) / (2 * steps) * c * problem.gradient_bound**2


def theorem2_statement(steps: Array, problem: Problem, delta: float, c: float) -> Array:
    """As in the paper's Section 4.1. It follows from :func:`theorem2` if c ≤ D/G, and may fail otherwise."""
    return 2 * _distance_term(steps, problem, c) + _printed_step_term(steps, problem, c) + _sr_floor(problem, delta)


def theorem2_proof(steps: Array, problem: Problem, delta: float, c: float) -> Array:
    """As in the last line of the paper's proof."""
    return _distance_term(steps, problem, c) + _printed_step_term(steps, problem, c) + _sr_floor(problem, delta)


def theorem2(steps: Array, problem: Problem, delta: float, c: float) -> Array:
    """SR, weakly convex, α_t = c/√t: D²/(2c√T) + (2√T−1)cG²/(2T) + √dΔG/2."""
    return _distance_term(steps, problem, c) + _step_term(steps, problem, c) + _sr_floor(problem, delta)


def _bc_floor(problem: Problem, delta: float) -> float:
    """√d·ΔLD."""
    return float(np.sqrt(problem.dimension) * delta * problem.smoothness * problem.diameter)


def theorem3_printed(steps: Array, problem: Problem, delta: float, c: float) -> Array:
    return _distance_term(steps, problem, c) + _printed_step_term(steps, problem, c) + _bc_floor(problem, delta)


def theorem3(steps: Array, problem: Problem, delta: float, c: float) -> Array:
    """BC, weakly convex, α_t = c/√t: D²/(2c√T) + (2√T−1)cG²/(2T) + √dΔLD."""
    return _distance_term(steps, problem, c) + _step_term(steps, problem, c) + _bc_floor(problem, delta)


def theorem4_printed(steps: Array, problem: Problem, delta: float) -> Array:
    floor = problem.diameter * problem.hessian_lipschitz * np.sqrt(problem.dimension) * delta / 2
    return _strong_rate(steps, problem) + floor


def theorem4(steps: Array, problem: Problem, delta: float) -> Array:
    """BC with Q_s, strongly convex: (1 + log(T+1))G²/(2μT) + DL₂dΔ²/2. The corollary is L₂ = 0."""
    floor = problem.diameter * problem.hessian_lipschitz * problem.dimension * delta**2 / 2
    return _strong_rate(steps, problem) + floor
