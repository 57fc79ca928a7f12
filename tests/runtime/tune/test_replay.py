"""A class is added from its own samples and a few stored ones of the others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flipbit.runtime.core.model import Model
from flipbit.runtime.errors import ArgumentError, InputError
from flipbit.runtime.tune.replay import add_class, balanced
from tests.nets.small_nets import photos
from tests.runtime.tune.labelled import labelled, some_samples


def test_every_class_counts_about_as_much_as_the_new_one() -> None:
    labels = np.array([0] * 9 + [1] * 6 + [2] * 7 + [3])
    batch = balanced(labels, 1, 2)
    assert np.bincount(labels[batch]).tolist() == [6, 6, 6, 6]
    assert set(batch[labels[batch] == 0]) == {0, 1} and set(batch[labels[batch] == 1]) == set(range(9, 15))


def test_without_replay_only_the_new_class_is_learned_from() -> None:
    labels = np.array([0, 1, 1, 2])
    assert balanced(labels, 1, 0).tolist() == [1, 2]


def test_stored_samples_come_from_the_data_or_from_a_file(tmp_path: Path) -> None:
    folder = labelled(tmp_path)
    model, samples = Model(folder / "net.fbit"), some_samples(folder)
    new = int(samples.y[0])
    some = add_class(model, samples, model.labels[new] if model.labels else str(new), "1", "crop")
    counts = np.bincount(some.y, minlength=5)
    assert counts[new] == (samples.y == new).sum() and set(some.y) == set(samples.y)
    assert "replays" in some.notes[-1]
    np.savez(tmp_path / "stored.npz", x_test=photos(3, 9), y_test=np.full(3, (new + 1) % 5))
    name = model.labels[new] if model.labels else str(new)
    stored = add_class(model, samples, name, str(tmp_path / "stored.npz"), "crop")
    assert set(stored.y) == {new, (new + 1) % 5} and len(stored.x) == len(stored.y) == len(stored.pixels)
    alone = add_class(model, samples, name, None, "crop")
    assert set(alone.y) == {new}


@pytest.mark.parametrize(
    ("name", "stored", "error", "said"),
    [("none", None, ArgumentError, "--new none"), ("0", "0", ArgumentError, "--replay 0"),
     ("0", "none.npz", InputError, "none.npz")],
)  # fmt: skip
def test_a_class_or_stored_samples_that_are_none_are_refused(
    tmp_path: Path, name: str, stored: str | None, error: type[Exception], said: str
) -> None:
    folder = labelled(tmp_path)
    model, samples = Model(folder / "net.fbit"), some_samples(folder)
    samples.y[0] = 0
    known = model.labels[0] if model.labels and name == "0" else name
    with pytest.raises(error, match=said):
        add_class(model, samples, known, stored, "crop")
