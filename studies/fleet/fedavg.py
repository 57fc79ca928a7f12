"""For comparison: Flower's FedAvg of float weights, with the devices, samples and rounds of a fleet of bits.

The net is the one that the image was exported from, with the float weights that its bits are the signs of. In a round
each device takes the server's weights, trains by itself (Adam, straight through the sign, weights within ±1), and sends
all of them back; ``flwr.serverapp.strategy.FedAvg`` takes their mean, weighted by samples. Everything runs in this
process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg

from flipbit.studies.fleet.lead import Round
from flipbit.train.keras_larq import keras, tf
from flipbit.train.nets.model_file import load_model

Array = np.ndarray
BATCH, EPOCHS = 10, 1


@dataclass(frozen=True)
class Answered:
    """What the strategy asks of a reply. Flower makes its messages only inside a run of its own."""

    content: RecordDict

    def has_error(self) -> bool:
        return False


class FloatFleet:
    """Devices' ``shares`` are real numbers as the net takes them, and labels."""

    def __init__(self, path: Any, shares: list[tuple[Array, Array]], test: tuple[Array, Array], lr: float, seed: int):
        self.model, self.shares, self.test = load_model(path), shares, test
        self.lr, self.seed = lr, seed
        self.weights: list[Array] = self.model.get_weights()
        self.strategy = FedAvg()
        self.signs = [layer.kernel for layer in self.model.layers if getattr(layer, "kernel_quantizer", None)]
        self._step = self._traced()
        logging.getLogger("flwr").setLevel(logging.ERROR)

    def _traced(self) -> Callable[..., Any]:
        variables, bits = self.model.trainable_variables, self.signs
        self.adam = keras.optimizers.Adam(self.lr)
        self.adam.build(variables)
        self._slots = [slot for slot in self.adam.variables if slot is not self.adam._learning_rate]
        shape = self.model.input_shape[1:]

        @tf.function(input_signature=[tf.TensorSpec((None, *shape), tf.float32), tf.TensorSpec((None,), tf.int64)])
        def step(x: Any, y: Any) -> tuple[Any, Any]:
            with tf.GradientTape() as tape:
                logits = self.model(x, training=False)  # a few samples say little of BatchNorm's means: as on a board
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
                loss = tf.reduce_mean(losses)
            gradients = tape.gradient(loss, variables)
            self.adam.apply_gradients(zip(gradients, variables))
            for kernel in bits:
                kernel.assign(tf.clip_by_value(kernel, -1.0, 1.0))
            right = tf.reduce_sum(tf.cast(tf.argmax(logits, 1) == y, tf.int32))
            return tf.reduce_sum(losses), right

        return step

    def accuracy(self) -> float:
        self.model.set_weights(self.weights)
        x, y = self.test
        return float((self.model.predict(x, batch_size=250, verbose=0).argmax(1) == y).mean())

    def _learn(self, number: int, device: int) -> tuple[list[Array], float, int]:
        """A device's round: its weights, loss and hits in the last epoch."""
        x, y = self.shares[device]
        self.model.set_weights(self.weights)
        for slot in self._slots:  # a device keeps nothing between rounds
            slot.assign(tf.zeros_like(slot))
        random, loss, right = np.random.default_rng((self.seed, number, device)), 0.0, 0
        for _ in range(EPOCHS):
            order, loss, right = random.permutation(len(y)), 0.0, 0
            for at in range(0, len(y), BATCH):
                mine = order[at : at + BATCH]
                batch_loss, hits = self._step(x[mine], y[mine])
                loss, right = loss + float(batch_loss), right + int(hits)
        return self.model.get_weights(), loss, right

    def round(self, number: int) -> Round:
        """One round of all devices, aggregated by Flower."""
        row = Round(number, len(self.shares), len(self.shares))
        replies: list[Any] = []  # Flower's class for them is not what its strategies are declared to take
        before = [w.copy() for w in self.weights]
        down = _record(self.weights)
        for device, (_, y) in enumerate(self.shares):
            weights, loss, right = self._learn(number, device)
            up = _record(weights)
            row.down, row.up = row.down + _size(down), row.up + _size(up)
            row.samples, row.right, row.loss = row.samples + len(y), row.right + right, row.loss + loss
            numbers = MetricRecord({"num-examples": len(y)})
            replies.append(Answered(RecordDict({"arrays": up, "metrics": numbers})))
        arrays, _ = self.strategy.aggregate_train(number + 1, replies)
        assert arrays is not None
        self.weights = [array.numpy() for array in arrays.values()]
        row.flips = sum(
            int(((old >= 0) != (new >= 0)).sum())
            for old, new, kernel in zip(before, self.weights, self.model.weights)
            if any(kernel is bits for bits in self.signs)
        )
        row.accuracy = self.accuracy()
        return row


def _record(weights: list[Array]) -> ArrayRecord:
    return ArrayRecord({f"{i:03d}": FlowerArray(w) for i, w in enumerate(weights)})


def _size(record: ArrayRecord) -> int:
    return sum(len(array.data) for array in record.values())


__all__ = ["BATCH", "EPOCHS", "FloatFleet"]
