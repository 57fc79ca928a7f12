"""Differences between two runs of a net, in steps of the int8 grid or relative to the size of the values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from flipbit.export.graph import Array, Graph
from flipbit.export.oracle import dequantize

ALMOST = 1e-4  # real numbers that differ by less, relative to the largest, count as equal


@dataclass(frozen=True)
class LayerDifference:
    name: str
    largest: float
    share: float
    quantized: bool

    @property
    def differs(self) -> bool:
        return self.share > 0

    @property
    def largest_text(self) -> str:
        return f"{self.largest:.0f} LSB" if self.quantized else f"{self.largest:.1e} relative"

    def to_json(self) -> dict[str, Any]:
        return {"tensor": self.name, "largest": self.largest, "share": self.share}


def difference(name: str, found: Array, expected: Array) -> LayerDifference:
    gap = np.abs(found.astype(np.float64) - expected.astype(np.float64))
    if expected.dtype == np.int8:
        return LayerDifference(name, float(gap.max()), float(np.mean(gap > 0)), True)
    relative = gap / max(float(np.abs(expected).max()), 1e-30)
    return LayerDifference(name, float(relative.max()), float(np.mean(relative > ALMOST)), False)


class LayerDifferences:
    """Differences tensor by tensor, batch by batch, of what two runs both show."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.largest: dict[str, float] = {}
        self.differ: dict[str, float] = {}
        self.seen: dict[str, int] = {}

    def add(self, found: dict[str, Array], expected: dict[str, Array]) -> None:
        for name in self.graph.tensors:
            if name not in found:
                continue  # fused away in the file
            if found[name].shape != expected[name].shape:
                row = LayerDifference(name, float("inf"), 1.0, False)
            else:
                row = difference(name, found[name], expected[name])
            count = len(expected[name])
            self.largest[name] = max(self.largest.get(name, 0.0), row.largest)
            self.differ[name] = self.differ.get(name, 0.0) + row.share * count
            self.seen[name] = self.seen.get(name, 0) + count

    @property
    def rows(self) -> list[LayerDifference]:
        """A row for each tensor, in running order."""
        return [
            LayerDifference(name, self.largest[name], self.differ[name] / max(1, self.seen[name]), self.graph.quantized)
            for name in self.graph.tensors
            if name in self.seen
        ]


class Tally:
    """Accuracy (of values, their errors), agreement and differences at the output, batch by batch, in the numbers a net
    gives: reals or int8."""

    def __init__(self, graph: Graph):
        self.quantized, self.gives_values = graph.quantized, graph.values
        self.target = graph.tensors[graph.output]
        self.errors = self.absolute = 0.0  # of values, to those that the data have
        self.seen = self.right = self.agreed = self.values = 0
        self.largest = self.size = 0.0
        self.squares = self.total = self.total_squares = 0.0

    def add(self, found: Array, expected: Array, labels: Array) -> None:
        self.seen += len(labels)
        if self.gives_values:
            self._add_values(found, labels)
        else:
            best = found.reshape(len(found), -1).argmax(1)
            self.right += int(np.sum(best == labels))
            self.agreed += int(np.sum(best == expected.reshape(len(expected), -1).argmax(1)))
        found, expected = found.astype(np.float64), expected.astype(np.float64)
        self.largest = max(self.largest, float(np.abs(found - expected).max(initial=0)))
        self.size = max(self.size, float(np.abs(expected).max(initial=0)))
        self.values += expected.size
        self.squares += float(np.sum((found - expected) ** 2))
        self.total += float(expected.sum())
        self.total_squares += float(np.sum(expected**2))

    def _add_values(self, found: Array, wanted: Array) -> None:
        values = found.reshape(len(found), -1)
        if self.quantized:
            values = dequantize(values, self.target)
        apart = values - wanted.reshape(len(wanted), -1)
        self.errors += float(np.mean(apart**2, 1).sum())
        self.absolute += float(np.mean(np.abs(apart), 1).sum())

    @property
    def rmse(self) -> float:
        """Root mean square of the errors of values, in the units of the data."""
        return float(np.sqrt(self.errors / max(1, self.seen)))

    @property
    def mae(self) -> float:
        return self.absolute / max(1, self.seen)

    @property
    def accuracy(self) -> float:
        return self.right / max(1, self.seen)

    @property
    def agreement(self) -> float:
        return self.agreed / max(1, self.seen)

    @property
    def relative(self) -> float:
        """The largest difference as a share of the output's size."""
        return self.largest / max(self.size, 1e-30)

    @property
    def noise(self) -> float:
        """The root mean square of the differences, as a share of how much the expected answers vary."""
        count = max(1, self.values)
        mean, power = self.total / count, self.total_squares / count
        spread = max(np.sqrt(max(power - mean**2, 0.0)), 0.25 * np.sqrt(power), 1e-30)
        return float(np.sqrt(self.squares / count) / spread)

    @property
    def largest_text(self) -> str:
        shown = self.largest if self.quantized else self.relative
        return LayerDifference("", shown, 0, self.quantized).largest_text

    def to_json(self) -> dict[str, Any]:
        good: dict[str, Any] = {"accuracy": self.accuracy, "agreement": self.agreement}
        if self.gives_values:
            good = {"rmse": self.rmse, "mae": self.mae}
        return {
            **good, "noise": self.noise,
            "largest": self.largest if self.quantized else self.relative, "images": self.seen,
        }  # fmt: skip
