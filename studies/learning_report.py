"""What runtime/study.py found, for people: tables, and a figure. A result is one run, a dictionary."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.runtime.text_table import text_table
from flipbit.runtime.tune.plot import pyplot

Result = dict[str, Any]


def recovered(result: Result) -> float:
    """The share of what a change has cost that learning has brought back."""
    lost: float = result["clean"] - result["before"]
    return (result["after"] - result["before"]) / lost if lost else 0.0


def _method(result: Result) -> str:
    """With bits of its sums, if not 32, and stored samples of each old class."""
    sums, replay = result.get("sum_bits", 32), result.get("replay")
    return result["method"] + (f"/{sums}" if sums < 32 else "") + ("" if replay is None else f", replay {replay}")


def _way(result: Result) -> tuple[str, int, float]:
    """How it learned: method, batch, and the rate of its bits; 0 is the method's own."""
    return _method(result), result["batch"], result["rate_bits"] or 0.0


def _grouped(results: Iterable[Result], key: Callable[[Result], Any]) -> dict[Any, list[Result]]:
    groups: dict[Any, list[Result]] = {}
    for result in results:
        groups.setdefault(key(result), []).append(result)
    return groups


def spread(values: Sequence[float]) -> float:
    """Standard deviation of a few values; 0 of one."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def _named(way: tuple[str, int, float]) -> list[str]:
    return [way[0], str(way[1]), f"{way[2]:.2g}" if way[2] else ""]


def table(results: list[Result]) -> str:
    """Each way to learn and change: mean and standard deviation over seeds of the share that came back."""
    rows = []
    for (*way, drift), found in sorted(_grouped(results, lambda r: (*_way(r), r["drift"])).items()):
        shares = [100 * recovered(r) for r in found]
        before, after = (f"{100 * np.mean([r[name] for r in found]):.1f} %" for name in ("before", "after"))
        flips = "" if found[0]["flips"] is None else f"{np.mean([r['flips'] for r in found]):.0f}"
        shown = f"{np.mean(shares):.0f} %", f"{spread(shares):.1f}" if len(found) > 1 else ""
        rows.append([*_named((way[0], way[1], way[2])), drift, before, after, *shown, flips, len(found)])
    heads = ("method", ">batch", "rate", "change", ">before", ">after", ">recovered", "> ± ", ">flips", ">seeds")
    return text_table(heads, rows)


def summary(results: list[Result], severity: int = 2) -> str:
    """The ways side by side: every change of a severity, and the mean over changes, which each seed has of its own."""
    some = [r for r in results if r["drift"].endswith(f":{severity}")]
    drifts = list(dict.fromkeys(r["drift"] for r in some))
    watched = any("unchanged" in r for r in some)
    rows = []
    for way, found in sorted(_grouped(some, _way).items()):
        by_drift = _grouped(found, lambda r: r["drift"])
        seeds = [group for group in _grouped(found, lambda r: r["seed"]).values() if len(group) == len(drifts)]
        cells = [_share([recovered(r) for r in by_drift.get(drift, [])]) for drift in drifts]
        mean = _share([float(np.mean([recovered(r) for r in s])) for s in seeds])
        kept = [r["unchanged"] - r["clean"] for r in found if "unchanged" in r]
        rows.append([*_named(way), *cells, mean, *([f"{100 * np.mean(kept):+.1f}" if kept else ""] if watched else [])])
    heads = ["method", ">batch", "rate", *(f">{drift}" for drift in drifts), ">mean"]
    return text_table([*heads, ">points, unchanged images"] if watched else heads, rows)


def harm_table(results: list[Result]) -> str:
    """Points won or lost where nothing has changed: mean and worst."""
    rows = []
    for (drift, batch), found in _grouped(results, lambda r: (r["drift"], r["batch"])).items():
        points = [100 * (r["after"] - r["clean"]) for r in found]
        rows.append([drift, batch, f"{np.mean(points):+.2f}", f"{min(points):+.2f}", len(found)])
    return text_table(("samples of", ">how many", ">points, mean", ">worst", ">runs"), rows)


def shift_table(results: list[Result]) -> str:
    """Accuracy after each way to learn, in %: mean and standard deviation over seeds of each shift."""
    names = list(dict.fromkeys(r["drift"] for r in results))
    before = [f"{100 * np.mean([r['before'] for r in results if r['drift'] == name]):.1f}" for name in names]
    rows: list[list[object]] = [["none", "", "", *before]]
    for way, found in _grouped(results, lambda r: (_method(r), r["rate_bits"], r["rate_bias"])).items():
        by_name = _grouped(found, lambda r: r["drift"])
        after = ([100 * r["after"] for r in by_name.get(name, [])] for name in names)
        cells = (f"{np.mean(a):.1f} ± {spread(a):.1f}" if a else "" for a in after)
        rows.append([way[0], way[1] or "", way[2] or "", *cells])
    return text_table(["method", ">rate", ">bias rate", *(f">{name}" for name in names)], rows)


def _share(shares: Sequence[float]) -> str:
    if not shares:
        return ""
    return f"{100 * np.mean(shares):.0f}{f' ± {100 * spread(shares):.1f}' if len(shares) > 1 else ''} %"


def class_table(results: list[Result], labels: list[str]) -> str:
    """Accuracy of each class before and after, seeds averaged."""
    rows = []
    for method, found in _grouped(results, _method).items():
        for name in ("classes_before", "classes_after"):
            means = np.mean([r[name] for r in found], axis=0)
            rows.append([method, name.split("_")[1], *(f"{100 * mean:.0f}" for mean in means)])
    return text_table(["method", "accuracy, %", *labels[: len(rows[0]) - 2]], rows)


def plot_batches(results: list[Result], path: Path) -> None:
    """Test error against the virtual batch: at the big batch's rate, and at a rate for as many flips."""
    plt = pyplot("--plot")
    figure, axes = plt.subplots(figsize=(6.4, 4))
    biggest = max(r["batch"] for r in results)
    for scaled, label in ((False, "rate of the biggest batch"), (True, "rate in proportion to the batch")):
        some = [r for r in results if r["batch"] == biggest or bool(r["rate_bits"]) == scaled]
        groups = sorted(_grouped(some, lambda r: r["batch"]).items())
        errors = [[100 * (1 - r["after"]) for r in found] for _, found in groups]
        means, bars = [float(np.mean(e)) for e in errors], [spread(e) for e in errors]
        axes.errorbar([batch for batch, _ in groups], means, yerr=bars, marker="o", capsize=3, label=label)
    for name, label, style in (("before", "before learning", ":"), ("clean", "before the camera changed", "--")):
        error = 100 * (1 - float(np.mean([r[name] for r in results])))
        axes.axhline(error, color="grey", linestyle=style, linewidth=1, label=label)
    axes.set_xscale("log")
    axes.set_xlabel("virtual batch (samples); every run sees as many samples")
    axes.set_ylabel(f"test error (%), {results[0]['drift']}")
    axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
