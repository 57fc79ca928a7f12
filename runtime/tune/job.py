"""What is asked of a tuning run, and all defaults."""

from __future__ import annotations

from dataclasses import dataclass

from flipbit.runtime.core.learner import LearnerConfig
from flipbit.runtime.core.learner_config import ALL_OPS, SUM_BITS
from flipbit.runtime.core.target import Rates
from flipbit.runtime.errors import ArgumentError
from flipbit.runtime.tune.methods import METHODS, PLAIN, PRIOR, buffer_start

STEPS, SEED = 20, 1


@dataclass(frozen=True)
class Job:
    """A tuning run; everything that decides its result."""

    method: str = PLAIN
    steps: int | None = None
    rate_bits: float | None = None
    rate_bias: float | None = None
    buffer_bits: int | None = None
    seed: int = SEED
    arena: int | None = None
    supply: str = "mains"
    augment: int = 0
    prior: int = PRIOR
    sum_bits: int = SUM_BITS[0]
    layers: tuple[int, int] = (0, ALL_OPS)  # the first and the last operation that learns

    def check(self) -> None:
        if self.steps is not None and self.steps < 1:
            raise ArgumentError(f"--steps {self.steps}: at least 1")
        if not 0 <= self.prior <= 0xFFFF:
            raise ArgumentError(f"--prior {self.prior}: expected 0 to {0xFFFF} samples")
        if not 0 <= self.seed < 2**32:
            raise ArgumentError(f"--seed {self.seed}: 0 to {2**32 - 1}")
        if self.buffer_bits is not None and not (self.method == "buffer" and 1 <= self.buffer_bits <= 8):
            raise ArgumentError(f"--buffer-bits {self.buffer_bits}: expected 1 to 8, with --method buffer")
        if self.sum_bits not in SUM_BITS or (self.sum_bits < SUM_BITS[0] and not METHODS[self.method].bits):
            raise ArgumentError(f"--sums {self.sum_bits}: expected 32; with a method that flips bits also 16 or 8")
        if self.arena is not None and self.arena < 1:
            raise ArgumentError(f"--arena {self.arena}: at least 1")
        for name, rate in (("--rate", self.rate_bits), ("--bias-rate", self.rate_bias)):
            if rate is not None and not 0 < rate <= 1:
                raise ArgumentError(f"{name} {rate:g}: expected more than 0, at most 1")

    @property
    def config(self) -> LearnerConfig:
        method = METHODS[self.method]
        bits = method.buffer_bits if self.buffer_bits is None else self.buffer_bits
        start = buffer_start(bits) if bits else 0
        return LearnerConfig(
            self.seed, bits, start, bits=method.bits, bias=method.bias, gain=method.gain,
            recalibrate=int(method.recalibrate), prior=self.prior if method.recalibrate else 0,
            augment=self.augment if method.gain else 0, sum_bits=self.sum_bits,
            first_op=self.layers[0], last_op=self.layers[1],
        )  # fmt: skip

    @property
    def rates(self) -> Rates:
        """Of every step, falling in a line to 0 behind the last; a step that recalibrates has none."""
        method = METHODS[self.method]
        first = (
            (method.rate_bits if self.rate_bits is None else self.rate_bits) if method.bits else 0.0,
            (method.rate_bias if self.rate_bias is None else self.rate_bias) if method.bias else 0.0,
        )
        trains = method.bits or method.bias or method.gain
        steps = (STEPS if trains else 1) if self.steps is None else self.steps
        falling = [1 - i / steps if trains else 0.0 for i in range(steps)]
        if method.recalibrate and trains:
            falling.insert(0, 0.0)
        return Rates([first[0] * f for f in falling], [first[1] * f for f in falling])
