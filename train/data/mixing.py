"""Augmentation inside the training step: cutout and mixup.

Random numbers come from (seed, step), so that a resumed run draws what it would have drawn. Pixels are floats from
0 to 255 here, before a net's own formula is applied: a teacher sees the same picture through another one.
"""

from __future__ import annotations

from typing import Any

from flipbit.train.keras_larq import tf

GREY = 128.0  # what a net sees as 0
CUTOUT_STREAM, MIXUP_STREAM = 800_001, 800_002  # apart from the streams of rounding, which count layers


def key(seed: int, stream: int, step: Any) -> Any:
    return tf.stack([tf.constant(seed * 1_000_003 + stream, tf.int64), tf.cast(step, tf.int64)])


def cutout(pixels: Any, side: int, seed: int, step: Any, places: Any = None, size: Any = None) -> Any:
    """A grey square of ``side`` pixels around a random place of each image (DeVries and Taylor); it may stick out.

    Of a part of a batch of ``size`` images, ``places`` says which ones these are.
    """
    n, height, width = tf.shape(pixels)[0] if size is None else size, pixels.shape[1], pixels.shape[2]
    at = tf.random.stateless_uniform([2, n], key(seed, CUTOUT_STREAM, step))
    if places is not None:
        at = tf.gather(at, places, axis=1)
    top = tf.cast(at[0] * height, tf.int32) - side // 2
    left = tf.cast(at[1] * width, tf.int32) - side // 2
    rows, columns = tf.range(height)[None], tf.range(width)[None]
    in_rows = (rows >= top[:, None]) & (rows < top[:, None] + side)
    in_columns = (columns >= left[:, None]) & (columns < left[:, None] + side)
    return tf.where((in_rows[:, :, None] & in_columns[:, None, :])[..., None], GREY, pixels)


def mixup(pixels: Any, alpha: float, seed: int, step: Any) -> tuple[Any, Any]:
    """Each image mixed with its mirror place in the batch, and the share of its own (Zhang et al.); 0.5 to 1.

    The share is drawn once per batch from Beta(α, α). Batches are shuffled, so that the partner is random too.
    """
    draws = tf.random.stateless_gamma([2], key(seed, MIXUP_STREAM, step), alpha)
    share = tf.math.divide_no_nan(draws[0], draws[0] + draws[1])
    share = tf.maximum(share, 1.0 - share)  # the label of an image stays the larger part of it
    return share * pixels + (1.0 - share) * tf.reverse(pixels, [0]), share
