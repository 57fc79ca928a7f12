"""Functions of one value that a table operation computes: one row per name, in NumPy.

A graph keeps a function as its name and its parameters, so that every writer can say it in its own words.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Array = np.ndarray


@dataclass(frozen=True)
class Function:
    """One of :data:`FUNCTIONS` with its parameters, e.g. ``Function("leaky_relu", (0.1,))``."""

    name: str
    parameters: tuple[float, ...] = ()

    def __call__(self, x: Array) -> Array:
        return FUNCTIONS[self.name](np.asarray(x, np.float64), *self.parameters)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{p:g}' for p in self.parameters)})" if self.parameters else self.name


def _sigmoid(x: Array) -> Array:
    return 0.5 * (1 + np.tanh(0.5 * x))  # never overflows


def _erf(x: Array) -> Array:
    return np.vectorize(math.erf, otypes=[np.float64])(x) if x.size else x


def _gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


FUNCTIONS: dict[str, Callable[..., Array]] = {
    "clip": lambda x, low, high: np.clip(x, low, high),  # ReLU6 is clip(0, 6)
    "leaky_relu": lambda x, slope: np.where(x < 0, slope * x, x),
    "elu": lambda x, alpha: np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x),
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "swish": lambda x: x * _sigmoid(x),
    "gelu": lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))),
    "gelu_tanh": _gelu_tanh,
    "hard_sigmoid": lambda x, slope, offset: np.clip(slope * x + offset, 0, 1),
    "hard_swish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
}
