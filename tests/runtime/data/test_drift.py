"""Changes of the camera."""

from __future__ import annotations

import numpy as np
import pytest

from flipbit.runtime.data.drift import DRIFTS, SEVERITIES, apply_drift
from flipbit.runtime.errors import ArgumentError


@pytest.mark.parametrize("name", DRIFTS)
def test_a_change_is_stronger_with_its_severity(name: str) -> None:
    x = np.random.default_rng(0).integers(0, 256, (20, 16, 16, 3), np.uint8)
    far = [np.abs(apply_drift(x, f"{name}:{s}").astype(int) - x).mean() for s in SEVERITIES]
    assert 0 < far[0] < far[1] < far[2]
    assert np.array_equal(apply_drift(x, f"{name}:2", seed=4), apply_drift(x, f"{name}:2", seed=4))


def test_changes_do_what_they_say() -> None:
    flat = np.full((1, 5, 5, 3), 100, np.uint8)
    assert apply_drift(flat, "cast:2")[0, 0, 0].tolist() == [135, 100, 55]
    assert np.unique(apply_drift(flat, "dim:1")) == [50]
    assert np.array_equal(apply_drift(flat, "blur:3"), flat)  # edges are repeated
    point = np.zeros((1, 5, 5, 1), np.uint8)
    point[0, 2, 2] = 160
    assert apply_drift(point, "blur:1")[0, 1:4, 1:4, 0].tolist() == [[10, 20, 10], [20, 40, 20], [10, 20, 10]]
    assert apply_drift(np.full((50, 20, 20, 3), 128, np.uint8), "noise:2").std() == pytest.approx(20, rel=0.02)
    assert np.unique(apply_drift(flat, "dim:1+dim:1")) == [25]
    with pytest.raises(ArgumentError, match="3 channels"):
        apply_drift(point, "cast:1")
