"""The paper's update rules around any Keras optimizer.

The core (Adam, SGD, …) proposes a step; what happens to a quantized kernel then is the method:

=======  ==================================================================  =================
method   after the step                                                      kernel holds
=======  ==================================================================  =================
adam     nothing                                                             real values
bc       clip to [−Δ, Δ]                                   (equation 6)      the buffer w_r
r        w_b ← Q_d(w_b − α∇f)                              (equation 4)      grid values
sr       w_b ← Q_s(w_b − α∇f)                              (equation 5)      grid values
buffer   u ← Q_s(u − α∇f) on 2^(k+1) levels, w_b = Δ·sign(u)                 ±Δ, and k-bit ints
=======  ==================================================================  =================

``buffer`` is the dial between SR and BC: with k = 0 it draws the same numbers and gives the same bits as
``sr``; with many levels it becomes ``bc``. Beside its sign a weight keeps an integer in 0 … 2^k − 1, the
distance of u from the middle of the grid: a weight flips when a step carries it across.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flipbit.train.bits.quantizers import Grid, deterministic_round, stochastic_index
from flipbit.train.keras_larq import keras, tf

MAX_BUFFER_BITS = 8


class QuantizedUpdate:
    """Mixin for a Keras optimizer; see :func:`quantized`.

    ``kernels`` are the variables to keep quantized. ``flips`` counts, per kernel, how many weights
    changed sign in any step so far; ``before_sign`` is what happens to a kernel before its sign is taken.
    ``clip`` bounds ``bc``'s buffer instead of Δ (0: nothing does). ``decay_kernels`` is whether weight decay
    acts on ``kernels`` too.
    """

    def __init__(
        self,
        *args: Any,
        rule: str,
        grid: Grid,
        buffer_bits: int = 0,
        seed: int = 0,
        weight_decay_l2: float = 0.0,
        kernels: Sequence[Any] = (),
        clip: float | None = None,
        decay_kernels: bool = True,
        before_sign: Callable[[Any], Any] | None = None,
        **kwargs: Any,
    ):
        super().__init__(*args, **kwargs)
        if rule not in ("bc", "r", "sr", "buffer"):
            raise ValueError(f"rule must be bc, r, sr or buffer, not {rule!r}")
        if rule == "buffer" and not 0 <= buffer_bits <= MAX_BUFFER_BITS:
            raise ValueError(f"buffer bits must be 0 to {MAX_BUFFER_BITS}, not {buffer_bits}")
        self.rule = rule
        self.grid = grid
        self.buffer_bits = buffer_bits
        self.buffer_grid = Grid.buffer(buffer_bits, grid.limit)
        self.round_seed = seed
        self.weight_decay_l2 = weight_decay_l2
        self.decay_kernels = decay_kernels
        self.clip = grid.limit if clip is None else clip
        self.before_sign = before_sign or (lambda w: w)
        self.kernels = list(kernels)
        self._stream = {kernel.ref(): i for i, kernel in enumerate(self.kernels)}
        self.buffers: list[Any] = []
        self.flips: list[Any] = []

    def build(self, var_list: Any) -> None:
        super().build(var_list)  # type: ignore[misc]
        if self.flips:
            return
        for i, kernel in enumerate(self.kernels):
            self.flips.append(self.add_variable((), tf.int64, "zeros", f"flips_{i}"))  # type: ignore[attr-defined]
            if self.rule == "buffer" and self.buffer_bits:
                dtype = tf.uint8  # 8 bits hold 0 … 2^k − 1 for every k up to MAX_BUFFER_BITS
                self.buffers.append(
                    self.add_variable(kernel.shape, dtype, "zeros", f"buffer_{i}")  # type: ignore[attr-defined]
                )

    def start_from(self, real_valued: Sequence[Any]) -> None:
        """Set the kernels from real-valued initial weights, as the rule keeps them.

        Binary ``sr`` and ``r`` thus start from the signs of a symmetric distribution: Rademacher variables.
        """
        for i, (kernel, w) in enumerate(zip(self.kernels, real_valued)):
            w = tf.convert_to_tensor(w)
            if self.rule == "buffer" and self.buffer_bits:
                self._store(i, kernel, stochastic_index(w, self.buffer_grid, self._uniform(i, w)))
            else:
                kernel.assign(w if self.rule == "bc" else deterministic_round(w, self.grid))

    def latent(self, i: int) -> Any:
        """What kernel ``i`` stands for before rounding to its sign: w_r of BC, u of a buffer, else w_b."""
        kernel = self.kernels[i].read_value()
        if not self.buffers:
            return kernel
        distance = tf.cast(self.buffers[i], kernel.dtype)
        return tf.sign(kernel) * (distance + 0.5) * self.buffer_grid.step

    def update_step(self, gradient: Any, variable: Any) -> None:
        stream = self._stream.get(variable.ref())
        if stream is None:
            super().update_step(self._decayed(gradient, variable), variable)  # type: ignore[misc]
            return
        positive = self.before_sign(variable) >= 0
        if self.buffers:
            # The variable carries u only inside this step: the core updates it like any weight.
            variable.assign(self.latent(stream))
        super().update_step(self._decayed(gradient, variable), variable)  # type: ignore[misc]
        w = variable.read_value()
        if self.rule == "bc":
            if self.clip:
                w = tf.clip_by_value(w, -self.clip, self.clip)
                variable.assign(w)
        elif self.rule == "r":
            w = deterministic_round(w, self.grid)
            variable.assign(w)
        elif self.buffers:
            w = self._store(stream, variable, stochastic_index(w, self.buffer_grid, self._uniform(stream, w)))
        else:
            w = self.grid.value(stochastic_index(w, self.grid, self._uniform(stream, w)))
            variable.assign(w)
        flipped = tf.math.count_nonzero(tf.not_equal(self.before_sign(w) >= 0, positive))
        self.flips[stream].assign_add(flipped)

    def _decayed(self, gradient: Any, variable: Any) -> Any:
        decays = self.weight_decay_l2 and (self.decay_kernels or variable.ref() not in self._stream)
        return gradient + self.weight_decay_l2 * variable if decays else gradient

    def _uniform(self, stream: int, w: Any) -> Any:
        key = tf.stack(
            [
                tf.constant(self.round_seed * 1_000_003 + stream, tf.int64),
                tf.cast(self.iterations, tf.int64),  # type: ignore[attr-defined]
            ]
        )
        return tf.random.stateless_uniform(tf.shape(w), key, dtype=w.dtype)

    def _store(self, i: int, kernel: Any, index: Any) -> Any:
        """Split a level 0 … 2^(k+1)−1 into its sign (the kernel) and its distance from the middle (k bits)."""
        half = float(self.buffer_grid.count // 2)
        positive = index >= half
        distance = tf.where(positive, index - half, half - 1.0 - index)
        self.buffers[i].assign(tf.cast(distance, self.buffers[i].dtype))
        w = tf.where(positive, self.grid.limit, -self.grid.limit)
        kernel.assign(w)
        return w


def quantized(core: type, **settings: Any) -> Any:
    """A Keras optimizer class ``core`` with one of the paper's rules around it."""
    return type(f"Quantized{core.__name__}", (QuantizedUpdate, core), {})(**settings)


def state_bits(method: str, buffer_bits: int | None, weight_bits: int, moments: int) -> dict[str, int]:
    """Bits a training run keeps per quantized weight: the weight, its buffer, the optimizer's moments."""
    if method == "adam":
        weight, buffer = 32, 0
    elif method == "bc":
        weight, buffer = weight_bits, 32
    else:
        weight, buffer = weight_bits, buffer_bits or 0
    return {"weight": weight, "buffer": buffer, "moments": 32 * moments, "total": weight + buffer + 32 * moments}


class PlainSGD(keras.optimizers.Optimizer):
    """w ← w − α∇f and nothing else. Keras' SGD keeps a float per weight even when its momentum is 0."""

    def __init__(self, learning_rate: float = 0.01, name: str = "PlainSGD", **kwargs: Any):
        super().__init__(name=name, **kwargs)
        self._learning_rate = self._build_learning_rate(learning_rate)

    def update_step(self, gradient: Any, variable: Any) -> None:
        variable.assign_sub(gradient * tf.cast(self.learning_rate, gradient.dtype))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "learning_rate": self._serialize_hyperparameter(self._learning_rate)}


def core(name: str, learning_rate: float, momentum: float = 0.0) -> tuple[type, dict[str, Any]]:
    """The Keras optimizer class called ``name`` on the command line, and what to make it with."""
    if name == "adam":
        return keras.optimizers.Adam, {"learning_rate": learning_rate}
    if momentum:
        return keras.optimizers.SGD, {"learning_rate": learning_rate, "momentum": momentum}
    return PlainSGD, {"learning_rate": learning_rate}
