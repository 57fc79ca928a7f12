"""What tuning runs gained and did, as one HTML page that needs nothing else: `flipbit serve` links to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from flipbit.runtime.shown import shown

Report = dict[str, Any]  # as --json prints it

WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 48, 10, 12, 28
COLOURS = "#0f766e", "#b45309", "#2563eb", "#9333ea", "#be123c", "#4d7c0f"
STYLE = """
html { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0; font-size: .9rem; font-variant-numeric: tabular-nums }
th, td { border-bottom: 1px solid #8886; padding: .2rem .7rem; text-align: right }
th:first-child, td:first-child { text-align: left }
svg { width: 100%; max-width: 640px; height: auto } svg text { fill: currentColor; font: 12px system-ui, sans-serif }
.scroll { overflow-x: auto } dt { font-weight: 600 } dd { margin: 0 0 .4rem; overflow-wrap: anywhere }
"""


def tuning_page(title: str, about: str, runs: Sequence[Report]) -> str:
    """``about``: what learned from what, in a sentence."""
    parts = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1><p>{escape(about)}</p>",
        _table(("method", "before", "after", "points", "flips", "energy", "RAM"), map(_summary, runs)),
    ]
    drawn = [run for run in runs if run.get("steps")]
    if drawn:
        parts += ["<h2>Accuracy on held-back samples</h2>", _chart(drawn)]
    for run in drawn:
        rows = [
            (row["step"], f"{row['loss']:.3f}", _percent(row["accuracy"]), _percent(row["held_back"]), row["flips"])
            for row in run["steps"]
        ]
        parts.append(f"<h2>{escape(run['method'])}, step by step</h2>")
        parts += [_table(("step", "loss", "its samples, before", "held back, after", "flips"), rows), _facts(run)]
    return "\n".join([*parts, "</body></html>\n"])


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _summary(run: Report) -> tuple[object, ...]:
    before, after = run["accuracy_before"], run["accuracy_after"]
    flips = sum(row["flips"] for row in run["steps"]) if "steps" in run else ""
    energy = f"{run['joules']:.3g} J" if "joules" in run else ""
    ram = run.get("ram") or run.get("memory", {}).get("total", "")
    points = f"{100 * (after - before):+.1f}"
    return run["method"], _percent(before), _percent(after), points, flips, energy, f"{ram:,}" if ram else ""


def _table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    body = "\n".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{head}</tr>\n{body}</table></div>'


def _facts(run: Report) -> str:
    """The rest of what --json prints."""
    items = "".join(
        f"<dt>{escape(name.replace('_', ' '))}</dt><dd>{escape(_said(value))}</dd>"
        for name, value in run.items()
        if name not in ("steps", "timeline") and value not in (None, "")
    )
    return f"<details><summary>All figures</summary><dl>{items}</dl></details>"


def _said(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_said(one)}" for name, one in value.items())
    if isinstance(value, list):
        return ", ".join(map(_said, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else shown(value)


def _chart(runs: Sequence[Report]) -> str:
    most = max(len(run["steps"]) for run in runs)
    floor = HEIGHT - BOTTOM

    def x(step: int) -> float:
        return LEFT + step / most * (WIDTH - LEFT - RIGHT)

    def y(share: float) -> float:
        return floor - share * (floor - TOP)

    label = "; ".join(f"{run['method']}: {_percent(run['accuracy_after'])}" for run in runs)
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(f"At the end: {label}")}">']
    for quarter in range(5):
        at = y(quarter / 4)
        parts.append(f'<path d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}" stroke="#8886"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{25 * quarter} %</text>')
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 8}" text-anchor="end">step {most}</text>')
    names = []
    for i, run in enumerate(runs):
        shares = [run["accuracy_before"], *(row["held_back"] for row in run["steps"])]
        points = " ".join(f"{x(step):.1f},{y(share):.1f}" for step, share in enumerate(shares))
        colour = COLOURS[i % len(COLOURS)]
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        names.append(f'<span style="color:{colour}">●</span> {escape(run["method"])}')
    return "\n".join([*parts, "</svg>", f"<p>{' &ensp; '.join(names)}</p>"])
