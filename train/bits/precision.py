"""Convolutions in bfloat16 while a net is trained, where the CPU has it in hardware.

Only convolutions are computed in it, forward and backward; weights, BatchNorm, the optimizer and every test stay in
float32. Inputs of 8 bits and weights of ±1 are exact in bfloat16, sums inside a convolution are kept in float32.

Like :mod:`flipbit.train.bits.activations`, this is put around the layers only while a function is traced: the model
itself, and what is saved of it, knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flipbit.train.keras_larq import keras, tf


@contextmanager
def convolutions_in(precision: str, model: Any) -> Iterator[None]:
    """Within, the convolutions of ``model`` compute in ``precision``, and give float32."""
    layers = (
        [layer for layer in model.layers if isinstance(layer, keras.layers.Conv2D)] if precision != "float32" else []
    )
    for layer in layers:
        layer.convolution_op = _in(tf.as_dtype(precision), layer.convolution_op)
    try:
        yield
    finally:
        for layer in layers:
            del layer.convolution_op


def _in(dtype: Any, convolution: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda x, kernel: tf.cast(convolution(tf.cast(x, dtype), tf.cast(kernel, dtype)), tf.float32)


def in_hardware(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether this CPU multiplies numbers of bfloat16; without, they are emulated, and slower than float32."""
    try:
        flags = next(line for line in cpuinfo.read_text().splitlines() if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        return False
    return not {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(flags.split())
