"""A model file to a deploy graph: load, fold, and, for int8 activations, calibrate and quantize."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.export.calibrate import METHODS, calibrate
from flipbit.export.graph import Array, ExportError, Graph
from flipbit.export.quantize import HEADROOM, quantize_graph
from flipbit.export.read.recognise import recognise
from flipbit.export.references import with_references
from flipbit.runtime.data.arrays import read_arrays
from flipbit.runtime.data.parts import Images, read_images
from flipbit.runtime.data.sets import located
from flipbit.runtime.errors import InputError
from flipbit.runtime.image.pixels import Pixels
from flipbit.runtime.recordings.front_ends import FrontEndInput, front_end_of_json

RUN_FILE = "run.json"
VALUES = "values"  # what run.json and files say of an output that is not scores of classes


@dataclass(frozen=True)
class Source:
    """A model, what its ``run.json`` says of it, and the pixels that its input was trained on, if these are known."""

    model: Any
    path: Path | None
    stated: Pixels | None
    run: dict[str, Any]
    stored_labels: list[str] = field(default_factory=list)  # in the model file itself
    values: bool = False  # somebody said that the outputs are values, not scores of classes

    @property
    def labels(self) -> list[str]:
        return list(self.run.get("classes", [])) or self.stored_labels

    @cached_property
    def front_end(self) -> FrontEndInput | None:
        """How recordings become the net's input, where ``run.json`` says so: its ``input`` has a ``front_end``."""
        found = self.run.get("input", {}).get("front_end")
        if found is None:
            return None
        try:
            return front_end_of_json(found)
        except InputError as error:
            raise ExportError(f"{RUN_FILE} beside {self.path}: {error}") from None

    def real(self) -> Graph:
        """The deploy graph in real numbers."""
        graph = self._real()
        shape = graph.tensors[graph.input].shape
        if self.front_end is not None and not self.front_end.fits(shape):
            raise ExportError(
                f"{self.path}: takes {'×'.join(map(str, shape))}, which its front end in {RUN_FILE} does not make: "
                f"{self.front_end}"
            )
        pixels = self._pixels_of(graph)
        return replace(graph, front_end=self.front_end, values=self._gives_values(graph), pixels=pixels)

    def _gives_values(self, graph: Graph) -> bool:
        """Whether the outputs are values: said so, or an image, or a single one."""
        shape = graph.tensors[graph.output].shape
        found = self._said_values or (not self.labels and (len(shape) > 1 or shape == (1,)))
        if found and graph.reference is not None and "softmax" in graph.reference.ends:
            raise ExportError(
                f"{self.path or 'the model'}: gives values ({'×'.join(map(str, shape))}), but ends in a softmax, which "
                "devices do not compute: leave it out (the largest value stays the largest), or end in a sigmoid"
            )
        return found

    @property
    def _said_values(self) -> bool:
        return self.values or self.run.get("output") == VALUES

    def _real(self) -> Graph:
        kind = "h5" if self.path is None else recognise(self.path)
        if kind == "pt2":
            from flipbit.export.read.from_torch import from_torch

            return from_torch(self.model, None, self.labels)
        if kind == "onnx":
            from flipbit.export.read.from_onnx import from_onnx

            return from_onnx(self.model, self.labels)
        from flipbit.export.read.from_keras import from_keras

        return from_keras(self.model, self.labels, self._said_values)

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
        return self.real().pixels

    def _pixels_of(self, graph: Graph) -> Pixels | None:
        if graph.rescaling is None:
            return self.stated
        return (self.stated or Pixels(0.0, 1.0)).then(graph.rescaling)  # a net that rescales takes pixels as they are


def open_source(model: Any, pixels: Pixels | None = None, values: bool = False) -> Source:
    """A Keras model, or the path of a model file (`read/recognise.py`), with its ``run.json`` if one lies beside it.

    ``values``: its outputs are values, not scores of classes.
    """
    if not isinstance(model, (str, Path)):
        return Source(model, None, pixels, {}, values=values)
    path = Path(model)
    kind = recognise(path)
    run = _run_file(path.parent / RUN_FILE)
    if kind == "pt2":
        from flipbit.export.read.from_torch import load_torch

        loaded = load_torch(path)
    elif kind == "onnx":
        from flipbit.export.read.onnx_file import load_onnx, metadata

        loaded = load_onnx(path)
        facts = metadata(loaded)
        stated = pixels or _pixels(path, run) or Pixels.parse(facts.get("input"))
        return Source(loaded, path, stated, run, _labels(facts), values or facts.get("output") == VALUES)
    else:
        from flipbit.train.nets.model_file import load_model

        loaded = load_model(path)
    return Source(loaded, path, pixels or _pixels(path, run), run, values=values)


def _labels(facts: dict[str, str]) -> list[str]:
    """The classes in an ONNX file that was written here."""
    try:
        found = json.loads(facts.get("labels", "[]"))
    except (ValueError, RecursionError):
        return []
    return [str(name) for name in found] if isinstance(found, list) else []


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
    """uint8 training images for calibration: of ``data``, or of the data set named in ``run.json``; of an ``.npy``
    its inputs, as real numbers."""
    if data is not None and data.endswith(".npy"):
        return _sample_inputs(source, Path(data), samples)
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


def _sample_inputs(source: Source, path: Path, samples: int) -> Array:
    """Inputs as the net takes them: of a net that is fed measurements, not pixels."""
    shape = source.real().tensors[source.real().input].shape
    try:
        x = read_arrays(path)[path.stem]
    except InputError as error:
        raise ExportError(f"calibration: {error}") from None
    given = "×".join(map(str, x.shape)) or "one number"
    if x.ndim < 2 or not len(x) or int(np.prod(x.shape[1:])) != int(np.prod(shape)):
        raise ExportError(f"{path}: {given}; the net takes N×{'×'.join(map(str, shape))}")
    if not (np.issubdtype(x.dtype, np.floating) or np.issubdtype(x.dtype, np.integer)) or not np.isfinite(x).all():
        raise ExportError(f"{path}: holds {x.dtype}, or NaN or infinity; expected inputs as the net takes them")
    chosen = np.linspace(0, len(x) - 1, min(samples, len(x))).astype(int)
    return x[chosen].reshape(len(chosen), *shape).astype(np.float32)


def images_of(source: Source, name: str, data_dir: str | None = None) -> Images:
    """The data set ``name``, read as training reads it for this model."""
    settings = source.run.get("settings", {})
    return read_images(name, data_dir or settings.get("data_dir"), settings.get("image_size"), _keras_datasets)


def _keras_datasets() -> Any:
    from flipbit.train.nets.model_file import keras

    return keras.datasets


def to_int8(graph: Graph, source: Source, images: Array, method: str = METHODS[0], plain: Array | None = None) -> Graph:
    """The graph in integers, calibrated on uint8 ``images``, or on inputs as the net takes them (float32); with
    references for ``recalibrate`` from the images ``plain``, if there are any."""
    expected = graph.tensors[graph.input].shape
    if images.shape[1:] == (*expected[1:], 1) and expected[0] == 1:  # grey pictures as sequences of their rows
        images = images[:, None, ..., 0]
    if images.shape[1:] != expected:
        raise ExportError(f"calibration images are {images.shape[1:]}, the net takes {expected}")
    if source.front_end is not None and source.pixels.int8() is None:
        raise ExportError(
            f"{source.path}: its front end makes int8 values, but {source.pixels.formula} of value + 128 is not int8: "
            "train with a whole offset within 0 … 255 and a positive scale"
        )
    known = source.known_pixels if images.dtype == np.float32 else source.pixels
    exact = known.int8() if known else None

    def as_taken(x: Array) -> Array:
        if x.dtype != np.float32:
            return source.pixels(x).astype(np.float32)
        return x if graph.rescaling is None else graph.rescaling(x).astype(np.float32)

    inputs = as_taken(images)
    ranges = {} if scales_known(graph) else calibrate(graph, inputs, method)
    headroom = 0 if plain is None else HEADROOM
    integers = quantize_graph(graph, ranges, exact, headroom)
    if plain is not None:
        integers = with_references(integers, as_taken(plain))
    return replace(integers, samples=inputs)


def scales_known(graph: Graph) -> bool:
    """Whether a net brings the scales of all its tensors along, so that no sample images are needed."""
    return graph.given is not None and all(name in graph.given.steps for name in graph.tensors)


def convert(
    model: Any,
    calibrate: str | Array | None = None,
    samples: int = 500,
    method: str = METHODS[0],
    pixels: Pixels | None = None,
    data_dir: str | None = None,
    values: bool = False,
) -> Graph:
    """The deploy graph of a Keras model or a model file.

    ``calibrate`` names a data set (or is an array of uint8 images) and gives int8 activations; without it the graph
    stays in real numbers. ``pixels`` says how pixels become the model's input, where no ``run.json`` does. ``values``:
    its outputs are values (angles, counts, an image), not scores of classes.
    """
    source = open_source(model, pixels, values)
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
