"""Turns a trained model into files that devices and other tools run: .fbit, ONNX, TFLite, C.

from flipbit.export import convert
graph = convert("model.h5")                       # real numbers
graph = convert("model.h5", calibrate="digits")   # int8 activations, from sample images
graph.save("model.fbit")
"""

from __future__ import annotations

from typing import Any

# These share their name with the module they live in: bound here, the name is the function. No framework is
# imported before they are called.
from flipbit.export.read.from_keras import from_keras
from flipbit.export.read.from_onnx import from_onnx
from flipbit.export.read.from_torch import from_torch

__all__ = ["ExportError", "Graph", "convert", "from_keras", "from_onnx", "from_torch", "load_tflite"]

_HOME = {"ExportError": "graph", "Graph": "graph", "convert": "conversion", "load_tflite": "check.tflite_load"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'flipbit.export' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"flipbit.export.{_HOME[name]}"), name)
