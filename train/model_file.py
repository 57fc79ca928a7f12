"""``model.h5``: written whole or not at all, and opened without running anybody's code."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flipbit.train.files import replacing
from flipbit.train.keras_larq import keras, lq
from flipbit.train.networks import PadShortcut
from flipbit.train.quantizers import DeterministicRound, StochasticRound
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
    with replacing(path) as temporary, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "You are saving your model as an HDF5 file")  # as intended
        try:
            model.save(temporary, include_optimizer=False, save_format="h5")
        except OSError as error:  # HDF5 wraps the system's reason in a paragraph
            reason = re.search(r"error message = '([^']+)'", str(error))
            raise OSError(reason[1] if reason else _first_line(error)) from None


def load_model(path: str | Path) -> Any:
    """Open a Keras 2 ``.h5`` model made of the layers flipbit knows. Raises :class:`InputError` otherwise."""
    import h5py

    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    try:
        with h5py.File(path, "r") as file:
            config = file.attrs.get("model_config")
    except OSError as error:
        raise InputError(f"{path}: not a readable HDF5 file, or cut short ({_first_line(error)})") from None
    if config is None:
        raise InputError(f"{path}: holds weights but no model; save it with model.save('x.h5')")
    try:
        refused = sorted(set(_unknown(json.loads(config))))
    except ValueError:
        raise InputError(f"{path}: its model description is not JSON") from None
    if refused:
        raise InputError(
            f"{path}: refused, as it names {', '.join(refused)}; a model may hold Keras' and Larq's own layers "
            "and flipbit's, and no Lambda or other code"
        )
    try:
        return keras.models.load_model(path, custom_objects=OURS, compile=False)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: cannot be loaded as a Keras model ({_first_line(error)})") from None


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
