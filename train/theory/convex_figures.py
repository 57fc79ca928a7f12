"""Pictures of the convex experiments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from flipbit.train.theory.outcome import save_figure

if TYPE_CHECKING:
    from flipbit.train.theory.convex import Check

PANELS = (
    ("1", "sr", "quadratic", "Theorem 1: SR, quadratic"),
    ("corollary", "bc-stochastic", "quadratic", "Corollary: BC with Q_s, quadratic"),
    ("4", "bc-stochastic", "log-cosh", "Theorem 4: BC with Q_s, log-cosh"),
    ("1", "sr", "log-cosh", "Theorem 1: SR, log-cosh"),
    ("2", "sr", "Huber", "Theorem 2: SR, Huber"),
    ("3", "bc-deterministic", "Huber", "Theorem 3: BC with Q_d, Huber"),
)


def _select(checks: list[Check], theorem: str, method: str, problem: str) -> list[Check]:
    return [
        check
        for check in checks
        if (check.theorem, check.method, check.problem.name) == (theorem, method, problem) and check.rate in (None, 1.0)
    ]


def _curve(axis: Any, check: Check, label: str, **style: Any) -> None:
    axis.errorbar(check.curve.steps, check.curve.gap, yerr=3 * check.curve.error, marker=".", label=label, **style)


def _finish(axis: Any, title: str, **labels: Any) -> None:
    axis.set(xscale="log", yscale="log", **labels)
    axis.set_title(title, fontsize="medium")
    axis.grid(alpha=0.3)
    axis.legend(fontsize="x-small")


def draw_gaps(path: Path, checks: list[Check], deltas: tuple[float, ...]) -> Path:
    """Gap over T for each Δ (solid) under its bound (dashed)."""
    figure = Figure(figsize=(12, 7), layout="constrained")
    axes = figure.subplots(2, 3).flat
    for axis, (theorem, method, problem, title) in zip(axes, PANELS):
        chosen = _select(checks, theorem, method, problem)
        dimension = max(
            {c.problem.dimension for c in chosen}, key=lambda d: sum(c.problem.dimension == d for c in chosen)
        )
        for check in chosen:
            if check.problem.dimension == dimension:
                colour = f"C{deltas.index(check.delta)}"
                _curve(axis, check, f"Δ = {check.delta:g}", color=colour)
                axis.plot(check.curve.steps, check.bound, "--", color=colour)
        _finish(axis, f"{title}, d = {dimension}", xlabel="T", ylabel="F(w̄_T) − F*")
    figure.suptitle("Measured gap ± 3 standard errors (solid) and the bound (dashed)")
    return save_figure(figure, path)


def draw_floors(path: Path, checks: list[Check]) -> Path:
    """Gap at the last T over Δ and over d."""
    figure = Figure(figsize=(11, 5), layout="constrained")
    over_delta, over_d = figure.subplots(1, 2)
    for i, (theorem, method, problem, title) in enumerate(PANELS):
        chosen = _select(checks, theorem, method, problem)
        dimensions = [c.problem.dimension for c in chosen]
        deltas = [c.delta for c in chosen]
        d, delta = max(dimensions, key=dimensions.count), max(deltas, key=deltas.count)
        by_delta = sorted((c.delta, c.curve.gap[-1], c.bound[-1]) for c in chosen if c.problem.dimension == d)
        by_d = sorted((c.problem.dimension, c.curve.gap[-1], c.bound[-1]) for c in chosen if c.delta == delta)
        for axis, rows, fixed in ((over_delta, by_delta, f"d = {d}"), (over_d, by_d, f"Δ = {delta:g}")):
            x, gap, bound = np.array(rows).T
            axis.plot(x, gap, "o-", color=f"C{i}", label=title)
            axis.plot(x, bound, "--", color=f"C{i}", linewidth=1)
            axis.set_title(fixed)
    last = checks[0].curve.steps[-1]
    _finish(over_delta, over_delta.get_title(), xlabel="Δ", ylabel=f"F(w̄_T) − F* at T = {last:,}")
    _finish(over_d, over_d.get_title(), xlabel="d", ylabel=f"F(w̄_T) − F* at T = {last:,}")
    over_d.get_legend().remove()
    over_delta.get_legend().remove()
    figure.legend(*over_d.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize="small")
    figure.suptitle("What is left at the end (solid) and its bound (dashed)")
    return save_figure(figure, path)


def draw_fine_print(path: Path, special: dict[str, Check]) -> Path:
    """The measured gap between the printed bound and the one that can be proved."""
    figure = Figure(figsize=(12, 4.3), layout="constrained")
    hill, rounding, square = figure.subplots(1, 3)

    sr, bc = special["sum of α, SR"], special["sum of α, BC"]
    _curve(hill, bc, "BC, measured", color="tab:orange", linewidth=4, alpha=0.6)
    _curve(hill, sr, "SR, measured", color="tab:blue")
    hill.plot(sr.curve.steps, sr.printed["statement"], ":", color="tab:red", label="Theorem 2, statement")
    hill.plot(sr.curve.steps, sr.printed["proof"], "-.", color="tab:red", label="Theorem 2, proof")
    hill.plot(sr.curve.steps, sr.bound, "--", color="tab:green", label="Theorem 2 with Σ1/√t ≤ 2√T − 1")
    _finish(hill, f"incline, c = {sr.rate:.1f} D/G", xlabel="T", ylabel="F(w̄_T) − F*")

    for name, colour in (("deterministic Q", "tab:orange"), ("stochastic Q", "tab:blue")):
        _curve(rounding, special[name], f"BC, {name}_{name[0] if name[0] == 'd' else 's'}", color=colour)
    rounding.plot(
        special["stochastic Q"].curve.steps, special["stochastic Q"].bound, "--", color="tab:green", label="corollary"
    )
    _finish(rounding, "quadratic: the corollary needs E[r] = 0", xlabel="T")

    check = special["square"]
    _curve(square, check, "BC with Q_s, measured", color="tab:blue")
    square.plot(
        check.curve.steps, check.printed["statement"], ":", color="tab:red", label="Theorem 4, printed: ½DL₂√dΔ"
    )
    square.plot(check.curve.steps, check.bound, "--", color="tab:green", label="with the square: ½DL₂dΔ²")
    _finish(square, "one-bit weights {0, 1000}", xlabel="T")
    return save_figure(figure, path)
