"""Our question: between SR (one bit per weight) and BC (a bit and a float), how much memory does learning need?

First the dial: test error against buffer bits k, from SR (k = 0) to BC (a float), at equal epochs, with Adam and SGD,
with the small and the big batch. The *gap closed* is (err_SR − err) / (err_SR − err_BC), with SR-ADAM and BC-ADAM
at the small batch as the ends of the scale.

Adam's two moments are 64 more bits per weight, out of the question on a device. So then the rules of
:mod:`flipbit.train.experiments.rules`, which keep at most four bits beside the sign and no float per weight: part by
part, and together. Goal: 80 % of the gap.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from flipbit.train.experiments.drawing import finish, seed_count, table
from flipbit.train.experiments.grid import Result, Runner
from flipbit.train.experiments.rules import RuleSettings
from flipbit.train.experiments.scales import Scale
from flipbit.train.settings import Settings
from flipbit.train.theory.outcome import Outcome, save_figure, size_of

GOAL = 0.8
FLOAT = 32  # buffer bits of BC
BITS = (0, 1, 2, 3, 4, 6, 8, FLOAT)

# What each part of a rule brings, with four bits; then fewer bits. A batch in n parts is n times the small batch.
RULES: dict[str, dict[str, Any]] = {
    "scale a layer": {"buffer_bits": 4},
    "scale a channel": {"buffer_bits": 4, "normalize": "channel"},
    "clipped": {"buffer_bits": 4, "moves": "clipped"},
    "tail budget": {"buffer_bits": 4, "moves": "tail", "normalize": "channel", "pace": 0.05},
    "hysteresis": {"buffer_bits": 4, "hysteresis": 8},
    "8 parts": {"buffer_bits": 4, "parts": 8},
    "growing batch": {"buffer_bits": 4, "grow": 8},
    "growing batch, clipped": {"buffer_bits": 4, "moves": "clipped", "grow": 8},
    "growing batch, 3 bits": {"buffer_bits": 3, "grow": 8},
    "growing batch, clipped, 3 bits": {"buffer_bits": 3, "moves": "clipped", "grow": 8},
    "growing batch, clipped, 2 bits": {"buffer_bits": 2, "moves": "clipped", "grow": 8},
    "growing batch, clipped, no buffer": {"buffer_bits": 0, "moves": "clipped", "grow": 8, "pace": 0.02},
}


@dataclass(frozen=True)
class Size:
    """``epochs`` of each run, ``seeds``, and the bits tried away from Adam with the small batch."""

    epochs: int
    seeds: int
    other_bits: tuple[int, ...]
    net: str


SIZES = {
    "quick": Size(5, 1, (0, FLOAT), "vgg-small"),
    "small": Size(6, 1, (0, FLOAT), "resnet8"),
    "paper": Size(160, 3, BITS, "vgg9"),
}

Key = tuple[str, str, int]  # optimizer, "small" or "big" batch, bits


def run(scale: str, runner: Runner, folder: Path, seed: int = 0) -> Outcome:
    """The dial from SR to BC, then rules that keep no float per weight."""
    size, recipe = size_of(scale, SIZES), runner.scale(scale)
    epochs = runner.epochs or size.epochs
    groups = [(core, batch) for core in ("adam", "sgd") for batch in ("small", "big")]
    keys: list[Key] = [
        (core, batch, bits)
        for core, batch in groups for bits in (BITS if (core, batch) == ("adam", "small") else size.other_bits)
    ]  # fmt: skip
    seeds = range(seed, seed + size.seeds)
    # What the goal needs comes first: the dial with Adam, the rules, then the rest.
    first = [key for key in keys if key[:2] == ("adam", "small")]
    names: list[Key | str] = [*first, *RULES, *(key for key in keys if key not in first)]
    more = {"net": size.net, "epochs": epochs}
    cells = [_cell(recipe, name, number, more) for name in names for number in seeds]
    results = runner.run(cells)
    per_name = {name: results[i * len(seeds) : (i + 1) * len(seeds)] for i, name in enumerate(names)}
    errors = {name: float(np.mean([r.test_error for r in found])) for name, found in per_name.items()}

    worst, best = errors["adam", "small", 0], errors["adam", "small", FLOAT]
    gap = worst - best
    closed = {name: (worst - error) / gap if gap > 0 else None for name, error in errors.items()}
    winner = min(RULES, key=lambda name: errors[name])
    share = closed[winner]
    rises = all(errors[a] >= errors[b] for a, b in pairwise(first))
    rows = [_row(name, per_name[name], errors[name], closed[name]) for name in names]
    where = f"{size.net} on {recipe.data}, {epochs} epochs"
    summary = f"{where}, {seed_count(size.seeds)}: SR-ADAM {worst:.2f} %, BC-ADAM {best:.2f} %; "
    summary += f"best rule: {winner}, {errors[winner]:.2f} %"
    summary += f", {100 * share:.0f} % of the gap" if share is not None else " (there is no gap to close here)"
    return Outcome(
        name="buffer",
        claim=(
            f"A rule with at most 4 buffer bits and no float per weight closes {100 * GOAL:.0f} % of the gap from "
            "SR-ADAM to BC-ADAM."
        ),
        held=share is not None and share >= GOAL,
        summary=summary,
        numbers={
            "net": size.net, "data": recipe.data, "epochs": epochs, "seeds": list(seeds), "goal": GOAL,
            "checks": {"with Adam and the small batch, more bits never hurt": rises},
            "runs": rows, "winner": winner,
            "table": table(
                ["buffer", "optimizer", "batch", "bits per weight", "test error, %", "gap closed"],
                [[row["name"], row["optimizer"], row["batch"], row["bits_per_weight"]["total"],
                  f"{row['test_error']:.2f}", _percent(row["gap_closed"])] for row in rows],
            ),
        },
        figures=[
            _draw_dial(folder / "buffer-bits.png", errors, groups, gap, where),
            _draw_rules(folder / "buffer-rules.png", errors, worst, best),
        ],
    )  # fmt: skip


def _cell(recipe: Scale, name: Key | str, seed: int, more: dict[str, Any]) -> Settings:
    if isinstance(name, str):
        rule = RULES[name]
        batch_size = recipe.batch * rule.get("parts", 1)
        # lr is that of the float parameters, whose steps are normalised too: Adam's.
        return recipe.settings("sr", seed, RuleSettings, **more, batch=batch_size, optimizer="sgd", lr=0.01, **rule)
    core, batch, bits = name
    chosen = {**more, "optimizer": core, "batch": recipe.batch if batch == "small" else recipe.big_batch}
    if bits == FLOAT:
        return recipe.settings("bc", seed, **chosen)
    return recipe.settings("sr", seed, **chosen, buffer_bits=bits or None)


def _row(name: Key | str, found: list[Result], error: float, closed: float | None) -> dict[str, Any]:
    saved = found[0].state_bits
    settings = found[0].settings
    rule = isinstance(name, str)
    return {
        "name": f"{name}" if rule else ("float" if name[2] == FLOAT else f"k = {name[2]}"),
        "optimizer": "none" if rule else settings.optimizer,
        "batch": settings.batch,
        "bits_per_weight": saved,
        "test_errors": [r.test_error for r in found],
        "test_error": error,
        "gap_closed": closed,
    }


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f} %"


def _draw_dial(
    path: Path, errors: dict[Key | str, float], groups: list[tuple[str, str]], gap: float, where: str
) -> Path:
    """Error against buffer bits; the float buffer stands at the right."""
    figure = Figure(figsize=(13, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    worst = errors["adam", "small", 0]
    for core, batch in groups:
        bits = [b for b in BITS if (core, batch, b) in errors]
        places = [BITS.index(b) for b in bits]
        values = [errors[core, batch, b] for b in bits]
        style = {"color": "tab:blue" if core == "adam" else "tab:orange", "marker": "o"}
        style |= {"linestyle": "-" if batch == "small" else "--", "label": f"{core.upper()}, {batch} batch"}
        left.plot(places, values, **style)
        if gap > 0:
            right.plot(places, [100 * (worst - v) / gap for v in values], **style)
    labels = ["0 (SR)", *(str(b) for b in BITS[1:-1]), "float (BC)"]
    for axis in (left, right):
        axis.set_xticks(range(len(BITS)), labels)
    finish(left, f"test error, {where}", "error, %", "buffer bits beside the sign")
    finish(right, "gap closed between SR-ADAM and BC-ADAM, small batch", "%", "buffer bits beside the sign", gap > 0)
    low, high = right.get_ylim()
    right.set_ylim(max(low, -100), min(max(high, 105), 200))  # a run that failed must not flatten the others
    right.axhline(100 * GOAL, color="0.5", linestyle=":")
    return save_figure(figure, path)


def _draw_rules(path: Path, errors: dict[Key | str, float], worst: float, best: float) -> Path:
    """The rules without float state between SR-ADAM and BC-ADAM."""
    names = [*reversed(RULES)]
    figure = Figure(figsize=(9, 1.6 + 0.42 * len(names)), layout="constrained")
    axis = figure.subplots()
    axis.barh(range(len(names)), [errors[name] for name in names], color="tab:green", height=0.6)
    for place, name in enumerate(names):
        axis.text(errors[name], place, f" {errors[name]:.1f}", va="center", fontsize="small")
    for value, label, colour in ((worst, "SR-ADAM", "tab:orange"), (best, "BC-ADAM", "tab:blue")):
        axis.axvline(value, color=colour, label=f"{label}: {value:.1f}")
    axis.axvline(worst - GOAL * (worst - best), color="0.5", linestyle=":", label=f"{100 * GOAL:.0f} % of the gap")
    axis.set_yticks(range(len(names)), [f"{name} (k = {RULES[name]['buffer_bits']})" for name in names])
    finish(axis, "Rules that keep no float per weight", "", "test error, %", beside=True)
    axis.set_xlim(left=0.0)
    axis.grid(visible=False, axis="y")
    return save_figure(figure, path)
