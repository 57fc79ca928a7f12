"""Verbs of the ``flipbit`` command that other packages bring.

A package offers a verb as an entry point of the group ``flipbit.verbs`` (pyproject.toml) that names a :class:`Verb`.
So ``flipbit`` knows them all while this package imports none of those above it. Entry points are read from the
metadata of what is installed: after a new one, install again (``make setup``).
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from flipbit.runtime.exits import CommandParser

GROUP = "flipbit.verbs"


@dataclass(frozen=True)
class Verb:
    """``home`` is the module of the command, with ``parser(prog)`` and ``main(argv, prog)``, imported when it is used;
    ``stage`` is where the verb is listed, one of ``cli.STAGES``."""

    stage: str
    help: str
    example: str
    home: str

    def parser(self, prog: str) -> CommandParser:
        found: CommandParser = import_module(self.home).parser(prog)
        return found

    def main(self, argv: list[str], prog: str) -> int:
        return int(import_module(self.home).main(argv, prog) or 0)


def offered() -> dict[str, EntryPoint]:
    """Verbs of other packages by name; nothing of them is imported yet."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def load(entry: EntryPoint) -> Verb:
    verb: Verb = entry.load()
    return verb
