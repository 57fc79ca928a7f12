"""The deploy graph as it grows, and what each value of the ONNX graph holds in it.

An image of the deploy graph is (height, width, channels). ONNX has it in any order: as (batch, channels, height,
width), transposed, without axes of size 1, or flattened. ``axes`` says, letter by letter, what the axes of a value are:
b for the batch, h for height, w for width, c for channels, 1 for one that means nothing, f for all values in a row,
whose order is ``order``: the place in the deploy tensor of each value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np

from flipbit.export.graph import Array, ExportError, Flatten, Op, PadShortcut, Tensor
from flipbit.export.read.onnx_file import array_of

Edges = tuple[int, int, int, int]  # top, bottom, left, right
NO_EDGES: Edges = (0, 0, 0, 0)


@dataclass(frozen=True)
class OnnxValue:
    """A value of the ONNX graph: a deploy tensor, of which pixels are yet to be left out and zeros to be added."""

    name: str
    axes: str
    shape: tuple[int, ...]  # ONNX's, with the batch
    order: Array | None = field(default=None, compare=False)
    stride: tuple[int, int] = (1, 1)
    channels: int = 0  # zero channels behind
    padding: Edges = NO_EDGES
    step: float | None = None  # the scale with which a DequantizeLinear reads the tensor
    zero: int = 0
    integer: bool = False  # between QuantizeLinear and DequantizeLinear


@dataclass(frozen=True)
class StoredNumbers:
    """Numbers that do not depend on the image; of quantized weights, also the integers and scales they stand for."""

    value: Array
    integers: Array | None = None
    steps: Array | None = None  # one, or one per filter
    axis: int = 0


class OnnxNode:
    """A node of the ONNX graph: its inputs, its attributes, what to call it."""

    def __init__(self, proto: Any, opset: int):
        from onnx import helper

        self.kind, self.domain, self.opset = proto.op_type, proto.domain, opset
        self.inputs, self.outputs = list(proto.input), list(proto.output)
        name = (proto.name or (proto.output[0] if proto.output else "")).strip("/")
        self.name = name.removesuffix(f"/{proto.op_type}") or proto.op_type
        try:
            self.attributes = {a.name: helper.get_attribute_value(a) for a in proto.attribute}
        except ValueError as error:
            raise ExportError(f"{self.name} ({self.kind}): an attribute is not readable ({error})") from None

    def refuse(self, why: str) -> NoReturn:
        raise ExportError(f"{self.name} ({self.kind}): {why}")

    def attribute(self, name: str, default: Any = None) -> Any:
        found = self.attributes.get(name, default)
        return found.decode("utf-8", "replace") if isinstance(found, bytes) else found


class OnnxBuilder:
    """Operations and tensors of the deploy graph; ``at`` and ``constants`` say what a value of ONNX is."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.tensors: dict[str, Tensor] = {}
        self.at: dict[str, OnnxValue] = {}
        self.constants: dict[str, StoredNumbers] = {}
        self.made: dict[tuple[Any, ...], str] = {}
        self.steps: dict[str, tuple[float, int]] = {}  # tensor → scale and zero point that the file gives it
        self.reads: dict[tuple[str, int], float] = {}  # (operation's output, which input) → the scale it is read with
        self.stored: dict[str, tuple[str, OnnxValue]] = {}  # tensor → the value that holds its integers
        self.ends = ""

    # What nodes read

    def value(self, node: OnnxNode, at: int = 0) -> OnnxValue:
        name = node.inputs[at] if at < len(node.inputs) else ""
        if name not in self.at:
            node.refuse(f"its input {name or at} is a constant or missing, where a tensor of the net was expected")
        return self.at[name]

    def constant(self, node: OnnxNode, at: int, what: str) -> StoredNumbers | None:
        """An input that must not depend on the image; None if it is left out."""
        name = node.inputs[at] if at < len(node.inputs) else ""
        if not name:
            return None
        if name not in self.constants:
            node.refuse(f"its {what} depends on the image; it must be a constant")
        return self.constants[name]

    def parameter(self, node: OnnxNode, at: int, name: str) -> list[Any] | None:
        """A setting: an input in newer opsets, an attribute in older ones."""
        found = self.constant(node, at, name)
        if found is not None:
            return list(np.atleast_1d(found.value).tolist())
        given = node.attribute(name)
        return None if given is None else list(given) if isinstance(given, (list, tuple)) else [given]

    def tensor(self, node: OnnxNode, value: OnnxValue) -> str:
        """The deploy tensor of a value, made if need be; zeros around it are refused."""
        if any(value.padding):
            node.refuse("reads zeros around an image; they are supported right before a convolution")
        return self.unpadded(node, value)

    def unpadded(self, node: OnnxNode, value: OnnxValue) -> str:
        if value.integer:
            node.refuse("computes with 8-bit integers; the QDQ form is read (QuantizeLinear, DequantizeLinear)")
        if value.stride == (1, 1) and not value.channels:
            return value.name
        key = ("shortcut", value.name, value.stride, value.channels)
        if key not in self.made:
            height, width, channels = self.tensors[value.name].shape
            if value.stride[0] != value.stride[1]:
                node.refuse(f"takes every {value.stride}th pixel; the same step in height and width is supported")
            step, total = value.stride[0], channels + value.channels
            name = self.unused(f"{node.name}/shortcut")
            self.ops.append(PadShortcut(name, (value.name,), name, stride=step, channels=total))
            self.tensors[name] = Tensor(name, (-(-height // step), -(-width // step), total))
            self.made[key] = name
        return self.made[key]

    def image(self, node: OnnxNode, value: OnnxValue) -> str:
        """The tensor of a value that is an image as convolutions take it: batch, channels, then height and width."""
        self.expect_image(node, value)
        return self.tensor(node, value)

    def expect_image(self, node: OnnxNode, value: OnnxValue) -> None:
        if value.axes not in ("bchw", "bcw", "bc1w", "bch1", "bc11") or len(self.tensors[value.name].shape) != 3:
            node.refuse(
                f"reads a tensor of shape {value.shape} with the axes {value.axes}; expected an image as (batch, "
                "channels, height, width)"
            )

    def vector(self, node: OnnxNode, value: OnnxValue) -> tuple[str, Array]:
        """A value as a vector, flattened if need be, and where in that vector each of ONNX's values is."""
        name = self.tensor(node, value)
        tensor = self.tensors[name]
        if len(value.shape) != 2 or value.axes[0] != "b" or value.shape[1] != tensor.size:
            node.refuse(f"reads a tensor of shape {value.shape}; expected (batch, units): flatten it first")
        order = np.arange(tensor.size) if value.order is None else value.order
        if len(tensor.shape) == 3:
            key = ("flat", name)
            if key not in self.made:
                flat = self.made[key] = self.unused(f"{name}.flat")
                self.ops.append(Flatten(flat, (name,), flat))
                self.tensors[flat] = Tensor(flat, (tensor.size,))
            name = self.made[key]
        return name, order

    # What nodes write

    def unused(self, name: str) -> str:
        while name in self.tensors:
            name += "_"
        return name

    def emit(
        self, node: OnnxNode, make: Callable[[str], Op], shape: tuple[int, ...], value: OnnxValue, at: int = 0
    ) -> None:
        """Append the operation ``make(name)`` that writes a tensor of ``shape``; ``value`` says how ONNX sees it."""
        name = self.unused(node.name)
        self.ops.append(make(name))
        self.tensors[name] = Tensor(name, tuple(int(n) for n in shape))
        self.at[node.outputs[at]] = replace(
            value, name=name, stride=(1, 1), channels=0, padding=NO_EDGES, step=None, zero=0, integer=False
        )

    def pass_on(self, node: OnnxNode, value: OnnxValue) -> None:
        self.at[node.outputs[0]] = value

    def elementwise(self, node: OnnxNode, make: Callable[[str, str], Op]) -> None:
        """An operation of one tensor, value by value: ``make(its name, what it reads)``."""
        value = self.value(node)
        self.require_own_step(node, value)
        name = self.tensor(node, value)
        self.emit(node, lambda output: make(output, name), self.tensors[name].shape, value)

    def require_own_step(self, node: OnnxNode, value: OnnxValue) -> None:
        """Refuse a tensor that is read with another scale than it was written with."""
        own = self.steps.get(value.name)
        if value.step is not None and own is not None and value.step != own[0]:
            node.refuse(f"reads {value.name} with the scale {value.step:g}, which was written with {own[0]:g}")

    def read_as(self, node: OnnxNode, at: int, value: OnnxValue) -> None:
        """The operation emitted last reads its input ``at`` with the scale of ``value``."""
        own = self.steps.get(value.name)
        if value.step is not None and own is not None and value.step != own[0]:
            if abs(value.step / own[0] - 1) > 1e-3:
                self.require_own_step(node, value)
            self.reads[self.ops[-1].output, at] = value.step


def constant_of(tensor: Any) -> StoredNumbers:
    return StoredNumbers(array_of(tensor))
