"""Which classes a net takes for which: a matrix, as JSON, as a picture and as a table of classes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.runtime.files import replacing, write_json
from flipbit.runtime.shown import drawn

JSON_FILE, PICTURE_FILE = "confusion.json", "confusion.png"
NAMED = 30  # classes whose names and numbers fit a picture


@dataclass(frozen=True)
class Confusion:
    """``matrix[true, answered]`` counts test images."""

    classes: list[str]
    matrix: np.ndarray

    @staticmethod
    def of(classes: list[str], labels: np.ndarray, answers: np.ndarray) -> Confusion:
        count = len(classes)
        cells = np.asarray(labels, np.int64) * count + np.asarray(answers, np.int64)
        return Confusion(classes, np.bincount(cells, minlength=count * count).reshape(count, count))

    @property
    def images(self) -> np.ndarray:
        """Test images of each class."""
        return self.matrix.sum(1)

    def accuracy(self, number: int) -> float | None:
        """The share of a class's images that were recognised; None if there are none."""
        return float(self.matrix[number, number] / self.images[number]) if self.images[number] else None

    def taken_for(self, number: int) -> tuple[str, int] | None:
        """The class most often answered instead, and how often."""
        others = self.matrix[number].copy()
        others[number] = 0
        return (self.classes[int(others.argmax())], int(others.max())) if others.any() else None

    def save(self, folder: Path) -> None:
        write_json(
            folder / JSON_FILE,
            {
                "classes": self.classes,
                "images": self.images.tolist(),
                "accuracy": [self.accuracy(i) for i in range(len(self.classes))],
                "matrix": self.matrix.tolist(),
                "reading": "matrix[i][j]: test images of class i that the net took for class j",
            },
        )

    def draw(self, path: Path, title: str) -> None:
        """Shares of each row as shades; with few classes also as numbers."""
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        count = len(self.classes)
        shares = 100 * self.matrix / np.maximum(self.images, 1)[:, None]
        side = min(14.0, 3.0 + 0.45 * count)
        figure, axis = pyplot.subplots(figsize=(side + 1, side), layout="constrained")
        shades: Any = axis.imshow(shares, cmap="Blues", vmin=0, vmax=100)
        figure.colorbar(shades, ax=axis, label="% of the true class", shrink=0.8)
        if count <= NAMED:
            names = [drawn(name) for name in self.classes]
            axis.set_xticks(range(count), names, rotation=45, ha="right")
            axis.set_yticks(range(count), names)
            for i, j in np.argwhere(self.matrix):
                colour = "white" if shares[i, j] > 55 else "black"
                axis.text(j, i, f"{self.matrix[i, j]}", ha="center", va="center", fontsize=7, color=colour)
        axis.set(title=drawn(title), xlabel="answer", ylabel="true class")
        with replacing(path) as temporary:
            figure.savefig(temporary, dpi=110)
        pyplot.close(figure)
