"""Keras and Larq models to a deploy graph in real numbers.

BatchNorm is folded into the convolution or dense layer before it: y = γ(x − μ)/√(σ² + ε) + β becomes one scale and
one offset per output channel. A binary filter ±s gives its s to that scale, and a negative scale is absorbed by
inverting the filter's bits. ReLU is fused into what it follows, dropout vanishes, and a softmax at the end is
dropped, as it does not change which class wins. A Rescaling at the input becomes part of the pixel formula.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from flipbit.export.graph import (
    Add,
    Array,
    AveragePool,
    Conv,
    Dense,
    ExportError,
    Flatten,
    Graph,
    MaxPool,
    Op,
    PadShortcut,
    Reference,
    Relu,
    Tensor,
    same_padding,
)
from flipbit.export.read.fuse import Affine, fuse
from flipbit.runtime.image.pixels import Pixels

SUPPORTED = (
    "Conv2D and Dense (Keras' or Larq's), BatchNormalization after them, ReLU, MaxPooling2D, AveragePooling2D, "
    "GlobalAveragePooling2D, Add, PadShortcut, Flatten, ZeroPadding2D before a convolution, Dropout, a final Softmax, "
    "Rescaling at the input"
)


def from_keras(model: Any, labels: list[str] | None = None) -> Graph:
    """The deploy graph of a Keras 2 model made of supported layers; raises :class:`ExportError` otherwise."""
    return _Reader(model, labels or []).graph()


def binary_filters(weights: Array) -> tuple[Array, Array] | None:
    """(±1 signs, magnitude per filter) of weights whose filters each hold two values ±s, else None."""
    flat = np.abs(weights.reshape(-1, weights.shape[-1]))
    magnitude = flat[0]
    if not (magnitude > 0).all() or not (flat == magnitude).all():
        return None
    return np.where(weights > 0, 1, -1).astype(np.int8), magnitude.astype(np.float64)


def weighted(weights: Array) -> dict[str, Any]:
    """The fields of :class:`Weighted` for trained weights: signs and magnitudes if they are binary."""
    found = binary_filters(weights)
    signs, magnitude = found if found else (weights.astype(np.float64), np.ones(weights.shape[-1]))
    return {"weights": signs, "scale": magnitude, "binary": found is not None}


class _Reader:
    """Walks a Keras model layer by layer, in the order Keras runs them."""

    def __init__(self, model: Any, labels: list[str]):
        self.model, self.labels = model, labels
        self.ops: list[Op] = []
        self.tensors: dict[str, Tensor] = {}
        self.at: dict[int, str] = {}  # id of a Keras tensor → name of ours
        self.padded: dict[int, tuple[int, int, int, int]] = {}  # id of a Keras tensor → zeros its convolution adds
        self.input = "input"
        self.rescaling: Pixels | None = None
        self.ends = ""

    def graph(self) -> Graph:
        model = self.model
        if len(model.inputs) != 1 or len(model.outputs) != 1:
            raise ExportError(
                f"the model has {len(model.inputs)} inputs and {len(model.outputs)} outputs; one each is supported"
            )
        shape = tuple(model.inputs[0].shape[1:])
        if len(shape) not in (1, 3) or None in shape:
            raise ExportError(f"the input has shape {shape}; expected a fixed (height, width, channels)")
        names = {layer.name for layer in model.layers}
        while self.input in names:
            self.input += "_"
        self.tensors[self.input] = Tensor(self.input, shape)
        self.at[id(model.inputs[0])] = self.input
        for layer in model.layers:
            self._layer(layer)
        ops, output = fuse(self.ops, self.at[id(model.outputs[0])])
        tensors = {name: self.tensors[name] for name in (self.input, *(op.output for op in ops))}
        graph = Graph(self.input, output, ops, tensors, self.labels)
        graph.rescaling, graph.reference = self.rescaling, Reference("Keras", self._run, self.ends)
        graph.check()
        return graph

    def _run(self, images: Array) -> Array:
        """What Keras gives for images as the graph takes them."""
        if self.rescaling is not None:
            images = (images / self.rescaling.scale + self.rescaling.offset).astype(np.float32)
        return np.asarray(self.model(images, training=False))

    def _layer(self, layer: Any) -> None:
        kind = type(layer).__name__
        if kind == "InputLayer":
            return
        if len(layer.inbound_nodes) != 1:
            raise ExportError(
                f"{layer.name}: used {len(layer.inbound_nodes)} times; layers that share weights are not supported"
            )
        (node,) = layer.inbound_nodes
        inputs = [self.at[id(tensor)] for tensor in node.keras_inputs]
        read = _LAYERS.get(kind)
        if kind in ("Sequential", "Functional", "Model"):
            raise ExportError(f"{layer.name}: a model inside the model; call its layers one by one, in one model")
        if read is None:
            raise ExportError(f"{layer.name}: {kind} is not supported; supported are {SUPPORTED}")
        data_format = getattr(layer, "data_format", "channels_last")
        if data_format != "channels_last":
            raise ExportError(f"{layer.name}: data_format {data_format}; channels_last is supported")
        if "Conv2D" not in kind and any(id(tensor) in self.padded for tensor in node.keras_inputs):
            raise ExportError(f"{layer.name}: ZeroPadding2D before {kind} is not supported, only before a convolution")
        self.at[id(layer.output)] = read(self, layer, *inputs)

    # Each method below reads one kind of layer and returns the name of the tensor that holds its result.

    def _emit(self, op: Op, shape: tuple[int, ...]) -> str:
        self.ops.append(op)
        self.tensors[op.output] = Tensor(op.output, tuple(int(n) for n in shape))
        return op.output

    def _conv(self, layer: Any, x: str) -> str:
        if tuple(layer.dilation_rate) != (1, 1) or layer.groups != 1:
            raise ExportError(
                f"{layer.name}: dilation {layer.dilation_rate} and {layer.groups} groups; 1 each is supported"
            )
        if float(getattr(layer, "pad_values", 0.0)) != 0.0:
            raise ExportError(f"{layer.name}: pad_values {layer.pad_values}; 0 is supported")
        shape = self.tensors[x].shape
        kernel, stride = tuple(layer.kernel_size), tuple(layer.strides)
        extra = self.padded.get(id(layer.input), (0, 0, 0, 0))
        padding = extra
        if layer.padding == "same":
            padded = (shape[0] + extra[0] + extra[1], shape[1] + extra[2] + extra[3])
            top, bottom, left, right = (a + b for a, b in zip(extra, same_padding(padded, kernel, stride)))
            padding = (top, bottom, left, right)
        elif layer.padding != "valid":
            raise ExportError(f"{layer.name}: padding {layer.padding}; same and valid are supported")
        fields = weighted(self._weights(layer))
        op = Conv(
            layer.name, (x,), layer.name, bias=self._bias(layer), relu=self._ends_in_relu(layer),
            stride=stride, padding=padding, **fields,
        )  # fmt: skip
        return self._emit(op, layer.output_shape[1:])

    def _dense(self, layer: Any, x: str) -> str:
        if len(self.tensors[x].shape) != 1:
            raise ExportError(f"{layer.name}: Dense on an image of {self.tensors[x].shape}; put a Flatten before it")
        fields = {"bias": self._bias(layer), "relu": self._ends_in_relu(layer), **weighted(self._weights(layer))}
        return self._emit(Dense(layer.name, (x,), layer.name, **fields), layer.output_shape[1:])

    def _weights(self, layer: Any) -> Array:
        if getattr(layer, "input_quantizer", None) is not None:
            raise ExportError(
                f"{layer.name}: has an input_quantizer; activations are int8 here, only weights are binary"
            )
        kernel = layer.kernel.read_value()
        if not np.isfinite(kernel.numpy()).all():
            raise ExportError(f"{layer.name}: its weights hold NaN or infinity; train it again, or lower --lr")
        quantizer = getattr(layer, "kernel_quantizer", None)
        return np.asarray(quantizer(kernel) if quantizer is not None else kernel)

    @staticmethod
    def _bias(layer: Any) -> Array:
        units = layer.output_shape[-1]
        return layer.bias.numpy().astype(np.float64) if layer.use_bias else np.zeros(units)

    def _ends_in_relu(self, layer: Any) -> bool:
        """Whether a layer's ``activation=`` is a ReLU; a final softmax is dropped."""
        name = getattr(layer.activation, "__name__", str(layer.activation))
        if name == "softmax":
            self._final_softmax(layer)
        elif name not in ("relu", "linear"):
            raise ExportError(f"{layer.name}: activation {name}; relu, linear and a final softmax are supported")
        return name == "relu"

    def _batch_norm(self, layer: Any, x: str) -> str:
        if list(np.atleast_1d(layer.axis)) not in ([-1], [len(self.tensors[x].shape)]):
            raise ExportError(f"{layer.name}: normalizes axis {layer.axis}; the last one is supported")
        mean, variance = layer.moving_mean.numpy().astype(np.float64), layer.moving_variance.numpy().astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):  # refused later, by layer
            gain = 1 / np.sqrt(variance + layer.epsilon)
        if layer.scale:
            gain = gain * layer.gamma.numpy()
        offset = -mean * gain + (layer.beta.numpy() if layer.center else 0)
        return self._emit(Affine(layer.name, (x,), layer.name, gain, offset), self.tensors[x].shape)

    def _relu(self, layer: Any, x: str) -> str:
        if layer.max_value is not None or layer.negative_slope or layer.threshold:
            raise ExportError(f"{layer.name}: a plain ReLU is supported, without max_value, slope or threshold")
        return self._emit(Relu(layer.name, (x,), layer.name), self.tensors[x].shape)

    def _activation_layer(self, layer: Any, x: str) -> str:
        if self._ends_in_relu(layer):
            return self._emit(Relu(layer.name, (x,), layer.name), self.tensors[x].shape)
        return x

    def _softmax(self, layer: Any, x: str) -> str:
        if layer.axis not in (-1, len(self.tensors[x].shape)):
            raise ExportError(f"{layer.name}: a softmax over axis {layer.axis}; over the last one is supported")
        self._final_softmax(layer)
        return x

    def _final_softmax(self, layer: Any) -> None:
        if layer.output is not self.model.outputs[0]:
            raise ExportError(f"{layer.name}: a softmax inside the net; only a final one is supported")
        self.ends = "softmax"

    def _rescaling(self, layer: Any, x: str) -> str:
        """y = scale · x + offset of the input itself: how pixels become what the graph takes."""
        scale, offset = np.asarray(layer.scale, np.float64), np.asarray(layer.offset, np.float64)
        readers = [n for other in self.model.layers for n in other.inbound_nodes for t in n.keras_inputs
                   if t is self.model.inputs[0]]  # fmt: skip
        if layer.inbound_nodes[0].keras_inputs[0] is not self.model.inputs[0] or len(readers) != 1:
            raise ExportError(f"{layer.name}: a Rescaling inside the net; one that alone reads the input is supported")
        if np.unique(scale).size != 1 or np.unique(offset).size != 1:
            raise ExportError(f"{layer.name}: rescales each channel by its own numbers; one for all is supported")
        factor, added = float(scale.flat[0]), float(offset.flat[0])
        try:
            self.rescaling = Pixels(-added / factor + 0.0, factor)
        except (ValueError, ZeroDivisionError):
            raise ExportError(f"{layer.name}: rescales by {factor} and {added}; expected finite numbers") from None
        return x

    def _max_pool(self, layer: Any, x: str) -> str:
        size, stride = tuple(layer.pool_size), tuple(layer.strides)
        padding = (0, 0, 0, 0)
        if layer.padding == "same":
            height, width, _ = self.tensors[x].shape
            padding = same_padding((height, width), size, stride)
        op = MaxPool(layer.name, (x,), layer.name, size=size, stride=stride, padding=padding)
        return self._emit(op, layer.output_shape[1:])

    def _average_pool(self, layer: Any, x: str) -> str:
        size, stride = tuple(layer.pool_size), tuple(layer.strides)
        height, width, _ = self.tensors[x].shape
        if layer.padding == "same" and any(same_padding((height, width), size, stride)):
            raise ExportError(f"{layer.name}: average pooling over the border; windows inside the image are supported")
        return self._emit(AveragePool(layer.name, (x,), layer.name, size=size, stride=stride), layer.output_shape[1:])

    def _global_average(self, layer: Any, x: str) -> str:
        height, width, _ = self.tensors[x].shape
        op = AveragePool(layer.name, (x,), layer.name, size=(height, width), stride=(height, width))
        return self._emit(op, layer.output_shape[1:])

    def _add(self, layer: Any, *xs: str) -> str:
        if len(xs) != 2 or self.tensors[xs[0]].shape != self.tensors[xs[1]].shape:
            shapes = ", ".join(str(self.tensors[x].shape) for x in xs)
            raise ExportError(f"{layer.name}: adds {shapes}; two tensors of one shape are supported")
        return self._emit(Add(layer.name, xs, layer.name), layer.output_shape[1:])

    def _pad_shortcut(self, layer: Any, x: str) -> str:
        op = PadShortcut(layer.name, (x,), layer.name, stride=layer.stride, channels=layer.filters)
        return self._emit(op, layer.output_shape[1:])

    def _zero_padding(self, layer: Any, x: str) -> str:
        (top, bottom), (left, right) = layer.padding
        if layer.output is self.model.outputs[0]:
            raise ExportError(f"{layer.name}: a ZeroPadding2D that no convolution follows is not supported")
        # The padding becomes the convolution's own; its input stays the unpadded tensor.
        self.padded[id(layer.output)] = (top, bottom, left, right)
        return x

    def _flatten(self, layer: Any, x: str) -> str:
        if len(self.tensors[x].shape) == 1:
            return x
        return self._emit(Flatten(layer.name, (x,), layer.name), layer.output_shape[1:])

    def _nothing(self, layer: Any, x: str) -> str:
        return x


_LAYERS: dict[str, Callable[..., str]] = {
    "Conv2D": _Reader._conv,
    "QuantConv2D": _Reader._conv,
    "Dense": _Reader._dense,
    "QuantDense": _Reader._dense,
    "BatchNormalization": _Reader._batch_norm,
    "ReLU": _Reader._relu,
    "Activation": _Reader._activation_layer,
    "Softmax": _Reader._softmax,
    "MaxPooling2D": _Reader._max_pool,
    "AveragePooling2D": _Reader._average_pool,
    "GlobalAveragePooling2D": _Reader._global_average,
    "Add": _Reader._add,
    "PadShortcut": _Reader._pad_shortcut,
    "ZeroPadding2D": _Reader._zero_padding,
    "Flatten": _Reader._flatten,
    "Rescaling": _Reader._rescaling,
    "Dropout": _Reader._nothing,
    "SpatialDropout2D": _Reader._nothing,
}
