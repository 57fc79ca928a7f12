"""What is asked of a tuning run, and all defaults."""

from __future__ import annotations

from dataclasses import dataclass

from flipbit.runtime.core.learner import LearnerConfig
from flipbit.runtime.core.target import Rates
from flipbit.runtime.errors import ArgumentError
from flipbit.runtime.tune.methods import METHODS, buffer_start

METHOD, STEPS, SEED = "bias", 20, 1


@dataclass(frozen=True)
class Job:
    """A tuning run; everything that decides its result."""

    method: str = METHOD
    steps: int = STEPS
    rate_bits: float | None = None
    rate_bias: float | None = None
    buffer_bits: int | None = None
    seed: int = SEED
    arena: int | None = None
    supply: str = "mains"

    def check(self) -> None:
        if self.steps < 1:
            raise ArgumentError(f"--steps {self.steps}: at least 1")
        if not 0 <= self.seed < 2**32:
            raise ArgumentError(f"--seed {self.seed}: 0 to {2**32 - 1}")
        if self.buffer_bits is not None and not (self.method == "buffer" and 1 <= self.buffer_bits <= 8):
            raise ArgumentError(f"--buffer-bits {self.buffer_bits}: 1 to 8, and with --method buffer")
        if self.arena is not None and self.arena < 1:
            raise ArgumentError(f"--arena {self.arena}: at least 1")
        for name, rate in (("--rate", self.rate_bits), ("--bias-rate", self.rate_bias)):
            if rate is not None and not 0 < rate <= 1:
                raise ArgumentError(f"{name} {rate:g}: more than 0, at most 1")

    @property
    def config(self) -> LearnerConfig:
        method = METHODS[self.method]
        bits = method.buffer_bits if self.buffer_bits is None else self.buffer_bits
        start = buffer_start(bits) if bits else 0
        return LearnerConfig(self.seed, bits, start, bits=method.bits, bias=method.bias)

    @property
    def rates(self) -> Rates:
        """Of every step, falling in a line to 0 behind the last."""
        method = METHODS[self.method]
        first = (
            (method.rate_bits if self.rate_bits is None else self.rate_bits) if method.bits else 0.0,
            (method.rate_bias if self.rate_bias is None else self.rate_bias) if method.bias else 0.0,
        )
        falling = [1 - i / self.steps for i in range(self.steps)]
        return Rates([first[0] * f for f in falling], [first[1] * f for f in falling])
