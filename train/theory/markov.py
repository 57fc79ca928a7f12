"""Stochastic rounding as a Markov chain: Theorems 5 and 6, and the three states of Figure 3.

At a fixed learning rate α, SR moves between grid points at random, and where it goes depends only on where
it is: a Markov chain. The step is v = −α∇f̃(x)/Δ in units of the grid, and Q_s sends it to the whole number k
with probability max(0, 1 − |v − k|). Averaged over the gradient noise,

    T_α(x, x + kΔ) = E max(0, 1 − |v − k|) = R(k−1) − 2R(k) + R(k+1),   R(a) = E max(0, v − a),

as a hat is the second difference of ramps. R has a closed form for the noises used here, so T_α is exact.

Theorem 5 says: the stationary distribution π_α tends to a π̃ that is positive everywhere. Theorem 6 says: the
mixing time grows without bound. Its proof has T̃_α → I at the rate α, so the growth to expect is 1/α.

Two conventions differ from the paper's text. Its Ũ(x, x−Δ) integrates p(z)z/Δ over z < 0, which is negative,
where a probability is meant; and it lets p be the law of the *gradient* while the weight moves *against* the
gradient. Here the rate to the right is E max(0, −∇f̃)/Δ and to the left E max(0, ∇f̃)/Δ, both positive. Rows
sum to one (``T[x, y]`` goes from x to y); the paper writes the same matrix with columns that do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.special import erfcx

from flipbit.train.theory.outcome import Outcome, save_figure, size_of
from flipbit.train.theory.toy_problem import DELTA, gradient

Array = np.ndarray
Ramp = Callable[[Array], Array]


def gaussian_ramp(x: Array) -> Array:
    """E max(0, x + Z) = φ(x) + xΦ(x) for standard normal Z."""
    x = np.asarray(x, dtype=float)
    density = np.exp(-0.5 * x**2) / np.sqrt(2 * np.pi)
    # By symmetry ramp(x) = x + ramp(−x); the scaled erfcx keeps the tail of ramp(−|x|) to full precision.
    tail = density * (1 - np.sqrt(np.pi / 2) * np.abs(x) * erfcx(np.abs(x) / np.sqrt(2)))
    return np.where(x > 0, x, 0.0) + tail


def student_ramp(x: Array) -> Array:
    """E max(0, x + Z) = (√(x² + 2) + x)/2 for Z of Student's t with two degrees of freedom.

    Its tail falls like 1/(2ν²): the heaviest that Theorem 5 allows (∫_ν^∞ p ≤ C₁/ν²), with infinite variance.
    """
    x = np.asarray(x, dtype=float)
    return np.where(x > 0, x, 0.0) + 1 / (np.sqrt(x**2 + 2) + np.abs(x))


NOISES: dict[str, Ramp] = {"Gaussian": gaussian_ramp, "Student t, 2 d.o.f.": student_ramp}


def transition_matrix(gradient: Array, delta: float, alpha: float, sigma: float, ramp: Ramp = gaussian_ramp) -> Array:
    """T_α of SR on a line of grid points, given ∇f at each; the stochastic gradient is ∇f + σZ.

    Values that leave the grid are clipped to its ends.
    """
    count = len(gradient)
    mean, spread = (-alpha * np.asarray(gradient, dtype=float) / delta)[:, None], alpha * sigma / delta
    k = np.arange(count)[None, :] - np.arange(count)[:, None]

    def above(a: Array) -> Array:  # E max(0, v − a)
        return spread * ramp((mean - a) / spread)

    def below(a: Array) -> Array:  # E max(0, a − v)
        return spread * ramp((a - mean) / spread)

    # Moves left use the other ramp: the same number, without cancelling large terms to get a small one.
    matrix = np.where(k > 0, above(k - 1) - 2 * above(k) + above(k + 1), below(k + 1) - 2 * below(k) + below(k - 1))
    matrix[:, -1] = (above(k - 1) - above(k))[:, -1]
    matrix[:, 0] = (below(k + 1) - below(k))[:, 0]
    return _fill_diagonal(np.maximum(matrix, 0.0))


def limit_rates(gradient: Array, delta: float, sigma: float, ramp: Ramp = gaussian_ramp) -> Array:
    """Ũ of Theorem 5: Ũ(x, x+Δ) = E max(0, −∇f̃(x))/Δ and Ũ(x, x−Δ) = E max(0, ∇f̃(x))/Δ."""
    slope = np.asarray(gradient, dtype=float) / sigma
    return sigma / delta * (np.diag(ramp(-slope)[:-1], 1) + np.diag(ramp(slope)[1:], -1))


def limit_matrix(rates: Array, alpha: float) -> Array:
    """T̃_α = I − α·diag(Ũ1) + αŨ."""
    return _fill_diagonal(alpha * rates)


def largest_alpha(rates: Array) -> float:
    """α₀: the largest α for which T̃_α has no negative entry."""
    return float(1 / rates.sum(axis=1).max())


def _fill_diagonal(matrix: Array) -> Array:
    np.fill_diagonal(matrix, 0.0)
    stay = 1 - matrix.sum(axis=1)
    if stay.min() < -1e-12:
        raise ValueError(f"a row of moves sums to {1 - stay.min():.6g}: more than 1 is no probability, use a smaller α")
    np.fill_diagonal(matrix, np.maximum(stay, 0.0))
    return matrix


def stationary(matrix: Array) -> Array:
    """π with πT = π, by Grassmann, Taksar and Heyman's elimination.

    It adds, multiplies and divides positive numbers only, so even a probability of 1e-60 has all its digits.
    """
    work = np.array(matrix, dtype=float)
    count = len(work)
    for last in range(count - 1, 0, -1):
        leaving = work[last, :last].sum()
        if leaving <= 0:
            raise ValueError(
                f"state {last} never moves to a lower one: the chain has no unique stationary distribution"
            )
        work[:last, last] /= leaving
        work[:last, :last] += np.outer(work[:last, last], work[last, :last])
    pi = np.ones(count)
    for state in range(1, count):
        pi[state] = pi[:state] @ work[:state, state]
        pi[: state + 1] /= pi[: state + 1].max()  # or a heavy state after light ones overflows
    return pi / pi.sum()


def total_variation(p: Array, q: Array) -> float:
    """max over sets A of |p(A) − q(A)| = ½ Σ |p − q|."""
    return float(0.5 * np.abs(np.asarray(p) - np.asarray(q)).sum(axis=-1).max())


def distance_after(matrix: Array, steps: int) -> float:
    """The worst start's total variation from π after ``steps`` steps."""
    return total_variation(np.linalg.matrix_power(matrix, steps), stationary(matrix))


def mixing_time(matrix: Array, epsilon: float) -> int:
    """M_ε: the fewest steps after which every start is within ε of π in total variation (exact).

    The distance never rises, so the powers T, T², T⁴, … bracket M_ε and then find its bits.
    """
    pi = stationary(matrix)
    if total_variation(np.eye(len(matrix)), pi) <= epsilon:
        return 0
    powers = [matrix]
    while total_variation(powers[-1], pi) > epsilon:
        if len(powers) > 60:
            raise ValueError(f"not mixed to {epsilon:g} after 2^60 steps: too many for exact powers")
        powers.append(powers[-1] @ powers[-1])
    steps, reached = 0, np.eye(len(matrix))
    for bit in range(len(powers) - 1, -1, -1):
        further = reached @ powers[bit]
        if total_variation(further, pi) > epsilon:
            steps, reached = steps + 2**bit, further
    return steps + 1


def time_average_error(matrix: Array, pi: Array, inside: Array, steps: int) -> float:
    """Standard deviation of the share of ``steps`` steps that a chain spends ``inside`` a set of states.

    With f = 1_A − π(A) and (I − T)g = f, the share's variance is (2π(f·g) − π(f²))/steps for long chains.
    """
    f = np.asarray(inside, dtype=float) - pi[inside].sum()
    g = np.linalg.solve(np.eye(len(pi)) - matrix + np.outer(np.ones(len(pi)), pi), f)
    return float(np.sqrt(max(0.0, 2 * pi @ (f * g) - pi @ (f * f)) / steps))


# Figure 3, left: what the arrows of the states A, B and C say. On the right each move is halved.
THREE_STATES = np.array([[0.6, 0.2, 0.2], [0.4, 0.2, 0.4], [0.6, 0.2, 0.2]])


def halve_moves(matrix: Array) -> Array:
    """Every move half as likely, the rest put on staying: (I + T)/2."""
    return 0.5 * (np.eye(len(matrix)) + matrix)


@dataclass(frozen=True)
class MarkovSizes:
    sigmas: tuple[float, ...]
    alphas: tuple[float, ...]


SIZES = {
    "quick": MarkovSizes((1.0, 4.0), tuple(np.logspace(0, -4, 9).tolist())),
    "small": MarkovSizes((0.75, 1.0, 2.0, 4.0), tuple(np.logspace(0, -4, 17).tolist())),
    "paper": MarkovSizes((0.75, 1.0, 1.5, 2.0, 3.0, 4.0), tuple(np.logspace(0, -6, 37).tolist())),
}
LOW, HIGH = -2.0, 7.0  # the toy problem around its three valleys: 19 states
EPSILON = 0.1


def run(scale: str, folder: Path, seed: int = 0) -> Outcome:
    """Theorems 5 and 6 on the toy problem clipped to [−2, 7], and Figure 3. Exact: the seed changes nothing."""
    sizes = size_of(scale, SIZES)
    grid = np.linspace(LOW, HIGH, round((HIGH - LOW) / DELTA) + 1)
    slope = gradient(grid)
    rows = [_follow(noise, sigma, slope, sizes.alphas) for noise in NOISES for sigma in sizes.sigmas]
    three = _three_states()

    smallest = min(sizes.alphas)
    furthest = max(row["tv"][-1] for row in rows)
    slopes = [row["mixing_slope"] for row in rows]
    checks = {
        "π_α is within 10α of π̃ in total variation at the smallest α": furthest < 10 * smallest,
        "the distance falls at least like α": all(row["tv_slope"] is None or row["tv_slope"] > 0.9 for row in rows),
        "π̃ is positive everywhere": all(row["least_limit_probability"] > 0 for row in rows),
        "M_ε grows like 1/α": all(abs(s + 1) < 0.05 for s in slopes),
        "halving the moves keeps the equilibrium": three["tv_after_halving"] < 1e-12,
        "halving the moves raises the mixing time": three["mixing_time_halved"] > three["mixing_time"],
    }
    picture = _draw(folder / "theory-markov.png", grid, slope, rows, sizes.alphas)
    return Outcome(
        name="markov",
        claim="SR's stationary distribution tends to a positive π̃ as α falls, while its mixing time grows like 1/α.",
        held=all(checks.values()),
        summary=(
            f"TV(π_α, π̃) ≤ {furthest:.1e} at α = {smallest:g}; "
            f"M_{EPSILON:g} ~ α^({min(slopes):.3f} … {max(slopes):.3f}); "
            f"three states: M_{EPSILON:g} {three['mixing_time']} → {three['mixing_time_halved']} when moves are halved"
        ),
        numbers={
            "checks": checks, "grid": grid.tolist(), "epsilon": EPSILON, "alphas": list(sizes.alphas),
            "chains": rows, "three_states": three,
        },
        figures=[picture],
    )  # fmt: skip


def _follow(noise: str, sigma: float, slope: Array, alphas: tuple[float, ...]) -> dict[str, Any]:
    """One noise law as α falls."""
    ramp = NOISES[noise]
    rates = limit_rates(slope, DELTA, sigma, ramp)
    alpha0 = largest_alpha(rates)
    limit = stationary(limit_matrix(rates, alpha0))
    matrices = [transition_matrix(slope, DELTA, alpha, sigma, ramp) for alpha in alphas]
    tv = [total_variation(stationary(matrix), limit) for matrix in matrices]
    mixing = [mixing_time(matrix, EPSILON) for matrix in matrices]
    # The slope over the smaller half (in logarithm) of the learning rates, where the limit should rule.
    small = np.array(alphas) <= np.sqrt(min(alphas) * max(alphas)) * 1.001
    log_alpha = np.log(np.array(alphas)[small])
    mixing_slope = np.polyfit(log_alpha, np.log(np.array(mixing, dtype=float)[small]), 1)[0]
    # Gaussian tails beyond Δ/α vanish so fast that the distance is soon nothing but rounding: no slope left to fit.
    gone = max(np.array(tv)[small]) < 1e-12
    tv_slope = None if gone else float(np.polyfit(log_alpha, np.log(np.array(tv)[small]), 1)[0])
    return {
        "noise": noise, "sigma": sigma, "alpha0": alpha0,
        "tv": tv, "tv_slope": tv_slope, "mixing_times": mixing, "mixing_slope": float(mixing_slope),
        "limit": limit.tolist(), "least_limit_probability": float(limit.min()),
    }  # fmt: skip


def _three_states() -> dict[str, Any]:
    halved = halve_moves(THREE_STATES)
    return {
        "equilibrium": stationary(THREE_STATES).tolist(),
        "equilibrium_halved": stationary(halved).tolist(),
        "tv_after_halving": total_variation(stationary(THREE_STATES), stationary(halved)),
        "mixing_time": mixing_time(THREE_STATES, EPSILON),
        "mixing_time_halved": mixing_time(halved, EPSILON),
    }


def _draw(path: Path, grid: Array, slope: Array, rows: list[dict[str, Any]], alphas: tuple[float, ...]) -> Path:
    figure = Figure(figsize=(10.5, 7.5), layout="constrained")
    ((left, right), (lower_left, lower_right)) = figure.subplots(2, 2)

    shown = max((row for row in rows if row["noise"] == "Gaussian"), key=lambda row: row["sigma"])
    for alpha, shade in ((1.0, "0.8"), (0.3, "0.6"), (0.1, "0.4"), (0.03, "0.0")):
        pi = stationary(transition_matrix(slope, DELTA, alpha, shown["sigma"]))
        left.plot(grid, pi, "o-", color=shade, label=f"$\\pi_\\alpha$, α = {alpha:g}")
    left.plot(grid, shown["limit"], "x--", color="tab:red", label=r"limit $\tilde\pi$")
    left.set(title=f"stationary distribution of SR, Gaussian σ = {shown['sigma']:g}", xlabel="w", ylabel="probability")

    for row in rows:
        style = "-" if row["noise"] == "Gaussian" else "--"
        colour = f"C{sorted({r['sigma'] for r in rows}).index(row['sigma'])}"
        label = f"{row['noise'].split(',')[0]}, σ = {row['sigma']:g}"
        right.loglog(alphas, np.maximum(row["tv"], 1e-16), style, color=colour, marker=".", label=label)
        lower_left.loglog(alphas, row["mixing_times"], style, color=colour, marker=".", label=label)
    right.set(
        title=r"Theorem 5: distance of $\pi_\alpha$ from $\tilde\pi$",
        xlabel="learning rate α",
        ylabel="total variation",
    )
    right.set_ylim(1e-16, 2)
    reference = np.array([min(alphas), 0.05])
    lower_left.loglog(reference, 300 / reference, "k:", label="1/α")
    lower_left.set(title=f"Theorem 6: mixing time $M_{{{EPSILON:g}}}$", xlabel="learning rate α", ylabel="steps")

    steps = np.arange(0, 13)
    for matrix, label in (
        (THREE_STATES, "Figure 3, left"),
        (halve_moves(THREE_STATES), "Figure 3, right: moves halved"),
    ):
        distances = [distance_after(matrix, int(n)) for n in steps]
        lower_right.semilogy(steps, np.maximum(distances, 1e-17), "o-", label=label)
    lower_right.axhline(EPSILON, color="k", linestyle=":", label=f"ε = {EPSILON:g}")
    lower_right.set(
        title="three states: distance from the shared equilibrium", xlabel="steps", ylabel="total variation"
    )
    lower_right.set_ylim(1e-5, 1)
    for axis in (left, right, lower_left, lower_right):
        axis.grid(alpha=0.3)
        axis.legend(fontsize="small")
    return save_figure(figure, path)
