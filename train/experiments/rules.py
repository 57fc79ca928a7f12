"""The rules of `bits/few_bits.py` with every part of them a setting, for the experiments that compare them.

``parts`` sends a batch through the net in parts whose gradients are averaged: a big batch in the memory of a small one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from flipbit.train.bits.few_bits import FewBits, float_state
from flipbit.train.bits.quantizers import Grid
from flipbit.train.keras_larq import tf
from flipbit.train.measures import wrong_answers
from flipbit.train.settings import InputError, Settings
from flipbit.train.trainer import Trainer


@dataclass
class RuleSettings(Settings):
    """:class:`Settings` of a run without a float per weight; ``method`` is sr, ``buffer_bits`` at most 4."""

    normalize: str = "layer"  # the scale s is one per layer, or per output channel
    moves: str = "linear"  # linear, clipped or tail
    pace: float = 0.4  # levels an average weight moves in a step, at the first learning rate and batch
    cooling: float = 1.0  # the pace falls like the learning rate to this power
    hysteresis: int = 0  # levels from the middle at which a flipped weight starts
    parts: int = 1  # a batch goes through the net in this many parts
    grow: int = 1  # the batch doubles along the run until it is this many times as big

    def resolve(self) -> RuleSettings:
        super().resolve()
        for name, allowed in (("normalize", ("layer", "channel")), ("moves", ("linear", "clipped", "tail"))):
            if getattr(self, name) not in allowed:
                raise InputError(f"{name} {getattr(self, name)}: choose from {', '.join(allowed)}")
        if self.method != "sr" or not 0 <= (self.buffer_bits or 0) <= 4:
            raise InputError("a rule without float state is method sr with at most 4 buffer bits")
        if not 0 < self.pace <= 1:
            raise InputError(f"pace {self.pace:g}: levels a weight moves in a step, above 0 and at most 1")
        if not 0 <= self.hysteresis < 2 ** (self.buffer_bits or 0):
            raise InputError(f"hysteresis {self.hysteresis}: a {self.buffer_bits or 0}-bit buffer has fewer levels")
        if self.cooling < 0:
            raise InputError(f"cooling {self.cooling:g}: at least 0")
        if self.parts < 1 or self.grow < 1:
            raise InputError(f"parts {self.parts}, grow {self.grow}: at least 1")
        return self


class FewBitsTrainer(Trainer):
    """A :class:`Trainer` whose kernels move by :class:`FewBits`, and whose batches may come in parts."""

    settings: RuleSettings

    def _optimizer(self) -> Any:
        s = self.settings
        optimizer = FewBits(
            learning_rate=s.learning_rate(0),
            channels=s.normalize == "channel",
            rule="buffer",
            grid=Grid.of(1, float(s.delta or 1.0)),
            buffer_bits=s.buffer_bits or 0,
            seed=s.seed,
            weight_decay_l2=s.weight_decay,
            kernels=self.kernels,
            moves=s.moves,
            pace=s.pace,
            hysteresis=s.hysteresis,
            cooling=s.cooling,
        )
        optimizer.build(self.model.trainable_variables)
        optimizer.start_from([kernel.read_value() for kernel in self.kernels])
        kept = float_state(optimizer, self.kernels)
        assert not kept, f"a rule without float state keeps {', '.join(kept)}"
        return optimizer

    def batch_of(self, epoch: int) -> int:
        """As :meth:`Settings.batch_of`, up to ``grow`` times the first."""
        s = self.settings
        doublings = int(np.log2(s.grow) * epoch / max(1, int(s.epochs or 1) - 1) + 0.5)
        return int(s.batch or 1) * 2**doublings

    def _train_step_eager(self, images: Any, labels: Any, answers: Any = None) -> tuple[Any, Any]:
        parts = self.settings.parts
        if parts == 1:
            return super()._train_step_eager(images, labels, answers)
        # The last batch of an epoch may be too small to share out: BatchNorm needs two images per part.
        loss, wrong, *gradients = tf.cond(
            tf.shape(images)[0] >= 2 * parts,
            lambda: self._mean_gradients(images, labels, parts),
            lambda: self._mean_gradients(images, labels, 1),
        )
        self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables))
        return loss, wrong

    def _mean_gradients(self, images: Any, labels: Any, parts: int) -> list[Any]:
        """Loss, wrong answers and the gradient of the whole batch, one part after the other."""
        count = tf.cast(tf.shape(images)[0], tf.float32)
        total: list[Any] = []
        for part in range(parts):
            own = labels[part::parts]
            with tf.GradientTape() as tape:
                logits = self.model(self.normalize(images[part::parts]), training=True)
                loss = tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(own, logits)) / count
            found = [loss, wrong_answers(logits, own), *tape.gradient(loss, self.model.trainable_variables)]
            total = [a + b for a, b in zip(total, found)] if total else found
        return total
