"""``model.h5``: written whole or not at all, and opened without running anybody's code."""

from __future__ import annotations

import io
import json
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flipbit.runtime.files import replacing
from flipbit.train.bits.quantizers import DeterministicRound, StochasticRound
from flipbit.train.keras_larq import keras, lq, tf
from flipbit.train.nets.h5_file import require_shallow, text_attribute, weights_inside
from flipbit.train.nets.networks import PadShortcut
from flipbit.train.settings import InputError

OURS = {c.__name__: c for c in (DeterministicRound, StochasticRound, PadShortcut)}

# Keras classes a saved model may name. Not listed, and so refused: Lambda, TFOpLambda and whatever else
# carries code or a Python name to import.
KERAS_CLASSES = frozenset(
    "Functional Model Sequential InputLayer Activation Add Average AveragePooling2D BatchNormalization "
    "BatchNormalizationV1 Concatenate Conv2D DepthwiseConv2D Dense Dropout Flatten GlobalAveragePooling2D "
    "GlobalMaxPooling2D MaxPooling2D Multiply ReLU LeakyReLU Reshape Rescaling SeparableConv2D Softmax "
    "SpatialDropout2D Subtract ZeroPadding2D "
    # initializers, regularizers, constraints, policies
    "Zeros Ones Constant RandomNormal RandomUniform TruncatedNormal VarianceScaling GlorotNormal GlorotUniform "
    "HeNormal HeUniform LecunNormal LecunUniform Orthogonal Identity L1 L2 L1L2 MaxNorm MinMaxNorm NonNeg UnitNorm "
    "Policy DTypePolicy".split()
)
MODULES = ("keras.", "tf_keras.", "keras", "tf_keras", "larq.", "flipbit.train.", "builtins")


def save_model(model: Any, path: Path) -> None:
    """Save the net (for ``bc`` with its real-valued buffer), without the optimizer."""
    import h5py

    # Through memory: HDF5 that runs into a full disk crashes the process when the file is closed.
    content = io.BytesIO()
    with warnings.catch_warnings(), h5py.File(content, "w") as file:
        warnings.filterwarnings("ignore", "You are saving your model as an HDF5 file")  # as intended
        model.save(file, include_optimizer=False, save_format="h5")
    with replacing(path) as temporary:
        temporary.write_bytes(content.getbuffer())


def load_model(path: str | Path) -> Any:
    """Open a Keras 2 ``.h5`` model made of the layers flipbit knows. Raises :class:`InputError` otherwise."""
    import h5py

    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: {'a folder' if path.is_dir() else 'no such file'}")
    try:
        with h5py.File(path, "r") as file:
            weights = weights_inside(path, file)
            config = text_attribute(path, file, "model_config")
            version = text_attribute(path, file, "keras_version") or ""
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, MemoryError, RecursionError) as error:
        raise InputError(f"{path}: not a readable HDF5 file, or cut short ({_first_line(error)})") from None
    if config is None:
        raise InputError(f"{path}: holds weights but no model; save it with model.save('x.h5')")
    require_shallow(path, config)
    try:
        description = json.loads(config)
    except (ValueError, RecursionError):
        raise InputError(f"{path}: its model description is not JSON") from None
    if version.startswith("3"):
        raise InputError(
            f"{path}: saved by Keras {version}, and flipbit reads Keras 2; build the net again with "
            "TF_USE_LEGACY_KERAS=1 set before TensorFlow is imported, give it these weights (set_weights), and save it"
        )
    refused = sorted(set(_unknown(description)))
    if refused:
        raise InputError(
            f"{path}: refused, as it names {', '.join(refused)}; a model may hold Keras' and Larq's own layers "
            "and flipbit's, and no Lambda or other code"
        )
    try:
        _require_weights(path, description, weights)
        return keras.models.load_model(path, custom_objects=OURS, compile=False)
    except InputError:
        raise
    except (MemoryError, RecursionError, tf.errors.ResourceExhaustedError):
        raise InputError(f"{path}: its layers do not fit this machine's memory") from None
    except Exception as error:  # a description that Keras does not expect fails wherever it is used
        raise InputError(f"{path}: cannot be loaded as a Keras model ({_first_line(error)})") from None


def refused_names(config: Any) -> list[str]:
    """What a model description names that a model file may not."""
    return sorted(set(_unknown(config)))


def _require_weights(path: Path, description: dict[str, Any], weights: int) -> None:
    """Refuse layers larger than the weights in the file: Keras would allocate and fill them before it reads any.

    In a graph of its own TensorFlow knows the shapes of variables and allocates none.
    """
    with tf.Graph().as_default():
        model = keras.models.model_from_config(description, custom_objects=OURS)
        needed = sum(math.prod(int(n) for n in weight.shape) for weight in model.weights)
    if needed > weights:
        raise InputError(f"{path}: refused, as its layers have {needed:,} weights and the file holds {weights:,}")


def _unknown(config: Any) -> Iterator[str]:
    """Every class or module a model description names that is not on the lists above."""
    if isinstance(config, list):
        for item in config:
            yield from _unknown(item)
    if not isinstance(config, dict):
        return
    name = config.get("class_name")
    if isinstance(name, str) and not (name in KERAS_CLASSES or name in OURS or _is_larq(name)):
        yield name
    module = config.get("module")
    if isinstance(module, str) and not (
        module in MODULES or module.startswith(tuple(m for m in MODULES if m[-1] == "."))
    ):
        yield f"module {module}"
    for value in config.values():
        yield from _unknown(value)


def _is_larq(name: str) -> bool:
    return any(hasattr(home, name) for home in (lq.layers, lq.quantizers, lq.constraints)) and not name.startswith("_")


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
