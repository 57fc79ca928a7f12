"""How the experiments' figures look: one colour a method, the paper's line styles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flipbit.train.experiments.grid import Result

COLOURS = {
    "ADAM": "0.2",
    "BC-ADAM": "tab:blue",
    "Big SR-ADAM": "tab:green",
    "SR-ADAM": "tab:orange",
    "R-ADAM": "tab:red",
}


def draw_errors(axis: Any, result: Result, label: str, colour: Any) -> None:
    """Training error solid and test error dashed, as in the paper's figures."""
    axis.plot(result.epochs, result.percent("error"), "-", color=colour, linewidth=1)
    axis.plot(
        result.epochs, result.percent("test_error"), "--", color=colour, label=f"{label}: {result.test_error:.1f}"
    )


def draw_layers(axis: Any, result: Result, name: str, factor: float = 1.0) -> None:
    """A measure of each layer, epoch by epoch, from the first layer (dark) to the last."""
    from matplotlib import colormaps

    names = result.layer_names
    for number, layer in enumerate(names):
        shade = colormaps["viridis"](number / max(1, len(names) - 1))
        shown = layer if len(names) <= 10 or number in (0, len(names) - 1) else None
        axis.plot(result.epochs, [factor * v for v in result.layer(number, name)], color=shade, label=shown)


def finish(
    axis: Any,
    title: str,
    ylabel: str,
    xlabel: str = "epoch",
    legend: bool = True,
    columns: int = 1,
    beside: bool = False,
) -> None:
    """Titles, a grid, and a y axis from 0 where all there is to see lies above it; the legend in the axis or beside."""
    axis.set(title=title, xlabel=xlabel, ylabel=ylabel)
    if axis.get_ylim()[0] >= 0 or not axis.lines:
        axis.set_ylim(bottom=0)
    axis.grid(alpha=0.3)
    if legend:
        place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1, 1)} if beside else {}
        axis.legend(fontsize="small", ncols=columns, **place)


def seed_count(count: int) -> str:
    return f"{count} seed{'s' if count > 1 else ''}"


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Rows of text for the terminal and the report."""
    return {"columns": list(columns), "rows": [[str(cell) for cell in row] for row in rows]}
