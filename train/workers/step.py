"""A step of training on several replicas: each takes its part of the batch, and all apply the same update.

A replica computes the gradient of its images' share of the mean loss; the sum over all replicas is the gradient of the
whole batch. Gradients, loss and what is counted (:mod:`flipbit.train.measures`) are sent as one vector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from flipbit.train.bits.precision import convolutions_in
from flipbit.train.bits.quantizers import StochasticRound
from flipbit.train.data import batches as data_sets
from flipbit.train.data import shares
from flipbit.train.keras_larq import tf
from flipbit.train.workers.batch_norm import batch_norm_over
from flipbit.train.workers.replicas import Replicas

if TYPE_CHECKING:
    from flipbit.train.trainer import Trainer


class SharedSteps:
    """The steps of a trainer on several replicas."""

    def __init__(self, trainer: Trainer, replicas: Replicas):
        self.trainer, self.replicas = trainer, replicas
        self._traced: dict[bool, Callable[..., Any]] = {}
        self._counting = [
            layer.kernel_quantizer for layer in trainer.layers if isinstance(layer.kernel_quantizer, StochasticRound)
        ]

    def epoch(self, batch: int, epoch: int, simulated: bool) -> Iterator[tuple[int, float, np.ndarray]]:
        """Train an epoch: images, mean loss and what is counted of each step, over all replicas."""
        trainer = self.trainer
        sizes = shares.step_sizes(trainer.data.train_size, batch)
        mine = trainer.data.train_batches(batch, trainer.settings.seed, epoch, share=self._places)
        for size, (images, labels) in zip(sizes, data_sets.prefetch(mine)):
            loss, counted = self._step(simulated)(*self._parts(images, labels, size), tf.constant(size))
            yield size, float(loss), counted.numpy()

    def _places(self, size: int) -> np.ndarray:
        """What this process takes of a batch: the places of its replicas, one after the other."""
        return np.concatenate([shares.places(size, replica, self.replicas.count) for replica in self.replicas.here])

    def _parts(self, images: np.ndarray, labels: np.ndarray, size: int) -> Iterator[Any]:
        start = 0
        for replica in self.replicas.here:
            places = shares.places(size, replica, self.replicas.count)
            part = slice(start, start + len(places))
            yield from (tf.constant(images[part]), tf.constant(labels[part]), tf.constant(places, tf.int32))
            start += len(places)

    def _step(self, simulated: bool) -> Callable[..., Any]:
        """The traced function; at the first call, all replicas trace it together."""
        if simulated not in self._traced:
            trainer, replicas = self.trainer, self.replicas
            part = [
                tf.TensorSpec((None, *trainer.data.shape), tf.uint8),
                trainer.measure.target,
                tf.TensorSpec((None,), tf.int32),
            ]
            signature = [*part * len(replicas.here), tf.TensorSpec((), tf.int32)]
            reach = (None, None) if trainer.settings.batch_norm == "local" else (replicas.rows, replicas.sums)
            with ExitStack() as changes:
                changes.enter_context(batch_norm_over(trainer.model, *reach))
                if simulated:
                    assert trainer.simulation is not None
                    changes.enter_context(trainer.simulation.active(calibrated=False, widest=self._widest))
                for quantizer in self._counting:
                    quantizer.counts = False
                try:
                    function = tf.function(self._step_eager, input_signature=signature, autograph=False)
                    self._traced[simulated] = function.get_concrete_function()
                finally:
                    for quantizer in self._counting:
                        quantizer.counts = True
        return self._traced[simulated]

    def _step_eager(self, *inputs: Any) -> tuple[Any, Any]:
        trainer, replicas = self.trainer, self.replicas
        *parts, size = inputs
        variables = trainer.model.trainable_variables
        taught: list[bool] = []

        def replica() -> Any:
            number = int(tf.get_static_value(replicas.number())) - replicas.here[0]
            images, labels, places = parts[3 * number : 3 * number + 3]
            loss, counted, gradients = self._gradients(images, labels, places, size, variables)
            taught[:] = [g is not None for g in gradients]
            flat = [tf.reshape(g, [-1]) for g in gradients if g is not None]
            counted = tf.reshape(tf.cast(counted, tf.float32), [-1])
            return replicas.sums(tf.concat([*flat, [loss], counted], 0))

        summed = replicas.run(replica)
        learning = [v for v, known in zip(variables, taught) if known]
        counts = trainer.measure.counts
        *gradients, rest = tf.split(summed, [*(int(np.prod(v.shape)) for v in learning), 1 + int(np.prod(counts))])
        trainer.optimizer.apply_gradients((tf.reshape(g, v.shape), v) for g, v in zip(gradients, learning))
        for quantizer in self._counting:
            quantizer.calls.assign_add(1)
        return rest[0], tf.reshape(rest[1:], counts)

    def _gradients(self, images: Any, labels: Any, places: Any, size: Any, variables: Any) -> tuple[Any, Any, Any]:
        """Of this replica's part of the mean loss over ``size`` images."""
        trainer = self.trainer
        images, share = trainer.mixed(images, places, size)
        with tf.GradientTape() as tape:
            with convolutions_in(trainer.settings.precision, trainer.model):
                logits = trainer.model(trainer.normalize(images), training=True)
            loss = tf.reduce_sum(trainer.losses(logits, images, labels, share)) / tf.cast(size, tf.float32)
        return loss, trainer.measure.counted(logits, labels), tape.gradient(loss, variables)

    def _widest(self, low: Any, high: Any) -> tuple[Any, Any]:
        """The range of a tensor over all replicas."""
        ends = self.replicas.rows(tf.stack([low, high]))
        return tf.reduce_min(ends[:, 0]), tf.reduce_max(ends[:, 1])
