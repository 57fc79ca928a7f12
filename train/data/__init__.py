"""Data to train on: batches, augmentation, held-out parts."""

from __future__ import annotations

from typing import Any

__all__ = ["load"]


def __getattr__(name: str) -> Any:
    if name != "load":
        raise AttributeError(f"module 'flipbit.train.data' has no attribute {name!r}")
    from flipbit.train.data.batches import load

    return load
