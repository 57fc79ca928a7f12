"""Show a model file (.fbit, .onnx, .tflite, .keras, .h5, .pt2) as a table, and as a picture.

examples:
  flipbit show model.fbit
  flipbit show model.onnx --picture graph.png
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from flipbit.export.commands.describe import describe
from flipbit.runtime.exits import CommandParser, guarded, typed
from flipbit.runtime.files import check_place
from flipbit.runtime.shown import shown

PROG = "flipbit show"


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    description, epilog = (__doc__ or "").split("\n\n", 1)
    p = CommandParser(
        prog=prog, description=description, epilog=epilog.replace(PROG, typed(prog)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    p.add_argument("file", type=Path)
    p.add_argument("--picture", type=Path, metavar="PNG", help="draw the graph there")
    p.add_argument("--json", type=Path, metavar="FILE", help="also write the table there")
    return p


def main(argv: list[str] | None = None, prog: str = PROG) -> int:
    return guarded(lambda: _show(parser(prog).parse_args(argv)), extras="train,export")


def _show(given: argparse.Namespace) -> None:
    check_place(given.picture, given.json)
    description = describe(given.file)
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console.width = 120
    title = escape(shown(given.file))
    table = Table(title=f"{title}: {description.format}, {description.file_bytes:,} bytes", title_justify="left")
    for name in ("operation", "kind", "output", "bits", "bytes"):
        table.add_column(name, justify="left" if name in ("operation", "kind") else "right")
    for node in description.nodes:
        shape = "×".join(str(n) for n in node.shape)
        table.add_row(
            escape(shown(node.name)), node.kind, shape, str(node.bits or ""), f"{node.bytes:,}" if node.bytes else ""
        )
    console.print(table)
    for name, value in description.facts.items():
        console.print(f"{name}: {shown(value)}", highlight=False, markup=False)
    if given.picture:
        from flipbit.export.commands.picture import draw

        draw(description, given.picture, given.file.name)
        console.print(f"picture: {shown(given.picture)}", highlight=False, markup=False)
    if given.json:
        from flipbit.runtime.files import write_json

        write_json(given.json, asdict(description))
