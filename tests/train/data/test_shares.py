"""Workers take parts of the same batches: together all images, each as one worker would have made it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipbit.train.data import shares
from flipbit.train.data.batches import Augment, ImageArrays, ImageFiles
from flipbit.train.data.changes import Motion, Photographs


@given(st.integers(1, 300), st.integers(1, 9))
def test_replicas_take_each_place_once_and_mirror_places_together(size: int, replicas: int) -> None:
    parts = [shares.places(size, replica, replicas) for replica in range(replicas)]
    assert sorted(np.concatenate(parts).tolist()) == list(range(size))
    for part in parts:
        assert np.array_equal(part, np.sort(part))
        assert np.array_equal(size - 1 - part[::-1], part)  # mixup reverses a batch
    assert max(map(len, parts)) - min(map(len, parts)) <= 3


@pytest.mark.parametrize("augment", [Augment(pad=2, flip=True), Augment(), Photographs(), Motion()], ids=repr)
@pytest.mark.parametrize("replicas", [2, 3])
def test_parts_of_a_batch_are_the_images_of_the_whole(augment: Augment, replicas: int) -> None:
    random = np.random.default_rng(1)
    shape = (1, 24, 6) if isinstance(augment, Motion) else (9, 9, 3)
    images, labels = random.integers(0, 256, (37, *shape), np.uint8), np.arange(37)
    copies = random.integers(0, 256, (2, 37, *shape), np.uint8)
    data = ImageArrays("x", images, labels, images[:2], labels[:2], ["a"], augment=augment, variants=lambda: copies)
    whole = list(data.train_batches(12, 5, 1))
    assert [len(x) for x, _ in whole] == shares.step_sizes(37, 12) == [12, 12, 12]
    for replica in range(replicas):
        take = partial(shares.places, replica=replica, replicas=replicas)
        for (x, y), (x_part, y_part) in zip(whole, data.train_batches(12, 5, 1, share=take), strict=True):
            places = take(len(x))
            assert np.array_equal(x_part, x[places]) and np.array_equal(y_part, y[places])


def test_a_part_of_pictures_on_disk_reads_only_these(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    files = []
    for i in range(7):
        path = tmp_path / f"{i}.png"
        image.fromarray(np.full((20, 24, 3), 30 * i, np.uint8)).save(path)
        files.append((path, i))
    data = ImageFiles("x", files, files, ["a"], 16)
    whole = list(data.train_batches(5, 3, 0))
    part = list(data.train_batches(5, 3, 0, share=lambda n: shares.places(n, 1, 2)))
    for (x, y), (x_part, y_part) in zip(whole, part, strict=True):
        places = shares.places(len(x), 1, 2)
        assert np.array_equal(x_part, x[places]) and np.array_equal(y_part, y[places])
    nothing = next(data.train_batches(2, 3, 0, share=lambda n: shares.places(n, 0, 2)))[0]
    assert nothing.shape == (0, 16, 16, 3)  # a batch of two is one pair
    shared = [np.concatenate([y for _, y in data.test_batches(2, first, 2)]).tolist() for first in (0, 1)]
    assert shared == [[0, 1, 4, 5], [2, 3, 6]]
