"""Keras and Larq models to a deploy graph in real numbers.

BatchNorm is folded into the layer before or behind it (fuse.py): y = γ(x − μ)/√(σ² + ε) + β becomes one scale and one
offset per output channel. A binary filter ±s gives its s to that scale, and a negative scale is absorbed by inverting
the filter's bits. A BatchNorm before a sign (Larq's ``input_quantizer``) becomes its threshold. ReLU is fused into what
it follows, dropout vanishes, and a softmax at the end is dropped, as it does not change which class wins; a sigmoid of
one unit becomes two classes. A Rescaling at the input becomes part of the pixel formula. A sequence (length, channels)
is an image of height 1.

All that cannot be exported is said at once, layer by layer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flipbit.export.functions import Function
from flipbit.export.graph import (
    Add,
    Array,
    AveragePool,
    Binarize,
    BitConv,
    BitPool,
    Concat,
    Conv,
    Dense,
    DepthwiseConv,
    ExportError,
    Flatten,
    Graph,
    MaxPool,
    Op,
    PadShortcut,
    Reference,
    Relu,
    Table,
    Tensor,
    same_padding,
)
from flipbit.export.read.fuse import Affine, fuse
from flipbit.export.read.keras_calls import Call, calls_of, per_channel
from flipbit.export.read.keras_functions import LAYERS as ACTIVATIONS
from flipbit.export.read.keras_functions import LINEAR, RELU, SOFTMAX, function_of
from flipbit.runtime.image.inputs import as_text
from flipbit.runtime.image.pixels import Pixels

SUPPORTED = (
    "supported are Conv2D, DepthwiseConv2D, SeparableConv2D and Dense (Keras' or Larq's), BatchNormalization, ReLU, "
    "LeakyReLU, PReLU, ELU, Activation, MaxPooling2D, AveragePooling2D, GlobalAveragePooling2D, GlobalMaxPooling2D, "
    "all of these in 1-D, Add, Concatenate, PadShortcut, Flatten, Reshape of the input or to a vector, ZeroPadding "
    "before a convolution, Dropout, a final Softmax, "
    "Rescaling, Normalization, Larq's signs as input_quantizer"
)
# Input quantizers of Larq that differ in their gradients only, and what they give: −1 and 1, or 0 and 1.
SIGNS = {
    **dict.fromkeys(("SteSign", "ApproxSign", "SwishSign", "ste_sign", "approx_sign", "swish_sign"), "sign"),
    **dict.fromkeys(("SteHeaviside", "ste_heaviside"), "heaviside"),
}
# Layers that do nothing outside training.
AT_REST = (
    "Dropout SpatialDropout1D SpatialDropout2D GaussianNoise GaussianDropout AlphaDropout ActivityRegularization "
    "RandomBrightness RandomContrast RandomFlip RandomRotation RandomTranslation RandomZoom"
).split()
EPSILON = 1e-7  # of Keras' Normalization
OF_BITS = "of one-bit weights; 1 is supported, as zeros between them would take more than a bit"


@dataclass(frozen=True)
class _Refused(Op):
    """In the place of a layer that was refused, so that the rest can still be read."""


def from_keras(model: Any, labels: list[str] | None = None, values: bool = False) -> Graph:
    """The deploy graph of a Keras 2 model made of supported layers; raises :class:`ExportError` otherwise.

    ``values``: its outputs are values, so that one unit with a sigmoid is not two classes.
    """
    return _Reader(model, labels or [], values).graph()


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


def dilated(weights: Array, dilation: tuple[int, int]) -> Array | None:
    """Weights of a window with zeros between them: weights like others. None if they are of one bit, and none is 0."""
    height, width = weights.shape[:2]
    down, across = (d if n > 1 else 1 for d, n in zip(dilation, (height, width)))
    if (down, across) == (1, 1):
        return weights
    if weights.dtype == np.int8:
        return None
    wide = np.zeros(((height - 1) * down + 1, (width - 1) * across + 1, *weights.shape[2:]))
    wide[::down, ::across] = weights
    return wide


class _Reader:
    """Walks a Keras model layer by layer, in the order Keras runs them."""

    def __init__(self, model: Any, labels: list[str], values: bool):
        self.model, self.labels, self.values = model, labels, values
        self.ops: list[Op] = []
        self.tensors: dict[str, Tensor] = {}
        self.at: dict[int, str] = {}  # id of a Keras tensor → name of ours
        self.shapes: dict[int, tuple[int, ...]] = {}  # id of a Keras tensor → its shape, without the batch
        self.padded: dict[int, tuple[int, int, int, int]] = {}  # id of a Keras tensor → zeros its convolution adds
        self.input = "input"
        self.rescaling: Pixels | None = None
        self.pictures = {id(tensor) for tensor in model.inputs}  # Keras tensors that hold the input as it comes
        self.on_pictures = ""  # a layer that computes with them
        self.final = {id(tensor) for tensor in model.outputs}  # Keras tensors that are the model's result
        self.ends = ""
        self.complaints: list[str] = []
        self.unknown = False  # a layer of which there is nothing to say but what is supported
        self.two_classes = False  # made of one unit with a sigmoid
        self.reshaped: dict[str, tuple[int, ...]] = {}  # tensors that a Reshape gave another shape, in place

    def graph(self) -> Graph:
        model = self.model
        if len(model.inputs) != 1 or len(model.outputs) != 1:
            self.complaints.append(
                f"the model has {len(model.inputs)} inputs and {len(model.outputs)} outputs; one each is supported: "
                "join several outputs by a Concatenate (of vectors), and take the result apart behind the net; put "
                "several inputs into the channels of one"
            )
        names = {layer.name for layer in model.layers}
        while self.input in names:
            self.input += "_"
        for i, taken in enumerate(model.inputs):
            shape = tuple(taken.shape[1:])
            if len(shape) not in (1, 2, 3) or None in shape:
                raise ExportError(
                    f"the input has shape {shape}; expected a fixed (height, width, channels), (length, channels) "
                    "or (units,)"
                )
            name = f"{self.input}/{i}" if i else self.input
            self.tensors[name] = Tensor(name, _image(shape))
            self.at[id(taken)], self.shapes[id(taken)] = name, shape
        for call in calls_of(model):
            self._layer(call)
        if self.rescaling is not None and self.on_pictures:
            self.complaints.append(
                f"{self.on_pictures}: reads the input beside a Rescaling; all must read what that gives"
            )
        ops, output = self._fused(self.at[id(model.outputs[0])])
        tensors = {name: self.tensors[name] for name in (self.input, *(op.output for op in ops))}
        graph = Graph(self.input, output, ops, tensors, self.labels)
        graph.rescaling, graph.reference = self.rescaling, Reference("Keras", self._run, self.ends)
        graph.check()
        return graph

    def _run(self, images: Array) -> Array:
        """What Keras gives for images as the graph takes them."""
        if self.rescaling is not None:
            images = (images / self.rescaling.scale + self.rescaling.offset).astype(np.float32)
        images = images.reshape(len(images), *self.model.inputs[0].shape[1:])
        found = np.asarray(self.model(images, training=False))
        if self.two_classes:
            return np.concatenate([1 - found, found], axis=-1)
        return found.reshape(len(found), *_image(found.shape[1:]))

    def _fused(self, output: str) -> tuple[list[Op], str]:
        """The operations, fused; or all that was found to complain about."""
        try:
            ops, output = fuse(self.ops, output, self.tensors)
        except ExportError as error:
            self.complaints += str(error).split("\n")
        known = [SUPPORTED] if self.unknown else []  # said once
        if len(self.complaints) == 1:
            raise ExportError("; ".join([*self.complaints, *known]))
        if self.complaints:
            numbered = [f"({i}) {complaint}" for i, complaint in enumerate(self.complaints, 1)]
            said = "; ".join([*numbered, *known])
            raise ExportError(f"{len(self.complaints)} layers cannot be exported: {said}")
        return ops, output

    def _layer(self, layer: Call) -> None:
        inputs = [self.at[id(tensor)] for tensor in layer.inputs]
        for tensor in layer.outputs:  # of a model that is used twice
            self.padded.pop(id(tensor), None)
        layer.settle_shapes(self.shapes)
        try:
            if layer.kind in ("Sequential", "Functional", "Model"):
                self._model_inside(layer, *inputs)
                return
            result = self._read(layer, *inputs)
        except ExportError as error:
            self.complaints.append(str(error))
            result = self._emit(_Refused(layer.name, tuple(inputs), layer.name), layer.output_shape[1:])
        self.at.update((id(tensor), result) for tensor in layer.outputs)
        if any(id(tensor) in self.pictures for tensor in layer.inputs) and layer.kind != "Rescaling":
            if result == self.input:  # a Dropout and the like, which hands it on
                self.pictures.add(id(layer.output))
            else:
                self.on_pictures = layer.name

    def _read(self, layer: Call, *inputs: str) -> str:
        kind = layer.kind
        read = _LAYERS.get(kind)
        if read is None:
            from flipbit.train.nets.model_file import INSTEAD

            self.unknown = self.unknown or kind not in INSTEAD
            why = f"; {INSTEAD[kind]}" if kind in INSTEAD else ""
            raise ExportError(f"{layer.name}: {kind} is not supported{why}")
        for tensor, x in zip(layer.inputs, inputs):
            if x in self.reshaped and _image(self.shapes[id(tensor)]) != self.reshaped[x]:
                raise ExportError(f"{layer.name}: reads {x} beside a Reshape of it; only one of them is supported")
        data_format = getattr(layer, "data_format", "channels_last")
        if data_format != "channels_last":
            raise ExportError(f"{layer.name}: data_format {data_format}; channels_last is supported")
        padded = any(id(tensor) in self.padded for tensor in layer.inputs)
        if padded and "Conv" not in kind and not ("MaxPooling" in kind and self._no_less_than_zero(inputs[0])):
            raise ExportError(
                f"{layer.name}: ZeroPadding before {kind} is not supported, only before a convolution, and before a "
                "MaxPooling of what a ReLU gave"
            )
        return read(self, layer, *inputs)

    def _model_inside(self, call: Call, *inputs: str) -> None:
        """A model that stands for a layer: its own layers, one by one."""
        model = call.layer
        if len(model.inputs) != 1 or len(model.outputs) != 1 or len(inputs) != 1:
            raise ExportError(f"{model.name}: a model inside the model; with one input and one output it is supported")
        given, taken, result = call.input, model.inputs[0], call.output
        if id(given) in self.pictures:
            self.pictures.add(id(taken))
        self.padded.pop(id(taken), None)
        if id(given) in self.padded:
            self.padded[id(taken)] = self.padded[id(given)]
        if id(result) in self.final:
            self.final.add(id(model.outputs[0]))
        self.at[id(taken)], self.shapes[id(taken)] = inputs[0], self.shapes[id(given)]
        for inner in calls_of(model):
            self._layer(inner)
        self.at[id(result)] = self.at[id(model.outputs[0])]
        self.shapes[id(result)] = self.shapes[id(model.outputs[0])]
        if id(model.outputs[0]) in self.padded:
            self.padded[id(result)] = self.padded[id(model.outputs[0])]

    # Each method below reads one kind of layer and returns the name of the tensor that holds its result.

    def _emit(self, op: Op, shape: tuple[int, ...]) -> str:
        while op.output in self.tensors:  # models in one another may use a name each
            op = replace(op, name=f"{op.name}_", output=f"{op.output}_")
        self.ops.append(op)
        self.tensors[op.output] = Tensor(op.output, _image(shape))
        return op.output

    def _conv(self, layer: Call, x: str) -> str:
        channels, groups = self.tensors[x].shape[-1], layer.groups
        kernel = _pair(layer, self._weights(layer, "kernel"))
        if groups not in (1, channels) or (groups > 1 and kernel.shape[-1] != groups):
            raise ExportError(
                f"{layer.name}: {groups} groups for {channels} channels and {kernel.shape[-1]} filters; supported "
                "are 1, and one filter per channel"
            )
        signs = self._signs(layer, x) if groups == 1 else ""
        window = self._window(layer, kernel.shape[:2], x, bool(signs))
        if signs:
            return self._bit_conv(layer, signs, kernel, ones=self._pads_ones(layer, signs, window), **window)
        if groups > 1:
            return self._weighted(DepthwiseConv, layer, x, kernel[:, :, 0], **window)
        return self._weighted(Conv, layer, x, kernel, **window)

    def _depthwise(self, layer: Call, x: str) -> str:
        if self.tensors[x].shape[-1] == 1 and layer.depth_multiplier > 1:  # several filters for one channel
            kernel = _pair(layer, self._weights(layer, "depthwise"))
            return self._weighted(Conv, layer, x, kernel, **self._window(layer, kernel.shape[:2], x))
        kernel = self._of_each_channel(layer)
        return self._weighted(DepthwiseConv, layer, x, kernel, **self._window(layer, kernel.shape[:2], x))

    def _separable(self, layer: Call, x: str) -> str:
        """A depthwise convolution, and a 1×1 convolution of its result."""
        kernel = self._of_each_channel(layer)
        points = _pair(layer, self._weights(layer, "pointwise"))
        fields = {**weighted(kernel), "bias": np.zeros(kernel.shape[-1])}
        name = f"{layer.name}/depthwise"
        window = self._window(layer, kernel.shape[:2], x)
        op = DepthwiseConv(name, (x,), name, **{**fields, **self._dilated(layer, fields["weights"]), **window})
        between = self._emit(op, (*_image(layer.output_shape[1:])[:2], kernel.shape[-1]))
        return self._weighted(Conv, layer, between, points)

    def _no_less_than_zero(self, x: str) -> bool:
        """Whether no value of a tensor is below 0, by the operation that writes it."""
        op = self._writer(x)
        if isinstance(op, (MaxPool, AveragePool)):
            return self._no_less_than_zero(op.inputs[0])
        clipped = isinstance(op, Table) and op.function.name == "clip" and op.function.parameters[0] >= 0
        return clipped or isinstance(op, Relu) or (isinstance(op, (Conv, DepthwiseConv)) and op.relu)

    def _of_each_channel(self, layer: Any) -> Array:
        """The weights of a depthwise convolution, (height, width, channels)."""
        kernel = _pair(layer, self._weights(layer, "depthwise"))
        if kernel.shape[-1] != 1:
            raise ExportError(
                f"{layer.name}: depth_multiplier {kernel.shape[-1]}; 1 is supported: put a 1×1 convolution before it "
                "that makes as many channels"
            )
        return kernel[..., 0]

    def _window(self, layer: Any, kernel: tuple[int, ...], x: str, signs: bool = False) -> dict[str, Any]:
        """Stride and padding of a convolution."""
        pad_value = float(getattr(layer, "pad_values", 0.0))
        if pad_value not in ((0.0, 1.0) if signs else (0.0,)):
            raise ExportError(f"{layer.name}: pad_values {pad_value:g}; 0 is supported, and 1 where signs are read")
        shape, stride, dilation = self.tensors[x].shape, _two(layer, layer.strides), _two(layer, layer.dilation_rate)
        reach = ((kernel[0] - 1) * dilation[0] + 1, (kernel[1] - 1) * dilation[1] + 1)
        extra = self.padded.get(id(layer.input), (0, 0, 0, 0))
        padding = extra
        if layer.padding == "same":
            padded = (shape[0] + extra[0] + extra[1], shape[1] + extra[2] + extra[3])
            top, bottom, left, right = (a + b for a, b in zip(extra, same_padding(padded, reach, stride)))
            padding = (top, bottom, left, right)
        elif layer.padding == "causal":  # of Conv1D: a result sees nothing that comes later
            padding = (extra[0], extra[1], extra[2] + reach[1] - 1, extra[3])
        elif layer.padding != "valid":
            raise ExportError(f"{layer.name}: padding {layer.padding}; same, valid and causal are supported")
        return {"stride": stride, "padding": padding}

    def _pads_ones(self, layer: Call, signs: str, window: dict[str, Any]) -> bool:
        """Whether a convolution of signs is padded with +1, not with 0.

        Zeros that a ZeroPadding2D adds before the sign have a sign: +1. Those of the layer are added behind it.
        """
        pad_value, extra = bool(getattr(layer, "pad_values", 0.0)), self.padded.get(id(layer.input), (0, 0, 0, 0))
        if not any(extra):
            return pad_value and any(window["padding"])
        before = getattr(layer, "input_quantizer", None) is not None
        if before and self._binarize_of(signs).strict:
            raise ExportError(f"{layer.name}: ZeroPadding2D before ste_heaviside is not supported; use ste_sign")
        if window["padding"] != extra and before != pad_value:
            raise ExportError(
                f"{layer.name}: ZeroPadding2D and padding='same' pad with different signs; use one of them"
            )
        return before

    def _signs(self, layer: Call, x: str) -> str:
        """The tensor of signs that a layer reads, by its input quantizer or by a quantizer before it; "" if none."""
        quantizer = getattr(layer, "input_quantizer", None)
        if quantizer is None:
            return self._image_of_signs(x)
        return self._sign(quantizer, f"{layer.name}_sign", layer.name, x)

    def _image_of_signs(self, x: str) -> str:
        """A tensor of signs that ``x`` is, or that was flattened to it; "" if none."""
        writer = self._writer(x)
        if isinstance(writer, Flatten):
            x, writer = writer.inputs[0], self._writer(writer.inputs[0])
        return x if isinstance(writer, (Binarize, BitPool)) else ""

    def _binarize_of(self, signs: str) -> Binarize:
        """What made the signs, before any pooling of them."""
        op = self._writer(signs)
        while isinstance(op, BitPool):
            op = self._writer(op.inputs[0])
        assert isinstance(op, Binarize)
        return op

    def _sign(self, quantizer: Any, name: str, where: str, x: str) -> str:
        kind = getattr(quantizer, "__name__", None) or type(quantizer).__name__
        if kind not in SIGNS:
            raise ExportError(f"{where}: input_quantizer {kind}; supported are {', '.join(SIGNS)}")
        strict = SIGNS[kind] == "heaviside"
        known = self._image_of_signs(x)
        if known and strict == self._binarize_of(known).strict:
            return known  # a sign is its own sign
        shape = self.tensors[x].shape
        before = self._writer(x)
        if isinstance(before, Flatten):  # signs of the image: the dense layer becomes a convolution over all of it
            x, shape = before.inputs[0], self.tensors[before.inputs[0]].shape
        gain, offset = np.ones(shape[-1]), np.zeros(shape[-1])
        op = Binarize(name, (x,), name, gain=gain, offset=offset, strict=strict)
        return self._emit(op, shape if len(shape) == 3 else (1, 1, *shape))

    def _sign_layer(self, layer: Call, x: str) -> str:
        return self._sign(layer.layer, layer.name, layer.name, x)

    def _bit_conv(self, layer: Call, signs: str, weights: Array, ones: bool = False, **window: Any) -> str:
        if binary_filters(weights) is None:
            raise ExportError(
                f"{layer.name}: reads signs, but its weights are not binary; give it kernel_quantizer='ste_sign'"
            )
        source, at = self._binarize_of(signs), len(self.ops)
        result = self._weighted(BitConv, layer, signs, weights, **(window and {"ones": ones, **window}))
        op = self.ops[at]
        assert isinstance(op, BitConv)
        if source.strict:  # 0 and 1 instead of −1 and 1: h = (s + 1) / 2
            if any(op.padding) and not ones:
                raise ExportError(
                    f"{layer.name}: ste_heaviside with padding of 0, which devices do not have beside it; use "
                    "padding='valid', pad_values=1 or ste_sign"
                )
            sums = op.weights.reshape(-1, op.channels).sum(0, dtype=np.int64)
            self.ops[at] = replace(op, scale=op.scale / 2, bias=op.bias + op.scale * sums / 2)
        return result

    def _writer(self, tensor: str) -> Op | None:
        return next((op for op in self.ops if op.output == tensor), None)

    def _dense(self, layer: Call, x: str) -> str:
        weights = self._weights(layer, "kernel")
        if len(self.tensors[x].shape) != 1:  # the same for each pixel: a 1×1 convolution
            if getattr(layer, "input_quantizer", None) is not None:
                raise ExportError(f"{layer.name}: QuantDense on an image of {self.tensors[x].shape}; use QuantConv2D")
            return self._weighted(Conv, layer, x, weights[None, None])
        signs = self._signs(layer, x)
        if not signs:
            return self._weighted(Dense, layer, x, weights)
        height, width, channels = self.tensors[signs].shape
        if max(height, width) > 255:
            raise ExportError(f"{layer.name}: signs of an image of {height}×{width}; a side is at most 255")
        return self._bit_conv(layer, signs, weights.reshape(height, width, channels, -1))

    def _two_classes(self, x: str, name: str) -> str:
        """One unit with a sigmoid: how likely the second of two classes is. Softmax of −y/2 and y/2 says the same."""
        self.two_classes, self.ends = True, SOFTMAX
        last = self.ops[-1]
        if not isinstance(last, Dense) or last.output != x or last.relu:
            half, none = np.full(2, 0.5), np.zeros(2)
            return self._emit(Dense(name, (x,), name, weights=np.array([[-1.0, 1.0]]), scale=half, bias=none), (2,))
        weights = np.concatenate([-last.weights, last.weights], axis=-1)
        scale, bias = np.repeat(last.scale, 2) / 2, np.concatenate([-last.bias, last.bias]) / 2
        self.ops[-1] = replace(last, weights=weights, scale=scale, bias=bias)
        self.tensors[x] = Tensor(x, (2,))
        return x

    def _weighted(
        self, kind: type[Conv | DepthwiseConv | Dense | BitConv], layer: Call, x: str, weights: Array, **window: Any
    ) -> str:
        """A layer with weights, and its ``activation=`` behind it."""
        function = function_of(layer.activation, layer.name)
        fields = {**weighted(weights), "bias": self._bias(layer), "relu": function == RELU, **window}
        if window:
            fields.update(self._dilated(layer, fields["weights"]))
        result = self._emit(kind(layer.name, (x,), layer.name, **fields), layer.output_shape[1:])
        return self._activated(layer, result, function if function != RELU else LINEAR, f"{layer.name}/activation")

    @staticmethod
    def _dilated(layer: Any, weights: Array) -> dict[str, Array]:
        """Weights with zeros between them, if the layer is dilated: weights like others, but not of one bit."""
        wide = dilated(weights, _two(layer, layer.dilation_rate))
        if wide is None:
            raise ExportError(f"{layer.name}: dilation {layer.dilation_rate} {OF_BITS}")
        return {"weights": wide}

    def _weights(self, layer: Any, which: str) -> Array:
        """Weights as the layer uses them: ``kernel``, ``depthwise`` or ``pointwise``."""
        if which != "kernel" and getattr(layer, "input_quantizer", None) is not None:
            raise ExportError(f"{layer.name}: a depthwise convolution of signs (input_quantizer); of int8 is supported")
        variable = getattr(layer, "kernel" if which == "kernel" else f"{which}_kernel")
        kernel = variable.read_value()
        if not np.isfinite(kernel.numpy()).all():
            raise ExportError(f"{layer.name}: its weights hold NaN or infinity; train it again, or lower --lr")
        quantizer = getattr(layer, f"{which}_quantizer", None)
        return np.asarray(quantizer(kernel) if quantizer is not None else kernel)

    @staticmethod
    def _bias(layer: Any) -> Array:
        units = layer.output_shape[-1]
        return layer.bias.numpy().astype(np.float64) if layer.use_bias else np.zeros(units)

    def _activation(self, layer: Call, x: str) -> str:
        function = function_of(layer.layer, layer.name)
        if function == SOFTMAX and getattr(layer, "axis", -1) not in (-1, len(layer.output_shape) - 1):
            raise ExportError(f"{layer.name}: a softmax over axis {layer.axis}; over the last one is supported")
        return self._activated(layer, x, function, layer.name)

    def _activated(self, layer: Call, x: str, function: Function | str, name: str) -> str:
        """``x`` behind an activation; a final softmax is dropped."""
        if function == LINEAR:
            return x
        if function == SOFTMAX:
            if id(layer.output) not in self.final:
                raise ExportError(f"{layer.name}: a softmax inside the net; only a final one is supported")
            self.ends = SOFTMAX
            return x
        one = id(layer.output) in self.final and self.tensors[x].shape == (1,) and not self.values
        if one and function == Function("sigmoid"):
            return self._two_classes(x, name)
        if isinstance(function, Function):
            return self._emit(Table(name, (x,), name, function), self.tensors[x].shape)
        return self._emit(Relu(name, (x,), name), self.tensors[x].shape)

    def _batch_norm(self, layer: Call, x: str) -> str:
        if list(np.atleast_1d(layer.axis)) not in ([-1], [len(layer.output_shape) - 1]):
            raise ExportError(f"{layer.name}: normalizes axis {layer.axis}; the last one is supported")
        mean, variance = layer.moving_mean.numpy().astype(np.float64), layer.moving_variance.numpy().astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):  # refused later, by layer
            gain = 1 / np.sqrt(variance + layer.epsilon)
        if layer.scale:
            gain = gain * layer.gamma.numpy()
        offset = -mean * gain + (layer.beta.numpy() if layer.center else 0)
        return self._emit(Affine(layer.name, (x,), layer.name, gain, offset), self.tensors[x].shape)

    def _rescaling(self, layer: Call, x: str) -> str:
        """y = scale · x + offset. Of the input itself, how pixels become what the graph takes; else as a BatchNorm."""
        scale, offset = np.asarray(layer.scale, np.float64), np.asarray(layer.offset, np.float64)
        if not (np.isfinite(scale).all() and np.isfinite(offset).all() and scale.all()):
            raise ExportError(f"{layer.name}: rescales by {scale} and {offset}; expected finite numbers, no scale of 0")
        pictures = id(layer.input) in self.pictures
        if pictures and self.rescaling not in (None, Pixels(0.0, 1.0)):
            raise ExportError(f"{layer.name}: reads the input beside another Rescaling; all must read what that gives")
        alone = pictures and self.rescaling is None
        if not alone or np.unique(scale).size != 1 or np.unique(offset).size != 1:
            if alone:
                self.rescaling = Pixels(0.0, 1.0)  # a net that rescales takes pixels as they are
            return self._norm(layer, x, scale, offset)
        factor, added = float(scale.flat[0]), float(offset.flat[0])
        self.rescaling = Pixels(-added / factor + 0.0, factor)
        return x

    def _normalization(self, layer: Call, x: str) -> str:
        """(x − mean) / deviation of features; ``invert`` is the way back."""
        mean, variance = np.asarray(layer.mean, np.float64), np.asarray(layer.variance, np.float64)
        deviation = np.maximum(np.sqrt(variance), EPSILON)
        if layer.invert:
            return self._norm(layer, x, deviation, mean)
        return self._norm(layer, x, 1 / deviation, -mean / deviation)

    def _norm(self, layer: Call, x: str, gain: Array, offset: Array) -> str:
        channels = self.tensors[x].shape[-1]
        gains, offsets = per_channel(gain, channels), per_channel(offset, channels)
        if gains is None or offsets is None:
            raise ExportError(
                f"{layer.name}: {layer.kind} by numbers of shape {as_text(gain.shape)}; one for all is supported, or "
                f"one per channel of the last axis ({channels})"
            )
        return self._emit(Affine(layer.name, (x,), layer.name, gains, offsets), self.tensors[x].shape)

    def _pool(self, kind: type[MaxPool | BitPool | AveragePool], layer: Call, x: str) -> str:
        size, stride = _two(layer, layer.pool_size), _two(layer, layer.strides)
        padding = extra = self.padded.get(id(layer.input), (0, 0, 0, 0))
        if layer.padding == "same":
            height, width, _ = self.tensors[x].shape
            padding = same_padding((height, width), size, stride)
        if any(extra) and (layer.padding == "same" or max(extra[:2]) >= size[0] or max(extra[2:]) >= size[1]):
            raise ExportError(f"{layer.name}: ZeroPadding and pooling with padding='same', or by more than a window")
        op = kind(layer.name, (x,), layer.name, size=size, stride=stride, padding=padding)
        return self._emit(op, layer.output_shape[1:])

    def _max_pool(self, layer: Call, x: str) -> str:
        return self._pool(self._largest(x), layer, x)

    def _largest(self, x: str) -> type[MaxPool | BitPool]:
        """The pooling of what a tensor holds, int8 or signs."""
        return BitPool if self._image_of_signs(x) else MaxPool

    def _average_pool(self, layer: Call, x: str) -> str:
        return self._pool(AveragePool, layer, x)

    def _global_average(self, layer: Call, x: str) -> str:
        size = self.tensors[x].shape[:2]
        shape = self._one_pixel(layer, x) if getattr(layer, "keepdims", False) else layer.output_shape[1:]
        op = AveragePool(layer.name, (x,), layer.name, size=(size[0], size[1]), stride=(size[0], size[1]))
        return self._emit(op, shape)

    def _global_max(self, layer: Call, x: str) -> str:
        size, name = self.tensors[x].shape[:2], f"{layer.name}/pixel"
        keep = getattr(layer, "keepdims", False)
        name = layer.name if keep else name
        op = self._largest(x)(name, (x,), name, size=(size[0], size[1]), stride=(size[0], size[1]))
        pixel = self._emit(op, self._one_pixel(layer, x))
        return pixel if keep else self._emit(Flatten(layer.name, (pixel,), layer.name), layer.output_shape[1:])

    def _one_pixel(self, layer: Call, x: str) -> tuple[int, ...]:
        return (1, 1, self.tensors[x].shape[-1])

    def _add(self, layer: Call, *xs: str) -> str:
        if len({self.tensors[x].shape for x in xs}) != 1:
            shapes = ", ".join(str(self.tensors[x].shape) for x in xs)
            raise ExportError(f"{layer.name}: adds {shapes}; tensors of one shape are supported")
        return self._chain(Add, layer, *xs)

    def _concatenate(self, layer: Call, *xs: str) -> str:
        if layer.axis not in (-1, len(layer.output_shape) - 1):
            raise ExportError(
                f"{layer.name}: concatenates along axis {layer.axis}; the last one, channels, is supported"
            )
        return self._chain(Concat, layer, *xs)

    def _chain(self, kind: type[Add | Concat], layer: Call, *xs: str) -> str:
        """Two at a time."""
        done = xs[0]
        for i, x in enumerate(xs[1:], 1):
            name = layer.name if i == len(xs) - 1 else f"{layer.name}/{i}"
            shape = self.tensors[done].shape
            if kind is Concat:
                shape = (*shape[:-1], shape[-1] + self.tensors[x].shape[-1])
            done = self._emit(kind(name, (done, x), name), shape)
        return done

    def _pad_shortcut(self, layer: Call, x: str) -> str:
        op = PadShortcut(layer.name, (x,), layer.name, stride=layer.stride, channels=layer.filters)
        return self._emit(op, layer.output_shape[1:])

    def _zero_padding(self, layer: Call, x: str) -> str:
        edges = layer.padding if isinstance(layer.padding[0], tuple) else ((0, 0), layer.padding)
        (top, bottom), (left, right) = edges
        if id(layer.output) in self.final:
            raise ExportError(f"{layer.name}: a ZeroPadding that no convolution follows is not supported")
        # The padding becomes the convolution's own; its input stays the unpadded tensor.
        self.padded[id(layer.output)] = (top, bottom, left, right)
        return x

    def _reshape(self, layer: Call, x: str) -> str:
        """A Reshape that moves no value on a device: to a vector, of the input, of 1×1 pixels."""
        here, wanted = self.tensors[x].shape, _image(layer.output_shape[1:])
        if wanted == here:
            return x
        if len(wanted) == 1:
            return self._flatten(layer, x)
        alone = x not in self.reshaped and not any(x in op.inputs for op in self.ops)
        if alone and x == self.input and len(wanted) == 3:
            return self._with_shape(x, wanted)
        if alone and len(here) == 1 and wanted == (1, 1, *here):
            writer = self._writer(x)
            if isinstance(writer, AveragePool):
                return self._with_shape(x, wanted)
            if isinstance(writer, Flatten) and self.tensors[writer.inputs[0]].shape == wanted:
                self.ops.remove(writer)
                self.reshaped[x] = wanted
                return writer.inputs[0]
        last = id(layer.output) in self.final
        at_the_end = "; leave it out, and give the result its shape behind the net" if last else ""
        sizes = " to ".join("×".join(map(str, shape)) for shape in (layer.input_shape[1:], layer.output_shape[1:]))
        raise ExportError(
            f"{layer.name}: a Reshape of {sizes} is not supported; a Reshape of the input is, one to a vector, and one "
            f"of what global pooling gives to 1×1 pixels{at_the_end}"
        )

    def _with_shape(self, x: str, shape: tuple[int, ...]) -> str:
        self.tensors[x] = Tensor(x, shape)
        self.reshaped[x] = shape
        return x

    def _flatten(self, layer: Call, x: str) -> str:
        if len(self.tensors[x].shape) == 1:
            return x
        here = self.tensors[x].shape
        if x == self.input and here[0] == 1 and x not in self.reshaped and not any(x in op.inputs for op in self.ops):
            self._with_shape(x, (*here[1:], 1))  # rows of a grey picture, not a sequence
        return self._emit(Flatten(layer.name, (x,), layer.name), layer.output_shape[1:])

    def _nothing(self, layer: Call, x: str) -> str:
        return x


def _image(shape: Any) -> tuple[int, ...]:
    """A shape as the graph has it: a sequence (length, channels) is an image of height 1."""
    sizes = tuple(int(n) for n in shape)
    return (1, *sizes) if len(sizes) == 2 else sizes


def _two(layer: Call, sizes: Any) -> tuple[int, int]:
    """Down and across, of a layer of two dimensions or one."""
    given = tuple(int(n) for n in np.atleast_1d(sizes))
    if _sequence(layer):
        return 1, given[-1]
    return (given[0], given[0]) if len(given) == 1 else (given[0], given[1])


def _pair(layer: Call, kernel: Array) -> Array:
    """Weights with a height, which those of one dimension lack."""
    return kernel[None] if _sequence(layer) else kernel


def _sequence(layer: Call) -> bool:
    return "1D" in layer.kind


_LAYERS: dict[str, Callable[..., str]] = {
    **dict.fromkeys(("Conv2D", "QuantConv2D", "Conv1D", "QuantConv1D"), _Reader._conv),
    **dict.fromkeys(("DepthwiseConv2D", "QuantDepthwiseConv2D", "DepthwiseConv1D"), _Reader._depthwise),
    **dict.fromkeys(
        ("SeparableConv2D", "QuantSeparableConv2D", "SeparableConv1D", "QuantSeparableConv1D"), _Reader._separable
    ),
    **dict.fromkeys(("Dense", "QuantDense"), _Reader._dense),
    "BatchNormalization": _Reader._batch_norm,
    **dict.fromkeys(ACTIVATIONS, _Reader._activation),
    **dict.fromkeys(("MaxPooling2D", "MaxPooling1D"), _Reader._max_pool),
    **dict.fromkeys(("AveragePooling2D", "AveragePooling1D"), _Reader._average_pool),
    **dict.fromkeys(("GlobalAveragePooling2D", "GlobalAveragePooling1D"), _Reader._global_average),
    **dict.fromkeys(("GlobalMaxPooling2D", "GlobalMaxPooling1D"), _Reader._global_max),
    "Add": _Reader._add,
    "Concatenate": _Reader._concatenate,
    "PadShortcut": _Reader._pad_shortcut,
    **dict.fromkeys(("ZeroPadding2D", "ZeroPadding1D"), _Reader._zero_padding),
    "Flatten": _Reader._flatten,
    "Reshape": _Reader._reshape,
    "Rescaling": _Reader._rescaling,
    "Normalization": _Reader._normalization,
    **dict.fromkeys(("SteSign", "ApproxSign", "SwishSign", "SteHeaviside"), _Reader._sign_layer),
    **dict.fromkeys(AT_REST, _Reader._nothing),
}
