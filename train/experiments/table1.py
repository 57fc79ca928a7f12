"""Table 1: test errors of five methods, and how they got there (Figure 6).

The paper's finding is an order: full precision, then BC close behind, then SR with a big batch, SR, and R last.
Big SR is ``sr`` with eight times the batch and nothing else changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from flipbit.train.data import batches as data_sets
from flipbit.train.experiments.drawing import COLOURS, draw_errors, finish, seed_count, table
from flipbit.train.experiments.grid import Result, Runner
from flipbit.train.experiments.scales import Scale
from flipbit.train.settings import InputError, Settings
from flipbit.train.theory.outcome import Outcome, save_figure, size_of

METHODS = {"ADAM": "adam", "BC-ADAM": "bc", "Big SR-ADAM": "sr", "SR-ADAM": "sr", "R-ADAM": "r"}

# Top-1 test error in %, from the paper's Table 1, in the order of METHODS.
PAPER = {
    ("cifar10", "vgg9"): (7.97, 10.36, 16.95, 23.33, 23.99),
    ("cifar10", "vgg-bc"): (7.12, 8.21, 16.77, 20.56, 21.88),
    ("cifar10", "resnet56"): (8.10, 8.83, 19.84, 26.49, 33.56),
    ("cifar10", "wrn-56-2"): (6.62, 7.17, 16.04, 21.58, 27.90),
    ("cifar100", "resnet56"): (33.98, 35.34, 50.79, 58.06, 68.39),
    ("imagenet", "resnet18"): (36.04, 52.11, 77.68, 88.86, 91.07),
}


@dataclass(frozen=True)
class Column:
    """A column of the table: a net on a data set, seeds, methods; the scale's ``width`` if none is given."""

    data: str
    net: str
    seeds: int
    width: float | None = None
    methods: tuple[str, ...] = tuple(METHODS)

    @property
    def net_name(self) -> str:
        return self.net if self.width is None else f"{self.net} × {self.width:g}"


SIZES = {
    "quick": (Column("digits", "vgg-small", 2),),
    # One net of the size that is deployed, and a narrow one that can afford a second seed.
    "small": (Column("cifar10", "resnet8", 1), Column("cifar10", "vgg-small", 2, width=0.5)),
    "long": (Column("cifar10", "resnet8", 3, methods=("Big SR-ADAM", "SR-ADAM")),),
    "paper": tuple(Column(data, net, 1 if data == "imagenet" else 3) for data, net in PAPER),
}


def run(scale: str, runner: Runner, folder: Path, seed: int = 0) -> Outcome:
    """Train every method on every net, and compare the order of their errors with the paper's."""
    recipe = runner.scale(scale)
    columns, missing = _with_data(size_of(scale, SIZES), runner)
    # Seed by seed, so that a long run has all methods early.
    rounds = range(max(column.seeds for column in columns))
    plan = [
        (column, method, number)
        for number in rounds for column in columns if number < column.seeds for method in column.methods
    ]  # fmt: skip
    cells = [_settings(recipe, column, method, seed + number) for column, method, number in plan]
    found: dict[tuple[Column, str], list[Result]] = {}
    for (column, method, _), result in zip(plan, runner.run(cells)):
        found.setdefault((column, method), []).append(result)

    errors = {key: [result.test_error for result in results] for key, results in found.items()}
    differ = list(_out_of_order(columns, errors))
    numbers: dict[str, Any] = {
        "epochs": recipe.epochs,
        "columns": [_column_numbers(column, errors) for column in columns],
        "paper": [{"data": d, "net": n, **dict(zip(METHODS, row))} for (d, n), row in PAPER.items()],
        "out_of_order": differ,
        "left_out": missing,
        "table": _table(columns, errors),
    }
    order = " < ".join(method for method in METHODS if any(method in column.methods for column in columns))
    return Outcome(
        name="table1",
        claim=f"Test errors come in the order {order} for every net.",
        held=not differ,
        summary="; ".join([*(_row(column, errors) for column in columns), *differ, *missing]),
        numbers=numbers,
        figures=[
            _draw_curves(folder / "table1-curves.png", columns, found),
            _draw_table(folder / "table1.png", columns, errors),
        ],
    )


def _settings(recipe: Scale, column: Column, method: str, seed: int) -> Settings:
    more: dict[str, Any] = {"data": column.data, "net": column.net}
    if column.width is not None:
        more["width"] = column.width
    if method == "Big SR-ADAM":
        more["batch"] = recipe.big_batch
        if column.net in ("wrn-56-2", "resnet18"):
            more["batch"] = recipe.big_batch // 2  # the paper's 512: what fitted its GPUs
    if column.data == "imagenet":
        more["epochs"] = min(90, recipe.epochs)  # drops at 30 and 60 are the recipe's own
    return recipe.settings(METHODS[method], seed, **more)


def _with_data(columns: tuple[Column, ...], runner: Runner) -> tuple[list[Column], list[str]]:
    """ImageNet cannot be downloaded: without it its column is left out, and that is said."""
    if not any(column.data == "imagenet" for column in columns):
        return list(columns), []
    try:
        data_sets.load("imagenet", runner.data_dir, "auto", None, None)
    except InputError as error:
        return [column for column in columns if column.data != "imagenet"], [f"left out: {error}"]
    return list(columns), []


def _out_of_order(columns: list[Column], errors: dict[tuple[Column, str], list[float]]) -> Iterator[str]:
    for column in columns:
        for better, worse in pairwise(column.methods):
            a, b = (float(np.mean(errors[column, method])) for method in (better, worse))
            if a >= b:
                yield f"{column.net_name}: {better} ({a:.2f}) is not below {worse} ({b:.2f})"


def _column_numbers(column: Column, errors: dict[tuple[Column, str], list[float]]) -> dict[str, Any]:
    return {
        "data": column.data,
        "net": column.net_name,
        "errors": {method: errors[column, method] for method in column.methods},
        "mean": {method: float(np.mean(errors[column, method])) for method in column.methods},
        "spread": {method: _spread(errors[column, method]) for method in column.methods},
    }


def _spread(values: list[float]) -> float | None:
    """Standard deviation over seeds; one seed has none."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def _cell(values: list[float]) -> str:
    if not values:
        return "–"
    spread = _spread(values)
    return f"{np.mean(values):.2f}" + (f" ± {spread:.2f}" if spread is not None else "")


def _row(column: Column, errors: dict[tuple[Column, str], list[float]]) -> str:
    shown = " / ".join(f"{np.mean(errors[column, method]):.2f}" for method in column.methods)
    return f"{column.net_name} on {column.data}: {shown} %"


def _table(columns: list[Column], errors: dict[tuple[Column, str], list[float]]) -> dict[str, Any]:
    heads = [f"{column.net_name}, {column.data} ({seed_count(column.seeds)})" for column in columns]
    papers = [f"paper: {net}, {data}" for data, net in PAPER]
    rows = [
        [method, *(_cell(errors.get((c, method), [])) for c in columns), *(f"{row[i]:.2f}" for row in PAPER.values())]
        for i, method in enumerate(METHODS)
    ]
    return table(["test error, %", *heads, *papers], rows)


def _draw_curves(path: Path, columns: list[Column], found: dict[tuple[Column, str], list[Result]]) -> Path:
    """Figure 6: a panel a net, the first seed of each method."""
    across = min(3, len(columns))
    down = -(-len(columns) // across)
    figure = Figure(figsize=(6.5 * across, 4.5 * down), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False)
    for axis, column in zip(axes.flat, columns):
        for method in column.methods:
            draw_errors(axis, found[column, method][0], method, COLOURS[method])
        finish(axis, f"{column.net_name} on {column.data}: training (solid), test (dashed)", "error, %")
    for axis in axes.flat[len(columns) :]:
        axis.set_axis_off()
    return save_figure(figure, path)


def _draw_table(path: Path, columns: list[Column], errors: dict[tuple[Column, str], list[float]]) -> Path:
    """Ours as bars with every seed as a dot, and the paper's figures for CIFAR-10 beside them."""
    shown: list[tuple[str, list[list[float]], bool]] = [
        (f"{column.net_name}\n{column.data}", [errors.get((column, method), []) for method in METHODS], False)
        for column in columns
    ]
    shown += [(f"paper:\n{net}", [[v] for v in row], True) for (data, net), row in PAPER.items() if data == "cifar10"]
    figure = Figure(figsize=(2 + 1.5 * len(shown), 4.5), layout="constrained")
    axis = figure.subplots()
    for i, method in enumerate(METHODS):
        for x, (_, values, papers) in enumerate(shown):
            if not values[i]:
                continue
            place = x + (i - 2) * 0.16
            axis.bar(
                place, np.mean(values[i]), 0.15, color=COLOURS[method], alpha=0.45 if papers else 1.0,
                label=method if x == len(shown) - 1 else None,
            )  # fmt: skip
            if len(values[i]) > 1:
                axis.plot([place] * len(values[i]), values[i], "k.", markersize=4)
    axis.set_xticks(range(len(shown)), [name for name, _, _ in shown])
    finish(axis, "Table 1: ours (dots are seeds) beside the paper's (pale)", "test error, %", "", columns=2)
    return save_figure(figure, path)
