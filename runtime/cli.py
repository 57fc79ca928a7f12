"""Run, look into, measure and compare nets in .fbit images, and put them on boards.

examples:
  flipbit info resnet8.fbit                    layers, sizes and RAM
  flipbit run resnet8.fbit cat.png             which class is it?
  flipbit run resnet8.fbit cifar-10-batches-py accuracy on the test set
  flipbit profile resnet8.fbit                 where does the time go?
  flipbit compare before.fbit after.fbit       which bits flipped?
  flipbit flash --board microbit --model digits.fbit

"flipbit COMMAND --help" says more. Exit status: 0, 2 for bad input, 130 when interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys

from flipbit.runtime import bench
from flipbit.runtime.compare_command import add_compare_parser
from flipbit.runtime.device_command import add_device_parser
from flipbit.runtime.errors import FlipbitError
from flipbit.runtime.finetune import add_finetune_parser
from flipbit.runtime.flash_command import add_flash_parser
from flipbit.runtime.info_command import add_info_parser
from flipbit.runtime.profile_command import add_profile_parser
from flipbit.runtime.run_command import add_run_parser


def parser() -> argparse.ArgumentParser:
    description, epilog = (__doc__ or "").split("\n\n", 1)
    p = argparse.ArgumentParser(
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
    try:
        if arguments[:1] == ["bench"]:
            status = bench.main(arguments[1:])
        else:
            given = parser().parse_args(arguments)
            status = int(given.command(given))
        sys.stdout.flush()  # here, so that a closed pipe shows here
        return status
    except FlipbitError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        if isinstance(error, BrokenPipeError):  # | head
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        print(f"error: {error.filename or 'output'}: {error.strerror}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130
