"""One step of each method against the paper's equation in NumPy, and what the buffer promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flipbit.train.bits.optimizers import PlainSGD, quantized, state_bits
from flipbit.train.bits.quantizers import Grid
from flipbit.train.keras_larq import keras, tf

RATE, SEED = 1.0, 5


def uniform(iteration: int, shape: tuple[int, ...]) -> np.ndarray:
    """The numbers the optimizer draws: keyed by its seed, the kernel's number (0) and the iteration."""
    return tf.random.stateless_uniform(shape, [SEED * 1_000_003, iteration], dtype=tf.float32).numpy()


def sgd(rule: str, kernel: Any, grid: Grid, rate: float = RATE, **more: Any) -> Any:
    optimizer = quantized(PlainSGD, rule=rule, grid=grid, seed=SEED, kernels=[kernel], learning_rate=rate, **more)
    optimizer.build([kernel])
    return optimizer


def start(n: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(1)
    return random.uniform(-1, 1, n).astype(np.float32), random.normal(size=n).astype(np.float32)


def numpy_step(rule: str, w: np.ndarray, g: np.ndarray, delta: float, p: np.ndarray) -> np.ndarray:
    """The paper's equations 4, 5 and 6 for binary weights."""
    moved = w - RATE * g
    if rule == "bc":
        return np.clip(moved, -delta, delta)
    if rule == "r":
        return np.where(moved >= 0, delta, -delta)
    up = np.clip((moved + delta) / (2 * delta), 0, 1)
    return np.where(p < up, delta, -delta)


@pytest.mark.parametrize("delta", [0.5, 1.0])
@pytest.mark.parametrize("rule", ["bc", "r", "sr"])
def test_one_sgd_step_is_the_papers_equation(rule: str, delta: float) -> None:
    w, g = start()
    kernel = tf.Variable(w * delta)
    optimizer = sgd(rule, kernel, Grid.binary(delta))
    optimizer.start_from([kernel.numpy()])
    before = kernel.numpy()
    optimizer.apply_gradients([(tf.constant(g), kernel)])
    expected = numpy_step(rule, before, g, delta, uniform(0, g.shape))
    assert kernel.numpy() == pytest.approx(expected, abs=1e-6)
    assert int(optimizer.flips[0]) == np.count_nonzero((before >= 0) != (kernel.numpy() >= 0))
    assert int(optimizer.flips[0]) > 0


@pytest.mark.parametrize("rule", ["bc", "r", "sr"])
def test_one_adam_step_rounds_what_keras_adam_proposes(rule: str) -> None:
    w, g = start(500)
    kernel = tf.Variable(w)
    optimizer = quantized(
        keras.optimizers.Adam, rule=rule, grid=Grid.binary(), seed=SEED, kernels=[kernel], learning_rate=0.4
    )
    optimizer.build([kernel])
    optimizer.start_from([w])
    plain = tf.Variable(kernel.numpy())
    keras.optimizers.Adam(0.4).apply_gradients([(tf.constant(g), plain)])
    optimizer.apply_gradients([(tf.constant(g), kernel)])
    step = plain.numpy()
    if rule == "bc":
        expected = np.clip(step, -1, 1)
    elif rule == "r":
        expected = np.where(step >= 0, 1, -1)
    else:
        expected = np.where(uniform(0, g.shape) < np.clip((step + 1) / 2, 0, 1), 1, -1)
    assert kernel.numpy() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("rule", ["r", "sr"])
def test_uniform_grids_round_to_multiples_of_delta(rule: str) -> None:
    w, g = start(2000)
    grid = Grid.uniform(3, 0.25)
    kernel = tf.Variable(w)
    optimizer = sgd(rule, kernel, grid)
    optimizer.start_from([w])
    before = kernel.numpy()
    optimizer.apply_gradients([(tf.constant(g), kernel)])
    moved = np.clip(before - np.float32(RATE) * g, -0.75, 0.75)
    if rule == "r":
        expected = np.sign(moved) * 0.25 * np.floor(np.abs(moved) / 0.25 + 0.5)
        assert kernel.numpy() == pytest.approx(expected)
    else:
        below = np.floor(moved / 0.25)
        expected = 0.25 * (below + (uniform(0, g.shape) < moved / 0.25 - below))
        assert kernel.numpy() == pytest.approx(expected)


def test_biases_and_other_variables_take_the_cores_plain_step() -> None:
    kernel, bias = tf.Variable([1.0, -1.0]), tf.Variable([0.3, 0.4])
    optimizer = quantized(keras.optimizers.SGD, rule="sr", grid=Grid.binary(), kernels=[kernel], learning_rate=0.1)
    optimizer.build([kernel, bias])
    optimizer.apply_gradients([(tf.constant([0.0, 0.0]), kernel), (tf.constant([1.0, -1.0]), bias)])
    assert bias.numpy() == pytest.approx([0.2, 0.5])
    assert (kernel.numpy() == [1, -1]).all()


def test_a_zero_gradient_never_moves_a_rounded_weight() -> None:
    for rule in ("sr", "r", "buffer"):
        kernel = tf.Variable(start()[0])
        optimizer = sgd(rule, kernel, Grid.binary(), buffer_bits=3 if rule == "buffer" else 0)
        optimizer.start_from([kernel.numpy()])
        before, buffers = kernel.numpy(), [b.numpy() for b in optimizer.buffers]
        for _ in range(20):
            optimizer.apply_gradients([(tf.zeros_like(kernel), kernel)])
        assert (kernel.numpy() == before).all()
        assert all((b.numpy() == was).all() for b, was in zip(optimizer.buffers, buffers))


def test_sr_keeps_ever_more_weights_as_the_rate_falls_while_r_moves_none() -> None:
    w, g = start(20_000)
    kept = {}
    for rate in (0.5, 0.05, 0.005):
        kernel = tf.Variable(w)
        optimizer = sgd("sr", kernel, Grid.binary(), rate)
        optimizer.start_from([w])
        before = kernel.numpy()
        optimizer.apply_gradients([(tf.constant(g), kernel)])
        flipped = np.mean(kernel.numpy() != before)
        # A weight flips with probability α|g|/2Δ, downhill only: for half of the signs, E|g| = 0.8.
        assert flipped == pytest.approx(rate * np.sqrt(2 / np.pi) / 4, rel=0.35)
        kept[rate] = 1 - flipped
        still = tf.Variable(w)
        deterministic = sgd("r", still, Grid.binary(), rate / 10)
        deterministic.start_from([w])
        was = still.numpy()
        for _ in range(30):
            deterministic.apply_gradients([(tf.constant(g), still)])
        assert (still.numpy() == was).all()
    assert kept[0.5] < kept[0.05] < kept[0.005]


def test_sr_only_flips_downhill() -> None:
    w, g = start()
    kernel = tf.Variable(w)
    optimizer = sgd("sr", kernel, Grid.binary())
    optimizer.start_from([w])
    before = kernel.numpy()
    optimizer.apply_gradients([(tf.constant(g), kernel)])
    flipped = kernel.numpy() != before
    assert flipped.any()
    assert (np.sign(kernel.numpy() - before) == -np.sign(g))[flipped].all()


@pytest.mark.parametrize("core", [keras.optimizers.Adam, keras.optimizers.SGD])
def test_a_buffer_of_zero_bits_equals_sr_bit_for_bit(core: type) -> None:
    w, _ = start()
    kernels = [tf.Variable(w), tf.Variable(w)]
    optimizers = [
        quantized(core, rule=rule, grid=Grid.binary(), seed=SEED, kernels=[k], learning_rate=0.1, buffer_bits=0)
        for rule, k in zip(("sr", "buffer"), kernels)
    ]
    for optimizer, kernel in zip(optimizers, kernels):
        optimizer.build([kernel])
        optimizer.start_from([w])
    for i in range(10):
        g = tf.constant(np.random.default_rng(i).normal(size=w.shape).astype(np.float32))
        for optimizer, kernel in zip(optimizers, kernels):
            optimizer.apply_gradients([(g, kernel)])
    assert (kernels[0].numpy() == kernels[1].numpy()).all()
    assert int(optimizers[0].flips[0]) == int(optimizers[1].flips[0]) > 0


@pytest.mark.parametrize("bits", [1, 2, 3, 8])
def test_the_buffer_is_k_bit_integers_and_the_kernel_a_sign(bits: int) -> None:
    w, _ = start()
    kernel = tf.Variable(w)
    optimizer = sgd("buffer", kernel, Grid.binary(0.5), buffer_bits=bits)
    optimizer.start_from([w * 0.5])
    for i in range(20):
        g = np.random.default_rng(i).normal(size=w.shape).astype(np.float32)
        optimizer.apply_gradients([(tf.constant(g), kernel)])
    (buffer,) = optimizer.buffers
    assert buffer.dtype == tf.uint8
    assert int(tf.reduce_max(buffer)) == 2**bits - 1
    assert set(np.unique(kernel.numpy())) == {-0.5, 0.5}
    # Nothing else of a kernel's size is kept: SGD has no moments, so no float copy can hide there.
    others = [v for v in optimizer.variables if v.shape == kernel.shape and v is not buffer]
    assert others == []


def test_one_buffer_step_is_sr_on_the_fine_grid() -> None:
    w, g = start()
    kernel, bits = tf.Variable(w), 3
    optimizer = sgd("buffer", kernel, Grid.binary(), buffer_bits=bits)
    optimizer.start_from([w])
    step = 2 / (2 ** (bits + 1) - 1)
    sign, distance = kernel.numpy(), optimizer.buffers[0].numpy().astype(np.float64)
    latent = sign * (2 * distance + 1) * step / 2
    # The start is the real-valued weight rounded to a neighbour on the fine grid.
    assert (np.abs(latent - w) <= step * 1.001).all()
    optimizer.apply_gradients([(tf.constant(g), kernel)])
    position = np.clip((latent - RATE * g) / step + 7.5, 0, 15)
    index = np.floor(position) + (uniform(0, g.shape) < position - np.floor(position))
    new = (index - 7.5) * step
    mine = optimizer.latent(0).numpy()
    assert np.mean(np.abs(mine - new) < 1e-5) > 0.999  # float32 may round a rare tie the other way
    assert (np.sign(mine) == kernel.numpy()).all()


def test_a_fine_buffer_follows_binary_connect_on_average() -> None:
    n = 30_000
    g = np.full(n, 0.01, np.float32)
    real = tf.Variable(np.full(n, 0.2, np.float32))
    bc = sgd("bc", real, Grid.binary())
    kernel = tf.Variable(np.ones(n, np.float32))
    fine = sgd("buffer", kernel, Grid.binary(), buffer_bits=8)
    fine.start_from([np.full(n, 0.2, np.float32)])
    for _ in range(20):
        bc.apply_gradients([(tf.constant(g), real)])
        fine.apply_gradients([(tf.constant(g), kernel)])
    assert fine.latent(0).numpy().mean() == pytest.approx(real.numpy().mean(), abs=1e-3)


def test_weight_decay_pulls_the_bc_buffer_towards_zero() -> None:
    kernel = tf.Variable([0.5, -0.5])
    optimizer = sgd("bc", kernel, Grid.binary(), 0.1, weight_decay_l2=1.0)
    optimizer.apply_gradients([(tf.zeros_like(kernel), kernel)])
    assert kernel.numpy() == pytest.approx([0.45, -0.45])


@pytest.mark.parametrize(
    ("method", "buffer", "moments", "total"),
    [("adam", None, 2, 96), ("bc", None, 0, 33), ("bc", None, 2, 97), ("sr", None, 0, 1), ("r", None, 2, 65),
     ("sr", 3, 0, 4), ("sr", 3, 2, 68)],
)  # fmt: skip
def test_state_bits_count_weight_buffer_and_moments(method: str, buffer: int | None, moments: int, total: int) -> None:
    assert state_bits(method, buffer, 1, moments)["total"] == total


def test_wrong_settings_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="rule must be"):
        quantized(keras.optimizers.SGD, rule="sgd", grid=Grid.binary())
    with pytest.raises(ValueError, match="buffer bits must be 0 to 8"):
        quantized(keras.optimizers.SGD, rule="buffer", grid=Grid.binary(), buffer_bits=9)
