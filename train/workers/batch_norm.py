"""BatchNorm over the images of all replicas, so that a batch in parts gives what the whole batch gives.

Each replica sends the number, mean and sum of squared deviations of its values per channel; all combine them in the
same order (Chan et al.), and so have the same statistics to the last bit. The gradient needs two more sums. That is
two small messages per layer and step. With ``sums`` of None, each replica takes the statistics of its own images.

As the other changes of a step (:mod:`flipbit.train.bits.precision`), this is put around the layers only while a
function is traced. Moving averages are left alone: an epoch ends with fresh ones (``Trainer.settle``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from flipbit.train.keras_larq import keras, tf
from flipbit.train.settings import InputError

Sums = Callable[[Any], Any]  # of a tensor over all replicas
Gather = Callable[[Any], Any]  # a row per replica


@contextmanager
def batch_norm_over(model: Any, gather: Gather | None, sums: Sums | None) -> Iterator[None]:
    """Within, the BatchNorm layers of ``model`` take the statistics of what ``gather`` and ``sums`` reach."""
    layers = [x for x in model.layers if isinstance(x, keras.layers.BatchNormalization) and x.trainable]
    for layer in layers:
        axes = [layer.axis] if isinstance(layer.axis, int) else list(layer.axis)
        rank = len(layer.input_shape)
        if axes not in ([rank - 1], [-1]):
            raise InputError(f"{layer.name}: several workers need BatchNorm over the last axis, not {axes}")
        layer.call = _call(layer, gather or (lambda row: row[None]), sums or (lambda x: x))
    try:
        yield
    finally:
        for layer in layers:
            vars(layer).pop("call", None)


def _call(layer: Any, gather: Gather, sums: Sums) -> Callable[..., Any]:
    inference = layer.call

    def call(inputs: Any, training: Any = None, mask: Any = None) -> Any:
        if not training:
            return inference(inputs, training=False)
        channels = inputs.shape[-1]
        x = tf.reshape(inputs, [-1, 1, 1, channels]) if len(inputs.shape) != 4 else inputs
        gamma = tf.ones(channels) if layer.gamma is None else tf.convert_to_tensor(layer.gamma)
        beta = tf.zeros(channels) if layer.beta is None else tf.convert_to_tensor(layer.beta)
        return tf.reshape(normalized(x, gamma, beta, layer.epsilon, gather, sums), tf.shape(inputs))

    return call


def normalized(x: Any, gamma: Any, beta: Any, epsilon: float, gather: Gather, sums: Sums) -> Any:
    """γ(x − mean)/deviation + β, with statistics and gradients over the replicas; a replica may have no images."""

    @tf.custom_gradient
    def through(x: Any, gamma: Any, beta: Any) -> Any:
        # In plain operations: TensorFlow 2.21's optimizer takes the fused one with given statistics for inference, and
        # merges it into the convolution whose result is needed here as well.
        count, mean, variance = statistics(x, gather)
        rate = tf.math.rsqrt(variance + epsilon)
        slope = gamma * rate

        def gradient(upstream: Any) -> tuple[Any, Any, Any]:
            dbeta = tf.reduce_sum(upstream, [0, 1, 2])
            dgamma = tf.reduce_sum(upstream * (x - mean), [0, 1, 2]) * rate
            of_all = sums(tf.stack([dbeta, dgamma]))
            by_x = rate * of_all[1] / count
            return slope * (upstream - (by_x * x + (of_all[0] / count - by_x * mean))), dgamma, dbeta

        return slope * x + (beta - slope * mean), gradient

    return through(x, gamma, beta)


def statistics(x: Any, gather: Gather) -> tuple[Any, Any, Any]:
    """Values per channel, their mean and their variance over all replicas."""
    mine = tf.cast(tf.reduce_prod(tf.shape(x)[:3]), tf.float32)
    mean = tf.reduce_sum(x, [0, 1, 2]) / tf.maximum(mine, 1.0)
    spread = tf.reduce_sum(tf.math.squared_difference(x, mean), [0, 1, 2])
    found = gather(tf.concat([mine[None], mean, spread], 0))
    counts, means, spreads = tf.split(found, [1, x.shape[-1], x.shape[-1]], axis=1)
    count = tf.reduce_sum(counts)
    whole = tf.reduce_sum(counts * means, 0) / count
    spread_of_all = tf.reduce_sum(spreads, 0) + tf.reduce_sum(counts * tf.math.squared_difference(means, whole), 0)
    return count, whole, spread_of_all / count
