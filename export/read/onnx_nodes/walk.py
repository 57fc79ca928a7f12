"""Walks an ONNX graph in running order, from its input to its output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from flipbit.export.graph import (
    Add,
    AveragePool,
    ExportError,
    Flatten,
    Given,
    Graph,
    Op,
    Tensor,
    Weighted,
)
from flipbit.export.read.fuse import Affine, fuse
from flipbit.export.read.onnx_file import DOMAINS, array_of
from flipbit.export.read.onnx_nodes import arithmetic, constants, integers, layers, pooling, views
from flipbit.export.read.onnx_nodes.onnxruntime_run import Onnxruntime
from flipbit.export.read.onnx_nodes.values import OnnxBuilder, OnnxNode, OnnxValue, StoredNumbers

SUPPORTED = (
    "Conv (also depthwise and 1-D), Gemm, MatMul, BatchNormalization and constants per channel, Relu, Clip, LeakyRelu, "
    "PRelu, Elu, Sigmoid, Tanh, Gelu, HardSigmoid, HardSwish, Swish, MaxPool, AveragePool, GlobalAveragePool, "
    "GlobalMaxPool, ReduceMean and ReduceMax over height and width, Add, Concat, Flatten, Reshape, Transpose, Pad "
    "before a convolution, QuantizeLinear and DequantizeLinear, a final Softmax"
)
OPERATORS: dict[str, Callable[[OnnxBuilder, OnnxNode], None]] = {
    **dict.fromkeys(("Identity", "Dropout", "Cast"), views.alias),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), views.reshape),
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), arithmetic.arithmetic),
    "Transpose": views.transpose,
    "Pad": views.pad,
    "Slice": views.every_nth_pixel,
    "Conv": layers.conv,
    "Gemm": layers.gemm,
    "MatMul": layers.matmul,
    "BatchNormalization": layers.batch_norm,
    "Relu": arithmetic.relu,
    **dict.fromkeys(
        ("LeakyRelu", "Elu", "Sigmoid", "Tanh", "Gelu", "HardSigmoid", "HardSwish", "Swish"), arithmetic.function
    ),
    "PRelu": arithmetic.one_slope,
    "Concat": arithmetic.concat,
    "GlobalMaxPool": pooling.global_max,
    "Clip": arithmetic.clip,
    "MaxPool": pooling.max_pool,
    "AveragePool": pooling.average_pool,
    "GlobalAveragePool": pooling.global_average,
    "ReduceMean": pooling.reduce_mean,
    "ReduceMax": pooling.reduce_max,
    "QuantizeLinear": integers.quantize,
    "DequantizeLinear": integers.dequantize,
}
# What a node that no exporter writes may end in, wherever it is looked at.
MALFORMED = (ValueError, TypeError, IndexError, KeyError, AttributeError, ArithmeticError, MemoryError)
SOFTMAX = ("Softmax", "LogSoftmax")
INSTEAD = {
    **dict.fromkeys(
        ("QLinearConv", "QLinearMatMul", "QGemm", "QLinearAdd"), "the QOperator form; quantize with QuantFormat.QDQ"
    ),
    **dict.fromkeys(
        ("ConvInteger", "MatMulInteger", "DynamicQuantizeLinear"), "dynamic quantization; quantize_static gives scales"
    ),
    **dict.fromkeys(("ConvTranspose", "Resize", "Upsample"), "makes images larger, which devices do not"),
    "Erf": "GELU in parts; export with opset 20 or newer, which has Gelu",
    **dict.fromkeys(
        ("InstanceNormalization", "LayerNormalization", "GroupNormalization"),
        "normalizes by statistics of each image; use BatchNorm",
    ),
    **dict.fromkeys(("LSTM", "GRU", "RNN", "If", "Loop", "Scan"), "loops and branches, which devices have not"),
}
JOIN = "join several outputs by a Concat, several inputs in the channels of one"
LAYOUTS = {4: ("bchw", "bhwc"), 3: ("bcw", "bwc"), 2: ("bc", "bc")}
PASSING = ("QuantizeLinear", "DequantizeLinear", "Identity", "Cast")


class OnnxWalk:
    """The deploy graph of an ONNX model."""

    def __init__(self, model: Any, labels: list[str]):
        self.model, self.labels = model, labels
        self.opset = next(entry.version for entry in model.opset_import if entry.domain in DOMAINS)
        self.build = OnnxBuilder()
        self.result = ""
        self.complaints: list[str] = []
        self.lost: set[str] = set()  # values behind what was refused, of which nothing is known

    def graph(self) -> Graph:
        stored = {tensor.name: tensor for tensor in self.model.graph.initializer}
        for name, tensor in stored.items():
            self.build.constants[name] = StoredNumbers(array_of(tensor))
        inputs = [entry for entry in self.model.graph.input if entry.name not in stored]
        outputs = [entry.name for entry in self.model.graph.output]
        if len(inputs) != 1 or len(outputs) != 1:
            raise ExportError(
                f"the model has {len(inputs)} inputs and {len(outputs)} outputs; one each is supported: {JOIN}"
            )
        self.result = outputs[0]
        nodes = self._needed()
        source = self._input(inputs[0], [node for _, node in nodes])
        unknown = self._unknown(nodes)
        kinds = {node.kind for node in unknown.values()}
        for proto, node in nodes:
            try:
                if self.lost.intersection(node.inputs):
                    self.lost.update(node.outputs)
                elif not constants.fold(self.build, node, proto, self.opset):
                    self._read(node)
            except ExportError as error:
                if node.kind not in kinds:
                    self.complaints.append(str(error))
                self._go_on_behind(node)
            except MALFORMED as error:
                node.refuse(f"its inputs and attributes do not fit each other ({type(error).__name__}: {error})")
        self._complain(unknown)
        found = self.build.at.get(self.result)
        if found is None:
            raise ExportError("the output does not depend on the input")
        return self._graph(source, found)

    def _needed(self) -> list[tuple[Any, OnnxNode]]:
        """The nodes that the output depends on, in running order."""
        wanted, kept = {self.result}, []
        for proto in reversed(self.model.graph.node):
            if wanted.intersection(proto.output):
                wanted.update(proto.input)
                kept.append((proto, OnnxNode(proto, self.opset)))
        return kept[::-1]

    def _input(self, entry: Any, nodes: list[OnnxNode]) -> str:
        """The image: which of its axes are height, width and channels is told by what reads it."""
        dims = [dim.dim_value for dim in entry.type.tensor_type.shape.dim]
        if len(dims) not in LAYOUTS or not all(n > 0 for n in dims[1:]):
            text = ", ".join(str(n or "?") for n in dims)
            raise ExportError(
                f"the input {entry.name} has shape ({text}); expected (batch, channels, height, width), (batch, "
                "height, width, channels), (batch, channels, length) or (batch, units) of fixed sizes"
            )
        kinds = entry.type.tensor_type.elem_type
        if kinds not in (1, 10, 11, 16):
            raise ExportError(f"the input {entry.name} holds integers; a net that takes floating point is supported")
        first, last = LAYOUTS[len(dims)]
        axes = last if _channels_last(entry.name, nodes, dims) else first
        shape = (max(1, dims[0]), *dims[1:])
        sizes = dict(zip(axes, shape))
        ours = (sizes["c"],) if len(dims) == 2 else (sizes.get("h", 1), sizes["w"], sizes["c"])
        self.build.tensors["input"] = Tensor("input", tuple(int(n) for n in ours))
        self.build.at[entry.name] = OnnxValue("input", axes, shape)
        return str(entry.name)

    def _unknown(self, nodes: list[tuple[Any, OnnxNode]]) -> dict[str, OnnxNode]:
        """Operators that are not known, each with a node of it."""
        reached, unknown = set(self.build.at), dict[str, OnnxNode]()
        for _, node in nodes:
            if not reached.intersection(node.inputs) or node.kind == "Shape":
                continue
            reached.update(node.outputs)
            known = node.kind in OPERATORS or node.kind in SOFTMAX
            if not known or node.domain not in (*DOMAINS, "com.microsoft"):
                unknown.setdefault(f"{node.domain}.{node.kind}".lstrip("."), node)
        return unknown

    def _complain(self, unknown: dict[str, OnnxNode]) -> None:
        """All that was refused, in one line."""
        if unknown:
            parts = [f"{node.name} ({kind}{_instead(node.kind)})" for kind, node in unknown.items()]
            self.complaints.append(f"not supported: {', '.join(parts)}; supported are {SUPPORTED}")
        if len(self.complaints) > 1:
            numbered = [f"({i}) {complaint}" for i, complaint in enumerate(self.complaints, 1)]
            raise ExportError(f"{len(numbered)} complaints: {'; '.join(numbered)}")
        if self.complaints:
            raise ExportError(self.complaints[0])

    @cached_property
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes that ONNX itself works out, to read on behind what was refused."""
        import onnx

        try:
            inferred = onnx.shape_inference.infer_shapes(self.model).graph.value_info
        except Exception:  # of a model that is not whole: complaints end here
            return {}
        return {entry.name: tuple(dim.dim_value for dim in entry.type.tensor_type.shape.dim) for entry in inferred}

    def _go_on_behind(self, node: OnnxNode) -> None:
        """Something in the place of what was refused, if its shape is known, so that the rest can be read."""
        value = self.build.at.get(node.inputs[0]) if node.inputs else None
        shape = self._shapes.get(node.outputs[0], ())
        same_rank = value is not None and len(shape) == len(value.shape) and "c" in value.axes
        if value is None or not same_rank or not all(n > 0 for n in shape[1:]):
            self.lost.update(node.outputs)
            return
        shape = (value.shape[0], *shape[1:])
        sizes = dict(zip(value.axes, shape))
        ours = (sizes["c"],) if len(shape) == 2 else (sizes.get("h", 1), sizes.get("w", 1), sizes["c"])
        self.build.emit(node, lambda made: _Refused(made, (value.name,), made), ours, OnnxValue("", value.axes, shape))

    def _read(self, node: OnnxNode) -> None:
        if self.build.ends:  # what comes after a final softmax only copies or quantizes its result
            self.build.pass_on(node, self.build.value(node))
        elif node.kind in SOFTMAX:
            arithmetic.softmax(self.build, node, self._is_final(node.outputs[0]))
        elif node.kind in OPERATORS:
            OPERATORS[node.kind](self.build, node)
        else:
            node.refuse(f"is not supported; supported are {SUPPORTED}")

    def _is_final(self, name: str) -> bool:
        """Whether nothing but copies stands between a value and the output."""
        while name != self.result:
            readers = [node for node in self.model.graph.node if name in node.input]
            if len(readers) != 1 or readers[0].op_type not in PASSING:
                return False
            name = readers[0].output[0]
        return True

    # The deploy graph, once all is read

    def _graph(self, source: str, found: OnnxValue) -> Graph:
        build, end = self.build, OnnxNode(_End(self.result), self.opset)
        if len(found.shape) == 2:
            output, order = build.vector(end, replace(found, integer=False))
            if not np.array_equal(order, np.arange(len(order))):
                end.refuse("the output's values stand in another order than the device's; end with a dense layer")
        else:
            output = build.tensor(end, replace(found, integer=False))
            if found.axes not in ("bchw", "bhwc"):
                end.refuse(f"the output has the shape {found.shape}; (batch, classes) or an image is supported")
        before = _live(build.ops, output)
        ops, output = fuse(before, output, build.tensors)
        renamed = self._renamed(before, ops)
        self._require_fused(before, ops)
        ops, output = _pooled_vectors(ops, build.tensors, output, renamed)
        tensors = {name: build.tensors[name] for name in ("input", *(op.output for op in ops))}
        graph = Graph("input", output, ops, tensors, self.labels)
        graph.given = self._given(graph, renamed)
        if graph.given is not None:
            graph.ops = [_clipped_at_zero(op, graph.given) for op in graph]
        stored = {renamed.get(name, name): held for name, held in build.stored.items()}
        graph.reference = Onnxruntime(self.model, source, build.at[source], found, graph, stored).reference(build.ends)
        graph.check()
        return graph

    def _require_fused(self, before: list[Op], after: list[Op]) -> None:
        """Refuse what a quantized net has between its scales and devices compute in another order or clip elsewhere."""
        if not self.build.steps:
            return
        kept, writers = {op.output for op in after}, {op.output: op for op in before}
        for op in before:
            behind = writers.get(op.inputs[0])
            if isinstance(op, Affine) and (op.output in kept or not isinstance(behind, (Weighted, Affine))):
                raise ExportError(f"{op.name}: a BatchNormalization apart from a layer with weights in a quantized net")
        for op in after:
            ceiling = getattr(op, "ceiling", None)
            step = self.build.steps.get(op.output)
            if ceiling is not None and step and (127 - step[1]) * step[0] > ceiling + step[0]:
                raise ExportError(f"{op.name}: is clipped at {ceiling:g}, and its scale reaches beyond that")

    def _renamed(self, before: list[Op], after: list[Op]) -> dict[str, str]:
        """Tensors that fusing took away → those that stand for them now; their scales come along."""
        left = {op.output for op in after}
        renamed: dict[str, str] = {}
        for op in before:
            if op.output not in left:
                target = renamed[op.output] = renamed.get(op.inputs[0], op.inputs[0])
                own, old = self.build.steps.get(op.output), self.build.steps.get(target)
                if own and old and own != old:
                    raise ExportError(
                        f"{op.name}: is quantized before and after with different scales ({old[0]:g}, {own[0]:g}); "
                        "quantize only what comes after the activation"
                    )
                if own:
                    self.build.steps[target] = own
                    self.build.stored[target] = self.build.stored[op.output]
        return renamed

    def _given(self, graph: Graph, renamed: dict[str, str]) -> Given | None:
        steps = {renamed.get(name, name): step for name, step in self.build.steps.items()}
        if not steps:
            return None
        for op in graph:
            if op.traits.keeps_scale and op.inputs[0] in steps:
                own = steps.setdefault(op.output, steps[op.inputs[0]])
                if own != steps[op.inputs[0]]:
                    raise ExportError(
                        f"{op.name} ({op.kind}): changes the scale from {steps[op.inputs[0]][0]:g} to {own[0]:g}, and "
                        "devices keep it; quantize the net so that it keeps it, as onnxruntime's quantize_static does"
                    )
        reads = {(renamed.get(name, name), at): step for (name, at), step in self.build.reads.items()}
        return Given({name: step for name, step in steps.items() if name in graph.tensors}, reads)


@dataclass(frozen=True)
class _Refused(Op):
    """In the place of a node that was refused."""


class _End:
    """The output as a node, for messages."""

    def __init__(self, name: str):
        self.op_type, self.domain, self.name = "output", "", name
        self.input, self.output, self.attribute = (), (), ()


def _live(ops: list[Op], output: str) -> list[Op]:
    """Operations that the output depends on."""
    wanted, kept = {output}, []
    for op in reversed(ops):
        if op.output in wanted:
            wanted.update(op.inputs)
            kept.append(op)
    return kept[::-1]


def _clipped_at_zero(op: Op, given: Given) -> Op:
    """With the zero point −128 nothing below zero is left: quantizers leave a ReLU out there."""
    if isinstance(op, (Weighted, Add)) and given.steps.get(op.output, (0.0, 0))[1] == -128:
        return replace(op, relu=True)
    return op


def _instead(kind: str) -> str:
    return f": {INSTEAD[kind]}" if kind in INSTEAD else ""


def _channels_last(name: str, nodes: list[OnnxNode], dims: list[int]) -> bool:
    """Whether what reads the input first brings its last axis to the front, as TensorFlow's exporters do."""
    readers = [node for node in nodes if name in node.inputs]
    if any(node.kind in PASSING for node in readers):
        return all(_channels_last(node.outputs[0], nodes, dims) if node.kind in PASSING else False for node in readers)
    to_front = [0, len(dims) - 1, *range(1, len(dims) - 1)]
    one = len(dims) == 4 and dims[-1] == 1 and dims[1] != 1  # a transpose of one channel is a reshape
    return bool(readers) and all(
        (node.kind == "Transpose" and list(node.attribute("perm") or []) == to_front)
        or (node.kind == "Reshape" and one)
        or (node.kind in ("Unsqueeze", "ReduceMean") and len(dims) == 3 and dims[1] > dims[2])
        for node in readers
    )


def _pooled_vectors(
    ops: list[Op], tensors: dict[str, Tensor], output: str, renamed: dict[str, str]
) -> tuple[list[Op], str]:
    """A global average that is only flattened writes a vector to begin with."""
    readers: dict[str, int] = {output: 1}
    for op in ops:
        for name in op.inputs:
            readers[name] = readers.get(name, 0) + 1
    writers = {op.output: op for op in ops}
    kept: list[Op] = []
    for op in ops:
        op = replace(op, inputs=tuple(renamed.get(name, name) for name in op.inputs))
        before = writers.get(op.inputs[0])
        if isinstance(op, Flatten) and isinstance(before, AveragePool) and readers[before.output] == 1:
            height, width, channels = tensors[before.output].shape
            if height == width == 1:
                tensors[before.output] = Tensor(before.output, (channels,))
                renamed[op.output] = before.output
                continue
        kept.append(op)
    return kept, renamed.get(output, output)
