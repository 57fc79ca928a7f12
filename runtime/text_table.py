"""Tables in plain text: columns that line up."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from flipbit.runtime.shown import shown


def text_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Lines of a table. A column whose name starts with ``>`` is aligned to the right; whole numbers get commas; texts
    are made fit to be shown."""
    texts = [[_text(cell) for cell in row] for row in rows]
    right = [name.startswith(">") for name in head]
    names = [name.lstrip(">") for name in head]
    widths = [max(len(line[i]) for line in [names, *texts]) for i in range(len(names))]
    lines = []
    for line in [names, [_rule() * width for width in widths], *texts]:
        cells = (cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(line, widths, right))
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _text(cell: object) -> str:
    if cell is None:
        return ""
    return f"{cell:,}" if isinstance(cell, int) else shown(cell)


def _rule() -> str:
    """A line's character, as far as the terminal has it."""
    try:
        "─".encode(getattr(sys.stdout, "encoding", None) or "ascii")
        return "─"
    except UnicodeEncodeError:
        return "-"
