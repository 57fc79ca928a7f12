"""A model file to a deploy graph: load, fold, and, for int8 activations, calibrate and quantize."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.export.calibrate import METHODS, calibrate
from flipbit.export.graph import Array, ExportError, Graph
from flipbit.export.quantize import quantize_graph
from flipbit.train.settings import InputError

RUN_FILE = "run.json"


@dataclass(frozen=True)
class Pixels:
    """How pixels 0 … 255 become what the net was trained on: (pixel − offset) · scale."""

    offset: float | Array = 128.0
    scale: float = 1 / 128

    def __call__(self, images: Array) -> Array:
        return ((images.astype(np.float32) - self.offset) * self.scale).astype(np.float32)

    def int8(self) -> tuple[float, int] | None:
        """Scale and zero point with which ``pixel − 128`` is the exact int8 input, if there are such."""
        if isinstance(self.offset, np.ndarray) or self.offset != round(self.offset) or not 0 <= self.offset <= 255:
            return None
        return self.scale, int(self.offset) - 128

    @property
    def formula(self) -> str:
        offset = "mean image" if isinstance(self.offset, np.ndarray) else f"{self.offset:g}"
        return f"(pixel - {offset}) * {self.scale:g}"


@dataclass(frozen=True)
class Source:
    """A model and what its ``run.json`` says of it."""

    model: Any
    path: Path | None
    pixels: Pixels
    run: dict[str, Any]

    @property
    def labels(self) -> list[str]:
        return list(self.run.get("classes", []))

    def real(self) -> Graph:
        """The deploy graph in real numbers."""
        if self.path is not None and self.path.suffix == ".pt2":
            from flipbit.export.from_torch import from_torch

            return from_torch(self.model, None, self.labels)
        from flipbit.export.from_keras import from_keras

        return from_keras(self.model, self.labels)


def open_source(model: Any, pixels: Pixels | None = None) -> Source:
    """A Keras model, or the path of a ``model.h5`` or ``model.pt2``, with its ``run.json`` if one lies beside it."""
    if not isinstance(model, (str, Path)):
        return Source(model, None, pixels or Pixels(), {})
    path = Path(model)
    run: dict[str, Any] = {}
    if (path.parent / RUN_FILE).is_file():
        try:
            run = json.loads((path.parent / RUN_FILE).read_text())
        except ValueError as error:
            raise ExportError(f"{path.parent / RUN_FILE}: not JSON ({error}); remove it or restore it") from None
    if path.suffix == ".pt2":
        from flipbit.export.from_torch import load_torch

        loaded = load_torch(path)
    else:
        from flipbit.train.model_file import load_model

        loaded = load_model(path)
    return Source(loaded, path, pixels or _pixels(path, run), run)


def _pixels(path: Path, run: dict[str, Any]) -> Pixels:
    offset = run.get("input", {}).get("offset", 128)
    if isinstance(offset, str):
        try:
            return Pixels(np.load(path.parent / offset, allow_pickle=False))
        except (OSError, ValueError) as error:
            raise ExportError(
                f"{path.parent / offset}: the mean image the net was trained with is missing ({error})"
            ) from None
    return Pixels(float(offset), float(run.get("input", {}).get("scale", 1 / 128)))


def sample_images(source: Source, data: str | None, samples: int, data_dir: str | None = None) -> Array:
    """uint8 training images for calibration: of ``data``, or of the data set named in ``run.json``."""
    from flipbit.train import data as data_sets

    settings = source.run.get("settings", {})
    name = data or settings.get("data")
    if name is None:
        raise ExportError("int8 needs sample images: name a data set with --calibrate, or use --activations float")
    try:
        found = data_sets.load(name, data_dir or settings.get("data_dir"), "none", settings.get("image_size"))
    except InputError as error:
        raise ExportError(
            f"calibration: {error}; or name other images with --calibrate, or use --activations float"
        ) from None
    # In order, as shuffled data sets are and sorted ones are not: take them evenly from the whole set.
    if isinstance(found, data_sets.ImageArrays):
        chosen = np.linspace(0, found.train_size - 1, min(samples, found.train_size)).astype(int)
        return found.x_train[chosen]
    images, _ = next(found.train_batches(samples, 0, 0))
    return images


def to_int8(graph: Graph, source: Source, images: Array, method: str = METHODS[0]) -> Graph:
    """The graph in integers, calibrated on uint8 ``images``."""
    expected = graph.tensors[graph.input].shape
    if images.shape[1:] != expected:
        raise ExportError(f"calibration images are {images.shape[1:]}, the net takes {expected}")
    return quantize_graph(graph, calibrate(graph, source.pixels(images), method), source.pixels.int8())


def convert(
    model: Any,
    calibrate: str | Array | None = None,
    samples: int = 500,
    method: str = METHODS[0],
    pixels: Pixels | None = None,
    data_dir: str | None = None,
) -> Graph:
    """The deploy graph of a Keras model or a model file.

    ``calibrate`` names a data set (or is an array of uint8 images) and gives int8 activations; without it the graph
    stays in real numbers.
    """
    source = open_source(model, pixels)
    graph = source.real()
    if calibrate is None:
        return graph
    images = calibrate if isinstance(calibrate, np.ndarray) else sample_images(source, calibrate, samples, data_dir)
    return to_int8(graph, source, images, method)


def require_binary(graph: Graph) -> None:
    """Refuse a net none of whose layers is binary: most likely the wrong file."""
    if any(op.binary for op in graph.weighted()):
        return
    first = graph.weighted()[0]
    values = len(np.unique(first.weights))
    raise ExportError(
        f"{first.name}: holds {values} different weights and no layer of this net is binary (±s in each filter); "
        "train with --method bc, sr or r, or pass --int8-weights for a plain int8 export"
    )
