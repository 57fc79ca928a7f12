"""Update rules a microcontroller can afford: a few bits beside each sign, and no float per weight.

Adam keeps two floats per weight, BC a third. Here a weight keeps its sign and a k-bit buffer, as with
``--buffer-bits``, and a layer (or an output channel) keeps one number s, a running mean of |g|. A step is

1. **Normalise.** z = g / s. One scalar takes the place of Adam's moments; for the float parameters too.
2. **Move.** A weight moves along the levels of its buffer against its gradient, and flips when it crosses the middle.
   *Linear*: by f·z levels, stochastically rounded. *Clipped*: the same with |z| ≤ 1.5. *Tail*: one level
   if |z| > τ, else not at all; τ, one number per layer, is steered so that a share f moves. Clipping
   bounds what a single heavy tail of the gradient can do.
3. **Hysteresis.** A weight that flipped starts h levels away from the middle, so that noise does not bring it back
   with the next step.

The *pace* f, the levels an average weight moves in a step, is a budget that decays: like the learning rate, or like a
power of it (``cooling``).

Why a buffer of L = 2^k levels per side is not BC. Let β be the mean of z over its deviation, small as gradients are
noisy. Small steps of f are rounded, which moves a weight by a whole level with probability f·|z|: a walk of variance
f a step with a drift of fβ. It forgets after L²/f steps, in which it drifts by L²β; that beats the walk's own
width L only if β > 1/L, whatever f is. This is the paper's Theorem 5 for a buffer: slowing down alone does not
make it greedier. But a pace so small that a run is shorter than L²/f steps wastes even that, so f starts near 1.

**Growing batches** do make it greedier: the mean of n batches has a β that is √n larger, so where the learning
rate of BC falls, here the batch grows (``--batch-growth``), and the pace with it, as if the moves of n batches had
been added up before rounding them once. Nothing is kept of it between steps.

``--buffer-rule mean`` of ``train/run.py`` is the linear move with one scale per layer; the other variants are for the
experiments that compared them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flipbit.train.bits.optimizers import QuantizedUpdate
from flipbit.train.keras_larq import keras, tf

EMA = 0.99  # of the scale s; about a hundred steps
STEER = 0.02  # how fast τ follows, per step; relative
CLIP = 1.5  # in units of mean |g|
FIRST_THRESHOLD = 2.5  # in units of mean |g|; two deviations of a normal distribution


class NormalizedSGD(keras.optimizers.Optimizer):
    """w ← w − α g/s, s a running mean of |g| over the whole variable, or per output channel of a kernel."""

    def __init__(self, learning_rate: float, channels: bool = False, name: str = "NormalizedSGD", **kwargs: Any):
        super().__init__(name=name, **kwargs)
        self._learning_rate = self._build_learning_rate(learning_rate)
        self.channels = channels
        self.scales: list[Any] = []
        self._scale_of: dict[Any, int] = {}

    def build(self, var_list: Any) -> None:
        super().build(var_list)
        if self.scales:
            return
        for i, variable in enumerate(var_list):
            per_channel = self.channels and len(variable.shape) == 4
            shape = (1, 1, 1, variable.shape[-1]) if per_channel else ()
            self._scale_of[variable.ref()] = i
            self.scales.append(self.add_variable(shape, tf.float32, "zeros", f"scale_{i}"))

    def normalized(self, gradient: Any, variable: Any) -> Any:
        """z = g / s, after s has taken note of g."""
        scale = self.scales[self._scale_of[variable.ref()]]
        axes = [0, 1, 2] if len(scale.shape) else None
        size = tf.reduce_mean(tf.abs(gradient), axis=axes, keepdims=axes is not None)
        first = tf.equal(scale, 0.0)  # start from the first gradient, not from nothing
        scale.assign(tf.where(first, size, EMA * scale + (1 - EMA) * size))
        return gradient / (scale + 1e-20)

    def update_step(self, gradient: Any, variable: Any) -> None:
        variable.assign_sub(tf.cast(self.learning_rate, gradient.dtype) * self.normalized(gradient, variable))

    def get_config(self) -> dict[str, Any]:
        rate = self._serialize_hyperparameter(self._learning_rate)
        return {**super().get_config(), "learning_rate": rate, "channels": self.channels}


class FewBits(QuantizedUpdate, NormalizedSGD):
    """The rule at the top of this file for kernels; :class:`NormalizedSGD` for the rest."""

    def __init__(self, *args: Any, moves: str, pace: float, hysteresis: int = 0, cooling: float = 1.0, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.moves, self.pace, self.hysteresis, self.cooling = moves, pace, hysteresis, cooling
        self.first_rate = float(self.learning_rate)
        self.thresholds: list[Any] = []

    def build(self, var_list: Any) -> None:
        super().build(var_list)
        if not hasattr(self, "growth"):
            self.growth = self.add_variable((), tf.float32, "ones", "growth")
        if self.moves == "tail" and not self.thresholds:
            for i in range(len(self.kernels)):
                start = keras.initializers.Constant(FIRST_THRESHOLD)
                self.thresholds.append(self.add_variable((), tf.float32, start, f"threshold_{i}"))

    def update_step(self, gradient: Any, variable: Any) -> None:
        i = self._stream.get(variable.ref())
        if i is None:
            NormalizedSGD.update_step(self, self._decayed(gradient, variable), variable)
            return
        positive = variable >= 0
        z = self.normalized(gradient, variable)
        cooled = tf.pow(tf.cast(self.learning_rate, z.dtype) / self.first_rate, self.cooling)
        pace = self.pace * self.growth * cooled
        if self.moves == "clipped":
            z = tf.clip_by_value(z, -CLIP, CLIP)
        move = self._tail(i, z, pace) if self.moves == "tail" else self._linear(i, z, pace)
        half = self.buffer_grid.count // 2
        level = tf.round(self.buffer_grid.position(self.latent(i)))  # 0 … 2^(k+1) − 1
        level = tf.clip_by_value(level - move, 0.0, 2.0 * half - 1)
        flipped = tf.not_equal(level >= half, positive)
        if self.hysteresis:
            away = tf.where(level >= half, half + float(self.hysteresis), half - 1.0 - self.hysteresis)
            level = tf.where(flipped, away, level)
        if self.buffers:
            self._store(i, variable, level)
        else:
            variable.assign(self.grid.value(level))
        self.flips[i].assign_add(tf.math.count_nonzero(flipped))

    def _linear(self, i: int, z: Any, pace: Any) -> Any:
        """Whole levels, at random so that their mean is pace·z: the paper's Q_s on the buffer's grid."""
        t = pace * z
        below = tf.floor(t)
        return below + tf.cast(self._uniform(i, t) < t - below, t.dtype)

    def _tail(self, i: int, z: Any, pace: Any) -> Any:
        """One level for each weight beyond the threshold, which then follows the budget."""
        threshold = self.thresholds[i]
        move = tf.where(tf.abs(z) > threshold, tf.sign(z), 0.0)
        share = tf.reduce_mean(tf.abs(move))
        # Multiplicative and clipped, so that neither a layer's first steps nor an empty tail throw it off.
        error = tf.clip_by_value(tf.math.log((share + 1e-6) / (pace + 1e-6)), -1.0, 1.0)
        threshold.assign(threshold * tf.exp(STEER * error))
        return move


def float_state(optimizer: Any, kernels: list[Any]) -> list[str]:
    """Names of the optimizer's floating-point variables with more than one number per output channel.

    A scale per layer or per channel passes; a moment per weight does not.
    """
    channels = max((int(kernel.shape[-1]) for kernel in kernels), default=0)
    return [v.name for v in optimizer.variables if v.dtype.is_floating and int(np.prod(v.shape)) > channels]
