"""Show a model file (.fbit, .onnx, .tflite, .h5) as a table, and as a picture.

examples:
  python export/show.py model.fbit
  python export/show.py model.onnx --picture graph.png
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

try:
    from flipbit.export.describe import describe
    from flipbit.export.graph import ExportError
except ModuleNotFoundError as error:
    if error.name is None or not error.name.startswith("flipbit"):
        raise
    sys.exit(
        "flipbit is not installed here; run:  pip install -c constraints.txt -e '.[train,export]'   (or: make setup)"
    )


def main(argv: list[str] | None = None) -> int:
    doc = (__doc__ or "").split("\n\n", 1)
    p = argparse.ArgumentParser(
        prog="export/show.py", description=doc[0], epilog=doc[1], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("file", type=Path)
    p.add_argument("--picture", type=Path, metavar="PNG", help="draw the graph there")
    p.add_argument("--json", type=Path, metavar="FILE", help="write the table there too")
    given = p.parse_args(argv)
    try:
        description = describe(given.file)
    except ExportError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console.width = 120
    table = Table(title=f"{given.file}: {description.format}, {description.file_bytes:,} bytes", title_justify="left")
    for name in ("operation", "kind", "output", "bits", "bytes"):
        table.add_column(name, justify="left" if name in ("operation", "kind") else "right")
    for node in description.nodes:
        shape = "×".join(str(n) for n in node.shape)
        table.add_row(node.name, node.kind, shape, str(node.bits or ""), f"{node.bytes:,}" if node.bytes else "")
    console.print(table)
    for name, value in description.facts.items():
        console.print(f"{name}: {value}", highlight=False, markup=False)
    if given.picture:
        from flipbit.export.picture import draw

        draw(description, given.picture, given.file.name)
        console.print(f"picture: {given.picture}", highlight=False)
    if given.json:
        from flipbit.train.files import write_json

        write_json(given.json, asdict(description))
    return 0


if __name__ == "__main__":
    sys.exit(main())
