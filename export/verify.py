"""Hold a model and the files made from it against each other: the same as ``flipbit verify``. See --help."""

from __future__ import annotations

import sys

try:
    from flipbit.export.commands import verify as command
except ModuleNotFoundError as error:
    if error.name is None or not error.name.startswith("flipbit"):
        raise
    sys.exit("flipbit is not installed here; run: pip install -c constraints.txt -e '.[train,export]' (or: make setup)")


def main(argv: list[str] | None = None) -> int:
    return command.main(argv, "export/verify.py")


if __name__ == "__main__":
    sys.exit(main())
