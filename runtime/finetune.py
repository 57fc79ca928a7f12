"""Let a net learn on a device: the same as ``flipbit finetune``. See --help."""

from __future__ import annotations

import sys

try:
    from flipbit.runtime.commands.cli import main
except ModuleNotFoundError as error:
    if error.name is None or not error.name.startswith("flipbit"):
        raise
    sys.exit("flipbit is not installed here; run:  pip install -e .   (or: make setup)")

if __name__ == "__main__":
    sys.exit(main(["finetune", *sys.argv[1:]]))
