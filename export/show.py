"""Show a model file as a table, and as a picture. See --help."""

from __future__ import annotations

import sys

try:
    from flipbit.export.commands.show import main
except ModuleNotFoundError as error:
    if error.name is None or not error.name.startswith("flipbit"):
        raise
    sys.exit(
        "flipbit is not installed here; run:  pip install -c constraints.txt -e '.[train,export]'   (or: make setup)"
    )

if __name__ == "__main__":
    sys.exit(main())
