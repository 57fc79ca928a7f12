"""A deploy graph as an ONNX file: one-bit weights in stock operations, so that plain onnxruntime runs it.

A binary filter is a row of octets in the bit order of :mod:`flipbit.export.pack`, its weights in ONNX's order
(channels, kernel height, kernel width). A table of 256 × 8 signs turns octets back into weights::

    octets (filters, n) ─► Cast ─► Gather from the table ─► Reshape (─► Slice ─► Reshape) ─► Mul by scale ─► Conv

All of it is constant, and onnxruntime folds it when it loads the file: what runs is what an unpacked file gives.

A quantized graph becomes the QDQ form: QuantizeLinear before, DequantizeLinear after each 8-bit tensor, which
onnxruntime fuses to QLinearConv, QGemm and so on. Scales are such that other tools compute with the device's
multipliers, not with the ones these were rounded from (docs/numerics.md): those of weights are
``multiplier / 2^shift · scale_out / scale_in``, and additions and averages read their inputs with scales that belong to
their multipliers likewise. ONNX rounds float32 half to even, flipbit integers half away from zero: scales are a little
larger, so that ties do not stay ties.

The 8 bits are uint8, the device's int8 + 128 with the zero point moved along: onnxruntime on x86-64 fuses int8
activations only where a tensor has one reader, which leaves residual nets in float. Weights that are not binary are
stored likewise, as uint8 with zero point 128: on CPUs without VNNI onnxruntime adds products of uint8 and int8 in pairs
of 16 bits that saturate (255 · 127 · 2 > 32,767), while products of uint8 and uint8 have 32. ±1 never saturates and
stays int8.

The file's input is ``image``, float32 (batch, height, width, channels) as the Keras model's, for either kind of graph,
and its output is float32. Inside, images are channels first. A tensor of the graph keeps its name in a file in real
numbers; in a quantized one its integers are ``<name>/uint8``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

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
    PadShortcut,
    Relu,
    Table,
    Weighted,
)
from flipbit.export.pack import pack
from flipbit.export.quantize import ratio_for_float
from flipbit.runtime.files import replacing

# What onnxruntime has read since 1.18. The newest onnx's own defaults are ahead of the newest onnxruntime.
OPSET, IR_VERSION = 21, 10
IMAGE = "image"
CHANNELS_FIRST, CHANNELS_LAST = (0, 3, 1, 2), (0, 2, 3, 1)

# Row b holds the weights of octet b: bit i, counted from the least significant, is weight i; 1 is +1 and 0 is −1.
SIGNS = (np.arange(256)[:, None] >> np.arange(8) & 1).astype(np.int8) * 2 - 1


def onnx_model(graph: Graph, packed: bool = True, input_formula: str | None = None) -> onnx.ModelProto:
    """The graph in ONNX: float for a graph in real numbers, QDQ for a quantized one.

    ``packed`` keeps binary weights at one bit each; otherwise they are float32, or int8 when quantized. The graph's
    labels and ``input_formula`` (how pixels become what the net takes) go into the file's metadata as ``labels``, a
    JSON list, and ``input``; ``output`` says where the outputs are values, not scores of classes.
    """
    graph.check()
    model = helper.make_model(
        _Writer(graph, packed).onnx_graph(),
        producer_name="flipbit",
        ir_version=IR_VERSION,
        opset_imports=[helper.make_opsetid("", OPSET)],
    )
    labels = json.dumps(graph.labels, ensure_ascii=False) if graph.labels else ""
    metadata = {"input": input_formula, "labels": labels, "output": "values" if graph.values else ""}
    helper.set_model_props(model, {key: text for key, text in metadata.items() if text})
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ExportError(f"the graph does not make a valid ONNX model: {error}") from None
    return model


def write_onnx(graph: Graph, path: str | Path, packed: bool = True, input_formula: str | None = None) -> None:
    """Write :func:`onnx_model` to ``path``, whole or not at all; the same graph gives the same bytes."""
    content = onnx_model(graph, packed, input_formula).SerializeToString(deterministic=True)
    with replacing(Path(path)) as temporary:
        temporary.write_bytes(content)


class _Writer:
    """Appends nodes operation by operation. Between :meth:`read` and :meth:`write` all is in real numbers."""

    def __init__(self, graph: Graph, packed: bool):
        self.graph, self.packed = graph, packed
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.taken = {IMAGE} if graph.quantized else {IMAGE, *graph.tensors}
        self.values: dict[str, str] = {}  # tensor of the graph → value that holds it: real numbers, or uint8
        self.steps: dict[str, list[str]] = {}  # tensor of the graph → its scale and zero point
        self.table = ""

    def onnx_graph(self) -> onnx.GraphProto:
        source, target = self.graph.tensors[self.graph.input], self.graph.tensors[self.graph.output]
        image = IMAGE
        if len(source.shape) == 3:
            image = self.node("Transpose", [IMAGE], f"{source.name}/Transpose", perm=CHANNELS_FIRST)
        self.write(source.name, image)
        for op in self.graph:
            emit = _OPERATIONS.get(type(op))
            if emit is None:
                known = ", ".join(kind.__name__ for kind in _OPERATIONS)
                raise ExportError(f"{op.name}: {op.kind} has no ONNX form here; supported are {known}")
            self.write(op.output, emit(self, op))
        result = self.read(target.name, target.name)
        if len(target.shape) == 3:
            result = self.node("Transpose", [result], f"{target.name}/channels_last", perm=CHANNELS_LAST)
        return helper.make_graph(
            self.nodes,
            "flipbit",
            [helper.make_tensor_value_info(IMAGE, TensorProto.FLOAT, ["batch", *source.shape])],
            [helper.make_tensor_value_info(result, TensorProto.FLOAT, ["batch", *target.shape])],
            self.constants,
        )

    # Nodes and constants

    def unused(self, name: str) -> str:
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def node(self, kind: str, inputs: list[str], name: str, **attributes: Any) -> str:
        """Append a node; it and its result get ``name``."""
        name = self.unused(name)
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def constant(self, name: str, value: Array | np.generic | list[int]) -> str:
        name = self.unused(name)
        self.constants.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
        return name

    # Tensors of the graph

    def read(self, tensor: str, name: str, scale: float | None = None) -> str:
        """A tensor in real numbers, called ``name``; ``scale`` takes the place of the tensor's own."""
        if not self.graph.quantized:
            return self.values[tensor]
        own, zero_point = self.steps[tensor]
        step = own if scale is None else self.constant(f"{name}/scale", np.float32(scale))
        return self.node("DequantizeLinear", [self.values[tensor], step, zero_point], name)

    def write(self, tensor: str, value: str) -> None:
        """``value``, the last node's result, becomes a tensor of the graph."""
        if self.graph.quantized:
            value = self.quantize(tensor, value, f"{tensor}/uint8")
        elif value != IMAGE:
            value = tensor if tensor != IMAGE else self.unused(IMAGE)
            self.nodes[-1].output[0] = value
        self.values[tensor] = value

    def quantize(self, tensor: str, value: str, name: str) -> str:
        return self.node("QuantizeLinear", [value, *self.step(tensor)], name)

    def step(self, tensor: str) -> list[str]:
        """The scale and zero point of a tensor of the graph."""
        if tensor not in self.steps:
            zero_point = self.graph.tensors[tensor].zero_point
            self.steps[tensor] = [
                self.constant(f"{tensor}/scale", np.float32(self.scale(tensor))),
                self.constant(f"{tensor}/zero_point", np.uint8(zero_point + 128)),
            ]
        return self.steps[tensor]

    def scale(self, tensor: str) -> float:
        scale = self.graph.tensors[tensor].scale
        if scale is None:
            raise ExportError(f"{tensor}: has no scale, but the graph's input has; quantize the whole graph")
        return scale

    # Weights

    def weights(self, op: Weighted) -> list[str]:
        """The operation's weights, filters first, and its biases: real numbers made from what the file keeps."""
        filters = op.weights
        if isinstance(op, (Conv, BitConv)):
            filters = filters.transpose(2, 0, 1, 3)  # (channels, height, width, filters)
        elif isinstance(op, DepthwiseConv):
            filters = filters[None]
        bits = self.bits(op, filters) if op.binary and self.packed else ""
        filters = np.moveaxis(filters, -1, 0)
        if self.graph.quantized:
            return self.integer_weights(op, bits, filters)
        scale = op.scale.astype(np.float32).reshape(-1, *[1] * (filters.ndim - 1))
        if bits:
            weights = self.node("Mul", [bits, self.constant(f"{op.name}/scale", scale)], f"{op.name}/weights")
        else:  # multiplied in float32, as Mul does: both files give the same numbers
            weights = self.constant(f"{op.name}/weights", filters.astype(np.float32) * scale)
        return [weights, self.constant(f"{op.name}/bias", op.bias.astype(np.float32))]

    def integer_weights(self, op: Weighted, bits: str, filters: Array) -> list[str]:
        """int8 weights and, in units of the accumulator, int32 biases without the input's zero point."""
        if op.requantize is None:
            raise ExportError(f"{op.name}: is in real numbers, but the graph's input is int8; quantize the whole graph")
        r, scale_in, scale_out = op.requantize, self.scale(op.inputs[0]), self.scale(op.output)
        step = (ratio_for_float(r.multiplier, r.shift) * scale_out / scale_in).astype(np.float32)
        sums = filters.reshape(len(filters), -1).sum(1, dtype=np.int64)
        bias = r.bias + self.graph.tensors[op.inputs[0]].zero_point * sums
        if np.abs(bias).max(initial=0) >= 2**31:
            raise ExportError(f"{op.name}: a bias is too large for int32; is a BatchNorm gain near zero?")
        if op.binary:
            values = bits or self.constant(f"{op.name}/int8", filters.astype(np.int8))
            zeros = np.zeros(len(step), np.int8)
        else:
            values = self.constant(f"{op.name}/uint8_weights", (filters.astype(np.int16) + 128).astype(np.uint8))
            zeros = np.full(len(step), 128, np.uint8)
        weights = [
            values,
            self.constant(f"{op.name}/step", step),
            self.constant(f"{op.name}/zeros", zeros),
        ]
        biases = [
            self.constant(f"{op.name}/int32", bias.astype(np.int32)),
            self.constant(f"{op.name}/bias_step", np.float32(scale_in) * step),
        ]
        return [
            self.node("DequantizeLinear", weights, f"{op.name}/weights", axis=0),
            self.node("DequantizeLinear", biases, f"{op.name}/bias", axis=0),
        ]

    def bits(self, op: Weighted, filters: Array) -> str:
        """±1 weights, filters first, int8 or float32, from octets; ``filters`` has them last, as packing does."""
        if not self.table:
            self.table = self.constant("signs", SIGNS)
            if not self.graph.quantized:  # a fourth of a float table in the file, and cast once for all layers
                self.table = self.node("Cast", [self.table], "signs/Cast", to=TensorProto.FLOAT)
        *shape, count = filters.shape
        octets = pack(filters, "taps").astype("<u2").view(np.uint8)
        rows = self.node("Cast", [self.constant(f"{op.name}/octets", octets)], f"{op.name}/rows", to=TensorProto.INT32)
        signs = self.node("Gather", [self.table, rows], f"{op.name}/signs", axis=0)
        size, padded = int(np.prod(shape)), 8 * octets.shape[1]
        if size != padded:  # the filter ends within its last word
            signs = self.reshape(signs, f"{op.name}/padded", [count, padded])
            part = [self.constant(f"{op.name}/{what}", [n]) for what, n in (("from", 0), ("to", size), ("axis", 1))]
            signs = self.node("Slice", [signs, *part], f"{op.name}/cut")
        return self.reshape(signs, f"{op.name}/filters", [count, *shape])

    def reshape(self, value: str, name: str, shape: list[int]) -> str:
        return self.node("Reshape", [value, self.constant(f"{name}/shape", shape)], name)

    # Each method below appends the nodes of one kind of operation and returns the last one's result.

    def conv(self, op: Conv | DepthwiseConv | BitConv) -> str:
        x = self.read(op.inputs[0], f"{op.name}/input")
        pads = _pads(op.padding)
        if isinstance(op, BitConv) and op.ones and any(pads):
            edges = self.constant(f"{op.name}/edges", [0, 0, *pads[:2], 0, 0, *pads[2:]])
            x = self.node("Pad", [x, edges, self.constant(f"{op.name}/one", np.float32(1))], f"{op.name}/Pad")
            pads = (0, 0, 0, 0)
        window: dict[str, Any] = {"kernel_shape": op.size, "strides": op.stride, "pads": pads}
        if isinstance(op, DepthwiseConv):
            window["group"] = op.channels
        y = self.relu_of(op, self.node("Conv", [x, *self.weights(op)], f"{op.name}/Conv", **window))
        if len(self.graph.tensors[op.output].shape) == 3:
            return y
        if self.graph.quantized:  # to fuse, it must be 8 bits before its shape changes
            octets = self.quantize(op.output, y, f"{op.name}/pixel_uint8")
            y = self.node("DequantizeLinear", [octets, *self.steps[op.output]], f"{op.name}/pixel")
        return self.node("Flatten", [y], f"{op.name}/Flatten")

    def binarize(self, op: Binarize) -> str:
        """±1 by a comparison per channel; of integers, with a bound halfway between two of them."""
        x, image = self.read(op.inputs[0], f"{op.name}/input"), self.graph.tensors[op.inputs[0]]
        above: Array = np.ones_like(op.gain)
        if self.graph.quantized:
            assert op.threshold is not None and op.inverted is not None and image.scale is not None
            bound = (op.threshold - 0.5 - image.zero_point) * image.scale
            above = np.where(op.inverted, -1.0, 1.0)
        else:
            bound = np.zeros_like(op.gain)
            if (op.gain != 1).any():
                x = self.node("Mul", [x, self.channels(f"{op.name}/gain", op.gain, image.shape)], f"{op.name}/Mul")
            if op.offset.any():
                x = self.node("Add", [x, self.channels(f"{op.name}/offset", op.offset, image.shape)], f"{op.name}/Add")
        compare = "Greater" if op.strict and not self.graph.quantized else "GreaterOrEqual"
        known = [self.channels(f"{op.name}/{what}", values, image.shape)
                 for what, values in (("bound", bound), ("above", above), ("below", -above))]  # fmt: skip
        condition = self.node(compare, [x, known[0]], f"{op.name}/{compare}")
        signs = self.node("Where", [condition, *known[1:]], f"{op.name}/Where")
        return signs if len(image.shape) == 3 else self.reshape(signs, f"{op.name}/image", [-1, *image.shape, 1, 1])

    def channels(self, name: str, values: Array, shape: tuple[int, ...]) -> str:
        """A number per channel of images, or of vectors."""
        return self.constant(name, values.astype(np.float32).reshape((-1, 1, 1) if len(shape) == 3 else (-1,)))

    def dense(self, op: Dense) -> str:
        x = self.read(op.inputs[0], f"{op.name}/input")
        return self.relu_of(op, self.node("Gemm", [x, *self.weights(op)], f"{op.name}/Gemm", transB=1))

    def add(self, op: Add) -> str:
        scales: list[float | None] = [None, None]
        if self.graph.quantized:
            scales = list(ratio_for_float(np.array(op.multipliers), op.shift, True) * self.scale(op.output))
        terms = [self.read(x, f"{op.name}/{side}", scale) for x, side, scale in zip(op.inputs, "ab", scales)]
        return self.relu_of(op, self.node("Add", terms, f"{op.name}/Add"))

    def relu_of(self, op: Weighted | Add, value: str) -> str:
        if not op.relu:
            return value
        if op.ceiling is None or self.graph.quantized:  # the largest uint8 clips
            return self.node("Relu", [value], f"{op.name}/Relu")
        return self.clip(value, op.name, 0.0, op.ceiling)

    def clip(self, value: str, name: str, low: float, high: float) -> str:
        ends = [self.constant(f"{name}/{what}", np.float32(end)) for what, end in (("low", low), ("high", high))]
        return self.node("Clip", [value, *ends], f"{name}/Clip")

    def look_up(self, op: Table) -> str:
        """A stock operation in real numbers; in integers, 256 results to choose from."""
        name = op.name
        if self.graph.quantized:
            assert op.table is not None
            results = (np.asarray(op.table).astype(np.int16) + 128).astype(np.uint8)
            index = self.node("Cast", [self.values[op.inputs[0]]], f"{name}/index", to=TensorProto.INT32)
            octets = self.node("Gather", [self.constant(f"{name}/table", results), index], f"{name}/Gather", axis=0)
            return self.node("DequantizeLinear", [octets, *self.step(op.output)], f"{name}/real")
        x = self.read(op.inputs[0], f"{name}/input")
        kind, numbers = op.function.name, op.function.parameters
        if kind == "clip":
            return self.clip(x, name, *numbers)
        if kind == "swish":
            return self.node("Mul", [x, self.node("Sigmoid", [x], f"{name}/Sigmoid")], f"{name}/Mul")
        stock: dict[str, tuple[str, tuple[str, ...]]] = {
            "leaky_relu": ("LeakyRelu", ("alpha",)),
            "elu": ("Elu", ("alpha",)),
            "hard_sigmoid": ("HardSigmoid", ("alpha", "beta")),
            "sigmoid": ("Sigmoid", ()),
            "tanh": ("Tanh", ()),
            "gelu": ("Gelu", ()),
            "gelu_tanh": ("Gelu", ()),
            "hard_swish": ("HardSwish", ()),
        }
        if kind not in stock:
            raise ExportError(f"{name}: {op.function} has no ONNX form here; supported are {', '.join(stock)}")
        word, names = stock[kind]
        attributes: dict[str, Any] = dict(zip(names, numbers))
        if kind == "gelu_tanh":
            attributes["approximate"] = "tanh"
        return self.node(word, [x], f"{name}/{word}", **attributes)

    def concat(self, op: Concat) -> str:
        scales: list[float | None] = [None, None]
        if self.graph.quantized:
            scales = list(ratio_for_float(np.array(op.multipliers), op.shift) * self.scale(op.output))
        parts = [self.read(x, f"{op.name}/{side}", scale) for x, side, scale in zip(op.inputs, "ab", scales)]
        return self.node("Concat", parts, f"{op.name}/Concat", axis=1)

    def relu(self, op: Relu) -> str:
        return self.node("Relu", [self.read(op.inputs[0], f"{op.name}/input")], f"{op.name}/Relu")

    def max_pool(self, op: MaxPool | BitPool) -> str:
        x = self.read(op.inputs[0], f"{op.name}/input")
        window = {"kernel_shape": op.size, "strides": op.stride, "pads": _pads(op.padding)}
        return self.node("MaxPool", [x], f"{op.name}/MaxPool", **window)

    def average_pool(self, op: AveragePool) -> str:
        scale = None
        if self.graph.quantized:
            ratio = float(ratio_for_float(op.multiplier, op.shift))
            scale = ratio * self.scale(op.output) * op.size[0] * op.size[1]
        x = self.read(op.inputs[0], f"{op.name}/input", scale)
        if len(self.graph.tensors[op.output].shape) == 3:
            window = {"kernel_shape": op.size, "strides": op.stride, "pads": _pads(op.padding)}
            return self.node("AveragePool", [x], f"{op.name}/AveragePool", **window)
        mean = self.node("GlobalAveragePool", [x], f"{op.name}/GlobalAveragePool")
        if self.graph.quantized:  # to fuse, it must be 8 bits before its shape changes
            octets = self.quantize(op.output, mean, f"{op.name}/mean_uint8")
            mean = self.node("DequantizeLinear", [octets, *self.steps[op.output]], f"{op.name}/mean")
        return self.node("Flatten", [mean], f"{op.name}/Flatten")

    def pad_shortcut(self, op: PadShortcut) -> str:
        x = self.read(op.inputs[0], f"{op.name}/input")
        part = {"from": [0, 0], "to": [2**31 - 1, 2**31 - 1], "axes": [2, 3], "steps": [op.stride, op.stride]}
        bounds = [self.constant(f"{op.name}/{what}", numbers) for what, numbers in part.items()]
        pixels = self.node("Slice", [x, *bounds], f"{op.name}/Slice")
        new = op.channels - self.graph.tensors[op.inputs[0]].shape[-1]
        return self.node("Pad", [pixels, self.constant(f"{op.name}/new", [0, 0, 0, 0, 0, new, 0, 0])], f"{op.name}/Pad")

    def flatten(self, op: Flatten) -> str:
        x = self.read(op.inputs[0], f"{op.name}/input")
        if len(self.graph.tensors[op.inputs[0]].shape) == 3:
            x = self.node("Transpose", [x], f"{op.name}/Transpose", perm=CHANNELS_LAST)
        return self.node("Flatten", [x], f"{op.name}/Flatten")


def _pads(padding: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    top, bottom, left, right = padding
    return top, left, bottom, right


_OPERATIONS: dict[type, Callable[..., str]] = {
    Conv: _Writer.conv,
    DepthwiseConv: _Writer.conv,
    BitConv: _Writer.conv,
    Binarize: _Writer.binarize,
    Dense: _Writer.dense,
    Add: _Writer.add,
    MaxPool: _Writer.max_pool,
    BitPool: _Writer.max_pool,
    AveragePool: _Writer.average_pool,
    PadShortcut: _Writer.pad_shortcut,
    Relu: _Writer.relu,
    Flatten: _Writer.flatten,
    Table: _Writer.look_up,
    Concat: _Writer.concat,
}
