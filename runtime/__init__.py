"""Runs .fbit images with the same C core as the firmware, and fine-tunes them.

from flipbit.runtime import Model
model = Model("resnet8.fbit")
model.classify(photo)          # uint8 pixels, height × width × channels
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flipbit.runtime.core.learner import Learner, LearnerConfig
    from flipbit.runtime.core.model import Layer, Model
    from flipbit.runtime.errors import FlipbitError, ImageError
    from flipbit.runtime.image import reference

__all__ = ["FlipbitError", "ImageError", "Layer", "Learner", "LearnerConfig", "Model", "reference"]

# On first use: a command that is stopped while it loads says so, once it has loaded what says it.
_HOME = {
    "FlipbitError": "errors",
    "ImageError": "errors",
    "Layer": "core.model",
    "Learner": "core.learner",
    "LearnerConfig": "core.learner",
    "Model": "core.model",
    "reference": "image.reference",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'flipbit.runtime' has no attribute {name!r}")
    from importlib import import_module

    home = import_module(f"flipbit.runtime.{_HOME[name]}")
    return home if home.__name__.endswith(f".{name}") else getattr(home, name)
