"""Write a trained model as C, or as an Arduino library or Zephyr module that has it: see --help."""

from __future__ import annotations

import sys

try:
    from flipbit.export.commands.c_source import main
except ModuleNotFoundError as error:
    if error.name is None or not error.name.startswith("flipbit"):
        raise
    sys.exit(
        "flipbit is not installed here; run:  pip install -c constraints.txt -e '.[train,export]'   (or: make setup)"
    )

if __name__ == "__main__":
    sys.exit(main())
