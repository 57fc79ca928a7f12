"""The paper's theorems, at quick scale, and the tools that measure them."""

from __future__ import annotations

import json
import subprocess
import sys
from math import floor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from flipbit.train.settings import InputError
from flipbit.train.theory import bounds, convex, markov, toy, toy_problem
from flipbit.train.theory.convex_problems import Problem, half_cubic, huber, incline, log_cosh, quadratic
from flipbit.train.theory.outcome import Outcome, size_of
from flipbit.train.theory.rounded_descent import (
    Curve,
    descend,
    deterministic_round,
    stochastic_round,
    strong_rate,
    weak_rate,
)

EXPERIMENTS = {"toy": toy, "convex": convex, "markov": markov}
GRID = np.linspace(markov.LOW, markov.HIGH, 19)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    folder = tmp_path_factory.mktemp("theory")
    return {name: module.run("quick", folder) for name, module in EXPERIMENTS.items()}


# What every experiment promises


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_check_of_an_experiment_holds(outcomes: dict[str, Outcome], name: str) -> None:
    assert {check: held for check, held in outcomes[name].numbers["checks"].items() if not held} == {}
    assert outcomes[name].held is True


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_outcome_fits_strict_json(outcomes: dict[str, Outcome], name: str) -> None:
    assert json.loads(json.dumps(outcomes[name].numbers, allow_nan=False)) == outcomes[name].numbers


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_draws_small_png_files(outcomes: dict[str, Outcome], name: str) -> None:
    assert outcomes[name].figures
    for path in outcomes[name].figures:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.stat().st_size < 150_000


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_summary_is_one_line(outcomes: dict[str, Outcome], name: str) -> None:
    assert "\n" not in outcomes[name].summary
    assert "nan" not in outcomes[name].summary


def test_an_unknown_scale_is_refused_with_the_choices(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'huge': choose from quick, small, paper"):
        markov.run("huge", tmp_path)
    assert size_of("small", {"small": 3}) == 3


def test_theory_imports_no_tensorflow() -> None:
    names = ", ".join(f"flipbit.train.theory.{name}" for name in EXPERIMENTS)
    code = f"import sys, {names}; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Markov chains


@given(st.floats(-12, 12))
def test_the_gaussian_ramp_is_the_expected_excess(x: float) -> None:
    expected, _ = integrate.quad(
        lambda z: max(0.0, x + z) * stats.norm.pdf(z), max(-x, -12), 14, epsabs=0, epsrel=1e-10
    )
    assert markov.gaussian_ramp(np.array(x)) == pytest.approx(expected, rel=1e-7, abs=1e-40)


@given(st.floats(-12, 12))
def test_the_student_ramp_is_the_expected_excess(x: float) -> None:
    expected, _ = integrate.quad(lambda z: (x + z) * stats.t.pdf(z, 2), -x, np.inf, limit=200)
    assert markov.student_ramp(np.array(x)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("alpha", [1.0, 0.2, 0.02])
@pytest.mark.parametrize("noise", markov.NOISES)
def test_the_transition_matrix_is_what_stochastic_rounding_does(alpha: float, noise: str) -> None:
    rng, draws, sigma = np.random.default_rng(1), 200_000, 1.5
    matrix = markov.transition_matrix(toy_problem.gradient(GRID), 0.5, alpha, sigma, markov.NOISES[noise])
    for state in (0, 7, 13, 18):
        z = rng.standard_normal(draws) if noise == "Gaussian" else rng.standard_t(2, draws)
        moved = GRID[state] - alpha * (toy_problem.gradient(GRID[state]) + sigma * z)
        landed = np.clip(stochastic_round(moved, GRID[0], 0.5, rng), GRID[0], GRID[-1])
        share = np.bincount(np.round((landed - GRID[0]) / 0.5).astype(int), minlength=19) / draws
        error = np.sqrt(matrix[state] * (1 - matrix[state]) / draws)
        assert np.all(np.abs(share - matrix[state]) <= 5 * error + 5 / draws)


def test_the_chain_moves_against_the_gradient() -> None:
    rates = markov.limit_rates(np.full(3, 5.0), 0.5, 1.0)
    assert rates[1, 0] > 1000 * rates[1, 2] > 0


@given(st.floats(0.3, 5.0), st.sampled_from(sorted(markov.NOISES)))
def test_the_limit_distribution_balances_each_pair_of_neighbours(sigma: float, noise: str) -> None:
    rates = markov.limit_rates(toy_problem.gradient(GRID), 0.5, sigma, markov.NOISES[noise])
    pi = markov.stationary(markov.limit_matrix(rates, markov.largest_alpha(rates)))
    assert np.all(pi > 0)
    # Relative, so that probabilities of 1e-90 count as much as those of 0.4.
    np.testing.assert_allclose(pi[:-1] * np.diag(rates, 1), pi[1:] * np.diag(rates, -1), rtol=1e-9)


def test_the_limit_matrix_refuses_an_alpha_beyond_alpha0() -> None:
    rates = markov.limit_rates(toy_problem.gradient(GRID), 0.5, 1.0)
    assert markov.limit_matrix(rates, markov.largest_alpha(rates)).min() >= 0
    with pytest.raises(ValueError, match="smaller α"):
        markov.limit_matrix(rates, 1.01 * markov.largest_alpha(rates))


def test_the_limit_distribution_is_the_same_for_every_alpha_below_alpha0() -> None:
    rates = markov.limit_rates(toy_problem.gradient(GRID), 0.5, 1.0)
    pis = [markov.stationary(markov.limit_matrix(rates, markov.largest_alpha(rates) * share)) for share in (1.0, 0.01)]
    assert markov.total_variation(*pis) < 1e-12


def test_a_stationary_distribution_survives_one_step() -> None:
    matrix = markov.transition_matrix(toy_problem.gradient(GRID), 0.5, 0.5, 2.0)
    pi = markov.stationary(matrix)
    assert pi.sum() == pytest.approx(1)
    assert markov.total_variation(pi @ matrix, pi) < 1e-14


def test_a_chain_in_two_parts_has_no_stationary_distribution() -> None:
    with pytest.raises(ValueError, match="no unique stationary distribution"):
        markov.stationary(np.eye(2))


@pytest.mark.parametrize("epsilon", [0.3, 0.1, 0.01])
def test_the_mixing_time_is_the_first_step_within_epsilon(epsilon: float) -> None:
    matrix = markov.transition_matrix(toy_problem.gradient(GRID), 0.5, 0.3, 4.0)
    steps = markov.mixing_time(matrix, epsilon)
    assert steps > 1
    assert markov.distance_after(matrix, steps) <= epsilon < markov.distance_after(matrix, steps - 1)


def test_halving_the_moves_of_the_three_states_keeps_the_equilibrium_and_slows_mixing(
    outcomes: dict[str, Outcome],
) -> None:
    three = outcomes["markov"].numbers["three_states"]
    assert three["equilibrium"] == pytest.approx([0.56, 0.2, 0.24])
    assert three["equilibrium_halved"] == pytest.approx([0.56, 0.2, 0.24])
    assert (three["mixing_time"], three["mixing_time_halved"]) == (2, 4)


def test_the_direction_of_a_move_does_not_depend_on_alpha() -> None:
    def right_given_move(alpha: float) -> np.ndarray:
        matrix = markov.transition_matrix(toy_problem.gradient(GRID), 0.5, alpha, 1.0)
        right, left = np.triu(matrix, 1).sum(axis=1), np.tril(matrix, -1).sum(axis=1)
        return right / (right + left)

    np.testing.assert_allclose(right_given_move(0.01), right_given_move(0.001), rtol=1e-6)


def test_heavy_tails_make_the_distance_to_the_limit_fall_in_proportion_to_alpha(outcomes: dict[str, Outcome]) -> None:
    slopes = [row["tv_slope"] for row in outcomes["markov"].numbers["chains"] if row["noise"].startswith("Student")]
    assert slopes
    assert all(0.9 < slope < 1.1 for slope in slopes)


def test_a_tenth_of_the_learning_rate_mixes_ten_times_slower() -> None:
    times = [
        markov.mixing_time(markov.transition_matrix(toy_problem.gradient(GRID), 0.5, alpha, 2.0), 0.1)
        for alpha in (1e-3, 1e-4)
    ]
    assert times[1] / times[0] == pytest.approx(10, rel=1e-3)


def test_the_error_of_a_time_average_is_what_chains_show() -> None:
    rng, chains, steps = np.random.default_rng(2), 2000, 400
    matrix, pi = markov.THREE_STATES, markov.stationary(markov.THREE_STATES)
    slow = markov.halve_moves(markov.halve_moves(matrix))
    state, visits = np.searchsorted(np.cumsum(pi), rng.random(chains)), np.zeros(chains)
    for _ in range(steps):
        state = (rng.random(chains)[:, None] > np.cumsum(slow, axis=1)[state]).sum(axis=1)
        visits += state == 0
    predicted = markov.time_average_error(slow, pi, np.array([True, False, False]), steps)
    assert np.std(visits / steps) == pytest.approx(predicted, rel=0.08)


# The toy problem


def test_the_toy_gradient_is_the_slope_of_the_toy_loss() -> None:
    w = np.linspace(-3, 8, 200)
    w = w[np.min(np.abs(w[:, None] - [1.0, 3.5]), axis=1) > 1e-3]
    np.testing.assert_allclose(
        (toy_problem.loss(w + 1e-6) - toy_problem.loss(w - 1e-6)) / 2e-6, toy_problem.gradient(w), atol=1e-6
    )
    assert toy_problem.loss(np.array(toy_problem.BEST)) == pytest.approx([0.2525, 0.2525])


@pytest.mark.parametrize("alpha", toy.ALPHAS)
def test_the_fast_sr_chain_is_the_papers_update(alpha: float) -> None:
    steps, sigma = 3000, 2.0
    rng = np.random.default_rng(3)
    p, z = 1 - rng.random(steps), rng.standard_normal(steps)
    w, visited = toy_problem.START, []
    for t in range(steps):
        target = (w - alpha * (float(toy_problem.gradient(np.array(w))) + sigma * z[t])) / toy_problem.DELTA
        w = toy_problem.DELTA * (floor(target) + (p[t] <= target - floor(target)))
        visited.append(round(w / toy_problem.DELTA))
    assert toy.sr_chain(alpha, sigma, steps, np.random.default_rng(3)).tolist() == visited


@pytest.mark.parametrize("alpha", toy.ALPHAS)
def test_the_fast_bc_chain_is_the_papers_update(alpha: float) -> None:
    steps, sigma = 3000, 2.0
    z = np.random.default_rng(4).standard_normal(steps)
    w, visited = toy_problem.START, []
    for t in range(steps):
        quantized = np.sign(w) * toy_problem.DELTA * floor(abs(w) / toy_problem.DELTA + 0.5)
        w -= alpha * (float(toy_problem.gradient(np.array(quantized))) + sigma * z[t])
        visited.append(round(np.sign(w) * floor(abs(w) / toy_problem.DELTA + 0.5)))
    assert toy.bc_chain(alpha, sigma, steps, np.random.default_rng(4)).tolist() == visited


def test_a_chain_in_blocks_has_the_length_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toy, "BLOCK", 100)
    assert [len(chain(0.1, 1.0, 250, np.random.default_rng(0))) for chain in toy.CHAINS.values()] == [250, 250]


def test_bc_concentrates_where_sr_stays_spread(outcomes: dict[str, Outcome]) -> None:
    strong_noise = outcomes["toy"].numbers["noises"][-1]
    assert strong_noise["sigma"] == 4.0
    assert strong_noise["bc_best"][-1][0] > 0.99
    assert strong_noise["sr_exact_best"][-1] == pytest.approx(0.519, abs=0.001)
    assert strong_noise["sr_best"][-1][0] < 0.65


# Convex problems


PROBLEMS = [quadratic(3), log_cosh(3), huber(3), incline(1.0, 5.0), half_cubic(2.0)]


@pytest.fixture(params=PROBLEMS, ids=lambda problem: problem.name)
def problem(request: pytest.FixtureRequest) -> Problem:
    return request.param


def test_the_slope_of_a_problem_is_the_derivative_of_its_loss(problem: Problem) -> None:
    w = np.random.default_rng(5).uniform(problem.low, problem.high, (50, problem.dimension))
    for axis in range(problem.dimension):
        h = np.zeros(problem.dimension)
        h[axis] = 1e-6
        numeric = (problem.gap(w + h) - problem.gap(w - h)) / 2e-6
        np.testing.assert_allclose(numeric, problem.gradient(w)[:, axis], atol=1e-5)


def test_no_point_of_the_box_is_better_than_the_minimiser(problem: Problem) -> None:
    w = np.random.default_rng(6).uniform(problem.low, problem.high, (1000, problem.dimension))
    assert problem.gap(problem.minimiser) == 0
    assert problem.gap(w).min() > 0
    assert np.all((problem.low <= problem.minimiser) & (problem.minimiser <= problem.high))


def test_the_gradient_bound_is_the_largest_second_moment_on_the_box(problem: Problem) -> None:
    corners = np.stack(np.meshgrid(*[[problem.low, problem.high]] * problem.dimension), -1).reshape(
        -1, problem.dimension
    )
    inside = np.random.default_rng(7).uniform(problem.low, problem.high, (1000, problem.dimension))
    noise = problem.dimension * problem.noise**2
    moments = [np.sum(problem.gradient(w) ** 2, axis=-1) + noise for w in (corners, inside)]
    assert moments[0].max() == pytest.approx(problem.gradient_bound**2)
    assert moments[1].max() <= problem.gradient_bound**2 * (1 + 1e-12)


def test_curvature_stays_within_its_constants_and_reaches_them(problem: Problem) -> None:
    w = np.linspace(problem.low, problem.high, 4001)[:, None] * np.ones(problem.dimension)
    step = w[1, 0] - w[0, 0]
    hessian = np.diff(problem.gradient(w), axis=0) / step
    assert hessian.min() == pytest.approx(problem.mu, abs=0.01 * (1 + problem.smoothness))
    assert hessian.max() == pytest.approx(problem.smoothness, rel=0.01, abs=1e-9)
    if np.isfinite(problem.hessian_lipschitz):
        steepest = np.abs(np.diff(hessian, axis=0)).max() / step
        assert steepest == pytest.approx(problem.hessian_lipschitz, rel=0.01, abs=1e-6)


@given(st.floats(-1, 1), st.sampled_from([0.5, 0.25, 0.1]))
def test_stochastic_rounding_picks_a_neighbour_and_is_right_on_average(w: float, delta: float) -> None:
    rounded = stochastic_round(np.full(20_000, w), -1.0, delta, np.random.default_rng(8))
    assert np.all(np.abs(rounded - w) <= delta * (1 + 1e-9))
    np.testing.assert_allclose((rounded + 1) / delta, np.round((rounded + 1) / delta), atol=1e-9)
    assert abs(rounded.mean() - w) <= 5 * delta * 0.5 / np.sqrt(20_000) + 1e-12


@given(st.floats(-1, 1))
def test_deterministic_rounding_picks_the_nearest(w: float) -> None:
    assert abs(float(deterministic_round(np.array(w), -1.0, 0.25)) - w) <= 0.125


def test_lemma_1_is_nearly_tight_for_small_steps(outcomes: dict[str, Outcome]) -> None:
    ratios = [row["ratio"] for row in outcomes["convex"].numbers["lemma"]]
    assert 0.5 < max(ratios) <= 1


@pytest.mark.parametrize("method", ["sr", "bc-stochastic", "bc-deterministic"])
def test_two_steps_of_descent_by_hand(method: str) -> None:
    # On the incline without noise everything is certain when the step is a multiple of Δ.
    curve = descend(incline(16.0, 0.0), method, 1.0, lambda t: 1.0, 1, 10, 2, np.random.default_rng(9))
    assert curve.steps.tolist() == [10]
    assert curve.gap.tolist() == [np.mean(np.arange(16, 6, -1))]  # w^1 = 16, …, w^10 = 7
    assert curve.error.tolist() == [0.0]


def test_the_learning_rates_are_those_of_the_theorems() -> None:
    assert [strong_rate(log_cosh(1))(t) for t in (0, 1, 9)] == [2.0, 1.0, 0.2]
    assert [weak_rate(3.0)(t) for t in (1, 4, 9)] == [3.0, 1.5, 1.0]


def test_a_gap_above_its_bound_counts_only_beyond_three_standard_errors() -> None:
    curve = Curve(np.array([10, 100]), np.array([1.0, 0.5]), np.array([0.1, 0.1]))
    assert not curve.exceeds(np.array([0.75, 0.25]))
    assert curve.exceeds(np.array([0.75, 0.15]))
    assert curve.exceeds(np.array([0.65, 0.25]))


def test_bc_beats_the_floor_that_holds_sr_on_a_quadratic() -> None:
    bench = convex.ConvexBench(seed=1)
    sr, bc = (bench.strong(quadratic(4), method, 0.5, 3000, 40) for method in ("sr", "bc-stochastic"))
    assert (sr.theorem, bc.theorem) == ("1", "corollary")
    assert sr.curve.gap[-1] > 20 * bc.curve.gap[-1]
    assert sr.curve.gap[-1] > bc.bound[-1]  # SR does not fulfil BC's corollary


def test_srs_floor_is_proportional_to_delta() -> None:
    bench = convex.ConvexBench(seed=2)
    floors = [bench.strong(quadratic(16), "sr", delta, 2000, 60).curve.gap[-1] for delta in (0.5, 0.125)]
    assert floors[0] / floors[1] == pytest.approx(4, rel=0.25)


# Where the printed bounds go too far


def test_the_sum_of_learning_rates_exceeds_what_theorems_2_and_3_use_from_t_3_on() -> None:
    steps = np.arange(1, 2000)
    total = np.cumsum(1 / np.sqrt(steps))
    assert (total <= np.sqrt(steps + 1)).tolist() == (steps < 3).tolist()
    assert np.all(total <= 2 * np.sqrt(steps) - 1 + 1e-9)


@given(st.integers(1, 10**6), st.floats(0.001, 1.0))
def test_the_statement_of_theorem_2_follows_from_the_mended_proof_for_c_up_to_d_over_g(steps: int, rate: float) -> None:
    problem, t = huber(5), np.array([steps], dtype=float)
    c = rate * problem.diameter / problem.gradient_bound
    assert bounds.theorem2_statement(t, problem, 0.1, c) >= bounds.theorem2(t, problem, 0.1, c) * (1 - 1e-12)


def test_theorem_2_fails_as_stated_and_as_proved_on_an_incline_with_large_c(outcomes: dict[str, Outcome]) -> None:
    found = outcomes["convex"].numbers["fine_print"]["sum of α, SR"]
    assert found["printed_violated"] == {"statement": True, "proof": True}
    assert found["violated"] is False


def test_theorem_3_fails_as_printed_on_an_incline_with_large_c(outcomes: dict[str, Outcome]) -> None:
    found = outcomes["convex"].numbers["fine_print"]["sum of α, BC"]
    assert found["printed_violated"] == {"statement": True}
    assert found["violated"] is False


def test_the_corollary_fails_for_deterministic_and_holds_for_stochastic_rounding(outcomes: dict[str, Outcome]) -> None:
    found = outcomes["convex"].numbers["fine_print"]
    assert found["deterministic Q"]["violated"] is True
    assert found["stochastic Q"]["violated"] is False


def test_theorem_4_needs_the_square_of_the_rounding_error_on_a_coarse_grid(outcomes: dict[str, Outcome]) -> None:
    found = outcomes["convex"].numbers["fine_print"]["square"]
    assert found["printed_violated"] == {"statement": True}
    assert found["violated"] is False
    assert found["gap"][-1] == pytest.approx(1000**3 / 256, rel=0.05)
