"""Training of convolutional nets whose weights are single bits.

The public names are few: :func:`load_model` opens a ``model.h5`` written here, and
:func:`train` runs what ``python train/run.py`` runs. TensorFlow is imported when one of
them is first used, so that importing this package costs nothing.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Settings", "load_model", "train"]

_HOME = {"load_model": "nets.model_file", "train": "loop", "Settings": "settings"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'flipbit.train' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"flipbit.train.{_HOME[name]}"), name)
