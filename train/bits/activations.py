"""8-bit activations simulated while training, so that a net learns to live with what export does to them.

The tensors are those a device keeps: what a convolution or dense layer gives after the BatchNorm and ReLU that fuse
into it, sums, and averages. Each has one range, zero in it, mapped onto 2^bits steps. While training, that is the
range of the batch; for testing, the range over calibration images, as export takes it. Gradients pass unchanged.

The simulation is put around ``call`` of the layers only while a function is traced: the model itself, and what is
saved of it, knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from flipbit.train.keras_larq import keras, tf

KEEP_VALUES = frozenset(
    "InputLayer MaxPooling2D PadShortcut Flatten Reshape ZeroPadding2D Softmax Dropout SpatialDropout2D".split()
)
FUSED = ("BatchNormalization", "ReLU", "Activation")  # into the layer before


class SimulatedActivations:
    """Of one model; :meth:`active` while tracing, :meth:`calibrate` before testing."""

    def __init__(self, model: Any, bits: int):
        self.bits = bits
        self.layers = [layer for layer in model.layers if _stored(layer)]
        self.low = tf.Variable(tf.zeros(len(self.layers)), trainable=False)
        self.high = tf.Variable(tf.zeros(len(self.layers)), trainable=False)
        self._outputs = keras.Model(model.inputs, [layer.output for layer in self.layers])

    @contextmanager
    def active(self, calibrated: bool, widest: Callable[[Any, Any], tuple[Any, Any]] | None = None) -> Iterator[None]:
        """Within, the layers give rounded values: by the calibrated ranges, or by those of the batch.

        Where a batch lies in parts, ``widest`` makes the range of the whole of that of a part.
        """
        for number, layer in enumerate(self.layers):
            layer.call = self._rounding(layer.call, number, calibrated, widest)
        try:
            yield
        finally:
            for layer in self.layers:
                del layer.call

    def _rounding(
        self, call: Callable[..., Any], number: int, calibrated: bool, widest: Any = None
    ) -> Callable[..., Any]:
        def rounded(*args: Any, **kwargs: Any) -> Any:
            x = call(*args, **kwargs)
            if calibrated:
                low, high = self.low[number], self.high[number]
            else:
                low, high = (tf.stop_gradient(end) for end in _ends(x))
                if widest is not None:
                    low, high = widest(low, high)
            return tf.quantization.fake_quant_with_min_max_vars(x, low, high, num_bits=self.bits)

        return rounded

    def ranges(self, images: Any) -> tuple[Any, Any]:
        """Smallest and largest value of each tensor over a batch, as at inference; to be traced."""
        outputs = self._outputs(images, training=False)
        ends = [_ends(x) for x in (outputs if isinstance(outputs, list) else [outputs])]
        return tf.stack([low for low, _ in ends]), tf.stack([high for _, high in ends])

    def calibrate(self, found: Iterator[tuple[Any, Any]]) -> None:
        """Take the widest of the ranges of several batches."""
        lows, highs = zip(*found)
        self.low.assign(tf.reduce_min(tf.stack(lows), axis=0))
        self.high.assign(tf.reduce_max(tf.stack(highs), axis=0))


def _ends(x: Any) -> tuple[Any, Any]:
    return tf.minimum(tf.reduce_min(x), 0.0), tf.maximum(tf.reduce_max(x), 1e-6)


def _stored(layer: Any) -> bool:
    """Whether a device keeps the layer's result: not where it is only moved, or passed on to what fuses into it."""
    softmax = getattr(getattr(layer, "activation", None), "__name__", "") == "softmax"
    if softmax or type(layer).__name__ in KEEP_VALUES:
        return False
    readers = [node.outbound_layer for node in layer.outbound_nodes]
    if readers and all(getattr(reader, "input_quantizer", None) is not None for reader in readers):
        return False  # a threshold on the tensor before it
    return not (len(readers) == 1 and type(readers[0]).__name__ in FUSED)
