"""A model file to a deploy graph: load, fold, and, for int8 activations, calibrate and quantize."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.export.calibrate import METHODS, calibrate
from flipbit.export.graph import Array, ExportError, Graph
from flipbit.export.quantize import quantize_graph
from flipbit.export.read.recognise import recognise
from flipbit.runtime.data.parts import Images, read_images
from flipbit.runtime.data.sets import located
from flipbit.runtime.errors import InputError
from flipbit.runtime.image.pixels import Pixels

RUN_FILE = "run.json"


@dataclass(frozen=True)
class Source:
    """A model, what its ``run.json`` says of it, and the pixels that its input was trained on, if these are known."""

    model: Any
    path: Path | None
    stated: Pixels | None
    run: dict[str, Any]

    @property
    def labels(self) -> list[str]:
        return list(self.run.get("classes", []))

    def real(self) -> Graph:
        """The deploy graph in real numbers."""
        if self.path is not None and recognise(self.path) == "pt2":
            from flipbit.export.read.from_torch import from_torch

            return from_torch(self.model, None, self.labels)
        from flipbit.export.read.from_keras import from_keras

        return from_keras(self.model, self.labels)

    @property
    def pixels(self) -> Pixels:
        """How pixels become what the graph takes; :class:`ExportError` where nobody said so."""
        found = self.known_pixels
        if found is None:
            raise ExportError(
                f"{self.path or 'the model'}: how do pixels 0 … 255 become its input? No run.json says so; pass "
                "--pixel-offset O --pixel-scale S for (pixel - O) * S, such as 0 and 1/255, or 127.5 and 1/127.5 "
                "(Python: pixels=Pixels(0, 1 / 255))"
            )
        return found

    @cached_property
    def known_pixels(self) -> Pixels | None:
        rescaling = self.real().rescaling
        if rescaling is None:
            return self.stated
        return (self.stated or Pixels(0.0, 1.0)).then(rescaling)  # a net that rescales takes pixels as they are


def open_source(model: Any, pixels: Pixels | None = None) -> Source:
    """A Keras model, or the path of a ``model.h5`` or ``model.pt2``, with its ``run.json`` if one lies beside it."""
    if not isinstance(model, (str, Path)):
        return Source(model, None, pixels, {})
    path = Path(model)
    kind = recognise(path)
    run = _run_file(path.parent / RUN_FILE)
    if kind == "pt2":
        from flipbit.export.read.from_torch import load_torch

        loaded = load_torch(path)
    else:
        from flipbit.train.nets.model_file import load_model

        loaded = load_model(path)
    return Source(loaded, path, pixels or _pixels(path, run), run)


def _run_file(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        run = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ExportError(f"{path}: not JSON ({error}); remove it or restore it") from None
    if not isinstance(run, dict) or not isinstance(run.get("input", {}), dict):
        raise ExportError(f"{path}: not what training writes; remove it or restore it")
    return run


def _pixels(path: Path, run: dict[str, Any]) -> Pixels | None:
    """What ``run.json`` says of the input, if it does."""
    if "input" not in run:
        return None
    offset, scale = run["input"].get("offset", 128), run["input"].get("scale", 1 / 128)
    try:
        if not isinstance(offset, str):
            return Pixels(float(offset), float(scale))
        try:
            return Pixels(np.load(path.parent / offset, allow_pickle=False), float(scale))
        except (OSError, EOFError) as error:
            raise ExportError(
                f"{path.parent / offset}: the mean image the net was trained with is missing ({error})"
            ) from None
    except (ValueError, TypeError) as error:
        raise ExportError(f"{path.parent / RUN_FILE}: says nothing useful of the input ({error})") from None


def sample_images(source: Source, data: str | None, samples: int, data_dir: str | None = None) -> Array:
    """uint8 training images for calibration: of ``data``, or of the data set named in ``run.json``."""
    settings = source.run.get("settings", {})
    beside = source.path.parent if source.path else None
    name = data or (settings.get("data") and located(settings["data"], beside))
    if name is None:
        raise ExportError("int8 needs sample images: name a data set with --calibrate, or use --activations float")
    try:
        return images_of(source, name, data_dir).samples(samples)
    except InputError as error:
        raise ExportError(
            f"calibration: {error}; or name other images with --calibrate, or use --activations float"
        ) from None


def images_of(source: Source, name: str, data_dir: str | None = None) -> Images:
    """The data set ``name``, read as training reads it for this model."""
    settings = source.run.get("settings", {})
    return read_images(name, data_dir or settings.get("data_dir"), settings.get("image_size"), _keras_datasets)


def _keras_datasets() -> Any:
    from flipbit.train.nets.model_file import keras

    return keras.datasets


def to_int8(graph: Graph, source: Source, images: Array, method: str = METHODS[0]) -> Graph:
    """The graph in integers, calibrated on uint8 ``images``."""
    expected = graph.tensors[graph.input].shape
    if images.shape[1:] != expected:
        raise ExportError(f"calibration images are {images.shape[1:]}, the net takes {expected}")
    inputs = source.pixels(images).astype(np.float32)
    integers = quantize_graph(graph, calibrate(graph, inputs, method), source.pixels.int8())
    return replace(integers, samples=inputs)


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
    stays in real numbers. ``pixels`` says how pixels become the model's input, where no ``run.json`` does.
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
    if not graph.weighted():
        raise ExportError("the net has no Conv2D or Dense layer; pass --int8-weights if that is meant")
    first = graph.weighted()[0]
    values = len(np.unique(first.weights))
    raise ExportError(
        f"{first.name}: holds {values} different weights and no layer of this net is binary (±s in each filter); "
        "train with --method bc, sr or r, or pass --int8-weights for a plain int8 export"
    )
