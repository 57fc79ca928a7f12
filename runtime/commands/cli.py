"""The ``flipbit`` command: its verbs, those of this package and those that other packages offer."""

from __future__ import annotations

import argparse
import sys
from importlib import metadata
from typing import Any

from flipbit.runtime.commands.verb import Verb, load, offered
from flipbit.runtime.errors import InputError
from flipbit.runtime.exits import CommandParser, guarded

DESCRIPTION = "One-bit nets for microcontrollers: train them, export them, run them, let them keep learning on a board."
EPILOG = """\
"flipbit VERB --help" says more. Exit status: 0; 1 if the answer is no (files disagree); 2 if it could not be done, and
one line says why; 130 or 143 when stopped."""
STAGES = {
    "train": "train a net",
    "export": "make files of it",
    "run": "run and measure it here",
    "board": "put it on a board, let it learn there",
    "study": "studies",
}
# Where this package's own verbs are listed, and an example of each; what they are for is said by their parsers.
OWN = {
    "run": ("run", "flipbit run resnet8.fbit cat.png"),
    "info": ("run", "flipbit info resnet8.fbit"),
    "profile": ("run", "flipbit profile resnet8.fbit"),
    "compare": ("run", "flipbit compare before.fbit after.fbit"),
    "serve": ("run", "flipbit serve --port 8080"),
    "flash": ("board", "flipbit flash --board microbit --model digits.fbit"),
    "device": ("board", "flipbit device info --port qemu:microbit"),
    "finetune": ("board", "flipbit finetune m.fbit --data digits --target sim:pico"),
}
SHELLS = ("bash", "zsh")


def parser(others: dict[str, Verb] | None = None, whole: bool = False) -> argparse.ArgumentParser:
    """The command line; ``whole`` with the options of the ``others``, which otherwise read their own."""
    from flipbit.runtime.commands.compare import add_compare_parser
    from flipbit.runtime.commands.device import add_device_parser
    from flipbit.runtime.commands.finetune import add_finetune_parser
    from flipbit.runtime.commands.flash import add_flash_parser
    from flipbit.runtime.commands.info import add_info_parser
    from flipbit.runtime.commands.profile import add_profile_parser
    from flipbit.runtime.commands.run import add_run_parser
    from flipbit.runtime.commands.serve import add_serve_parser

    p = CommandParser(
        prog="flipbit",
        usage="flipbit VERB …",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("--version", action="version", version=f"flipbit {metadata.version('flipbit')}")
    p.add_argument("--completion", choices=SHELLS, action=_Completion, help="print a script that completes in a shell")
    # The description lists the verbs.
    listed = None if whole else argparse.SUPPRESS
    verbs = p.add_subparsers(metavar="VERB", required=True, prog="flipbit", help=listed)
    add_run_parser(verbs)
    add_info_parser(verbs)
    add_profile_parser(verbs)
    add_compare_parser(verbs)
    add_serve_parser(verbs)
    add_finetune_parser(verbs)
    add_flash_parser(verbs)
    add_device_parser(verbs)
    others = {name: load(entry) for name, entry in offered().items()} if others is None else others
    for name, verb in others.items():
        parents = [verb.parser(f"flipbit {name}")] if whole else []
        verbs.add_parser(name, help=verb.help, parents=parents, add_help=False)
    p.description = f"{DESCRIPTION}\n\n{_listing(verbs, others)}"
    return p


def _listing(verbs: Any, others: dict[str, Verb]) -> str:
    """Every verb with what it does and an example, in the order in which a net meets them."""
    rows = {action.dest: (*OWN[action.dest], action.help) for action in verbs._choices_actions if action.dest in OWN}
    rows.update((name, (verb.stage, verb.example, verb.help)) for name, verb in others.items())
    lines = ["verbs, with examples:"]
    for stage, title in STAGES.items():
        lines.append(f"  {title}")
        lines += [f"    {name:<10} {what:<43} {example}" for name, (at, example, what) in rows.items() if at == stage]
    return "\n".join(lines)


class _Completion(argparse.Action):
    """Prints a script that completes verbs, options and files, made from the parsers."""

    def __call__(self, p: argparse.ArgumentParser, given: Any, shell: Any, option: str | None = None) -> None:
        try:
            import shtab
        except ImportError:
            raise InputError("--completion needs shtab: pip install 'flipbit[completion]'") from None
        root = parser(whole=True)
        _plain_choices(root)
        print(shtab.complete(root, shell))
        p.exit()


def _plain_choices(p: argparse.ArgumentParser) -> None:
    """Choices as tuples: shtab takes every dict for a table of subcommands."""
    for action in p._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                _plain_choices(verb)
        elif isinstance(action.choices, dict):
            action.choices = tuple(action.choices)


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    return guarded(lambda: _run(arguments))


def _run(arguments: list[str]) -> int:
    if not arguments:
        parser().print_help()
        return 0
    name = arguments[0]
    others = {} if name in OWN else offered()
    if name in others:
        return load(others[name]).main(arguments[1:], f"flipbit {name}")
    p = parser({name: load(entry) for name, entry in others.items()})
    given, unknown = p.parse_known_args(arguments)
    if unknown:  # said by the verb's parser: its help is the one to read
        verbs = next(action for action in p._actions if isinstance(action, argparse._SubParsersAction))
        verbs.choices[name].error(f"unrecognized arguments: {' '.join(unknown)}")
    return int(given.command(given))
