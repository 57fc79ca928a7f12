"""Accuracy against cost: a table and a figure of several nets, on the C core in integers.

Accuracy is measured here, on the test part of DATA. Instructions are those of a core (Cortex-M4 unless --board says
otherwise): counted in QEMU where the same layer was counted, else estimated (runtime/board/estimate.py). Figures of
other runtimes can be put beside them with --other; they are drawn as they are given.

examples:
  flipbit pareto cifar10 models/cifar10-flip-s/model.fbit models/cifar10-flip-m/model.fbit -o pareto
  flipbit pareto cifar10 a.fbit b.fbit --other "int8 ResNet-8, CMSIS-NN:86.97:27500000:98496"
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.runtime.board.plan import board_plan
from flipbit.runtime.core.model import Model
from flipbit.runtime.data.load import load_data
from flipbit.runtime.errors import ArgumentError
from flipbit.runtime.exits import CommandParser
from flipbit.runtime.files import check_place, replacing, write_json
from flipbit.runtime.shown import shown_json
from flipbit.runtime.text_table import text_table

PROG = "flipbit pareto"
BOARD = "mps2-an386"  # a Cortex-M4 with RAM to spare


@dataclass(frozen=True)
class Point:
    """A net: its accuracy in percent, and what it takes."""

    name: str
    accuracy: float
    instructions: int
    flash: int  # bytes of the net
    ram: int | None = None  # for input, output, activations and tables
    cycles: int | None = None
    weights: str = ""  # "1 bit", "int8"; "" where it was given and not measured
    counted: bool = True  # else some layers are estimated

    def beats(self, other: Point) -> bool:
        """At least as accurate for at most as many instructions and bytes, and not equal in all."""
        mine = (-self.accuracy, self.instructions, self.flash)
        theirs = (-other.accuracy, other.instructions, other.flash)
        return all(a <= b for a, b in zip(mine, theirs)) and mine != theirs


def measured(path: Path, data: str, board: str = BOARD, limit: int | None = None, threads: int = 1) -> Point:
    """The point of an image; named after its file, or its folder where the file is a ``model.fbit``."""
    model = Model(path)
    samples = load_data(data, model.input_shape, model.labels, limit=limit, front_end=model.image.front_end)
    if not samples.labelled:
        raise ArgumentError(f"{data}: holds no labels to compare answers with")
    answers = model.predict(samples.x, threads=threads).reshape(len(samples.x), -1).argmax(1)
    plan = board_plan(model, board)
    if plan.instructions is None:
        why = "; ".join(plan.missing) or "no layer like one of its layers was counted"
        raise ArgumentError(f"{path}: has no count on {board}: {why}")
    modelled = all(layer.cycles is not None for layer in plan.layers)
    bits = {layer.bits for layer in model.layers if layer.macs > 0.5 * max(other.macs for other in model.layers)}
    return Point(
        path.parent.name if path.stem == "model" else path.stem,
        100 * float(np.mean(answers == samples.y)),
        plan.instructions, len(model.image.data), plan.ram_fastest, plan.cycles if modelled else None,
        "1 bit" if bits == {1} else "int8" if 1 not in bits else "mixed", plan.counted,
    )  # fmt: skip


def given(text: str) -> Point:
    """A point from ``NAME:ACCURACY:INSTRUCTIONS:BYTES``."""
    name, *numbers = text.rsplit(":", 3)
    try:
        accuracy, instructions, flash = float(numbers[0]), int(numbers[1]), int(numbers[2])
    except (ValueError, IndexError):
        raise ArgumentError(f"--other {text}: expected NAME:ACCURACY:INSTRUCTIONS:BYTES") from None
    if not (0 <= accuracy <= 100 and instructions > 0 and flash > 0):
        raise ArgumentError(f"--other {text}: accuracy is in percent, instructions and bytes are more than 0")
    return Point(name, accuracy, instructions, flash)


def front(points: list[Point]) -> list[Point]:
    """The points that no other one beats, the cheapest first."""
    best = [p for p in points if not any(other.beats(p) for other in points)]
    return sorted(best, key=lambda p: (p.instructions, p.accuracy))


def text(points: list[Point]) -> str:
    head = ["net", "weights", ">accuracy", ">instructions", ">cycles", ">flash", ">RAM", "on the front"]
    best = front(points)
    rows = [
        [
            p.name, p.weights, f"{p.accuracy:.2f} %", f"{'' if p.counted else '~'}{p.instructions:,}", p.cycles,
            p.flash, p.ram, "yes" if p in best else "",
        ]
        for p in sorted(points, key=lambda p: -p.accuracy)
    ]  # fmt: skip
    return text_table(head, rows)


def draw(points: list[Point], path: Path) -> None:
    """Accuracy against instructions, and against flash, side by side."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    styles = {"1 bit": ("o", "#0b6e4f"), "int8": ("s", "#c05621"), "mixed": ("D", "#5a67d8"), "": ("^", "#777777")}
    names = {"1 bit": "one-bit weights", "int8": "int8 weights, flipbit", "mixed": "mixed", "": "other runtimes"}
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4.2), sharey=True)
    for axis, field, unit in ((axes[0], "instructions", 1e6), (axes[1], "flash", 1e3)):
        for kind in sorted({p.weights for p in points}):
            own = [p for p in points if p.weights == kind]
            marker, colour = styles[kind]
            axis.scatter(
                [getattr(p, field) / unit for p in own], [p.accuracy for p in own], marker=marker, color=colour,
                label=names[kind], zorder=3,
            )  # fmt: skip
        axis.set_xscale("log")
        spread = [getattr(p, field) / unit for p in points]
        middle = (min(spread) * max(spread)) ** 0.5
        for x, p in zip(spread, points):  # towards the middle, where there is room; of other runtimes below
            right, low = x > middle, -12 if p.weights == "" else -3
            place: dict[str, Any] = {"xytext": (-6 if right else 6, low), "ha": "right" if right else "left"}
            axis.annotate(p.name, (x, p.accuracy), textcoords="offset points", fontsize=7, **place)
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.grid(True, which="both", alpha=0.25)
        axis.margins(x=0.25, y=0.12)
    axes[0].set_xlabel("million instructions per inference, Cortex-M4")
    axes[1].set_xlabel("KB of flash for the net")
    axes[0].set_ylabel("accuracy, %")
    axes[0].legend(fontsize=8, loc="lower right")
    figure.tight_layout()
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=110, format="png")
    pyplot.close(figure)


def parser(prog: str = PROG) -> CommandParser:
    found = CommandParser(prog=prog, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("data", metavar="DATA", help="a data set, as for flipbit run")
    found.add_argument("images", nargs="+", type=Path, metavar="IMAGE", help="a .fbit file")
    found.add_argument("--other", action="append", default=[], metavar="POINT", help="NAME:ACCURACY:INSTRUCTIONS:BYTES")
    found.add_argument(
        "--board", default=BOARD, metavar="NAME", help=f"board whose core is counted ({BOARD}, a Cortex-M4)"
    )
    found.add_argument("--limit", type=int, metavar="N", help="only the first N images of DATA")
    found.add_argument("--threads", type=int, default=1, metavar="N", help="share the images between threads (1)")
    found.add_argument("-o", "--output", type=Path, metavar="BASE", help="also write BASE.json and BASE.png")
    found.add_argument("--json", action="store_true", help="print JSON")
    return found


def main(argv: list[str] | None = None, prog: str = PROG) -> int:
    """The command ``flipbit pareto``; bad input is a FlipbitError, which the command line reports."""
    asked: Any = parser(prog).parse_args(argv)
    for option in ("limit", "threads"):
        value = getattr(asked, option)
        if value is not None and value < 1:
            raise ArgumentError(f"--{option} {value}: at least 1")
    outputs = [asked.output.with_name(asked.output.name + end) for end in (".json", ".png")] if asked.output else []
    for path in outputs:
        check_place(path)
    others = [given(point) for point in asked.other]
    points = [measured(path, asked.data, asked.board, asked.limit, asked.threads) for path in asked.images] + others
    print(shown_json([asdict(p) for p in points]) if asked.json else text(points))
    if outputs:
        write_json(outputs[0], [asdict(p) for p in points])
        draw(points, outputs[1])
    return 0
