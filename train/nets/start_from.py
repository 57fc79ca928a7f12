"""The weights of an earlier run as the start of another one (``--init-from``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flipbit.train.settings import InputError

COUNTERS = ("calls",)  # of a stochastic quantizer: a new run counts anew


def copy_matching(source: Any, target: Any, path: Path) -> list[str]:
    """Copy the weights of layers that have the same name and shapes in both; returns the layers that have not."""
    theirs = {layer.name: _named(layer) for layer in source.layers}
    others, copied = [], 0
    for layer in target.layers:
        mine = {name: v for name, v in _named(layer).items() if name not in COUNTERS}
        found = theirs.get(layer.name, {})
        if any(name not in found or found[name].shape != v.shape for name, v in mine.items()):
            others.append(layer.name)
            continue
        for name, variable in mine.items():
            variable.assign(found[name])
            copied += 1
    if not copied:
        raise InputError(f"--init-from {path}: no layer has the name and shape of one of this net")
    return others


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
