"""Augmentation of photographs and motion: what stays, what changes, and that a seed decides."""

from __future__ import annotations

import numpy as np
import pytest

from flipbit.train.data.changes import Motion, Photographs, _rotations


def test_photographs_keep_size_and_come_again_with_the_same_seed() -> None:
    images = np.random.default_rng(0).integers(0, 256, (8, 48, 48, 3), np.uint8)
    first, again = (Photographs()(images, np.random.default_rng(3)) for _ in range(2))
    assert first.shape == images.shape and first.dtype == np.uint8
    assert np.array_equal(first, again) and (first != images).any((1, 2, 3)).all()


def test_photographs_of_one_colour_stay_of_one_colour_per_channel() -> None:
    grey = np.full((4, 40, 40, 3), 100, np.uint8)
    changed = Photographs()(grey, np.random.default_rng(0))
    assert (changed == changed[:, :1, :1]).all()


def test_a_turn_keeps_lengths_and_turns_triples_together() -> None:
    turns = _rotations(np.array([0.3, -1.2]), np.array([[1.0, 2, 3], [0, 0, 1]]))
    assert turns @ turns.transpose(0, 2, 1) == pytest.approx(np.broadcast_to(np.eye(3), (2, 3, 3)), abs=1e-12)
    signal = np.full((2, 1, 64, 6), 128, np.uint8)
    signal[..., 0], signal[..., 3] = 228, 228  # acceleration and rotation about one axis
    turned = Motion(turn=0.5, strength=0, noise=0, pace=0)(signal, np.random.default_rng(1)).astype(int) - 128
    assert np.array_equal(turned[..., :3], turned[..., 3:])
    assert np.linalg.norm(turned[..., :3], axis=-1) == pytest.approx(100, abs=1.5)


def test_motion_without_changes_is_as_it_was() -> None:
    signal = np.random.default_rng(0).integers(0, 256, (3, 1, 32, 1), np.uint8)
    assert np.array_equal(Motion(turn=0, strength=0, noise=0, pace=0)(signal, np.random.default_rng(1)), signal)
