"""``model.h5``: written whole or not at all; it and ``.keras`` files are opened without running anybody's code."""

from __future__ import annotations

import io
import json
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flipbit.runtime.files import replacing
from flipbit.train.bits.quantizers import DeterministicRound, StochasticRound
from flipbit.train.keras_larq import keras, lq, tf
from flipbit.train.nets.h5_file import require_shallow, text_attribute, weights_inside, with_half
from flipbit.train.nets.instead import INSTEAD
from flipbit.train.nets.keras3 import rebuild
from flipbit.train.nets.keras3_weights import fill
from flipbit.train.nets.keras_archive import is_archive, read_archive
from flipbit.train.nets.networks import PadShortcut, quantized_layers
from flipbit.train.settings import InputError

OURS = {c.__name__: c for c in (DeterministicRound, StochasticRound, PadShortcut)}

# Keras classes a saved model may name. Not listed, and so refused: Lambda, TFOpLambda and whatever else
# carries code or a Python name to import.
KERAS_CLASSES = frozenset(
    "Functional Model Sequential InputLayer Activation Add Average AveragePooling1D AveragePooling2D "
    "BatchNormalization BatchNormalizationV1 Concatenate Conv1D Conv2D Conv2DTranspose DepthwiseConv1D DepthwiseConv2D "
    "Dense Dropout ELU Flatten GaussianDropout GaussianNoise GlobalAveragePooling1D GlobalAveragePooling2D "
    "GlobalMaxPooling1D GlobalMaxPooling2D LeakyReLU MaxPooling1D MaxPooling2D Maximum Minimum Multiply PReLU Permute "
    "ReLU Rescaling Reshape SeparableConv1D SeparableConv2D Softmax SpatialDropout1D SpatialDropout2D Subtract "
    "UpSampling1D UpSampling2D ZeroPadding1D ZeroPadding2D "
    # layers that only work in training
    "ActivityRegularization AlphaDropout RandomBrightness RandomContrast RandomFlip RandomRotation RandomTranslation "
    "RandomZoom "
    # layers that export refuses by name, all at once
    "Conv1DTranspose Cropping1D Cropping2D Embedding GRU LSTM LayerNormalization Masking MultiHeadAttention "
    "Normalization RepeatVector SimpleRNN ThresholdedReLU Attention Bidirectional CenterCrop Conv3D "
    "GroupNormalization Resizing TimeDistributed UnitNormalization "
    # initializers, regularizers, constraints, policies
    "Zeros Ones Constant RandomNormal RandomUniform TruncatedNormal VarianceScaling GlorotNormal GlorotUniform "
    "HeNormal HeUniform LecunNormal LecunUniform Orthogonal Identity L1 L2 L1L2 MaxNorm MinMaxNorm NonNeg UnitNorm "
    "Policy DTypePolicy".split()
)
MODULES = ("keras.", "tf_keras.", "keras", "tf_keras", "larq.", "flipbit.train.", "builtins")


def save_model(model: Any, path: Path, half: bool = False) -> None:
    """Save the net (for ``bc`` with its real-valued buffer), without the optimizer.

    With ``half``, the buffer is kept in half precision: the net computes the same, and the file is half as large.
    """
    import h5py

    # Through memory: HDF5 that runs into a full disk crashes the process when the file is closed.
    content = io.BytesIO()
    with warnings.catch_warnings(), h5py.File(content, "w") as file:
        warnings.filterwarnings("ignore", "You are saving your model as an HDF5 file")  # as intended
        model.save(file, include_optimizer=False, save_format="h5")
    if half:
        content = with_half(content, {layer.kernel.name for layer in quantized_layers(model) if _signs_only(layer)})
    with replacing(path) as temporary:
        temporary.write_bytes(content.getbuffer())


def _signs_only(layer: Any) -> bool:
    """Whether a net computes with nothing of the layer's kernel but its signs."""
    quantizer = layer.kernel_quantizer
    plain = {"bits": 1, "scale": "none", "standardize": False}
    return isinstance(quantizer, DeterministicRound) and all(getattr(quantizer, k) == v for k, v in plain.items())


def load_model(path: str | Path) -> Any:
    """Open a ``.keras`` or ``.h5`` model of Keras 2 or 3 made of the layers flipbit knows, as a Keras 2 model.

    Raises :class:`InputError` otherwise.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: {'a folder' if path.is_dir() else 'no such file'}")
    description, version, content, available = _contents(path)
    try:
        with _h5(path, content) as file:
            weights = weights_inside(path, file, available)
            if description is None:
                description, version = _described(path, file)
            if not version.startswith("3"):
                refuse_unknown(path, description)
            build = _builder(path, description, version)
            _require_weights(path, build, weights)
            if version.startswith("3"):
                model = build()
                fill(path, model, description, file)
                return model
        return keras.models.load_model(path, custom_objects=OURS, compile=False)
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{path}: not a readable HDF5 file, or cut short ({_first_line(error)})") from None
    except (MemoryError, RecursionError, tf.errors.ResourceExhaustedError):
        raise InputError(f"{path}: its layers do not fit this machine's memory") from None
    except Exception as error:  # a description that Keras does not expect fails wherever it is used
        raise InputError(f"{path}: cannot be loaded as a Keras model ({_first_line(error)})") from None


def _contents(path: Path) -> tuple[dict[str, Any] | None, str, Any, int]:
    """The description, if the file has it apart from its weights; who wrote it; the HDF5 file and its size."""
    try:
        if not is_archive(path):
            return None, "", path, path.stat().st_size
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    archive = read_archive(path)
    return archive.description, archive.version, archive.weights, archive.size


@contextmanager
def _h5(path: Path, content: Any) -> Iterator[Any]:
    """An HDF5 file; what cannot be read of it is an :class:`InputError`."""
    import h5py

    try:
        file = h5py.File(content, "r")
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, MemoryError, RecursionError) as error:
        raise InputError(f"{path}: not a readable HDF5 file, or cut short ({_first_line(error)})") from None
    with file:
        yield file


def _described(path: Path, file: Any) -> tuple[dict[str, Any], str]:
    """The description of the model in an ``.h5``, and the version of Keras that wrote it."""
    config = text_attribute(path, file, "model_config")
    if config is None:
        raise InputError(
            f"{path}: holds weights but no model; save it with model.save('x.keras') or model.save('x.h5')"
        )
    require_shallow(path, config)
    try:
        description = json.loads(config)
    except (ValueError, RecursionError):
        raise InputError(f"{path}: its model description is not JSON") from None
    if not isinstance(description, dict):
        raise InputError(f"{path}: its model description is not what Keras writes")
    return description, text_attribute(path, file, "keras_version") or ""


def refuse_unknown(path: Path, description: Any) -> None:
    refused = refused_names(description)
    if refused:
        raise InputError(
            f"{path}: refused, as it names {', '.join(map(_with_advice, refused))}; a model may hold Keras' and Larq's "
            "own layers and flipbit's, and no Lambda or other code"
        )


def _with_advice(name: str) -> str:
    return f"{name} ({INSTEAD[name]})" if name in INSTEAD else name


def _builder(path: Path, description: dict[str, Any], version: str) -> Callable[[], Any]:
    if version.startswith("3"):
        return lambda: rebuild(path, description)
    return lambda: keras.models.model_from_config(
        {"class_name": description.get("class_name"), "config": description.get("config")}, custom_objects=OURS
    )


def refused_names(config: Any) -> list[str]:
    """What a model description names that a model file may not."""
    return sorted(set(_unknown(config)))


def _require_weights(path: Path, build: Callable[[], Any], weights: int) -> None:
    """Refuse layers larger than the weights in the file: Keras would allocate and fill them before it reads any.

    In a graph of its own TensorFlow knows the shapes of variables and allocates none.
    """
    with _bases_kept(), tf.Graph().as_default():
        tf.random.set_seed(0)  # of this graph alone: where a trainer asked for determinism, Dropout insists on one
        needed = sum(math.prod(int(n) for n in weight.shape) for weight in build().weights)
    if needed > weights:
        raise InputError(f"{path}: refused, as its layers have {needed:,} weights and the file holds {weights:,}")


@contextmanager
def _bases_kept() -> Iterator[None]:
    """Layers made in a graph give their classes the bases of TensorFlow 1: layers that stand already would be lost."""

    def below(kind: type) -> set[type]:
        return set(kind.__subclasses__()).union(*map(below, kind.__subclasses__()))

    before = {kind: kind.__bases__ for kind in below(keras.layers.Layer)}
    try:
        yield
    finally:
        for kind, bases in before.items():
            if kind.__bases__ != bases:
                kind.__bases__ = bases


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
