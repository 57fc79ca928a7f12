"""Show a model file as a table, and as a picture: the same as ``flipbit show``. See --help."""

from __future__ import annotations

import sys

try:
    from flipbit.export.commands import show as command
except ModuleNotFoundError as error:
    if error.name is None or not error.name.startswith("flipbit"):
        raise
    sys.exit("flipbit is not installed here; run: pip install -c constraints.txt -e '.[train,export]' (or: make setup)")


def main(argv: list[str] | None = None) -> int:
    return command.main(argv, "export/show.py")


if __name__ == "__main__":
    sys.exit(main())
