"""Tests over all boards or cores of which `make test` runs a sample; `make test-all` runs them all."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

# One board of each kind of core, those with odd memory among them.
BOARDS = ("microbit", "netduinoplus2", "pico", "esp32-c3", "mps3-an547")


def sample(names: Iterable[str], quick: Iterable[str]) -> list:
    """``names`` for ``parametrize``; all but ``quick`` are slow."""
    names, quick = list(names), set(quick)
    assert quick & set(names), "an empty sample"
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow, id=name) for name in names]
