"""One HTML page with every verdict, number and figure, and nothing to fetch: it can be mailed or archived."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from flipbit.train.theory.outcome import Outcome

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
h1, h2 { line-height: 1.2 } h2 { margin-top: 3rem; border-top: 1px solid #ccc; padding-top: 1.5rem }
img { max-width: 100%; display: block; margin: 1rem 0 }
table { border-collapse: collapse; margin: 1rem 0; font-size: 0.9rem; display: block; overflow-x: auto }
th, td { border: 1px solid #ccc; padding: 0.25rem 0.6rem; text-align: left; vertical-align: top }
th { background: #f3f3f3 } .held { color: #176b2c; font-weight: 600 } .not { color: #a3261b; font-weight: 600 }
.small { color: #666; font-size: 0.9rem } details pre { background: #f6f6f6; padding: 1rem; overflow-x: auto }
"""


def html_report(outcomes: Sequence[Outcome], facts: dict[str, str]) -> str:
    """The page as text. ``facts`` (scale, date, machine, …) stand at the top."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        f"<title>Training Quantized Nets, reproduced</title><style>{STYLE}</style></head><body>",
        "<h1>Training Quantized Nets, reproduced</h1>",
        "<p>Every claim below was computed in this run by <code>train/reproduce.py</code>. A claim that did not hold "
        "at this scale is a result, not an error.</p>",
        "<p class=small>" + " · ".join(f"{escape(k)}: {escape(v)}" for k, v in facts.items()) + "</p>",
        "<table><tr><th>experiment</th><th>claim</th><th>held</th><th>numbers</th></tr>",
    ]
    parts += [
        f'<tr><td><a href="#{escape(o.name)}">{escape(o.name)}</a></td><td>{escape(o.claim)}</td>'
        f"<td>{_verdict(o.held)}</td><td>{escape(o.summary)}</td></tr>"
        for o in outcomes
    ]
    parts.append("</table>")
    for outcome in outcomes:
        parts += _section(outcome)
    parts.append("</body></html>\n")
    return "\n".join(parts)


def _verdict(held: bool) -> str:
    return '<span class="held">held</span>' if held else '<span class="not">did not hold</span>'


def _section(outcome: Outcome) -> list[str]:
    parts = [
        f'<h2 id="{escape(outcome.name)}">{escape(outcome.name)}: {_verdict(outcome.held)}</h2>',
        f"<p><b>{escape(outcome.claim)}</b></p><p>{escape(outcome.summary)}</p>",
    ]
    checks = outcome.numbers.get("checks", {})
    if checks:
        items = "".join(f"<li>{'✓' if held else '✗'} {escape(text)}</li>" for text, held in checks.items())
        parts.append(f"<ul>{items}</ul>")
    if "table" in outcome.numbers:
        parts.append(_table(outcome.numbers["table"]))
    parts += [_figure(path) for path in outcome.figures]
    numbers = {name: value for name, value in outcome.numbers.items() if name != "table"}
    parts.append(
        "<details><summary>all numbers</summary><pre>"
        f"{escape(json.dumps(numbers, indent=1, ensure_ascii=False))}</pre></details>"
    )
    return parts


def _table(content: dict[str, Any]) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in content["columns"])
    rows = "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in row) + "</tr>" for row in content["rows"])
    return f"<table><tr>{head}</tr>{rows}</table>"


def _figure(path: Path) -> str:
    image = base64.b64encode(path.read_bytes()).decode("ascii")
    return f'<img alt="{escape(path.stem)}" src="data:image/png;base64,{image}">'
