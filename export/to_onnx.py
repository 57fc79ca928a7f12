"""Write a trained model as onnx: ``python export/to_onnx.py model.h5``. See --help."""

from __future__ import annotations

import sys

try:
    from flipbit.export.commands.convert import main
except ModuleNotFoundError as error:
    if error.name is None or not error.name.startswith("flipbit"):
        raise
    sys.exit(
        "flipbit is not installed here; run:  pip install -c constraints.txt -e '.[train,export]'   (or: make setup)"
    )

if __name__ == "__main__":
    sys.exit(main("onnx"))
