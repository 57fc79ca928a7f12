"""The deploy graph as it grows, and what each node of the program holds in it.

PyTorch's images are (channels, height, width), those of the deploy graph (height, width, channels). Channels may also
stand in another order than PyTorch's: where a shortcut adds zero channels in front, they go to the end here, and the
weights around it are permuted to suit. ``order`` keeps, for each tensor whose last axis is permuted, PyTorch's index at
each place.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from flipbit.export.graph import Array, AveragePool, ExportError, Flatten, Op, PadShortcut, Tensor
from flipbit.export.read.aten.nodes import ALIASES, is_size, module_path, operator_of

if TYPE_CHECKING:
    from torch.fx import Node

Edges = tuple[int, int, int, int]  # top, bottom, left, right
NO_EDGES = (0, 0, 0, 0)


@dataclass(frozen=True)
class Value:
    """What a node holds: a tensor of the deploy graph, of which pixels are yet to be left out and zeros to be added."""

    name: str
    stride: tuple[int, int] = (1, 1)
    channels: tuple[int, int] = (0, 0)  # zero channels in front and behind
    padding: Edges = NO_EDGES


class Builder:
    """Operations and tensors of the deploy graph; ``at`` says which tensor holds a node's value."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.tensors: dict[str, Tensor] = {}
        self.order: dict[str, Array] = {}
        self.at: dict[Node, Value] = {}
        self.constants: dict[Node, Any] = {}
        self.made: dict[tuple[Value, str], str] = {}  # tensors made for a Value, so that none is made twice
        self.passed: dict[Node, Node] = {}  # nodes that hold what another one does
        self.live: set[Node] = set()
        self.in_module: Counter[str] = Counter()  # path of a module → how many operations it has
        self.ends = ""

    def numbers(self, value: Any) -> Array:
        """A constant as float64."""
        import torch

        return torch.as_tensor(value).detach().double().cpu().numpy()

    def constant(self, node: Node, args: dict[str, Any], what: str) -> Array | None:
        found = args[what]
        if found is None:
            return None
        if found not in self.constants:
            self.refuse(node, f"its {what} depends on the image; weights must be constants")
        return self.numbers(self.constants[found])

    def refuse(self, node: Node, why: str) -> Any:
        stack = list(node.meta.get("nn_module_stack", {}).values())
        kind = stack[-1][1] if stack else ""
        kind = kind.__name__ if isinstance(kind, type) else str(kind).rpartition(".")[2]
        place = f"{module_path(node)} ({kind}, node {node.name})" if module_path(node) else node.name
        raise ExportError(f"{place}: {why}")

    def name(self, node: Node) -> str:
        """The module's path if the operation is all it does, else the path and the node's name; never twice."""
        path = module_path(node)
        name = path if path and self.in_module[path] == 1 else f"{path}.{node.name}" if path else node.name
        while name in self.tensors:
            name += "_"
        return name

    def shape(self, node: Node) -> tuple[int, ...]:
        """PyTorch's shape of a node, without the batch."""
        value = node.meta["val"]
        shape = (value[0] if isinstance(value, (tuple, list)) else value).shape[1:]
        if not all(isinstance(n, int) for n in shape):
            self.refuse(node, f"has the shape {tuple(shape)}; sizes other than the batch must be fixed")
        return tuple(int(n) for n in shape)

    def torch_shape(self, name: str) -> tuple[int, ...]:
        shape = self.tensors[name].shape
        return (shape[-1], *shape[:-1])

    def readers(self, node: Node) -> int:
        """How many operations read what ``node`` holds."""
        while node in self.passed:
            node = self.passed[node]
        return self._read_by(node)

    def _read_by(self, node: Node) -> int:
        count = 0
        for user in node.users:
            if user not in self.live or user in self.constants or is_size(user):
                continue
            count += self._read_by(user) if user in self.passed or operator_of(user) in ALIASES else 1
        return count

    def pass_on(self, node: Node, x: Node) -> None:
        """``node`` holds what ``x`` does."""
        self.at[node], self.passed[node] = self.at[x], x

    def writer(self, node: Node, name: str) -> Op | None:
        """The operation that wrote ``name``, if at most one reads it, through ``node``, and so may change it."""
        if self.readers(node) > 1:
            return None
        return next((op for op in reversed(self.ops) if op.output == name), None)

    def emit(self, node: Node, op: Op, shape: tuple[int, ...]) -> None:
        self.ops.append(op)
        self.tensors[op.output] = Tensor(op.output, shape)
        self.at[node] = Value(op.output)

    def put(self, op: Op) -> None:
        self.ops[[o.output for o in self.ops].index(op.output)] = op

    def tensor(self, node: Node) -> str:
        """The tensor that holds the node's value, made if need be; zeros around it are refused."""
        if node not in self.at:
            self.refuse(node, "a constant where a tensor of the net was expected")
        if any(self.at[node].padding):
            self.refuse(node, "zero padding that no convolution follows; supported right before a convolution")
        return self.unpadded(node)

    def unpadded(self, node: Node) -> str:
        value = replace(self.at[node], padding=NO_EDGES)
        if value == Value(value.name):
            return value.name
        if (value, "shortcut") not in self.made:
            self.made[value, "shortcut"] = self._shortcut(node, value)
        return self.made[value, "shortcut"]

    def _shortcut(self, node: Node, value: Value) -> str:
        """He et al.'s option A; zero channels go to the end, wherever PyTorch has them."""
        height, width, channels = self.tensors[value.name].shape
        if value.stride[0] != value.stride[1]:
            self.refuse(node, f"takes every {value.stride}th pixel; the same step in height and width is supported")
        front, back = value.channels
        step, total = value.stride[0], channels + front + back
        name = self.name(node)
        self.ops.append(PadShortcut(name, (value.name,), name, stride=step, channels=total))
        self.tensors[name] = Tensor(name, (-(-height // step), -(-width // step), total))
        order = self.order.get(value.name, np.arange(channels)) + front
        self.set_order(name, np.concatenate([order, np.arange(front), np.arange(front + channels, total)]))
        return name

    def set_order(self, name: str, order: Array) -> None:
        if not np.array_equal(order, np.arange(len(order))):
            self.order[name] = order

    def same_order(self, node: Node, source: str) -> None:
        """What ``node`` emitted keeps the order of ``source``."""
        if source in self.order:
            self.order[self.at[node].name] = self.order[source]

    def image(self, node: Node, x: Node) -> str:
        name = self.tensor(x)
        self.expect_image(node, x)
        return name

    def expect_image(self, node: Node, x: Node) -> None:
        """Refuse what was reshaped on the way, or is no image at all."""
        value, shape = self.at.get(x), self.shape(x)
        expected: tuple[int, ...] | None = None
        if value and len(self.tensors[value.name].shape) == 3:
            height, width, channels = self.tensors[value.name].shape
            top, bottom, left, right = value.padding
            down, across = value.stride
            rows, columns = -(-height // down) + top + bottom, -(-width // across) + left + right
            expected = (channels + sum(value.channels), rows, columns)
        if shape != expected:
            self.refuse(node, f"reads a tensor of shape {('batch', *shape)}; expected an image that was not reshaped")

    def vector(self, node: Node) -> str:
        """The node's value as a vector: flattened, or, of a global average, written as one to begin with."""
        name = self.tensor(node)
        tensor = self.tensors[name]
        if self.shape(node) != (tensor.size,):
            self.refuse(node, f"is a vector of {self.shape(node)} out of {tensor.shape}; flatten keeps the batch axis")
        if len(tensor.shape) == 1:
            return name
        height, width, channels = tensor.shape
        writer = self.writer(node, name)
        if isinstance(writer, AveragePool) and height == width == 1:
            self.tensors[name] = replace(tensor, shape=(channels,))
            return name
        key = (Value(name), "flat")
        if key not in self.made:
            flat = self.made[key] = f"{name}.flat"
            self.ops.append(Flatten(flat, (name,), flat))
            self.tensors[flat] = Tensor(flat, (tensor.size,))
            order = self.order.get(name, np.arange(channels))
            at = order * (height * width) + np.arange(height * width)[:, None]  # PyTorch: channels first
            self.set_order(flat, at.reshape(-1))
        return self.made[key]
