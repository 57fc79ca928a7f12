"""TensorFlow, Keras 2 and Larq, imported in the one way that works.

Larq 0.14 is built on Keras 2 (``tf_keras``) and is no longer maintained. Every other module of
flipbit takes ``tf``, ``keras`` and ``lq`` from here, so that a replacement touches this file only.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

if "tensorflow" in sys.modules and os.environ.get("TF_USE_LEGACY_KERAS") != "1":
    raise ImportError(
        "flipbit needs Keras 2: import flipbit.train before tensorflow, or set TF_USE_LEGACY_KERAS=1 in the environment"
    )
os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # 2 still complains about a GPU that is not there


@contextmanager
def _start_up_chatter_hidden() -> Iterator[None]:
    """TensorFlow's C++ writes to stderr before its log level counts: keep that, show it only on failure."""
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as kept:
        os.dup2(kept.fileno(), 2)
        try:
            yield
        except BaseException:
            kept.seek(0)
            os.write(stderr, kept.read())
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)


with _start_up_chatter_hidden():
    import tensorflow as tf

keras = tf.keras
tf.get_logger().setLevel("ERROR")  # it warns of every model saved without an optimizer
# Larq warns when a binary kernel has no Keras constraint; flipbit's optimizers do the clipping.
logging.getLogger("larq").setLevel(logging.ERROR)

import larq as lq  # noqa: E402

__all__ = ["keras", "lq", "tf"]
