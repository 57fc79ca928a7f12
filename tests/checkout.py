"""Where the checkout is that is tested, and where its data is."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def needs_data(name: str) -> None:
    """Skip unless FLIPBIT_DATA holds the data set of that name."""
    home = Path(os.environ.get("FLIPBIT_DATA", "none"))
    if not any((home / each).is_dir() for each in (name, name.replace("_", "-"))):
        pytest.skip(f"needs {name}: set FLIPBIT_DATA to the folder that holds it")
