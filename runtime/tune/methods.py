"""The methods of ``flipbit finetune``, with their defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Method:
    """What is trained and how fast: rates at the first step, falling to 0 in a line."""

    bits: bool = True
    bias: bool = False
    rate_bits: float = 0.0
    rate_bias: float = 0.0
    buffer_bits: int = 0


# Measured on resnet8 under four camera changes: docs/results/learning.md.
METHODS = {
    "bias": Method(bits=False, bias=True, rate_bias=0.5),
    "sr": Method(rate_bits=0.0007),
    "sr+bias": Method(bias=True, rate_bits=0.0004, rate_bias=0.5),
    "buffer": Method(rate_bits=0.004, buffer_bits=2),
}
COMPARED = ("bias", "sr", "buffer")


def buffer_start(bits: int) -> int:
    """How sure buffers are of their bits at first: a quarter of the way."""
    return (1 << bits) // 4
