"""Let a net learn on a device: the same as ``flipbit finetune``. See --help."""

from __future__ import annotations

import sys

try:
    from flipbit.runtime.commands import cli
except ModuleNotFoundError as error:
    if error.name is None or not error.name.startswith("flipbit"):
        raise
    sys.exit("flipbit is not installed here; run: pip install -c constraints.txt -e . (or: make setup)")


def main(argv: list[str] | None = None) -> int:
    return cli.main(["finetune", *(sys.argv[1:] if argv is None else argv)])


if __name__ == "__main__":
    sys.exit(main())
