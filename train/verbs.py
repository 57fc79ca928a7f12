"""What training adds to the ``flipbit`` command (entry points in pyproject.toml)."""

from __future__ import annotations

from flipbit.runtime.commands.verb import Verb

TRAIN = Verb(
    "train",
    "train a net with binary weights",
    "flipbit train --method bc",
    "flipbit.train.commands.train",
)
REPRODUCE = Verb(
    "study", "the paper's theorems, tables, figures", "flipbit reproduce toy", "flipbit.train.commands.reproduce"
)
