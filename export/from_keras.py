"""Keras and Larq models to a deploy graph in real numbers.

BatchNorm is folded into the convolution or dense layer before it: y = γ(x − μ)/√(σ² + ε) + β becomes one scale and
one offset per output channel. A binary filter ±s gives its s to that scale, and a negative scale is absorbed by
inverting the filter's bits. ReLU is fused into what it follows, dropout vanishes, and a softmax at the end is
dropped, as it does not change which class wins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
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
    Relu,
    Tensor,
    Weighted,
)

SUPPORTED = (
    "Conv2D and Dense (Keras' or Larq's), BatchNormalization after them, ReLU, MaxPooling2D, AveragePooling2D, "
    "GlobalAveragePooling2D, Add, PadShortcut, Flatten, ZeroPadding2D before a convolution, Dropout, a final Softmax"
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


def affine(op: Weighted, gain: Array, offset: Array) -> Weighted:
    """``op`` followed by y ↦ gain · y + offset per channel; afterwards every scale is positive or zero."""
    with np.errstate(invalid="ignore"):  # NaN and infinity are refused later, by layer
        scale, bias = op.scale * gain, op.bias * gain + offset
    flip = np.where(scale < 0, -1, 1)
    return replace(op, weights=(op.weights * flip).astype(op.weights.dtype), scale=np.abs(scale), bias=bias)


def same_padding(size: tuple[int, int], kernel: tuple[int, int], stride: tuple[int, int]) -> tuple[int, int, int, int]:
    """TensorFlow's SAME: what is odd goes to the bottom and right, so that at stride 2 it is not symmetric."""
    edges: list[int] = []
    for n, k, s in zip(size, kernel, stride):
        total = max((-(-n // s) - 1) * s + k - n, 0)
        edges += [total // 2, total - total // 2]
    return edges[0], edges[1], edges[2], edges[3]


class _Reader:
    """Walks a Keras model layer by layer, in the order Keras runs them."""

    def __init__(self, model: Any, labels: list[str]):
        self.model, self.labels = model, labels
        self.ops: list[Op] = []
        self.tensors: dict[str, Tensor] = {}
        self.at: dict[int, str] = {}  # id of a Keras tensor → name of ours
        self.padded: dict[int, tuple[int, int, int, int]] = {}  # id of a Keras tensor → zeros its convolution adds
        self.readers: dict[int, int] = {}  # id of a Keras tensor → how many layers read it

    def graph(self) -> Graph:
        model = self.model
        if len(model.inputs) != 1 or len(model.outputs) != 1:
            raise ExportError(
                f"the model has {len(model.inputs)} inputs and {len(model.outputs)} outputs; one each is supported"
            )
        shape = tuple(model.inputs[0].shape[1:])
        if len(shape) not in (1, 3) or None in shape:
            raise ExportError(f"the input has shape {shape}; expected a fixed (height, width, channels)")
        self.tensors["input"] = Tensor("input", shape)
        self.at[id(model.inputs[0])] = "input"
        for layer in model.layers:
            for node in layer.inbound_nodes:
                for tensor in node.keras_inputs:
                    self.readers[id(tensor)] = self.readers.get(id(tensor), 0) + 1
        for layer in model.layers:
            self._layer(layer)
        output = self.at[id(model.outputs[0])]
        graph = Graph("input", output, self.ops, self.tensors, self.labels)
        graph.check()
        return graph

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
        if read is None:
            raise ExportError(f"{layer.name}: {kind} is not supported; supported are {SUPPORTED}")
        if "Conv2D" not in kind and any(id(tensor) in self.padded for tensor in node.keras_inputs):
            raise ExportError(f"{layer.name}: ZeroPadding2D before {kind} is not supported, only before a convolution")
        self.at[id(layer.output)] = read(self, layer, *inputs)

    # Each method below reads one kind of layer and returns the name of the tensor that holds its result.

    def _emit(self, op: Op, shape: tuple[int, ...]) -> str:
        self.ops.append(op)
        self.tensors[op.output] = Tensor(op.output, tuple(int(n) for n in shape))
        return op.output

    def _last(self, layer: Any, name: str) -> Op | None:
        """The operation that wrote ``name``, if ``layer`` is its only reader and so may change it."""
        (tensor,) = layer.inbound_nodes[0].keras_inputs
        if self.readers[id(tensor)] != 1:
            return None
        return next((op for op in reversed(self.ops) if op.output == name), None)

    def _put(self, op: Op) -> str:
        self.ops[[o.output for o in self.ops].index(op.output)] = op
        return op.output

    def _conv(self, layer: Any, x: str) -> str:
        if tuple(layer.dilation_rate) != (1, 1) or layer.groups != 1:
            raise ExportError(
                f"{layer.name}: dilation {layer.dilation_rate} and {layer.groups} groups; 1 each is supported"
            )
        if layer.data_format != "channels_last":
            raise ExportError(f"{layer.name}: data_format {layer.data_format}; channels_last is supported")
        if float(getattr(layer, "pad_values", 0.0)) != 0.0:
            raise ExportError(f"{layer.name}: pad_values {layer.pad_values}; 0 is supported")
        shape = self.tensors[x].shape
        kernel, stride = tuple(layer.kernel_size), tuple(layer.strides)
        extra = self.padded.get(id(layer.input), (0, 0, 0, 0))
        padding = extra
        if layer.padding == "same":
            padded = (shape[0] + extra[0] + extra[1], shape[1] + extra[2] + extra[3])
            padding = tuple(a + b for a, b in zip(extra, same_padding(padded, kernel, stride)))  # type: ignore[assignment]
        elif layer.padding != "valid":
            raise ExportError(f"{layer.name}: padding {layer.padding}; same and valid are supported")
        fields = weighted(self._weights(layer))
        op = Conv(layer.name, (x,), layer.name, bias=self._bias(layer), stride=stride, padding=padding, **fields)
        return self._activation(layer, self._emit(op, layer.output_shape[1:]))

    def _dense(self, layer: Any, x: str) -> str:
        if len(self.tensors[x].shape) != 1:
            raise ExportError(f"{layer.name}: Dense on an image of {self.tensors[x].shape}; put a Flatten before it")
        op = Dense(layer.name, (x,), layer.name, bias=self._bias(layer), **weighted(self._weights(layer)))
        return self._activation(layer, self._emit(op, layer.output_shape[1:]))

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

    def _activation(self, layer: Any, x: str) -> str:
        """The ``activation=`` of a layer."""
        name = getattr(layer.activation, "__name__", str(layer.activation))
        if name == "relu":
            (op,) = [op for op in self.ops if op.output == x]
            return self._put(replace(op, relu=True))
        if name == "softmax":
            return self._softmax(layer, x)
        if name != "linear":
            raise ExportError(f"{layer.name}: activation {name}; relu, linear and a final softmax are supported")
        return x

    def _batch_norm(self, layer: Any, x: str) -> str:
        op = self._last(layer, x)
        if not isinstance(op, Weighted) or op.relu:
            found = op.kind if op else "a tensor that others read too"
            raise ExportError(f"{layer.name}: BatchNormalization after {found}; supported right after Conv2D or Dense")
        if list(np.atleast_1d(layer.axis)) not in ([-1], [len(self.tensors[x].shape)]):
            raise ExportError(f"{layer.name}: normalizes axis {layer.axis}; the last one is supported")
        mean, variance = layer.moving_mean.numpy().astype(np.float64), layer.moving_variance.numpy().astype(np.float64)
        gain = 1 / np.sqrt(variance + layer.epsilon)
        if layer.scale:
            gain = gain * layer.gamma.numpy()
        offset = -mean * gain + (layer.beta.numpy() if layer.center else 0)
        return self._put(affine(op, gain, offset))

    def _relu(self, layer: Any, x: str) -> str:
        if layer.max_value is not None or layer.negative_slope or layer.threshold:
            raise ExportError(f"{layer.name}: a plain ReLU is supported, without max_value, slope or threshold")
        return self._relu_after(layer, x)

    def _relu_after(self, layer: Any, x: str) -> str:
        op = self._last(layer, x)
        if isinstance(op, (Weighted, Add)):
            return self._put(replace(op, relu=True))
        return self._emit(Relu(layer.name, (x,), layer.name), self.tensors[x].shape)

    def _activation_layer(self, layer: Any, x: str) -> str:
        name = getattr(layer.activation, "__name__", str(layer.activation))
        if name == "relu":
            return self._relu_after(layer, x)
        if name == "softmax":
            return self._softmax(layer, x)
        if name == "linear":
            return x
        raise ExportError(f"{layer.name}: activation {name}; relu, linear and a final softmax are supported")

    def _softmax(self, layer: Any, x: str) -> str:
        if layer.output is not self.model.outputs[0]:
            raise ExportError(f"{layer.name}: a softmax inside the net; only a final one is supported")
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
    "Dropout": _Reader._nothing,
    "SpatialDropout2D": _Reader._nothing,
}
