"""What all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# TensorFlow traces on first use, so single examples may be slow; the number of examples bounds the time.
# In CI the examples are the same each time; elsewhere they are new, and so find more.
settings.register_profile("flipbit", deadline=None, max_examples=50, derandomize=bool(os.environ.get("CI")))
settings.load_profile("flipbit")


@pytest.fixture
def cifar10() -> Path:
    """The folder that holds CIFAR-10's official files."""
    folder = os.environ.get("FLIPBIT_DATA")
    if not folder or not (Path(folder) / "cifar-10-batches-py").is_dir():
        pytest.skip("needs real CIFAR-10: set FLIPBIT_DATA to the folder that holds cifar-10-batches-py/")
    return Path(folder)
