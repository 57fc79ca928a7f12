"""Runs .fbit images with the same C core as the firmware, and fine-tunes them.

from flipbit.runtime import Model
model = Model("resnet8.fbit")
model.classify(photo)          # uint8 pixels, height × width × channels
"""

from flipbit.runtime.errors import FlipbitError, ImageError
from flipbit.runtime.model import Layer, Model

__all__ = ["FlipbitError", "ImageError", "Layer", "Model"]
