"""The weights of a net that Keras 3 wrote, found by their place in the file:

=========  =============================================================================================================
.keras     ``layers/<class>_<n>/vars/<i>``: the n-th layer of its class within its model, models within models likewise
.h5        ``model_weights/<layer>/…/<layer>/<variable>``, by the layer's name
=========  =============================================================================================================
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.runtime.image.inputs import as_text
from flipbit.train.nets.keras3 import MODELS, is_operation, layers_of, name_of
from flipbit.train.settings import InputError


def fill(path: Path, model: Any, description: dict[str, Any], file: Any) -> None:
    """Give ``model`` (from :func:`rebuild`) the weights of an open HDF5 file of either layout."""
    if "layers" in file or "_layer_checkpoint_dependencies" in file:
        _by_place(path, model, description, file)
    elif "model_weights" in file:
        for layer in model.layers:
            _by_name(path, layer, file["model_weights"].get(layer.name))
    else:
        raise InputError(f"{path}: holds no weights of a model")


def _by_place(path: Path, model: Any, description: dict[str, Any], group: Any) -> None:
    layers = {layer.name: layer for layer in model.layers}
    counts: Counter[str] = Counter()
    groups = group.get("layers", {})
    for described in layers_of(description):
        if is_operation(described):
            continue  # has no place among the layers
        kind = _snake_case(described["class_name"])
        place = f"{kind}_{counts[kind]}" if counts[kind] else kind
        if not (described["class_name"] == "InputLayer" and description["class_name"] == "Sequential"):
            counts[kind] += 1
        layer, name = layers.get(name_of(described)), name_of(described)
        if layer is None or not layer.weights:
            continue
        if place not in groups:
            raise InputError(f"{path}: holds no weights of {name} (at layers/{place})")
        if described["class_name"] in MODELS:
            _by_place(path, layer, described, groups[place])
            continue
        stored = groups[place].get("vars", {})
        stated = getattr(stored, "attrs", {}).get("name", name)
        if stated != name:
            raise InputError(f"{path}: its weights at layers/{place} are of {stated}, not of {name}")
        _assign(path, layer, [stored[str(i)] for i in range(len(stored)) if str(i) in stored])


def _by_name(path: Path, layer: Any, group: Any) -> None:
    """The weights of a layer, or of a model that stands for one, by the names of layers in those of variables."""
    if not layer.weights:
        return
    if group is None:
        raise InputError(f"{path}: holds no weights of {layer.name}")
    stored: dict[str, list[Any]] = {}
    for name in group.attrs.get("weight_names", ()):
        text = name.decode() if isinstance(name, bytes) else str(name)
        if text in group:
            stored.setdefault(f"{layer.name}/{text}".split("/")[-2], []).append(group[text])
    for leaf in _leaves(layer):
        _assign(path, leaf, stored.get(leaf.name, []))


def _leaves(layer: Any) -> Iterator[Any]:
    for inner in getattr(layer, "layers", ()):
        yield from _leaves(inner)
    if not hasattr(layer, "layers"):
        yield layer


def _assign(path: Path, layer: Any, found: list[Any]) -> None:
    if len(found) != len(layer.weights):
        raise InputError(f"{path}: {layer.name} has {len(layer.weights)} arrays of weights, the file {len(found)}")
    for weight, data in zip(layer.weights, found):
        what = f"{layer.name}/{weight.name.split(':')[0].rpartition('/')[2]}"
        if tuple(getattr(data, "shape", ())) != tuple(weight.shape):
            raise InputError(
                f"{path}: {what} is {as_text(weight.shape)} by its description, {as_text(data.shape)} here"
            )
        counts = weight.dtype.is_integer and data.dtype.kind in "iu"  # what a Normalization has seen
        if (data.dtype.kind != "f" and not counts) or data.attrs.get("dtype", "float") == "bfloat16":
            raise InputError(f"{path}: {what} holds {data.attrs.get('dtype', data.dtype)}; floating point is read")
        weight.assign(np.asarray(data[()], weight.dtype.as_numpy_dtype))
    if hasattr(layer, "finalize_state"):
        layer.finalize_state()  # of a Normalization: computes with what was read


def _snake_case(name: str) -> str:
    """As Keras 3 names the places of layers."""
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", re.sub(r"\W+", "", name))
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()
