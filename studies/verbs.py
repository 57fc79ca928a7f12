"""What the studies add to the ``flipbit`` command (entry points in pyproject.toml)."""

from __future__ import annotations

from flipbit.runtime.commands.verb import Verb

BENCH = Verb("run", "time a net against other runtimes", "flipbit bench resnet8.fbit", "flipbit.studies.engines")
COST = Verb("train", "what an untrained net costs on each core", "flipbit cost flip-s", "flipbit.studies.cost")
FLEET = Verb(
    "study", "devices that learn together", "flipbit fleet simulate m.fbit --data digits -o runs/fleet",
    "flipbit.studies.fleet.command",
)  # fmt: skip
PARETO = Verb(
    "study", "accuracy against cost of several nets", "flipbit pareto cifar10 a.fbit b.fbit", "flipbit.studies.pareto"
)
STUDY = Verb(
    "study", "what learning on a device brings", "flipbit study drift resnet8.fbit cifar-10-batches-py",
    "flipbit.studies.learning",
)  # fmt: skip
