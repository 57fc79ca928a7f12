"""TensorFlow, Keras 2 and Larq, imported in the one way that works.

Larq 0.14 is built on Keras 2 (``tf_keras``) and is no longer maintained. Every other module of
flipbit takes ``tf``, ``keras`` and ``lq`` from here, so that a replacement touches this file only.
"""

from __future__ import annotations

import logging
import os
import sys

if "tensorflow" in sys.modules and os.environ.get("TF_USE_LEGACY_KERAS") != "1":
    raise ImportError(
        "flipbit needs Keras 2: import flipbit.train before tensorflow, "
        "or set TF_USE_LEGACY_KERAS=1 in the environment"
    )
os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # no start-up chatter about CPU features

import tensorflow as tf  # noqa: E402

keras = tf.keras

# Larq warns when a binary kernel has no Keras constraint; flipbit's optimizers do the clipping.
logging.getLogger("larq").setLevel(logging.ERROR)

import larq as lq  # noqa: E402

tf.get_logger().setLevel("ERROR")  # it warns of every model saved without an optimizer

__all__ = ["keras", "lq", "tf"]
