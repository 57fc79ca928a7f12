"""Run, look into, measure and compare nets in .fbit images, and put them on boards.

examples:
  flipbit info resnet8.fbit                    layers, sizes and RAM
  flipbit run resnet8.fbit cat.png             which class is it?
  flipbit run resnet8.fbit cifar-10-batches-py accuracy on the test set
  flipbit profile resnet8.fbit                 where does the time go?
  flipbit compare before.fbit after.fbit       which bits flipped?
  flipbit flash --board microbit --model digits.fbit

"flipbit COMMAND --help" says more. Exit status: 0; 2 if it could not be done, and one line says why; 130 or 143 when
stopped.
"""

from __future__ import annotations

import argparse
import sys

from flipbit.runtime.exits import CommandParser, guarded


def parser() -> argparse.ArgumentParser:
    from flipbit.runtime.commands.compare import add_compare_parser
    from flipbit.runtime.commands.device import add_device_parser
    from flipbit.runtime.commands.finetune import add_finetune_parser
    from flipbit.runtime.commands.flash import add_flash_parser
    from flipbit.runtime.commands.info import add_info_parser
    from flipbit.runtime.commands.profile import add_profile_parser
    from flipbit.runtime.commands.run import add_run_parser

    description, epilog = (__doc__ or "").split("\n\n", 1)
    p = CommandParser(
        prog="flipbit", description=description, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = p.add_subparsers(title="commands", metavar="COMMAND", required=True)
    add_run_parser(commands)
    add_info_parser(commands)
    add_profile_parser(commands)
    add_compare_parser(commands)
    # Its own parser reads its arguments: see main.
    commands.add_parser("bench", help="time a net against other runtimes", add_help=False)
    add_finetune_parser(commands)
    add_flash_parser(commands)
    add_device_parser(commands)
    return p


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    return guarded(lambda: _run(arguments))


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["bench"]:
        from flipbit.studies import engines as bench

        return bench.main(arguments[1:])
    given = parser().parse_args(arguments)
    return int(given.command(given))
