"""Deploy graph to a TFLite file that stock LiteRT, tflite-runtime and TensorFlow Lite Micro run: builtin ops only.

The flatbuffer is written directly, without TensorFlow and its converter. Tensors carry the names they have in the
graph. Images are NHWC; the batch is 1 and may be resized (``resize_tensor_input``).

Input and output
----------------
A graph in real numbers takes and gives float32. A quantized one takes and gives int8, as microcontrollers expect:
feed ``round(x / scale) + zero_point`` with the numbers of ``get_input_details()[0]["quantization"]``; for nets
trained with ``--input fixed`` that is ``pixel − 128``. Results are logits; the largest one wins either way.

Packed weights
--------------
Stock kernels know no one-bit filters, so that stock operations unpack them on each run::

    bits (uint8) ─► CAST ─► GATHER (256 × 8 table) ─► [SLICE] ─► RESHAPE ─► [MUL by scale: float] ─► CONV_2D

A bit is 1 for +1; bits fill bytes from the least significant one up, filter after filter, each in the order height,
width, channels; the last byte is filled up with zeros (and SLICE cuts them off again). Delegates such as XNNPACK take
constant filters only: :func:`flipbit.export.load_tflite` makes them constant again when it loads a file.

Integers
--------
Weight scales are ``multiplier / 2^shift · scale_out / scale_in / MAGNITUDE``, so that TFLite computes with flipbit's
multipliers. Binary weights are stored as ±MAGNITUDE and not as ±1: TFLite's reference kernels round twice, first the
product to a whole number and then that by a shift, and with accumulators 64 times as large the first rounding hardly
ever changes the second (values one step off, resnet8's first layer: 5.4 % with ±1, 0.1 % with ±64). A power of two
keeps the scale exact.

A dense layer in integers is a 1×1 CONV_2D, as FULLY_CONNECTED with a scale per unit is newer than tflite-runtime.
Average pooling is a DEPTHWISE_CONV_2D with equal weights (packed like others): AVERAGE_POOL_2D cannot change the scale,
and MEAN rounds twice from small sums, which put 5 to 17 % of the averages one step off on LiteRT's reference kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from flipbit.export import oracle
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
    Relu,
    Table,
    Tensor,
    Weighted,
    same_padding,
)
from flipbit.export.quantize import ratio_for_float
from flipbit.runtime.files import replacing

MAGNITUDE = 64  # of binary int8 weights; less where int32 would not hold the accumulator
INT32 = 2**31 - 1
IDENTIFIER = b"TFL3"

OP, TYPE = schema.BuiltinOperator, schema.TensorType
ACTIVATION = schema.ActivationFunctionType
NONE, RELU = ACTIVATION.NONE, ACTIVATION.RELU
SAME, VALID = schema.Padding.SAME, schema.Padding.VALID
TYPES = {"float32": TYPE.FLOAT32, "int32": TYPE.INT32, "uint8": TYPE.UINT8, "int8": TYPE.INT8}

# The lowest version of an operation that has what is used of it: (float32, int8). All are known to tflite-runtime 2.14.
VERSIONS = {
    OP.ADD: (1, 2),
    OP.AVERAGE_POOL_2D: (1, 2),
    OP.CAST: (1, 1),
    OP.CONCATENATION: (1, 2),
    OP.CONV_2D: (1, 3),
    OP.DEPTHWISE_CONV_2D: (1, 3),
    OP.ELU: (1, 1),
    OP.FULLY_CONNECTED: (1, 4),
    OP.GATHER: (1, 2),
    OP.GELU: (1, 1),
    OP.HARD_SWISH: (1, 1),
    OP.LEAKY_RELU: (1, 1),
    OP.LOGISTIC: (1, 1),
    OP.MAXIMUM: (1, 1),
    OP.GREATER: (1, 2),
    OP.GREATER_EQUAL: (1, 2),
    OP.MAX_POOL_2D: (1, 2),
    OP.MEAN: (1, 2),
    OP.MINIMUM: (1, 1),
    OP.MUL: (1, 2),
    OP.PAD: (1, 2),
    OP.PADV2: (1, 2),
    OP.RELU: (1, 2),
    OP.RESHAPE: (1, 1),
    OP.SELECT_V2: (1, 1),
    OP.SLICE: (1, 2),
    OP.STRIDED_SLICE: (1, 2),
    OP.TANH: (1, 1),
}


def write_tflite(graph: Graph, path: str | Path, packed: bool = True, input_formula: str | None = None) -> Path:
    """Write :func:`tflite_bytes` to ``path``, whole or not at all."""
    content = tflite_bytes(graph, packed, input_formula)
    path = Path(path)
    with replacing(path) as temporary:
        temporary.write_bytes(content)
    return path


def tflite_bytes(graph: Graph, packed: bool = True, input_formula: str | None = None) -> bytes:
    """The TFLite flatbuffer of a graph: float32, or int8 if it is quantized; the same graph gives the same bytes.

    ``packed`` keeps binary weights at one bit each; otherwise they are stored as the float32 or int8 they stand for.
    The graph's labels and ``input_formula`` (how pixels become what the net takes) go into the metadata as
    ``labels.txt`` and ``input.txt``; ``output.txt`` says where the outputs are values, not scores of classes.
    """
    graph.check()
    return _Writer(graph, packed, input_formula or "").content()


def model_bytes(model: Any) -> bytes:
    """A ``schema.ModelT`` as a flatbuffer."""
    builder = _Builder(1 << 16)
    builder.Finish(model.Pack(builder), IDENTIFIER)
    return bytes(builder.Output())


class _Builder(flatbuffers.Builder):
    """Stores equal vectors once, and bytes (the buffers) at multiples of 16, which kernels rely on.

    Python's flatbuffers know neither: the schema's ``force_align`` is lost on them, and of a layer's 28 bytes per
    output channel (bias, two scales, two 64-bit zero points) 16 are zeros.
    """

    def __init__(self, size: int):
        super().__init__(size)
        self.written: dict[tuple[str, bytes], int] = {}

    def CreateNumpyVector(self, x: Array) -> int:
        key = (x.dtype.str, x.tobytes())
        if key not in self.written:
            if x.dtype == np.uint8:
                self.Prep(16, x.size)
            self.written[key] = super().CreateNumpyVector(x)
        return self.written[key]


def _octets(array: Array) -> Array:
    little = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
    return np.frombuffer(little.tobytes(), np.uint8)


def _set(kind: str, **fields: Any) -> Any:
    """A table of the schema, e.g. ``Conv2DOptions``, with fields set by name."""
    table = getattr(schema, kind + "T")()
    for name, value in fields.items():
        assert hasattr(table, name), (kind, name)
        setattr(table, name, value)
    return table


def _quantization(scale: Array, zero_point: int = 0, axis: int = 0) -> Any:
    scale = np.atleast_1d(scale).astype(np.float32)
    zeros = np.full(scale.shape, zero_point, np.int64)
    return _set("QuantizationParameters", scale=scale, zeroPoint=zeros, quantizedDimension=axis)


class _Writer:
    """Collects tensors, buffers and operators; one method a kind of operation."""

    def __init__(self, graph: Graph, packed: bool, input_formula: str = ""):
        self.input_formula = input_formula
        self.binary = any(op.binary for op in graph.weighted())
        self.graph, self.packed = graph, packed and self.binary
        self.integer = graph.quantized
        self.tensors: list[Any] = []
        self.operators: list[Any] = []
        self.codes: list[int] = []
        self.buffers: list[Any] = [_set("Buffer")]  # the first one is empty, by convention
        self.buffer_at: dict[bytes, int] = {}
        self.constant_at: dict[tuple[str, tuple[int, ...], bytes], int] = {}
        self.at: dict[str, int] = {}  # name of a graph's tensor → index

    def content(self) -> bytes:
        graph = self.graph
        self.at[graph.input] = self._value(graph.tensors[graph.input])
        for op in graph:
            write = _KINDS.get(type(op))
            if write is None:
                known = ", ".join(kind.__name__ for kind in _KINDS)
                raise ExportError(f"{op.name}: {op.kind} has no TFLite form here; supported are {known}")
            write(self, op)
        source, result = self.at[graph.input], self.at[graph.output]
        subgraph = _set(
            "SubGraph",
            name="main",
            tensors=self.tensors,
            operators=self.operators,
            inputs=np.array([source], np.int32),
            outputs=np.array([result], np.int32),
        )
        signature = _set(
            "SignatureDef",
            signatureKey="serving_default",
            inputs=[_set("TensorMap", name=graph.input, tensorIndex=source)],
            outputs=[_set("TensorMap", name=graph.output, tensorIndex=result)],
        )
        metadata = []
        texts = {
            "labels.txt": "".join(f"{label}\n" for label in graph.labels), "input.txt": self.input_formula,
            "output.txt": "values" if graph.values else "",
        }  # fmt: skip
        for name, text in texts.items():
            if text:
                content = np.frombuffer(text.encode(), np.uint8)
                metadata.append(_set("Metadata", name=name, buffer=self._buffer(content)))
        model = _set(
            "Model",
            version=3,
            description=self._description(),
            operatorCodes=[self._code(code) for code in self.codes],
            subgraphs=[subgraph],
            buffers=self.buffers,
            metadata=metadata,
            signatureDefs=[signature],
        )
        return model_bytes(model)

    def _description(self) -> str:
        weights = f"1-bit weights ({'packed' if self.packed else 'unpacked'})" if self.binary else "no 1-bit weights"
        if not self.integer:
            return f"flipbit: {weights}, float32"
        source = self.graph.tensors[self.graph.input]
        return f"flipbit: {weights}, int8; input = {source.scale:.9g} * (int8 - {source.zero_point})"

    def _code(self, code: int) -> Any:
        version = VERSIONS[code][self.integer]
        # Readers from before 128 operations look at the deprecated field.
        return _set("OperatorCode", builtinCode=code, deprecatedBuiltinCode=min(code, 127), version=version)

    # Tensors

    def _tensor(self, name: str, shape: Sequence[int], kind: int, buffer: int = 0, quantization: Any = None) -> int:
        table = _set(
            "Tensor",
            name=name,
            shape=np.array(shape, np.int32),
            type=kind,
            buffer=buffer,
            quantization=quantization,
            hasRank=True,
        )
        self.tensors.append(table)
        return len(self.tensors) - 1

    def _value(self, tensor: Tensor, suffix: str = "", shape: tuple[int, ...] | None = None) -> int:
        """A tensor with a batch axis, in the scale of ``tensor``."""
        shape = tensor.shape if shape is None else shape
        quantization, kind = None, TYPE.FLOAT32
        if tensor.scale is not None:
            quantization, kind = _quantization(np.array(tensor.scale), tensor.zero_point), TYPE.INT8
        index = self._tensor(tensor.name + suffix, (1, *shape), kind, 0, quantization)
        self.tensors[index].shapeSignature = np.array((-1, *shape), np.int32)
        return index

    def _output(self, op: Op) -> int:
        self.at[op.output] = self._value(self.graph.tensors[op.output])
        return self.at[op.output]

    def _buffer(self, data: Array) -> int:
        key = data.tobytes()
        if key not in self.buffer_at:
            self.buffers.append(_set("Buffer", data=data))
            self.buffer_at[key] = len(self.buffers) - 1
        return self.buffer_at[key]

    def _constant(self, name: str, array: Array, quantization: Any = None) -> int:
        """A tensor that never changes; equal ones without quantization are the same one."""
        kind = TYPES[array.dtype.name]
        data = _octets(array)
        key = (array.dtype.name, array.shape, data.tobytes())
        if quantization is not None:
            return self._tensor(name, array.shape, kind, self._buffer(data), quantization)
        if key not in self.constant_at:
            self.constant_at[key] = self._tensor(name, array.shape, kind, self._buffer(data))
        return self.constant_at[key]

    # Operators

    def _apply(self, code: int, inputs: Sequence[int], output: int, options: str = "", **fields: Any) -> int:
        if code not in self.codes:
            self.codes.append(code)
        operator = _set(
            "Operator",
            opcodeIndex=self.codes.index(code),
            inputs=np.array(inputs, np.int32),
            outputs=np.array([output], np.int32),
        )
        if options:
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, options)
            operator.builtinOptions = _set(options, **fields)
        self.operators.append(operator)
        return output

    def _reshape(self, source: int, output: int, shape: Sequence[int]) -> int:
        target = np.array(shape, np.int32)
        return self._apply(
            OP.RESHAPE, [source, self._constant("shape", target)], output, "ReshapeOptions", newShape=target
        )

    def _unpacked(self, name: str, signs: Array, table: Array, quantization: Any) -> int:
        """The operations that turn the bits of ``signs`` into rows of ``table``, in the shape of ``signs``."""
        kind = TYPES[table.dtype.name]
        bits = np.packbits(signs.reshape(-1) > 0, bitorder="little")
        packed = self._constant(f"{name}/bits", bits)
        rows = self._tensor(f"{name}/rows", bits.shape, TYPE.INT32)
        self._apply(OP.CAST, [packed], rows, "CastOptions", inDataType=TYPE.UINT8, outDataType=TYPE.INT32)
        values = self._tensor(f"{name}/octets", (len(bits), 8), kind)
        self._apply(OP.GATHER, [self._constant("bits to weights", table), rows], values, "GatherOptions", axis=0)
        if len(bits) * 8 != signs.size:
            row = self._tensor(f"{name}/row", (len(bits) * 8,), kind)
            self._reshape(values, row, [len(bits) * 8])
            begin = self._constant("begin", np.array([0], np.int32))
            size = self._constant("size", np.array([signs.size], np.int32))
            values = self._tensor(f"{name}/cut", (signs.size,), kind)
            self._apply(OP.SLICE, [row, begin, size], values, "SliceOptions")
        weights = self._tensor(f"{name}/weights", signs.shape, kind, 0, quantization)
        return self._reshape(values, weights, signs.shape)

    def _weights(self, op: Weighted, filters: Array, axis: int = 0) -> tuple[int, int]:
        """Weights (``filters``: output channels along ``axis``) and bias, as constants or unpacked on each run."""
        return self._integer_weights(op, filters, axis) if self.integer else self._real_weights(op, filters, axis)

    def _real_weights(self, op: Weighted, filters: Array, axis: int) -> tuple[int, int]:
        scale = op.scale.astype(np.float32).reshape([-1 if i == axis else 1 for i in range(filters.ndim)])
        bias = self._constant(f"{op.name}/bias", op.bias.astype(np.float32))
        if not (op.binary and self.packed):
            real = (filters * op.scale.reshape(scale.shape)).astype(np.float32)
            return self._constant(f"{op.name}/weights", real), bias
        signs = self._unpacked(op.name, filters, _table(1, np.float32), None)
        if (scale == 1).all():
            return signs, bias
        scaled = self._tensor(f"{op.name}/scaled", filters.shape, TYPE.FLOAT32)
        factor = self._constant(f"{op.name}/scale", scale)
        return self._apply(OP.MUL, [signs, factor], scaled, "MulOptions", fusedActivationFunction=NONE), bias

    def _integer_weights(self, op: Weighted, filters: Array, axis: int) -> tuple[int, int]:
        assert op.requantize is not None
        source, target = self.graph.tensors[op.inputs[0]], self.graph.tensors[op.output]
        rows = np.moveaxis(filters, axis, 0).reshape(op.channels, -1).astype(np.int64)
        # TFLite subtracts the zero point from each input; flipbit has it in the bias.
        bias = op.requantize.bias.astype(np.int64) + source.zero_point * rows.sum(1)
        magnitude = 1
        if op.binary:
            magnitude = _magnitude(255 * rows.shape[1] + int(np.abs(bias).max(initial=0)))
        if np.abs(bias).max(initial=0) * magnitude > INT32:
            raise ExportError(f"{op.name}: a bias does not fit int32; is a BatchNorm gain near zero?")
        scale = _ratio(op.requantize.multiplier, op.requantize.shift, source, target) / magnitude
        quantization = _quantization(scale, axis=axis)
        offset = self._constant(
            f"{op.name}/bias",
            (bias * magnitude).astype(np.int32),
            _quantization(float(source.scale or 1) * scale.astype(np.float32).astype(np.float64)),
        )
        if op.binary and self.packed:
            return self._unpacked(op.name, filters, _table(magnitude, np.int8), quantization), offset
        return self._constant(f"{op.name}/weights", (filters * magnitude).astype(np.int8), quantization), offset

    def _bordered(
        self,
        op: Op,
        size: tuple[int, int],
        stride: tuple[int, int],
        padding: tuple[int, int, int, int],
        lowest: bool = False,
        ones: bool = False,
    ) -> tuple[int, int]:
        """(tensor to read, SAME or VALID): a PAD before operations whose padding is not TensorFlow's."""
        source, tensor = self.at[op.inputs[0]], self.graph.tensors[op.inputs[0]]
        if not any(padding):
            return source, VALID
        height, width, channels = tensor.shape
        if padding == same_padding((height, width), size, stride) and not ones:
            return source, SAME
        top, bottom, left, right = padding
        shape = (height + top + bottom, width + left + right, channels)
        padded = self._value(tensor, f"/{op.name}/padded", shape)
        edges = self._constant("edges", np.array([[0, 0], [top, bottom], [left, right], [0, 0]], np.int32))
        if not lowest and not ones:
            return self._apply(OP.PAD, [source, edges], padded, "PadOptions"), VALID
        if ones:
            value = self._constant("one", np.ones(1, np.int8 if self.integer else np.float32),
                                   self.tensors[source].quantization)  # fmt: skip
        elif self.integer:
            value = self._constant("lowest", np.array([-128], np.int8), self.tensors[source].quantization)
        else:
            value = self._constant("lowest", np.array([np.finfo(np.float32).min], np.float32))
        return self._apply(OP.PADV2, [source, edges, value], padded, "PadV2Options"), VALID

    # Kinds of operations

    def _conv(self, op: Conv | BitConv) -> None:
        height, width = op.weights.shape[:2]
        ones = isinstance(op, BitConv) and op.ones
        source, border = self._bordered(op, (height, width), op.stride, op.padding, ones=ones)
        weights, bias = self._weights(op, np.moveaxis(op.weights, -1, 0))
        target = self.graph.tensors[op.output]
        if len(target.shape) == 1:
            pixel = self._value(target, "/pixel", (1, 1, *target.shape))
            self._convolve([source, weights, bias], pixel, self._activation(op), op.stride, border)
            self._reshape(pixel, self._output(op), (-1, *target.shape))
            return
        self._convolve([source, weights, bias], self._unclipped(op), self._activation(op), op.stride, border)
        self._clip(op)

    def _depthwise(self, op: DepthwiseConv) -> None:
        source, border = self._bordered(op, op.size, op.stride, op.padding, lowest=False)
        weights, bias = self._weights(op, op.weights[None], axis=3)
        self._apply(
            OP.DEPTHWISE_CONV_2D,
            [source, weights, bias],
            self._unclipped(op),
            "DepthwiseConv2DOptions",
            padding=border,
            strideH=op.stride[0],
            strideW=op.stride[1],
            depthMultiplier=1,
            fusedActivationFunction=self._activation(op),
        )
        self._clip(op)

    # A ReLU that is clipped: int8 ends there, ReLU6 is stock, and others take a MINIMUM more.

    def _activation(self, op: Weighted | Add) -> int:
        if not self.integer and op.relu and op.ceiling == 6:
            return int(ACTIVATION.RELU6)
        return int(RELU if op.relu else NONE)

    def _clips(self, op: Weighted | Add) -> bool:
        return not self.integer and op.relu and op.ceiling not in (None, 6)

    def _unclipped(self, op: Weighted | Add) -> int:
        """What the operation writes: its output, or what is still to be clipped."""
        if not self._clips(op):
            return self._output(op)
        self.at[op.output] = self._value(self.graph.tensors[op.output], "/unclipped")
        return self.at[op.output]

    def _clip(self, op: Weighted | Add) -> None:
        if self._clips(op):
            most = self._constant("ceiling", np.array(op.ceiling, np.float32))
            unclipped = self.at[op.output]
            self._apply(OP.MINIMUM, [unclipped, most], self._output(op), "MaximumMinimumOptions")

    def _binarize(self, op: Binarize) -> None:
        """±1 by a comparison per channel."""
        tensor, source = self.graph.tensors[op.inputs[0]], self.at[op.inputs[0]]
        shape = (1,) * len(tensor.shape)
        compare, above, below = OP.GREATER_EQUAL, np.ones_like(op.gain), -np.ones_like(op.gain)
        plain, kind = None, "float32"
        if self.integer:
            assert op.threshold is not None and op.inverted is not None
            above = np.where(op.inverted, -1, 1)
            below, never = -above, op.threshold > 127
            above = np.where(never, below, above)
            bound = self._constant(f"{op.name}/bound", op.threshold.clip(-128, 127).astype(np.int8).reshape(*shape, -1),
                                   self.tensors[source].quantization)  # fmt: skip
            plain, kind = _quantization(np.array(1.0)), "int8"
        else:
            compare = OP.GREATER if op.strict else compare
            bound = self._constant(f"{op.name}/bound", np.zeros((*shape, len(op.gain)), np.float32))
            for code, values, name in ((OP.MUL, op.gain, "gain"), (OP.ADD, op.offset, "offset")):
                factor = self._constant(f"{op.name}/{name}", values.astype(np.float32).reshape(*shape, -1))
                moved = self._value(tensor, f"/{op.name}/{name}")
                options = "MulOptions" if code == OP.MUL else "AddOptions"
                source = self._apply(code, [source, factor], moved, options, fusedActivationFunction=NONE)
        signs = [
            self._constant(f"{op.name}/{name}", values.astype(kind).reshape(*shape, -1), plain)
            for name, values in (("above", above), ("below", below))
        ]
        condition = self._tensor(f"{op.name}/condition", (1, *tensor.shape), TYPE.BOOL)
        self.tensors[condition].shapeSignature = np.array((-1, *tensor.shape), np.int32)
        options = "GreaterOptions" if compare == OP.GREATER else "GreaterEqualOptions"
        self._apply(compare, [source, bound], condition, options)
        target = self.graph.tensors[op.output]
        if len(tensor.shape) == 3:
            self._apply(OP.SELECT_V2, [condition, *signs], self._output(op), "SelectV2Options")
            return
        flat = self._value(target, "/vector", tensor.shape)
        self._apply(OP.SELECT_V2, [condition, *signs], flat, "SelectV2Options")
        self._reshape(flat, self._output(op), (-1, *target.shape))

    def _convolve(
        self, inputs: list[int], output: int, activation: int, stride: tuple[int, int] = (1, 1), border: int = VALID
    ) -> int:
        return self._apply(
            OP.CONV_2D,
            inputs,
            output,
            "Conv2DOptions",
            padding=border,
            strideH=stride[0],
            strideW=stride[1],
            fusedActivationFunction=activation,
        )

    def _dense(self, op: Dense) -> None:
        source = self.at[op.inputs[0]]
        filters = np.moveaxis(op.weights, -1, 0)
        if not self.integer:
            weights, bias = self._weights(op, filters)
            self._apply(
                OP.FULLY_CONNECTED,
                [source, weights, bias],
                self._unclipped(op),
                "FullyConnectedOptions",
                fusedActivationFunction=self._activation(op),
            )
            self._clip(op)
            return
        units, width = filters.shape
        pixel = self._value(self.graph.tensors[op.inputs[0]], f"/{op.name}/pixel", (1, 1, width))
        self._reshape(source, pixel, (-1, 1, 1, width))
        weights, bias = self._weights(op, filters.reshape(units, 1, 1, width))
        result = self._value(self.graph.tensors[op.output], "/pixel", (1, 1, units))
        self._convolve([pixel, weights, bias], result, self._activation(op))
        self._reshape(result, self._output(op), (-1, units))

    def _max_pool(self, op: MaxPool | BitPool) -> None:
        source, border = self._bordered(op, op.size, op.stride, op.padding, lowest=True)
        self._pool(OP.MAX_POOL_2D, source, self._output(op), op.size, op.stride, border)

    def _pool(
        self, code: int, source: int, output: int, size: tuple[int, int], stride: tuple[int, int], border: int
    ) -> None:
        self._apply(
            code,
            [source],
            output,
            "Pool2DOptions",
            padding=border,
            filterHeight=size[0],
            filterWidth=size[1],
            strideH=stride[0],
            strideW=stride[1],
        )

    def _average_pool(self, op: AveragePool) -> None:
        source, target = self.graph.tensors[op.inputs[0]], self.graph.tensors[op.output]
        if any(op.padding):
            self._average_over_border(op, source, target)
        elif self.integer:
            self._average_by_convolution(op, source, target)
        elif op.size == source.shape[:2]:
            axes = self._constant("axes", np.array([1, 2], np.int32))
            keep = len(target.shape) == 3
            self._apply(OP.MEAN, [self.at[source.name], axes], self._output(op), "ReducerOptions", keepDims=keep)
        else:
            self._pool(OP.AVERAGE_POOL_2D, self.at[source.name], self._output(op), op.size, op.stride, VALID)

    def _average_over_border(self, op: AveragePool, source: Tensor, target: Tensor) -> None:
        """Where fewer pixels count, no weights are equal: the stock average, in the input's scale, and then a table."""
        if op.padding != same_padding((source.shape[0], source.shape[1]), op.size, op.stride):
            raise ExportError(f"{op.name}: average pooling with padding {op.padding} has no TFLite form; SAME has")
        if not self.integer:
            self._pool(OP.AVERAGE_POOL_2D, self.at[source.name], self._output(op), op.size, op.stride, SAME)
            return
        mean = self._value(source, f"/{op.name}/mean", target.shape)
        self._pool(OP.AVERAGE_POOL_2D, self.at[source.name], mean, op.size, op.stride, SAME)
        real = oracle.dequantize(np.arange(-128, 128), source)
        self._look_up(op.name, mean, oracle.quantize(real, target), self._output(op))

    def _look_up(self, name: str, source: int, table: Array, output: int) -> None:
        """int8 to int8 by a table: exact on every runtime."""
        shape = self.tensors[source].shape
        numbers = [self._tensor(f"{name}/{what}", shape, TYPE.INT32) for what in ("number", "index")]
        for index in numbers:
            self.tensors[index].shapeSignature = self.tensors[source].shapeSignature
        self._apply(OP.CAST, [source], numbers[0], "CastOptions", inDataType=TYPE.INT8, outDataType=TYPE.INT32)
        offset = self._constant("128", np.array(128, np.int32))
        self._apply(OP.ADD, [numbers[0], offset], numbers[1], "AddOptions", fusedActivationFunction=NONE)
        results = self._constant(f"{name}/table", table.astype(np.int8), self.tensors[output].quantization)
        self._apply(OP.GATHER, [results, numbers[1]], output, "GatherOptions", axis=0)

    def _table(self, op: Table) -> None:
        source, output = self.at[op.inputs[0]], self._output(op)
        if self.integer:
            assert op.table is not None
            self._look_up(op.name, source, np.asarray(op.table), output)
            return
        kind, numbers = op.function.name, op.function.parameters

        def constant(value: float) -> int:
            return self._constant(f"{op.name}/{value:g}", np.array(value, np.float32))

        def between(what: str) -> int:
            return self._value(self.graph.tensors[op.output], f"/{what}")

        def clipped(x: int, low: float, high: float) -> None:
            above = self._apply(OP.MAXIMUM, [x, constant(low)], between("above"), "MaximumMinimumOptions")
            self._apply(OP.MINIMUM, [above, constant(high)], output, "MaximumMinimumOptions")

        if kind == "clip":
            clipped(source, *numbers)
        elif kind == "hard_sigmoid":
            slope, offset = (constant(n) for n in numbers)
            none = {"fusedActivationFunction": NONE}
            line = self._apply(OP.MUL, [source, slope], between("slope"), "MulOptions", **none)
            clipped(self._apply(OP.ADD, [line, offset], between("line"), "AddOptions", **none), 0, 1)
        elif kind == "swish":
            gate = self._apply(OP.LOGISTIC, [source], between("gate"))
            self._apply(OP.MUL, [source, gate], output, "MulOptions", fusedActivationFunction=NONE)
        elif kind == "leaky_relu":
            self._apply(OP.LEAKY_RELU, [source], output, "LeakyReluOptions", alpha=numbers[0])
        elif kind in ("gelu", "gelu_tanh"):
            self._apply(OP.GELU, [source], output, "GeluOptions", approximate=kind == "gelu_tanh")
        elif kind in _STOCK and numbers in ((), (1.0,)):
            self._apply(_STOCK[kind], [source], output)
        else:
            raise ExportError(f"{op.name}: {op.function} has no TFLite form in float32; --activations int8 has one")

    def _concat(self, op: Concat) -> None:
        target, parts = self.graph.tensors[op.output], []
        for name, factor in zip(op.inputs, op.multipliers):
            source, part = self.graph.tensors[name], self.at[name]
            if self.integer and (source.scale, source.zero_point) != (target.scale, target.zero_point):
                part = self._value(target, f"/{op.name}/{name}", source.shape)
                table = oracle.requantize(
                    np.arange(-128, 128), -source.zero_point, factor, op.shift, target.zero_point, False
                )
                self._look_up(f"{op.name}/{name}", self.at[name], table, part)
            parts.append(part)
        axis = len(target.shape)
        self._apply(
            OP.CONCATENATION,
            parts,
            self._output(op),
            "ConcatenationOptions",
            axis=axis,
            fusedActivationFunction=NONE,
        )

    def _average_by_convolution(self, op: AveragePool, source: Tensor, target: Tensor) -> None:
        channels = source.shape[-1]
        magnitude = _magnitude(255 * op.size[0] * op.size[1])
        scale = _ratio(np.array([op.multiplier]), op.shift, source, target) / magnitude
        ones, quantization = np.ones((1, *op.size, channels), np.int8), _quantization(scale, axis=3)
        if self.packed:
            weights = self._unpacked(op.name, ones, _table(magnitude, np.int8), quantization)
        else:
            weights = self._constant(f"{op.name}/weights", ones * np.int8(magnitude), quantization)
        bias = self._constant(
            f"{op.name}/bias", np.zeros(channels, np.int32), _quantization(float(source.scale or 1) * scale)
        )
        image = len(target.shape) == 3
        result = self._output(op) if image else self._value(target, "/pixel", (1, 1, channels))
        self._apply(
            OP.DEPTHWISE_CONV_2D,
            [self.at[source.name], weights, bias],
            result,
            "DepthwiseConv2DOptions",
            padding=VALID,
            strideH=op.stride[0],
            strideW=op.stride[1],
            depthMultiplier=1,
        )
        if not image:
            self._reshape(result, self._output(op), (-1, channels))

    def _add(self, op: Add) -> None:
        inputs = [self.at[name] for name in op.inputs]
        self._apply(OP.ADD, inputs, self._unclipped(op), "AddOptions", fusedActivationFunction=self._activation(op))
        self._clip(op)

    def _pad_shortcut(self, op: PadShortcut) -> None:
        source, target = self.graph.tensors[op.inputs[0]], self.graph.tensors[op.output]
        missing = op.channels - source.shape[-1]
        kept = self._value(source, f"/{op.name}/kept", (*target.shape[:2], source.shape[-1])) if missing else None
        output = self._output(op)
        zeros = self._constant("begin", np.zeros(4, np.int32))
        strides = self._constant("strides", np.array([1, op.stride, op.stride, 1], np.int32))
        kept = output if kept is None else kept
        self._apply(
            OP.STRIDED_SLICE,
            [self.at[source.name], zeros, zeros, strides],
            kept,
            "StridedSliceOptions",
            beginMask=0b1111,  # from the first to the last, whatever the batch
            endMask=0b1111,
        )
        if missing:
            edges = self._constant("edges", np.array([[0, 0], [0, 0], [0, 0], [0, missing]], np.int32))
            self._apply(OP.PAD, [kept, edges], output, "PadOptions")

    def _relu(self, op: Relu) -> None:
        self._apply(OP.RELU, [self.at[op.inputs[0]]], self._output(op))

    def _flatten(self, op: Flatten) -> None:
        (size,) = self.graph.tensors[op.output].shape
        self._reshape(self.at[op.inputs[0]], self._output(op), (-1, size))


def _table(magnitude: int, dtype: Any) -> Array:
    """Row b holds the weights of byte b: bit i, from the least significant up, gives column i, ±magnitude."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    return (np.where(bits > 0, magnitude, -magnitude)).astype(dtype)


def _magnitude(reach: int) -> int:
    """The largest power of two up to MAGNITUDE with which sums of up to ``reach`` still fit int32."""
    magnitude = MAGNITUDE
    while magnitude > 1 and reach * magnitude > INT32:
        magnitude //= 2
    return magnitude


def _ratio(multiplier: Array, shift: int, source: Tensor, target: Tensor) -> Array:
    """The weight scale with which TFLite's scale_in · scale / scale_out is multiplier / 2^shift, ties considered."""
    return ratio_for_float(multiplier, shift) * (float(target.scale or 1) / float(source.scale or 1))


# Functions that are an operation without options.
_STOCK = {"elu": OP.ELU, "sigmoid": OP.LOGISTIC, "tanh": OP.TANH, "hard_swish": OP.HARD_SWISH}

_KINDS: dict[type, Callable[..., None]] = {
    Add: _Writer._add,
    AveragePool: _Writer._average_pool,
    Concat: _Writer._concat,
    Binarize: _Writer._binarize,
    BitConv: _Writer._conv,
    BitPool: _Writer._max_pool,
    Conv: _Writer._conv,
    Dense: _Writer._dense,
    DepthwiseConv: _Writer._depthwise,
    Flatten: _Writer._flatten,
    MaxPool: _Writer._max_pool,
    PadShortcut: _Writer._pad_shortcut,
    Relu: _Writer._relu,
    Table: _Writer._table,
}
