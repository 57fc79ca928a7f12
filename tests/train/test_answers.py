"""Answers of a teacher that are asked for once and kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flipbit.train.answers import Answers
from flipbit.train.data import batches as data_sets
from flipbit.train.loop import train
from flipbit.train.settings import Settings
from flipbit.train.teacher import load_teacher


def settings(**given: object) -> Settings:
    return Settings(**{"method": "bc", "epochs": 1, "width": 0.5, "limit": 200, **given})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("teacher")
    train(settings(method="adam", seed=3), folder)
    return folder / "model.h5"


def test_answers_are_the_teachers_own_and_come_from_the_file_the_second_time(teacher: Path) -> None:
    digits = data_sets.load("digits", limit=200)
    found = Answers(load_teacher(teacher, digits), digits, seed=7)
    first = list(found.batches(64, 0))
    for images, _, answers in first:
        assert np.allclose(found.teacher.logits(images).numpy(), answers, atol=0.01)
    (kept,) = found.folder.iterdir()
    np.save(kept, np.load(kept) + 1)
    again = np.concatenate([answers for _, _, answers in found.batches(64, 0)])
    assert (again == np.concatenate([answers for _, _, answers in first]) + 1).all()


@pytest.mark.parametrize("other", [{"seed": 8}, {"batch": 32}, {"epoch": 1}, {"limit": 150}, {"augment": "none"}])
def test_answers_to_other_images_are_asked_for_anew(other: dict[str, object], teacher: Path) -> None:
    def ask(seed: int = 7, batch: int = 64, epoch: int = 0, limit: int = 200, augment: str = "auto") -> set[Path]:
        digits = data_sets.load("digits", augment=augment, limit=limit)
        found = Answers(load_teacher(teacher, digits), digits, seed)
        list(found.batches(batch, epoch))
        return set(found.folder.iterdir())

    before = ask()
    assert ask(**other) - before  # type: ignore[arg-type]


def test_answers_in_another_precision_are_kept_apart(teacher: Path) -> None:
    digits = data_sets.load("digits", limit=150)
    exact, fast = (Answers(load_teacher(teacher, digits), digits, 9, p) for p in ("float32", "bfloat16"))
    ((_, _, a), *_), ((_, _, b), *_) = exact.batches(150, 0), fast.batches(150, 0)
    assert (a != b).any() and np.allclose(a, b, atol=0.1)
    ((_, _, again), *_) = exact.batches(150, 0)
    assert (again == a).all()


def test_kept_answers_teach_as_asked_ones_do(teacher: Path, tmp_path: Path) -> None:
    """Half precision is all that differs while no epoch comes again."""
    asked = train(settings(teacher=str(teacher), epochs=2), tmp_path / "asked")
    kept = train(settings(teacher=str(teacher), epochs=2, teacher_epochs=2), tmp_path / "kept")
    for a, b in zip(asked.history, kept.history):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-2)


def test_epochs_come_again(teacher: Path, tmp_path: Path) -> None:
    run = train(settings(teacher=str(teacher), epochs=3, teacher_epochs=1), tmp_path)
    first, third = ([images for images, *_ in run._batches(64, epoch)] for epoch in (0, 2))
    assert all((a == b).all() for a, b in zip(first, third))
