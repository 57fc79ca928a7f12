"""What a step minimises: cross-entropy with labels, with softened labels, with a teacher."""

from __future__ import annotations

from typing import Any

from flipbit.train.keras_larq import tf


def soft_targets(labels: Any, classes: int, smoothing: float, share: Any = None) -> Any:
    """Labels as probabilities: ``smoothing`` spread over all classes, and ``1 − share`` given to mixup's partner."""
    targets = tf.one_hot(labels, classes)
    if share is not None:
        targets = share * targets + (1.0 - share) * tf.reverse(targets, [0])
    return (1.0 - smoothing) * targets + smoothing / classes


def distillation(student: Any, teacher: Any, temperature: float) -> Any:
    """T² · KL(teacher ‖ student) of logits at temperature T, per image (Hinton et al.).

    T² keeps the size of the gradient, which falls with 1/T².
    """
    p = tf.nn.log_softmax(teacher / temperature)
    q = tf.nn.log_softmax(student / temperature)
    return temperature**2 * tf.reduce_sum(tf.exp(p) * (p - q), axis=-1)
