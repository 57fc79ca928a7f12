"""What a net is to give for an image, a class or values: its loss, and how good its answers are.

A loss is per image. ``counted`` adds up over images what ``measured`` turns into figures: for classes the share of
wrong answers (``error``), for values the root mean square (``rmse``) and the mean (``mae``) of the errors, in the units
of the data.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flipbit.train.keras_larq import keras, tf
from flipbit.train.settings import InputError, Settings

UNITS = "in_units"  # the layer that brings a net's numbers into the units of the data


class Classes:
    """One class of several: cross-entropy of logits."""

    figures = ("error",)
    counts: tuple[int, ...] = ()  # the shape of what is counted
    judged_by = "error"

    @property
    def target(self) -> Any:
        return tf.TensorSpec((None,), tf.int64)

    def losses(self, logits: Any, labels: Any) -> Any:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)

    def counted(self, logits: Any, labels: Any) -> Any:
        return wrong_answers(logits, labels)

    def measured(self, counted: Any, images: int) -> dict[str, float]:
        return {"error": int(counted) / images}


class Values:
    """Real numbers: mean squared error, as a share of the variance of the training images' values.

    A loss of 1 is that of a net that always gives the mean, whatever the units are.
    """

    figures = ("rmse", "mae")
    counts: tuple[int, ...] = (2,)
    judged_by = "rmse"

    def __init__(self, values: np.ndarray, shape: tuple[int, ...]):
        """``values`` of the training images, (images, numbers); each has ``shape``."""
        self.count = values.shape[1]
        channels = values.reshape(-1, shape[-1]) if len(shape) > 1 else values
        self.centre = channels.mean(0, dtype=np.float64)
        spread = channels.std(0, dtype=np.float64)
        self.spread = np.where(spread > 0, spread, spread.max() or 1.0)
        variance = float(values.var(0, dtype=np.float64).mean())
        if not variance > 0:
            raise InputError("y_train: all images have the same values: there is nothing to learn")
        self.variance = variance

    @property
    def target(self) -> Any:
        return tf.TensorSpec((None, self.count), tf.float32)

    def losses(self, outputs: Any, values: Any) -> Any:
        return tf.reduce_mean(tf.square(self._flat(outputs) - values), 1) / self.variance

    def counted(self, outputs: Any, values: Any) -> Any:
        apart = self._flat(outputs) - values
        return tf.stack([tf.reduce_sum(tf.reduce_mean(part, 1)) for part in (tf.square(apart), tf.abs(apart))])

    def measured(self, counted: Any, images: int) -> dict[str, float]:
        squares, absolute = np.asarray(counted, np.float64) / images
        return {"rmse": float(np.sqrt(squares)), "mae": float(absolute)}

    def _flat(self, outputs: Any) -> Any:
        return tf.reshape(outputs, (-1, self.count))

    def in_units(self, model: Any) -> Any:
        """``model`` with a last layer that brings its numbers, around 0 and of size 1, to the mean and the spread of
        the values; a net that ends in an activation stays as it is.

        It is a BatchNorm that never learns: export folds it into the layer before. Weights then need not grow to the
        size of the values, which takes an optimizer of fixed step size long. Weights of ±Δ cannot grow at all: a last
        layer of these gets a BatchNorm that learns, too.
        """
        last = model.layers[-1]
        name = getattr(getattr(last, "activation", None), "__name__", "")
        if name != "linear" or not hasattr(last, "kernel"):
            return model
        layer = keras.layers.BatchNormalization(
            name=UNITS, trainable=False, epsilon=1e-6,
            gamma_initializer=_constant(self.spread), beta_initializer=_constant(self.centre),
            moving_variance_initializer=_constant(np.ones_like(self.spread) - 1e-6),
        )  # fmt: skip
        found = model.outputs[0]
        if getattr(last, "kernel_quantizer", None) is not None:
            found = keras.layers.BatchNormalization(name=f"{last.name}_bn")(found)
        return keras.Model(model.inputs, layer(found), name=model.name)


Measure = Classes | Values


def measure_of(data: Any) -> Measure:
    """What nets are to give for the images of a data set."""
    return Classes() if data.values is None else Values(data.y_train, data.values)


def refuse_for_values(settings: Settings) -> None:
    """Refuse settings that make sense for classes only."""
    for option, given in (
        ("--teacher", settings.teacher),
        ("--label-smoothing", settings.label_smoothing),
        ("--mixup", settings.mixup),
        ("--augment photos", settings.augment == "photos"),
    ):
        if given:
            raise InputError(f"{option} is for classes, and y_train holds values to predict: leave it out")


def wrong_answers(logits: Any, labels: Any) -> Any:
    return tf.math.count_nonzero(tf.not_equal(tf.argmax(logits, 1), labels))


def _constant(values: np.ndarray) -> Any:
    return keras.initializers.Constant(values.astype(np.float32).tolist())
