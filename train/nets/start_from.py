"""The weights of an earlier run as the start of another one (``--init-from``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flipbit.train.settings import InputError

COUNTERS = ("calls",)  # of a stochastic quantizer: a new run counts anew


def copy_weights(source: Any, target: Any, path: Path) -> None:
    """Copy every weight of ``target`` from the layer of the same name in ``source``; ``path`` is for messages."""
    theirs = {layer.name: _named(layer) for layer in source.layers}
    for layer in target.layers:
        for name, variable in _named(layer).items():
            if name in COUNTERS:
                continue
            value = theirs.get(layer.name, {}).get(name)
            if value is None:
                raise InputError(f"--init-from {path}: has no {layer.name}/{name}; use a model of the same --net")
            if value.shape != variable.shape:
                raise InputError(
                    f"--init-from {path}: {layer.name}/{name} is {_times(value.shape)} there and "
                    f"{_times(variable.shape)} here; use a model of the same --net, --width and classes"
                )
            variable.assign(value)


def _named(layer: Any) -> dict[str, Any]:
    """A layer's variables by their own names: kernel, bias, gamma, …"""
    return {v.name.split(":")[0].rpartition("/")[2]: v for v in layer.weights}


def _times(shape: Any) -> str:
    return "×".join(map(str, shape)) or "a number"
