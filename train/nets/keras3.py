"""A net that Keras 3 wrote, built again from the layers of Keras 2, on which Larq and so flipbit stand.

Its description is read as data. Of a layer on the list below only the numbers are taken that say what it computes;
initializers, regularizers, optimizer and compiled losses are left out, and no class, function or module that the file
names is looked up. `keras3_weights.py` fills in the weights.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from flipbit.train.keras_larq import keras, tf
from flipbit.train.nets.instead import INSTEAD
from flipbit.train.settings import InputError

_WINDOW = "pool_size strides padding data_format"
_CONV = "filters kernel_size strides padding data_format dilation_rate groups activation use_bias"
_DEPTHWISE = "kernel_size strides padding depth_multiplier data_format dilation_rate activation use_bias"
_SEPARABLE = "filters kernel_size strides padding data_format dilation_rate depth_multiplier activation use_bias"
# Layers that mean the same in both, and what is taken over of each.
LAYERS: dict[str, str] = {
    "Conv1D": _CONV,
    "Conv2D": _CONV,
    "DepthwiseConv1D": _DEPTHWISE,
    "DepthwiseConv2D": _DEPTHWISE,
    "SeparableConv1D": _SEPARABLE,
    "SeparableConv2D": _SEPARABLE,
    "Dense": "units activation use_bias",
    "BatchNormalization": "axis epsilon center scale",
    "Activation": "activation",
    "ReLU": "max_value negative_slope threshold",
    "LeakyReLU": "negative_slope",
    "PReLU": "shared_axes",
    "ELU": "alpha",
    "Softmax": "axis",
    "MaxPooling1D": _WINDOW,
    "MaxPooling2D": _WINDOW,
    "AveragePooling1D": _WINDOW,
    "AveragePooling2D": _WINDOW,
    "GlobalMaxPooling1D": "data_format keepdims",
    "GlobalMaxPooling2D": "data_format keepdims",
    "GlobalAveragePooling1D": "data_format keepdims",
    "GlobalAveragePooling2D": "data_format keepdims",
    "Add": "",
    "Average": "",
    "Multiply": "",
    "Subtract": "",
    "Maximum": "",
    "Minimum": "",
    "Concatenate": "axis",
    "UpSampling1D": "size",
    "UpSampling2D": "size data_format interpolation",
    "ZeroPadding1D": "padding data_format",
    "ZeroPadding2D": "padding data_format",
    "Flatten": "data_format",
    "Reshape": "target_shape",
    "Permute": "dims",
    "Rescaling": "scale offset",
    "Normalization": "axis mean variance invert",
    "Dropout": "rate",
    "SpatialDropout1D": "rate",
    "SpatialDropout2D": "rate",
    "GaussianDropout": "rate",
    "GaussianNoise": "stddev",
}
RENAMED = {"LeakyReLU": {"negative_slope": "alpha"}}
# Layers that do nothing outside training.
AT_REST = frozenset(
    "Identity ActivityRegularization AlphaDropout RandomBrightness RandomColorJitter RandomContrast RandomErasing "
    "RandomFlip RandomGrayscale RandomHue RandomPerspective RandomRotation RandomSaturation RandomSharpness "
    "RandomShear RandomTranslation RandomZoom".split()
)
MODELS = ("Functional", "Sequential", "Model")
OPERATIONS = ("Add",)  # of keras.ops, as written by a + b: the layers of the same names
ACTIVATIONS = {
    name: name
    for name in "linear relu softmax sigmoid tanh elu selu softplus softsign exponential gelu mish".split()
} | {"silu": "swish", "swish": "swish"}  # fmt: skip


def hard_swish(x: Any) -> Any:
    """x · ReLU6(x + 3) / 6, which Keras 2 lacks."""
    return x * tf.nn.relu6(x + 3.0) / 6.0


def hard_sigmoid_of_6(x: Any) -> Any:
    """ReLU6(x + 3) / 6, Keras 3's hard sigmoid; that of Keras 2 has another slope."""
    return tf.nn.relu6(x + 3.0) / 6.0


for function in (hard_swish, hard_sigmoid_of_6):
    keras.utils.get_custom_objects()[function.__name__] = function  # for models that are saved again

# Activations that Keras 2 has as layers only, or not at all.
BEHIND: dict[str, Callable[[str], Any]] = {
    "hard_swish": lambda name: keras.layers.Activation(hard_swish, name=name),
    "hard_silu": lambda name: keras.layers.Activation(hard_swish, name=name),
    "hard_sigmoid": lambda name: keras.layers.Activation(hard_sigmoid_of_6, name=name),
    "relu6": lambda name: keras.layers.ReLU(6.0, name=name),
    "leaky_relu": lambda name: keras.layers.LeakyReLU(0.2, name=name),
}


def rebuild(path: Path, description: dict[str, Any]) -> Any:
    """The model of Keras 2 that computes what a description by Keras 3 says, with weights yet to be filled in."""
    try:
        refused = sorted(set(_refused(description)))
        if refused:
            raise InputError(
                f"refused, as it holds {', '.join(refused)}; read are Keras' layers of convolutional nets "
                "(convolutions, Dense, pooling, BatchNormalization, activations, Add, Concatenate), and no Lambda or "
                "other code: build the net from such, give it these weights (set_weights) and save it again"
            )
        return _model(description)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _refused(description: Any) -> Iterator[str]:
    """Layers that are on no list, of this model and of those in it; each with its name."""
    for layer in layers_of(description):
        kind, name = layer.get("class_name"), name_of(layer)
        if kind in MODELS:
            yield from _refused(layer)
        elif is_operation(layer):
            if kind not in OPERATIONS:
                yield f"{name} ({kind} of keras.ops{_instead(kind)})"
        elif kind != "InputLayer" and kind not in LAYERS and kind not in AT_REST:
            yield f"{name} ({kind}{_instead(kind)})"
        elif str(layer.get("registered_name") or kind) != kind or not _module(layer).startswith("keras"):
            yield f"{name} ({_module(layer)} {layer.get('registered_name')})"
        elif "activation" in LAYERS.get(str(kind), "").split():
            activation = _activation(layer["config"].get("activation"))
            if activation not in ACTIVATIONS and activation not in BEHIND:
                yield f"{name} (activation {activation})"


def _instead(kind: Any) -> str:
    return f": {INSTEAD[kind]}" if kind in INSTEAD else ""


def layers_of(description: Any) -> list[dict[str, Any]]:
    try:
        layers = description["config"]["layers"]
        if description["class_name"] not in MODELS or not all(isinstance(la["config"], dict) for la in layers):
            raise TypeError
    except (KeyError, TypeError):
        kind = description.get("class_name") if isinstance(description, dict) else None
        raise InputError(
            f"its description is of {kind!r} and not of a functional or sequential model; a subclass of Model is code, "
            "which is not read: build the net as keras.Model(inputs, outputs)"
        ) from None
    return list(layers)


def name_of(layer: dict[str, Any]) -> str:
    name = layer["config"].get("name")
    if not isinstance(name, str) or not name:
        raise InputError("a layer of its description has no name")
    return name


def _module(layer: dict[str, Any]) -> str:
    return str(layer.get("module") or "keras.layers")  # an .h5 names none


def is_operation(layer: dict[str, Any]) -> bool:
    return _module(layer).startswith("keras.src.ops.")


def _activation(found: Any) -> str:
    """The name of an activation: plain, or as a function of Keras'."""
    if isinstance(found, dict) and found.get("class_name") == "function":
        found = found.get("config")
    elif isinstance(found, dict):
        return f"of the class {found.get('class_name')}"
    return "linear" if found is None else str(found)


# From descriptions to layers


def _model(description: dict[str, Any]) -> Any:
    kind = description["class_name"]
    return _sequential(description) if kind == "Sequential" else _functional(description)


RANDOM = ("kernel_initializer", "depthwise_initializer", "pointwise_initializer")


def _layer(layer: dict[str, Any]) -> Any:
    kind, name, config = layer["class_name"], name_of(layer), layer["config"]
    if kind in MODELS:
        return _model(layer)
    if kind in AT_REST:
        return keras.layers.Activation("linear", name=name)
    policy = str(config.get("dtype"))
    if "Quantized" in policy or "_from_" in policy:
        raise InputError(f"{name}: was quantized by Keras 3; save the model before model.quantize()")
    taken = {key: config[key] for key in LAYERS[kind].split() if key in config}
    if "activation" in taken:
        taken["activation"] = ACTIVATIONS.get(_activation(taken["activation"]), "linear")
    renamed = {RENAMED.get(kind, {}).get(key, key): value for key, value in taken.items()}
    made = getattr(keras.layers, kind)
    # Weights come from the file. Random ones would need a seed where TensorFlow is told to be deterministic.
    zeros = {key: "zeros" for key in RANDOM if key in inspect.signature(made).parameters}
    return made(name=name, **renamed, **zeros)


def _behind(layer: dict[str, Any]) -> list[Any]:
    """What stands for the activation of a layer, if it is one that Keras 2 has as a layer only."""
    if "activation" not in LAYERS.get(layer["class_name"], "").split():
        return []
    make = BEHIND.get(_activation(layer["config"].get("activation")))
    return [] if make is None else [make(f"{name_of(layer)}_activation")]


def _input(layer: dict[str, Any]) -> Any:
    shape = layer["config"].get("batch_shape") or layer["config"].get("batch_input_shape")
    if not isinstance(shape, list) or not shape:
        raise InputError(f"{name_of(layer)}: its input has no shape; call the model on data once, and save it again")
    return keras.Input(tuple(shape[1:]), name=name_of(layer))


def _sequential(description: dict[str, Any]) -> Any:
    first, *others = layers_of(description) or [{}]
    config = description["config"]
    model = keras.Sequential(name=name_of(description))
    if first.get("class_name") == "InputLayer":
        model.add(_input(first))
    else:
        shape = config.get("build_input_shape") or (description.get("build_config") or {}).get("input_shape")
        if not isinstance(shape, list):
            raise InputError("its input has no shape; call the model on data once, and save it again")
        model.add(keras.Input(tuple(shape[1:])))
        others = [first, *others] if first else others
    for layer in others:
        for part in (_layer(layer), *_behind(layer)):
            model.add(part)
    return model


def _functional(description: dict[str, Any]) -> Any:
    """Layers are called in whichever order their inputs allow; a layer may be called several times."""
    config = description["config"]
    made: dict[tuple[str, int, int], Any] = {}
    pending: list[tuple[list[Any], str, int, list[tuple[str, int, int]]]] = []
    for layer in layers_of(description):
        name = name_of(layer)
        if layer["class_name"] == "InputLayer":
            made[name, 0, 0] = _input(layer)
            continue
        built = [_layer(layer), *_behind(layer)]
        pending += [(built, name, i, _sources(name, node)) for i, node in enumerate(layer.get("inbound_nodes") or ())]
    while pending:
        ready = [call for call in pending if all(source in made for source in call[3])]
        if not ready:
            raise InputError(f"{pending[0][1]}: reads what no layer of the model gives")
        for parts, name, i, sources in ready:
            inputs = [made[source] for source in sources]
            result = inputs[0] if len(inputs) == 1 else inputs
            for part in parts:
                result = part(result)
            made[name, i, 0] = result
        pending = [call for call in pending if call not in ready]
    ends = [[made[source] for source in _ends(made, config.get(what))] for what in ("input_layers", "output_layers")]
    return keras.Model(*ends, name=name_of(description))


def _sources(name: str, node: Any) -> list[tuple[str, int, int]]:
    """Which tensors a call of a layer takes."""
    arguments = node.get("args") if isinstance(node, dict) else None
    if not isinstance(arguments, list) or not isinstance(node.get("kwargs", {}), dict):
        raise InputError(f"{name}: its description does not say what it reads")
    for option, value in node.get("kwargs", {}).items():
        if option != "training" and value is not None:  # Keras itself puts its own in the place of training
            raise InputError(f"{name}: is called with {option}; layers that are called with a tensor alone are read")
    flat: list[Any] = []
    for argument in arguments:
        flat += argument if isinstance(argument, list) else [argument]
    found = []
    for argument in flat:
        if not isinstance(argument, dict) or argument.get("class_name") != "__keras_tensor__":
            raise InputError(f"{name}: is called with {str(argument)[:40]}; layers called with tensors alone are read")
        found.append(_place(argument["config"].get("keras_history")))
    return found


def _ends(made: dict[tuple[str, int, int], Any], found: Any) -> list[tuple[str, int, int]]:
    """The model's inputs or outputs: one place, or a list of them."""
    places = [found] if isinstance(found, list) and found and isinstance(found[0], str) else found
    if not isinstance(places, list) or not places:
        raise InputError("its description does not say what the model takes and gives")
    result = [_place(place) for place in places]
    for name, node, tensor in result:
        if (name, node, tensor) not in made:
            raise InputError(f"its description names {name} as an end of the model, which is not one of its layers")
    return result


def _place(found: Any) -> tuple[str, int, int]:
    try:
        name, node, tensor = found
    except (TypeError, ValueError):
        name = None
    if not isinstance(name, str) or not isinstance(node, int) or tensor != 0:
        raise InputError("its description does not say which tensors its layers read")
    return name, node, 0
