"""What a tuning run gained, cost and did, as text for people."""

from __future__ import annotations

import math
from typing import Any

from flipbit.runtime.simulate.simulator import Event
from flipbit.runtime.text_table import text_table


def duration(seconds: float) -> str:
    """For people: 1.5 s, 12 min, 3.2 h, 4.1 days."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.2f} s"


def report_text(facts: dict[str, Any]) -> str:
    """What the run gained and what that cost."""
    years = facts["years"]
    before, after = (100 * facts[f"accuracy_{when}"] for when in ("before", "after"))
    spent = {part: facts[f"joules_{part}"] for part in ("computing", "saving", "sleeping", "lost")}
    power = ", ".join(f"{facts[key]} {key.replace('_', '-')}" for key in ("brown_outs", "sleeps", "saves"))
    wear = f"{facts['worst_erases']} at most of one page, {facts['erases']} in all"
    rows = [
        ("accuracy", f"{before:.1f} % before, {after:.1f} % after, held back"),
        ("energy", f"{facts['joules']:.4g} J: computing {spent['computing']:.4g}, saving {spent['saving']:.3g}, "
                   f"sleeping {spent['sleeping']:.3g}; {spent['lost']:.3g} J of work lost"),
        ("gained", f"{after - before:+.1f} points, {facts['points_per_joule']:.3g} points per joule"),
        ("time", f"{duration(facts['seconds'])} on the device, {facts['samples_per_hour']:.4g} samples per hour, "
                 f"{facts['passes_per_step']} passes a step"),
        ("power", f"{facts['supply']}: {power}"),
        ("RAM", f"{facts['ram']:,} bytes, of them arena {facts['arena']:,} and state {facts['state']:,}"),
        ("flash", f"{facts['flash']:,} bytes per save; erases: {wear}"),
        ("wear", "none" if years is None else f"{years:,.0f} years at one such run a day"),
        ("costs", facts["costs"]),
        ("estimates", ", ".join(facts["estimates"]) or "none"),
    ]  # fmt: skip
    if facts["ended"]:
        rows.append(("ended early", f"{facts['ended']}; the image is the one saved last"))
    return "\n".join(f"{name:<12}{text}" for name, text in rows)


def timeline_text(events: list[Event]) -> str:
    """What the device did when."""

    def stored(level: float) -> str:
        return f"{level:.3g} J" if math.isfinite(level) else ""

    rows = [(duration(event.time), event.kind, stored(event.level), event.text) for event in events]
    return text_table((">time", "what", ">stored", ""), rows)
