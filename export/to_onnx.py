"""Write a trained model as ONNX: the same as ``flipbit export --to onnx``. See --help."""

from __future__ import annotations

import sys

try:
    from flipbit.export.commands import convert as command
except ModuleNotFoundError as error:
    if error.name is None or not error.name.startswith("flipbit"):
        raise
    sys.exit("flipbit is not installed here; run: pip install -c constraints.txt -e '.[train,export]' (or: make setup)")


def main(argv: list[str] | None = None) -> int:
    return command.main("onnx", argv)


if __name__ == "__main__":
    sys.exit(main())
