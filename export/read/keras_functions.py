"""Keras' activations as functions of one value: layers, ``activation=`` arguments, and what each becomes."""

from __future__ import annotations

from typing import Any

import numpy as np

from flipbit.export.functions import Function
from flipbit.export.graph import ExportError

LINEAR, RELU, SOFTMAX = "linear", "relu", "softmax"

# Names of functions in Keras 2 and 3, and of `tf.nn`'s.
_NAMED = {
    "relu6": Function("clip", (0.0, 6.0)),
    "swish": Function("swish"),
    "silu": Function("swish"),
    "gelu": Function("gelu"),
    "sigmoid": Function("sigmoid"),
    "tanh": Function("tanh"),
    "elu": Function("elu", (1.0,)),
    "hard_sigmoid": Function("hard_sigmoid", (0.2, 0.5)),
    "hard_sigmoid_of_6": Function("hard_sigmoid", (1 / 6, 0.5)),  # of Keras 3
    "leaky_relu": Function("leaky_relu", (0.2,)),
    "hard_swish": Function("hard_swish"),
    "hard_silu": Function("hard_swish"),
}
NAMES = ", ".join([RELU, *(name for name in _NAMED if name != "hard_sigmoid_of_6")])
LAYERS = ("ReLU", "LeakyReLU", "PReLU", "ELU", "Activation", "Softmax")


def function_of(what: Any, name: str) -> Function | str:
    """The function of an activation layer or of an ``activation=``: itself, or ``linear``, ``relu``, ``softmax``.

    ``name`` is the layer's, for what is said of a function that is not supported.
    """
    kind = type(what).__name__
    if kind == "Activation":
        return function_of(what.activation, name)
    if kind == "ReLU":
        return _relu(what, name)
    if kind == "LeakyReLU":
        return Function("leaky_relu", (float(what.alpha),))
    if kind == "ELU":
        return Function("elu", (float(np.asarray(what.alpha)),))
    if kind == "PReLU":
        slopes = np.unique(np.asarray(what.alpha))
        if len(slopes) != 1:
            raise ExportError(
                f"{name}: PReLU with {len(slopes)} slopes; one for all is supported: shared_axes over every axis, "
                "channels included"
            )
        return Function("leaky_relu", (float(slopes[0]),))
    if kind == "Softmax":
        return SOFTMAX
    called = getattr(what, "__name__", kind)
    if called in (LINEAR, RELU, SOFTMAX):
        return str(called)
    if called not in _NAMED:
        raise ExportError(f"{name}: activation {called} is not supported; {NAMES} and a final softmax are")
    return _NAMED[called]


def _relu(layer: Any, name: str) -> Function | str:
    most, slope, threshold = layer.max_value, float(layer.negative_slope or 0), float(layer.threshold or 0)
    if threshold or (slope and most is not None):
        raise ExportError(
            f"{name}: ReLU with threshold {threshold:g}, negative slope {slope:g} and max_value {most}; one of "
            "max_value and negative_slope is supported"
        )
    if slope:
        return Function("leaky_relu", (slope,))
    return RELU if most is None else Function("clip", (0.0, float(most)))
