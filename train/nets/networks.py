"""The nets: the paper's, and smaller ones that fit a microcontroller.

Each is built from Larq's quantized layers (convolutions without bias), BatchNorm and ReLU, and ends in
logits. A conv whose kernel is to be binary carries a kernel quantizer; the optimizer decides how it moves.

==========  =============================================================  ==================
name        what it is                                                     conv / FC weights
==========  =============================================================  ==================
vgg9        the paper's Table 2                                            1.7 M / 1.1 M
vgg-bc      BinaryConnect's net, the paper's Table 3                       4.6 M / 9.4 M
resnet56    He et al. for CIFAR, parameter-free shortcuts                  0.85 M / 640
wrn-56-2    the same with twice the filters in each block                  3.4 M / 1280
resnet18    He et al. for ImageNet, 1×1 shortcuts                          11.2 M / 0.5 M
resnet20    He et al. for CIFAR                                            0.27 M / 640
resnet8     MLPerf Tiny's image classification net                         76.7 k / 640
flip-s      drawn for one-bit cost: less at 32×32, more behind it          111 k / 480
flip-m      the same, larger                                               238 k / 640
flip-l      the same, larger still                                         293 k / 640
vgg-small   six 3×3 convolutions 16-16-32-32-64-64, global average         72 k / 640
word-s      words: 39×32 features                                          90 k / 576
person-s    pictures of 96×96                                              180 k / 128
signal-s    windows of 1×128: motion, gestures                             38 k / 384
vibration-s the same for 1×1024 samples of a machine                       38 k / 640
bireal      binary activations too: a shortcut around each convolution     277 k / 1280
==========  =============================================================  ==================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flipbit.train.bits.quantizers import DeterministicRound, StochasticRound
from flipbit.train.keras_larq import keras, lq, tf
from flipbit.train.settings import InputError

Size = int | tuple[int, int]  # down and across, or the same for both


@lq.utils.register_keras_custom_object
class PadShortcut(keras.layers.Layer):
    """He et al.'s parameter-free shortcut ("option A"): every ``stride``-th pixel, new channels zero."""

    def __init__(self, filters: int, stride: int | Sequence[int] = 1, **kwargs: Any):
        super().__init__(**kwargs)
        self.filters, self.stride = filters, stride if isinstance(stride, int) else tuple(stride)

    @property
    def strides(self) -> tuple[int, int]:
        """Down and across."""
        return (self.stride, self.stride) if isinstance(self.stride, int) else (self.stride[0], self.stride[1])

    def call(self, inputs: Any) -> Any:
        down, across = self.strides
        kept = inputs[:, ::down, ::across, :]
        missing = self.filters - inputs.shape[-1]
        return tf.pad(kept, [[0, 0], [0, 0], [0, 0], [0, missing]])

    def compute_output_shape(self, shape: Any) -> Any:
        (n, h, w, _), (down, across) = shape, self.strides
        return (n, -(-h // down), -(-w // across), self.filters)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "filters": self.filters, "stride": self.stride}


@dataclass
class Layers:
    """Makes the layers of one net: names, seeds and quantizers in one place.

    ``quantize`` is none, conv or all; ``plain`` uses Keras' own layers instead of Larq's (for the
    benchmark's float baseline).
    """

    seed: int = 0
    width: float = 1.0
    quantize: str = "conv"
    bits: int = 1
    delta: float = 1.0
    scale: str = "none"
    forward: str = "deterministic"
    standardize: bool = False
    plain: bool = False
    made: int = field(default=0, init=False)

    def filters(self, count: int) -> int:
        return max(1, round(count * self.width))

    def conv(
        self,
        x: Any,
        name: str,
        filters: int,
        kernel: Size = 3,
        stride: Size = 1,
        relu: bool = True,
        halve: bool = False,
    ) -> Any:
        """Convolution, BatchNorm and, unless told otherwise, ReLU; sizes are (down, across), or one for both.

        ``halve`` puts a max-pool before the BatchNorm, where it spares three quarters of what follows.
        """
        layer = keras.layers.Conv2D if self.plain else lq.layers.QuantConv2D
        x = layer(
            filters,
            kernel,
            strides=stride,
            padding="same",
            use_bias=False,
            name=name,
            **self._kernel(self.quantize != "none"),
        )(x)
        return self._norm(self.pool(x, f"{name}_pool") if halve else x, name, relu)

    def sign_conv(self, x: Any, name: str, filters: int, stride: int = 1) -> Any:
        """BatchNorm, sign, 3×3 convolution, BatchNorm: what a binary net puts beside a shortcut.

        The first BatchNorm sets where the sign changes, channel by channel; a device has that as a threshold.
        """
        x = self._norm(x, f"{name}_in", relu=False)
        x = lq.layers.QuantConv2D(
            filters,
            3,
            strides=stride,
            padding="same",
            use_bias=False,
            name=name,
            input_quantizer=lq.quantizers.SteSign(clip_value=1.0),
            **self._kernel(self.quantize != "none"),
        )(x)
        return self._norm(x, name, relu=False)

    def dense(self, x: Any, name: str, units: int, last: bool = False) -> Any:
        """Fully connected: with a bias when it is the last layer, else BatchNorm and ReLU."""
        layer = keras.layers.Dense if self.plain else lq.layers.QuantDense
        x = layer(units, use_bias=last, name=name, **self._kernel(self.quantize == "all"))(x)
        return x if last else self._norm(x, name, True)

    def pool(self, x: Any, name: str) -> Any:
        return keras.layers.MaxPooling2D(2, name=name)(x)

    def _kernel(self, quantized: bool) -> dict[str, Any]:
        stream, self.made = self.made, self.made + 1
        settings: dict[str, Any] = {
            "kernel_initializer": keras.initializers.GlorotUniform(self.seed * 1_000_003 + stream)
        }
        if quantized and not self.plain:
            settings["kernel_quantizer"] = self.quantizer(stream)
        return settings

    def quantizer(self, stream: int) -> Any:
        """A kernel quantizer as the settings ask for; ``stream`` tells its random numbers from other layers'."""
        grid: dict[str, Any] = {
            "bits": self.bits,
            "delta": self.delta,
            "scale": self.scale,
            "standardize": self.standardize,
        }
        if self.forward == "stochastic":
            return StochasticRound(seed=self.seed, stream=stream, **grid)
        return DeterministicRound(**grid)

    @staticmethod
    def _norm(x: Any, name: str, relu: bool) -> Any:
        # Torch7's momentum and ε, as the paper used; Keras' 0.99 lags behind weights that flip.
        x = keras.layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name=f"{name}_bn")(x)
        return keras.layers.ReLU(name=f"{name}_relu")(x) if relu else x


def _vgg(layers: Layers, x: Any, stages: list[list[int]], dense: list[int]) -> Any:
    number = 0
    for stage, widths in enumerate(stages, 1):
        for width in widths:
            number += 1
            x = layers.conv(x, f"conv{number}", layers.filters(width))
        if dense or stage < len(stages):
            x = layers.pool(x, f"pool{stage}")
    if not dense:
        return keras.layers.GlobalAveragePooling2D(name="average")(x)
    x = keras.layers.Flatten(name="flatten")(x)
    for number, units in enumerate(dense, 1):
        x = layers.dense(x, f"fc{number}", layers.filters(units))
    return x


def _block(layers: Layers, x: Any, name: str, filters: int, stride: Size, shortcut: str, kernel: Size = 3) -> Any:
    """Two convolutions, 3×3 unless told otherwise, and a shortcut around them."""
    y = layers.conv(x, f"{name}_conv1", filters, kernel, stride)
    y = layers.conv(y, f"{name}_conv2", filters, kernel, relu=False)
    if stride != 1 or x.shape[-1] != filters:
        if shortcut == "pad":
            x = PadShortcut(filters, stride, name=f"{name}_shortcut")(x)
        else:
            x = layers.conv(x, f"{name}_shortcut", filters, kernel=1, stride=stride, relu=False)
    return keras.layers.ReLU(name=f"{name}_relu")(keras.layers.Add(name=f"{name}_add")([y, x]))


def _resnet(layers: Layers, x: Any, widths: list[int], blocks: int, shortcut: str, wide: int = 1) -> Any:
    for stage, width in enumerate(widths, 1):
        for number in range(1, blocks + 1):
            stride = 2 if stage > 1 and number == 1 else 1
            x = _block(layers, x, f"stage{stage}_block{number}", layers.filters(wide * width), stride, shortcut)
    return keras.layers.GlobalAveragePooling2D(name="average")(x)


def _cifar_resnet(layers: Layers, x: Any, blocks: int, shortcut: str = "pad", wide: int = 1) -> Any:
    x = layers.conv(x, "conv1", layers.filters(16))
    return _resnet(layers, x, [16, 32, 64], blocks, shortcut, wide)


def _flip(layers: Layers, x: Any, widths: list[int], blocks: list[int]) -> Any:
    """Residual nets drawn for one-bit weights on microcontrollers.

    On Cortex-M4 a multiply-accumulate takes 0.36 instructions in a layer of 16 channels at 32×32, 0.27 in one of 64 at
    8×8, and with a shortcut the first stage keeps three tensors: so it has two plain convolutions and no shortcut.
    """
    for number in (1, 2):
        x = layers.conv(x, f"conv{number}", layers.filters(16))
    for stage, (width, count) in enumerate(zip(widths, blocks), 2):
        for number in range(1, count + 1):
            stride = 2 if number == 1 else 1
            x = _block(layers, x, f"stage{stage}_block{number}", layers.filters(width), stride, "pad")
    return keras.layers.GlobalAveragePooling2D(name="average")(x)


def _word(layers: Layers, x: Any, width: int, depth: int) -> Any:
    """For rows of features of a word: two strides, then convolutions at the width of eight that tiles have.

    No shortcuts: with the tables of the fastest kernel, two tensors of 10×8×48 fit 32 KB of RAM, and three do not.
    """
    x = layers.conv(x, "conv1", layers.filters(16), stride=2)
    x = layers.conv(x, "conv2", layers.filters(width), stride=2)
    for number in range(3, 3 + depth):
        x = layers.conv(x, f"conv{number}", layers.filters(width))
    return keras.layers.GlobalAveragePooling2D(name="average")(x)


def _signal(layers: Layers, x: Any, kernel: int, stride: int) -> Any:
    """For windows of 1 × samples × channels: the first convolution decides how far apart samples are looked at."""
    x = layers.conv(x, "conv1", layers.filters(16), (1, kernel), (1, stride))
    for number, width in enumerate((32, 48, 64), 2):
        x = layers.conv(x, f"conv{number}", layers.filters(width), (1, 5), (1, 2))
    x = layers.conv(x, "conv5", layers.filters(64), (1, 3))
    return keras.layers.GlobalAveragePooling2D(name="average")(x)


def _person(layers: Layers, x: Any) -> Any:
    """96×96 to 32×32 at once, as one-bit tiles are eight pixels wide; from there as flip-m, whose weights fit."""
    x = layers.conv(x, "conv1", layers.filters(16), 4, 3)
    x = layers.conv(x, "conv2", layers.filters(16))
    for stage, width in enumerate((32, 64), 2):
        for number in (1, 2):
            x = _block(layers, x, f"stage{stage}_block{number}", layers.filters(width), 3 - number, "pad")
    return keras.layers.GlobalAveragePooling2D(name="average")(x)


def _teacher(layers: Layers, x: Any) -> Any:
    """A wide net for --teacher that learns in few epochs: halved early, so that most of its work is at 7×7 to 15×15.

    Its shape is that of Keller Jordan's airbench nets. Images larger than 64×64 are halved first.
    """
    while min(x.shape[1:3]) > 64:
        x = keras.layers.AveragePooling2D(2)(x)
    x = layers.conv(x, "conv1", layers.filters(24))
    for number, width in enumerate((64, 256, 256), 1):
        x = layers.conv(x, f"block{number}_conv1", layers.filters(width), halve=True)
        x = layers.conv(x, f"block{number}_conv2", layers.filters(width))
    return keras.layers.GlobalMaxPooling2D(name="strongest")(x)


def _resnet18(layers: Layers, x: Any) -> Any:
    x = layers.conv(x, "conv1", layers.filters(64), kernel=7, stride=2)
    x = keras.layers.MaxPooling2D(3, strides=2, padding="same", name="pool1")(x)
    return _resnet(layers, x, [64, 128, 256, 512], 2, "conv")


def _bireal(layers: Layers, x: Any) -> Any:
    """Bi-Real style (Liu et al., 2018): one-bit convolutions, each with a shortcut of real numbers around it.

    The first convolution reads pixels, not signs. Where the image is halved, the shortcut is an average, and new
    channels start at zero.
    """
    x = layers.conv(x, "conv1", layers.filters(32), relu=False)
    for stage, width in enumerate((64, 128), 2):
        for number in (1, 2):
            name, filters, stride = f"stage{stage}_conv{number}", layers.filters(width), 3 - number
            y = layers.sign_conv(x, name, filters, stride)
            if stride == 2:
                x = keras.layers.AveragePooling2D(2, padding="same", name=f"{name}_half")(x)
                x = PadShortcut(filters, name=f"{name}_shortcut")(x)
            x = keras.layers.Add(name=f"{name}_add")([y, x])
    x = keras.layers.ReLU(name="last_relu")(x)
    return keras.layers.GlobalAveragePooling2D(name="average")(x)


NETWORKS: dict[str, Callable[[Layers, Any], Any]] = {
    "vgg9": lambda n, x: _vgg(n, x, [[64, 64], [128, 128], [256, 256, 256]], [256]),
    "vgg-bc": lambda n, x: _vgg(n, x, [[128, 128], [256, 256], [512, 512]], [1024, 1024]),
    "resnet56": lambda n, x: _cifar_resnet(n, x, 9),
    "wrn-56-2": lambda n, x: _cifar_resnet(n, x, 9, wide=2),
    "resnet18": _resnet18,
    "resnet20": lambda n, x: _cifar_resnet(n, x, 3),
    "resnet8": lambda n, x: _cifar_resnet(n, x, 1, shortcut="conv"),
    "flip-s": lambda n, x: _flip(n, x, [32, 48], [2, 2]),
    "flip-m": lambda n, x: _flip(n, x, [32, 64], [2, 3]),
    "flip-l": lambda n, x: _flip(n, x, [32, 64], [5, 3]),
    "word-s": lambda n, x: _word(n, x, 48, 4),
    "person-s": _person,
    "signal-s": lambda n, x: _signal(n, x, 5, 2),
    "vibration-s": lambda n, x: _signal(n, x, 32, 8),
    "vgg-small": lambda n, x: _vgg(n, x, [[16, 16], [32, 32], [64, 64]], []),
    "bireal": _bireal,
    "teacher": _teacher,
}

# Each max-pool halves the image, and something must be left of it.
SMALLEST = {**dict.fromkeys(NETWORKS, 1), "vgg9": 8, "vgg-bc": 8, "vgg-small": 4, "bireal": 4, "teacher": 8}


def build(name: str, shape: tuple[int, int, int], classes: int, layers: Layers | None = None) -> Any:
    """The Keras model ``name`` for images of ``shape`` (height, width, channels)."""
    layers = layers or Layers()
    if min(shape[:2]) < SMALLEST[name]:
        raise InputError(
            f"{name} needs images of at least {SMALLEST[name]}×{SMALLEST[name]}, not {shape[0]}×{shape[1]}"
        )
    image = keras.Input(shape, name="image")
    x = NETWORKS[name](layers, image)
    logits = layers.dense(x, "logits", classes, last=True)
    return keras.Model(image, logits, name=name.replace("-", "_"))


def quantized_layers(model: Any) -> list[Any]:
    """The layers whose kernels are kept on a grid, in order."""
    return [layer for layer in model.layers if getattr(layer, "kernel_quantizer", None) is not None]
