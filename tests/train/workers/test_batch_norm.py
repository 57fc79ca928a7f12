"""BatchNorm over replicas gives what Keras' gives over the whole batch, forward and backward."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from flipbit.train.keras_larq import keras, tf
from flipbit.train.settings import InputError
from flipbit.train.workers.batch_norm import batch_norm_over, statistics
from flipbit.train.workers.replicas import DIGEST, Replicas, digest


def net(shape: tuple[int, ...], **settings: Any) -> Any:
    image = keras.Input(shape)
    return keras.Model(image, keras.layers.BatchNormalization(epsilon=1e-3, **settings)(image))


@pytest.mark.parametrize("settings", [{}, {"scale": False}, {"center": False}], ids=str)
@pytest.mark.parametrize("shape", [(5, 4, 3), (7,)], ids=str)
def test_one_replica_computes_what_keras_does(shape: tuple[int, ...], settings: dict[str, Any]) -> None:
    random = np.random.default_rng(1)
    x = tf.constant(random.normal(3, 2, (16, *shape)), tf.float32)
    upstream = tf.constant(random.normal(0, 1, x.shape), tf.float32)
    model = net(shape, **settings)
    model.set_weights([random.uniform(0.5, 2, w.shape) for w in model.get_weights()])

    def both() -> list[np.ndarray]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = model(x, training=True)
        return [y.numpy(), *(g.numpy() for g in tape.gradient(y, [x, *model.trainable_variables], upstream))]

    with batch_norm_over(model, None, None):
        ours = both()
    moving = [w.copy() for w in model.get_weights()]
    theirs = both()
    for mine, keras_ in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, keras_, rtol=1e-4, atol=1e-4)
    assert any((a != b).any() for a, b in zip(moving, model.get_weights()))  # Keras' own call is back


def test_statistics_of_parts_are_those_of_the_whole() -> None:
    x = np.random.default_rng(2).normal(100, 1, (12, 3, 3, 4)).astype(np.float32)
    rows: list[Any] = []
    for part in (x[:7], x[7:], x[:0]):  # a replica may have no images
        statistics(tf.constant(part), lambda row: rows.append(row) or row[None])
    count, mean, variance = statistics(tf.constant(x[:7]), lambda _: tf.stack(rows))
    assert float(count) == 12 * 9
    np.testing.assert_allclose(mean, x.mean((0, 1, 2), dtype=np.float64), rtol=1e-6)
    np.testing.assert_allclose(variance, x.var((0, 1, 2), dtype=np.float64), rtol=1e-4)


def test_batch_norm_over_another_axis_is_refused() -> None:
    with pytest.raises(InputError, match="last axis"), batch_norm_over(net((4, 5, 3), axis=1), None, None):
        pass


class Told(Replicas):
    """Three processes, of which this is the first; the sums of the others are given."""

    def __init__(self, others: np.ndarray):
        self.others, self.processes, self.process, self.chief = others, 3, 0, True

    def total(self, values: np.ndarray) -> np.ndarray:
        return values + self.others


def test_a_worker_with_other_weights_is_named() -> None:
    weights = {"conv1": [np.ones(5)], "conv2": [np.zeros(3), np.ones(2, np.uint8)]}
    mine = np.stack([digest(arrays) for arrays in weights.values()])
    others = np.zeros((3, 2, DIGEST), np.float32)
    others[1:] = mine
    Told(others).assert_same(weights, "after epoch 4")
    Told(np.zeros(0)).assert_same({}, "of a net in full precision")
    others[2, 1, 3] += 1
    text = "after epoch 4, worker 2 holds other weights than the chief (first in conv2)"
    with pytest.raises(InputError, match=re.escape(text)):
        Told(others).assert_same(weights, "after epoch 4")


@pytest.mark.parametrize("content", [b"", b"a", bytes(range(256)) * 2])
def test_bytes_are_sent_exactly(content: bytes) -> None:
    class Alone(Told):
        def total(self, values: np.ndarray) -> np.ndarray:
            assert values.dtype in (np.float32, np.float64)
            return values

    assert Alone(np.zeros(0)).from_chief(content) == content
