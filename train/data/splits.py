"""Validation images: a part of the training set that is held out, to choose by without looking at the test set."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from flipbit.runtime.data.data_set import every_nth_group
from flipbit.train.data.batches import DataSet, ImageArrays
from flipbit.train.settings import InputError, Settings


def every_nth(labels: np.ndarray, n: int) -> np.ndarray:
    """A mask of every ``n``-th image of each class, counted in the order given: positions n−1, 2n−1, …"""
    mask = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        mask[np.flatnonzero(labels == label)[n - 1 :: n]] = True
    return mask


def hold_out(data: DataSet, share: float) -> tuple[DataSet, DataSet]:
    """``data`` without every (1/share)-th training image (or group of them) of each class, and those: to test on."""
    n = round(1 / share)
    if isinstance(data, ImageArrays):
        labels = data.y_train if data.values is None else np.zeros(data.train_size, np.int64)
    else:
        labels = np.array([label for _, label in data.train_files], np.int64)
    held = _held(data, labels, n)
    if not held.any():
        raise InputError(
            f"--holdout {share:g}: no class of {data.name} has {n} training images; hold out a larger share"
        )
    if isinstance(data, ImageArrays):
        x, y = data.x_train, data.y_train
        return (
            replace(data, x_train=x[~held], y_train=y[~held], **data.extra(~held)),
            replace(data, x_train=x[:0], y_train=y[:0], x_test=x[held], y_test=y[held], **data.extra(slice(0))),
        )
    files = [[f for f, is_held in zip(data.train_files, held) if is_held == part] for part in (False, True)]
    return replace(data, train_files=files[0]), replace(data, train_files=[], test_files=files[1])


def _held(data: DataSet, labels: np.ndarray, n: int) -> np.ndarray:
    """A set of recordings holds out its official validation part, or whole speakers, people or stretches."""
    if isinstance(data, ImageArrays) and data.validation is not None:
        return data.validation
    if isinstance(data, ImageArrays) and data.groups is not None:
        return every_nth_group(labels, data.groups, n)
    return every_nth(labels, n)


def refuse_if_it_saw_held_out(model: Path, option: str, settings: Settings) -> None:
    """Refuse a model that was trained on images held out here: validation would flatter what learns from it."""
    try:
        theirs = json.loads(model.with_name("run.json").read_text(encoding="utf-8"))["settings"]
        data, share = theirs["data"], theirs.get("holdout") or 0.0
    except (OSError, ValueError, KeyError, TypeError):
        return  # nothing is known of how it was trained
    if settings.holdout and data == settings.data and (not share or round(1 / share) != round(1 / settings.holdout)):
        raise InputError(
            f"{option} {model}: was trained with --holdout {share:g}, so it has seen images that --holdout "
            f"{settings.holdout:g} validates on; train it with the same --holdout, or drop it here"
        )
