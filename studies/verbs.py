"""What the studies add to the ``flipbit`` command (entry points in pyproject.toml)."""

from __future__ import annotations

from flipbit.runtime.commands.verb import Verb

BENCH = Verb("run", "time a net against other runtimes", "flipbit bench resnet8.fbit", "flipbit.studies.engines")
STUDY = Verb(
    "study", "what learning on a device brings", "flipbit study drift resnet8.fbit cifar-10-batches-py",
    "flipbit.studies.learning",
)  # fmt: skip
