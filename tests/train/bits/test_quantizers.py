"""The paper's Q_d and Q_s, as properties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from flipbit.train.bits.quantizers import (
    DeterministicRound,
    Grid,
    StochasticRound,
    deterministic_round,
    filter_scale,
    stochastic_round,
)
from flipbit.train.keras_larq import tf

deltas = st.sampled_from([0.125, 0.3, 0.5, 1.0, 2.0])
grids = st.one_of(
    st.builds(Grid.binary, deltas),
    st.builds(Grid.uniform, st.integers(2, 8), deltas),
    st.builds(Grid.buffer, st.integers(0, 8), deltas),
)
# TensorFlow takes subnormal numbers for zero, whose sign is +.
weights = npst.arrays(np.float32, st.integers(1, 40), elements=st.floats(-4, 4, width=32, allow_subnormal=False))


def levels(grid: Grid) -> np.ndarray:
    return np.asarray(grid.value(np.arange(grid.count, dtype=np.float32)), np.float32)


def uniform(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random(shape, dtype=np.float32)


@given(weights, grids)
def test_deterministic_rounding_gives_the_nearest_grid_value(w: np.ndarray, grid: Grid) -> None:
    rounded = deterministic_round(tf.constant(w), grid).numpy()
    values = levels(grid)
    assert np.isin(rounded, values).all()
    nearest = np.abs(w[:, None] - values).min(1)
    assert np.abs(rounded - w) == pytest.approx(nearest, abs=1e-5)


@given(weights, deltas)
def test_binary_deterministic_rounding_is_the_sign(w: np.ndarray, delta: float) -> None:
    rounded = deterministic_round(tf.constant(w), Grid.binary(delta)).numpy()
    assert (rounded == np.where(w >= 0, np.float32(delta), -np.float32(delta))).all()


@given(weights, st.integers(2, 8), deltas)
def test_uniform_deterministic_rounding_is_the_papers_formula(w: np.ndarray, bits: int, delta: float) -> None:
    grid = Grid.uniform(bits, delta)
    step = np.float32(delta)
    paper = np.sign(w) * step * np.floor(np.abs(w) / step + np.float32(0.5))
    expected = np.clip(paper, -grid.limit, grid.limit)
    assert deterministic_round(tf.constant(w), grid).numpy() == pytest.approx(expected, abs=1e-6)


@given(weights, grids, st.integers(0, 1000))
def test_stochastic_rounding_picks_one_of_the_two_neighbours(w: np.ndarray, grid: Grid, seed: int) -> None:
    rounded = stochastic_round(tf.constant(w), grid, uniform(w.shape, seed)).numpy()
    assert np.isin(rounded, levels(grid)).all()
    inside = np.clip(w, -grid.limit, grid.limit)
    assert (np.abs(rounded - inside) < grid.step * (1 + 1e-5)).all()


@given(weights, st.integers(2, 8), deltas, st.integers(0, 1000))
def test_uniform_stochastic_rounding_is_the_papers_formula(w: np.ndarray, bits: int, delta: float, seed: int) -> None:
    grid, p = Grid.uniform(bits, delta), uniform(w.shape, seed)
    w64 = np.clip(w.astype(np.float64), -grid.limit, grid.limit)
    below = np.floor(w64 / delta)
    fraction = w64 / delta - below
    paper = delta * (below + (p < fraction))
    # Where p is within float32's rounding of the fraction, either neighbour is right.
    clear = (np.abs(p - fraction) > 1e-5) & (fraction > 1e-5) & (fraction < 1 - 1e-5)
    rounded = stochastic_round(tf.constant(w), grid, p).numpy()
    assert rounded[clear] == pytest.approx(paper[clear], abs=1e-5)


@given(grids, st.floats(-1, 1), st.integers(0, 10**6))
def test_stochastic_rounding_is_unbiased(grid: Grid, where: float, seed: int) -> None:
    w, n = np.float32(where * grid.limit), 20_000
    rounded = stochastic_round(tf.fill((n,), w), grid, uniform((n,), seed)).numpy().astype(np.float64)
    # Hoeffding for values in an interval of length `step`: five sigmas of the worst case.
    assert abs(rounded.mean() - w) <= 5 * grid.step / 2 / np.sqrt(n)
    assert len(np.unique(rounded)) <= 2


@given(st.builds(Grid.uniform, st.integers(2, 8), st.sampled_from([0.125, 0.5, 1.0, 2.0])), st.integers(0, 1000))
def test_stochastic_rounding_leaves_grid_values_alone(grid: Grid, seed: int) -> None:
    values = levels(grid)
    for p in (np.zeros_like(values), uniform(values.shape, seed), np.full_like(values, 1 - 2**-24)):
        assert (stochastic_round(tf.constant(values), grid, p).numpy() == values).all()


@pytest.mark.parametrize("delta", [0.1, 0.3, 1.0, 7.0])
def test_binary_weights_stay_where_they_are_whatever_the_random_number(delta: float) -> None:
    grid = Grid.binary(delta)
    values = levels(grid)
    for p in (0.0, 0.5, 1 - 2**-24):
        assert (stochastic_round(tf.constant(values), grid, np.full(2, p, np.float32)).numpy() == values).all()


def test_values_beyond_the_grid_are_clipped() -> None:
    for grid in (Grid.binary(0.5), Grid.uniform(3, 0.25), Grid.buffer(4, 0.5)):
        far = tf.constant([-9.0, 9.0])
        p = np.full(2, 0.5, np.float32)
        assert deterministic_round(far, grid).numpy() == pytest.approx([-grid.limit, grid.limit])
        assert stochastic_round(far, grid, p).numpy() == pytest.approx([-grid.limit, grid.limit])


def test_a_buffer_of_zero_bits_is_the_binary_grid() -> None:
    assert Grid.buffer(0, 0.7) == Grid.binary(0.7)


@pytest.mark.parametrize("bits", range(9))
def test_a_buffer_grid_has_no_zero_and_spans_delta(bits: int) -> None:
    values = levels(Grid.buffer(bits, 1.0))
    assert len(values) == 2 ** (bits + 1)
    assert 0 not in values
    assert values[0] == pytest.approx(-1) and values[-1] == pytest.approx(1)


def test_the_gradient_passes_straight_through() -> None:
    w = tf.Variable([[0.3, -0.2], [0.9, -0.99]])
    for quantizer in (DeterministicRound(), DeterministicRound(scale="filter"), StochasticRound()):
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(quantizer(w, training=True) * [[1.0, 2.0], [3.0, 4.0]])
        assert (tape.gradient(y, w).numpy() == [[1, 2], [3, 4]]).all()


def test_filter_scale_is_the_mean_magnitude_of_each_filter() -> None:
    w = np.random.default_rng(0).normal(size=(3, 3, 4, 5)).astype(np.float32)
    expected = np.abs(w).mean((0, 1, 2))
    assert filter_scale(tf.constant(w)).numpy().ravel() == pytest.approx(expected)
    scaled = DeterministicRound(scale="filter", delta=0.5)(tf.constant(w)).numpy()
    assert scaled == pytest.approx(np.sign(w) * expected)


def test_stochastic_quantizer_is_deterministic_at_inference_and_draws_anew_in_training() -> None:
    w = tf.constant(np.linspace(-0.9, 0.9, 1000, dtype=np.float32))
    quantizer = StochasticRound(seed=3)
    assert (quantizer(w, training=False).numpy() == np.where(w.numpy() >= 0, 1, -1)).all()
    first, second = quantizer(w, training=True).numpy(), quantizer(w, training=True).numpy()
    assert (first != second).any()
    again = StochasticRound(seed=3)
    assert (again(w, training=True).numpy() == first).all()
    assert (StochasticRound(seed=4)(w, training=True).numpy() != first).any()
