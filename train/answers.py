"""A teacher's answers, asked for once and kept: any number of students then learn from them at no cost.

An epoch's images depend on (seed, epoch, batch) alone. With ``--teacher-epochs N`` those of N epochs come again and
again, and with them what the teacher said. The answers lie beside the teacher, in ``answers/``, one file per epoch;
their names are digests of all that they depend on, so that other students find them, and changed ones do not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from flipbit.runtime.files import replacing
from flipbit.train.bits.precision import convolutions_in
from flipbit.train.data import batches as data_sets
from flipbit.train.keras_larq import tf
from flipbit.train.teacher import Teacher


@dataclass
class Answers:
    """Logits of a teacher, in half precision, for the training images of an epoch in their order."""

    teacher: Teacher
    data: data_sets.DataSet
    seed: int
    precision: str = "float32"

    def __post_init__(self) -> None:
        image = tf.TensorSpec((None, *self.data.shape), tf.uint8)
        self._ask = tf.function(self._answer, input_signature=[image])
        assert self.teacher.path is not None
        self.folder = self.teacher.path.with_name("answers")
        digest = hashlib.sha256(self.teacher.path.read_bytes())
        digest.update(np.asarray(self.teacher.mean, np.float32).tobytes())
        if self.precision != "float32":
            digest.update(self.precision.encode())
        self._digest = digest

    def _answer(self, images: Any) -> Any:
        with convolutions_in(self.precision, self.teacher.model):
            return self.teacher.logits(images)

    def batches(self, batch: int, epoch: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Images, labels and answers of an epoch."""
        answers, start = self._of(batch, epoch), 0
        for images, labels in self.data.train_batches(batch, self.seed, epoch):
            yield images, labels, answers[start : start + len(images)]
            start += len(images)

    def _of(self, batch: int, epoch: int) -> np.ndarray:
        # Only the images themselves tell whether the data, the augmentation and the order are the same.
        digest = self._digest.copy()
        for images, _ in self.data.train_batches(batch, self.seed, epoch):
            digest.update(np.ascontiguousarray(images).data)
        path = self.folder / f"{digest.hexdigest()[:24]}.npy"
        if path.is_file():
            return np.load(path, allow_pickle=False)
        found = []
        for images, _ in data_sets.prefetch(self.data.train_batches(batch, self.seed, epoch)):
            found.append(self._ask(tf.constant(images)).numpy().astype(np.float16))
        answers = np.concatenate(found)
        self.folder.mkdir(exist_ok=True)
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.save(file, answers)
        return answers
