"""Reproduce the paper's theorems, tables and figures: the same as ``flipbit reproduce``. See --help."""

from __future__ import annotations

import sys

try:
    from flipbit.train.commands import reproduce as command
except ModuleNotFoundError as error:
    if error.name is None or not error.name.startswith("flipbit"):
        raise
    sys.exit("flipbit is not installed here; run: pip install -c constraints.txt -e '.[train]' (or: make setup)")


def main(argv: list[str] | None = None) -> int:
    return command.main(argv, "train/reproduce.py")


if __name__ == "__main__":
    sys.exit(main())
