"""Differences between two runs of a net, in steps of the int8 grid or relative to the size of the values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from flipbit.export.graph import Array, Graph

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


def compare_layers(graph: Graph, found: dict[str, Array], expected: dict[str, Array]) -> list[LayerDifference]:
    """A row for each tensor that both runs show, in running order."""
    names = [name for name in graph.tensors if name in found and found[name].shape == expected[name].shape]
    return [difference(name, found[name], expected[name]) for name in names]


class Tally:
    """Accuracy, agreement and largest difference at the output, batch by batch."""

    def __init__(self, graph: Graph):
        self.quantized = graph.quantized
        self.seen = self.right = self.agreed = 0
        self.largest = 0.0

    def add(self, found: Array, expected: Array, labels: Array) -> None:
        best = found.reshape(len(found), -1).argmax(1)
        self.seen += len(labels)
        self.right += int(np.sum(best == labels))
        self.agreed += int(np.sum(best == expected.reshape(len(expected), -1).argmax(1)))
        self.largest = max(self.largest, difference("", found, expected).largest)

    @property
    def accuracy(self) -> float:
        return self.right / max(1, self.seen)

    @property
    def agreement(self) -> float:
        return self.agreed / max(1, self.seen)

    @property
    def largest_text(self) -> str:
        return LayerDifference("", self.largest, 0, self.quantized).largest_text

    def to_json(self) -> dict[str, Any]:
        return {"accuracy": self.accuracy, "agreement": self.agreement, "largest": self.largest, "images": self.seen}
