"""A user's own architecture: a function in a Python file, or the architecture of a model file (``--net``).

``my_net.py:build`` runs the user's own code: ``build(shape, classes)`` or ``build(shape, classes, layers)`` returns a
Keras 2 model that ends in logits; where the data have values to predict, ``classes`` is how many, and it ends in these.
With ``layers`` it makes its convolutions by ``networks.Layers`` and decides itself what is quantized.
Without, and from a model file (``.keras``, ``.h5``, or the ``.json`` of
``model.to_json()``), its Conv2D layers (with ``--quantize all`` its Dense layers too) get the quantizers the settings
ask for. Of a file only the architecture is used (weights: ``--init-from``), and it is opened without running anybody's
code.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import traceback
from pathlib import Path
from typing import Any

from flipbit.train.bits.quantizers import DeterministicRound, StochasticRound
from flipbit.train.keras_larq import keras, lq
from flipbit.train.nets.model_file import OURS, load_model, refused_names
from flipbit.train.nets.networks import Layers, quantized_layers
from flipbit.train.settings import InputError


def net_file(spec: str) -> Path:
    """The file that ``--net`` names."""
    return Path(spec.rpartition(":")[0] if ".py:" in spec else spec)


def build_own(
    spec: str, shape: tuple[int, int, int], classes: int, layers: Layers, values: tuple[int, ...] | None = None
) -> Any:
    """The Keras model that ``spec`` describes, for images of ``shape``; it gives logits of ``classes``, or ``values``
    of that shape (or as many in a row)."""
    path, takes_layers = net_file(spec), False
    if not path.is_file():
        raise InputError(f"--net {spec}: there is no file {path}")
    if ".py:" in spec:
        model, takes_layers = _from_function(path, spec.rpartition(":")[2], shape, classes, layers)
    else:
        model = load_model(path) if path.suffix in (".keras", ".h5") else _from_json(path)
    _check(model, spec, shape, classes, values)
    if not takes_layers:
        if layers.width != 1:
            raise InputError(
                f"--width {layers.width:g} is for flipbit's own nets and for build(shape, classes, layers)"
            )
        model = requantized(model, layers)
    strange = [la.name for la in quantized_layers(model) if not _is_ours(la.kernel_quantizer)]
    if strange:
        raise InputError(f"--net {spec}: {strange[0]} has a quantizer of its own; use layers.quantizer(number)")
    if layers.quantize != "none" and not quantized_layers(model):
        raise InputError(f"--net {spec}: no layer is quantized; use Conv2D layers, --quantize all or --method adam")
    return model


def requantized(model: Any, layers: Layers) -> Any:
    """The same architecture with kernels quantized as ``layers`` says, started anew, and ending in logits."""

    def clone(layer: Any) -> Any:
        kind, config = type(layer).__name__, layer.get_config()
        last = layer is model.layers[-1]
        if kind in ("Conv2D", "QuantConv2D", "Dense", "QuantDense"):
            wanted = layers.quantize == "all" or (layers.quantize == "conv" and "Conv" in kind)
            stream, layers.made = layers.made, layers.made + 1
            config["kernel_initializer"] = keras.initializers.GlorotUniform(layers.seed * 1_000_003 + stream)
            config["kernel_quantizer"] = layers.quantizer(stream) if wanted else None
            config["kernel_constraint"] = None  # the optimizer bounds what it keeps
            if last and config["activation"] == "softmax":
                config["activation"] = "linear"
            return (lq.layers.QuantConv2D if "Conv" in kind else lq.layers.QuantDense).from_config(config)
        if last and (kind == "Softmax" or config.get("activation") == "softmax"):
            return keras.layers.Activation("linear", name=layer.name)
        return type(layer).from_config(config)

    return keras.models.clone_model(model, clone_function=clone)


def _from_function(
    path: Path, name: str, shape: tuple[int, int, int], classes: int, layers: Layers
) -> tuple[Any, bool]:
    try:
        found = importlib.util.spec_from_file_location(path.stem, path)
        assert found is not None and found.loader is not None
        module = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
        build = getattr(module, name, None)
        if not callable(build):
            raise InputError(f"--net {path}:{name}: the file has no function {name}")
        takes_layers = len(inspect.signature(build).parameters) > 2
        return build(shape, classes, *([layers] if takes_layers else [])), takes_layers
    except InputError:
        raise
    except Exception as error:  # whatever the user's code does
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
        line = getattr(error, "lineno", None) or (lines[-1] if lines else None)
        where = f"{path}, line {line}" if line else str(path)
        reason = (str(error).strip() or "no message").splitlines()[0][:200]
        raise InputError(f"{where}: {name} failed with {type(error).__name__}: {reason}") from None


def _from_json(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
        config = json.loads(text)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not readable as JSON ({error})") from None
    refused = refused_names(config)
    if not isinstance(config, dict):
        raise InputError(f"{path}: not the architecture of a Keras 2 model (expected what model.to_json() gives)")
    if refused:
        raise InputError(f"{path}: refused, as it names {', '.join(refused)}")
    try:
        return keras.models.model_from_json(text, custom_objects=OURS)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: not the architecture of a Keras 2 model ({_first_line(error)})") from None


def _check(model: Any, spec: str, shape: tuple[int, int, int], classes: int, values: tuple[int, ...] | None) -> None:
    if not isinstance(model, keras.Model):
        raise InputError(
            f"--net {spec}: gave a {type(model).__module__}.{type(model).__name__}, expected a Keras 2 model "
            "(from flipbit.train.keras_larq import keras)"
        )
    try:
        refused = refused_names(json.loads(model.to_json()))
    except NotImplementedError:
        raise InputError(f"--net {spec}: a subclass of Model cannot be saved; build a functional one") from None
    if refused:
        raise InputError(f"--net {spec}: holds {', '.join(refused)}, which model.h5 may not; see docs/training.md")
    if len(model.inputs) != 1 or len(model.outputs) != 1:
        raise InputError(
            f"--net {spec}: has {len(model.inputs)} inputs and {len(model.outputs)} outputs, expected one input and "
            "one output; join several outputs by a Concatenate at the end, and the columns of y_train likewise"
        )
    taken, given = tuple(model.inputs[0].shape[1:]), tuple(model.outputs[0].shape[1:])
    if taken != tuple(shape) or given not in ((classes,), values):
        wanted = f"{classes} classes" if values is None else f"values of {values}"
        raise InputError(
            f"--net {spec}: takes {taken} and gives {given}; the data has images of {tuple(shape)} and {wanted}"
        )


def _is_ours(quantizer: Any) -> bool:
    return isinstance(quantizer, (DeterministicRound, StochasticRound))


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
