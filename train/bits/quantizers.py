"""The paper's quantizers: deterministic rounding Q_d and stochastic rounding Q_s on a grid.

A :class:`Grid` is the set of values a weight may take. Three kinds are used:

==================  =====================================  ======================
grid                values                                 made by
==================  =====================================  ======================
binary              −Δ, +Δ                                 ``Grid.binary(delta)``
uniform, b bits     −nΔ … −Δ, 0, Δ … nΔ,  n = 2^(b−1) − 1  ``Grid.uniform(b, delta)``
buffer, k bits      2^(k+1) values spread over [−Δ, Δ]     ``Grid.buffer(k, delta)``
==================  =====================================  ======================

The buffer grid has no zero, so that each of its values has a sign; with k = 0 it *is* the binary grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flipbit.train.keras_larq import keras, lq, tf


@dataclass(frozen=True)
class Grid:
    """``count`` values, ``step`` apart, symmetric around zero."""

    count: int
    step: float

    @staticmethod
    def binary(delta: float = 1.0) -> Grid:
        return Grid(2, 2.0 * delta)

    @staticmethod
    def uniform(bits: int, delta: float) -> Grid:
        return Grid(2**bits - 1, delta)

    @staticmethod
    def buffer(bits: int, delta: float = 1.0) -> Grid:
        count = 2 ** (bits + 1)
        return Grid(count, 2.0 * delta / (count - 1))

    @staticmethod
    def of(bits: int, delta: float) -> Grid:
        """The grid of ``--bits``/``--delta``."""
        return Grid.binary(delta) if bits == 1 else Grid.uniform(bits, delta)

    @property
    def limit(self) -> float:
        """The largest value."""
        return self.step * (self.count - 1) / 2

    def value(self, index: Any) -> Any:
        """The grid value of an index 0 … count−1 (a float tensor)."""
        # Offset first: exact for the binary grid, and a plain multiple of Δ for uniform ones.
        return (index - (self.count - 1) / 2) * self.step

    def position(self, w: Any) -> Any:
        """Where ``w`` lies among the indices, clipped to the grid: 0.0 … count−1."""
        return tf.clip_by_value(w / self.step + (self.count - 1) / 2, 0.0, float(self.count - 1))


def deterministic_round(w: Any, grid: Grid) -> Any:
    """Q_d: the nearest grid value, ties away from zero, clipped to the grid.

    For the binary grid this is Δ·sign(w) with sign(0) = +1; for a uniform grid
    sign(w)·Δ·⌊|w|/Δ + ½⌋ (the paper's equation 3).
    """
    if grid.count == 2:
        return tf.where(w >= 0, grid.limit, -grid.limit)
    steps = tf.abs(w) / grid.step
    # Clip the number of steps, not the product: grid values then are equal to the last bit, whoever made them.
    if grid.count % 2:
        return tf.sign(w) * tf.minimum(tf.floor(steps + 0.5), (grid.count - 1) / 2) * grid.step
    # A buffer grid: no zero, values at odd multiples of half a step.
    return tf.where(w >= 0, 1.0, -1.0) * (tf.minimum(tf.floor(steps), grid.count / 2 - 1) + 0.5) * grid.step


def stochastic_index(w: Any, grid: Grid, p: Any) -> Any:
    """The grid index Q_s picks for ``w``, given uniform random numbers ``p`` in [0, 1)."""
    t = grid.position(w)
    below = tf.floor(t)
    # Up with probability t − ⌊t⌋. Strictly less, as p can be 0: a weight on the grid stays there.
    return below + tf.cast(p < t - below, w.dtype)


def stochastic_round(w: Any, grid: Grid, p: Any) -> Any:
    """Q_s (the paper's equation 5): up or down at random, so that E[Q_s(w)] = w inside the grid."""
    return grid.value(stochastic_index(w, grid, p))


def filter_scale(w: Any) -> Any:
    """BWN's per-filter scale: mean |w| over all axes but the last (the filters)."""
    return tf.reduce_mean(tf.abs(w), axis=list(range(len(w.shape) - 1)), keepdims=True)


@tf.custom_gradient
def straight_through(w: Any, quantized: Any) -> Any:
    """Forward ``quantized``; backward hands the gradient at Q(w) to w unchanged (equation 6)."""

    def gradient(upstream: Any) -> Any:
        return upstream, None

    return quantized, gradient


def standardized(w: Any) -> Any:
    """Each filter with mean 0 and deviation 1 (IR-Net's Libra), so that its signs stay balanced."""
    axes = list(range(len(w.shape) - 1))
    centred = w - tf.reduce_mean(w, axis=axes, keepdims=True)
    return centred / tf.sqrt(tf.reduce_mean(tf.square(centred), axis=axes, keepdims=True) + 1e-12)


class Sharpness:
    """The t of :func:`sharpening`, shared by the quantizers of a net and set from outside, epoch by epoch.

    A plain object around the variable: held directly, Keras would take it for one of the layer's weights and save it.
    """

    def __init__(self) -> None:
        self.t = tf.Variable(1.0, trainable=False)


def sharpening(w: Any, quantized: Any, t: Any) -> Any:
    """Forward ``quantized``; backward the derivative of k·tanh(t·w), k = max(1, 1/t) (IR-Net's EDE).

    With a small t that is the straight-through gradient, and every weight may flip; with a large one only weights
    near zero move, and the gradient is that of the sign.
    """

    @tf.custom_gradient
    def through(w: Any) -> Any:
        def gradient(upstream: Any) -> Any:
            return upstream * tf.maximum(t, 1.0) * (1.0 - tf.square(tf.tanh(t * w)))  # k·t = max(t, 1)

        return quantized, gradient

    return through(w)


class _Rounding(lq.quantizers.Quantizer):
    """What the two kernel quantizers share: a grid, BWN's scale, standardised filters."""

    def __init__(
        self, bits: int = 1, delta: float = 1.0, scale: str = "none", standardize: bool = False, **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.precision = bits
        self.bits, self.delta, self.scale, self.standardize = bits, delta, scale, standardize
        self.grid = Grid.of(bits, delta)
        self.sharpness: Sharpness | None = None  # with one, the gradient is that of `sharpening`

    def before_rounding(self, w: Any) -> Any:
        """What is rounded: a kernel, or its standardised filters."""
        return standardized(w) if self.standardize else w

    def _finish(self, w: Any, rounded: Any) -> Any:
        if self.scale == "filter":
            rounded = rounded / self.grid.limit * filter_scale(w)
        rounded = tf.stop_gradient(rounded)
        return straight_through(w, rounded) if self.sharpness is None else sharpening(w, rounded, self.sharpness.t)

    def get_config(self) -> dict[str, Any]:
        config = {**super().get_config(), "bits": self.bits, "delta": self.delta, "scale": self.scale}
        # Only where it is used, so that other models open in earlier versions too.
        return {**config, "standardize": True} if self.standardize else config


@lq.utils.register_keras_custom_object
class DeterministicRound(_Rounding):
    """Kernel quantizer Q_d. On a kernel that already lies on the grid it changes nothing."""

    def call(self, inputs: Any, training: Any = None) -> Any:
        w = self.before_rounding(tf.convert_to_tensor(inputs))
        return self._finish(w, deterministic_round(w, self.grid))


@lq.utils.register_keras_custom_object
class StochasticRound(_Rounding):
    """Kernel quantizer Q_s while training, Q_d at inference.

    The random numbers come from (seed, stream, number of training calls so far), and the count is
    one of the model's weights: a run resumed from a checkpoint draws what it would have drawn.
    """

    def __init__(self, seed: int = 0, stream: int = 0, **kwargs: Any):
        super().__init__(**kwargs)
        self.seed, self.stream = seed, stream
        self.frozen = False  # as at inference even when training
        self.counts = True  # calls itself; where several replicas share the count, whoever runs them does

    def build(self, input_shape: Any) -> None:
        self.calls = self.add_weight(name="calls", shape=(), dtype=tf.int64, initializer="zeros", trainable=False)
        super().build(input_shape)

    def call(self, inputs: Any, training: Any = None) -> Any:
        w = tf.convert_to_tensor(inputs)
        if training is None:
            training = keras.backend.learning_phase()
        if self.frozen or not training:
            return self._finish(w, deterministic_round(w, self.grid))
        count = self.calls.assign_add(1) if self.counts else self.calls + 1
        key = tf.stack([tf.constant(self.seed * 1_000_003 + self.stream, tf.int64), count])
        p = tf.random.stateless_uniform(tf.shape(w), key, dtype=w.dtype)
        return self._finish(w, stochastic_round(w, self.grid, p))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "seed": self.seed, "stream": self.stream}
