"""PyTorch models to a deploy graph in real numbers, by way of torch.export.

The graph of ATen operators is read in two ways: what depends on parameters alone is computed at once (so
``torch.sign(w) * scale`` in a layer's forward, parametrizations and the like become the weights they stand for), and
what depends on the image becomes an operation. BatchNorm and per-channel constants are folded into the convolution
or linear layer before them, as `from_keras.py` does. A layer is binary when each of its filters holds
two values ±s.

PyTorch's images are (channels, height, width), those of the deploy graph (height, width, channels). Channels may also
stand in another order than PyTorch's: where a shortcut adds zero channels in front, they go to the end here, and the
weights around it are permuted to suit. ``order`` keeps, for each tensor whose last axis is permuted, PyTorch's index at
each place.
"""

from __future__ import annotations

import copy
import operator
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    Weighted,
)
from flipbit.export.read.from_keras import binary_filters, weighted
from flipbit.export.read.fuse import affine
from flipbit.export.read.pt2_file import HOW, without_code

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram
    from torch.fx import Node

SUPPORTED = (
    "Conv2d and Linear, BatchNorm or constants per channel right after them, ReLU, MaxPool2d, AvgPool2d, "
    "AdaptiveAvgPool2d and the mean over height and width, addition of two tensors, strided slices with zero channels "
    "(option-A shortcuts), flatten, zero padding before a convolution, Dropout, a final softmax"
)
NEARLY = 1e-5  # relative: a straight-through (sign(w) − w).detach() + w misses ±1 by float32's rounding
Edges = tuple[int, int, int, int]  # top, bottom, left, right
NO_EDGES = (0, 0, 0, 0)


def from_torch(
    module: torch.nn.Module | ExportedProgram, example: Any = None, labels: list[str] | None = None
) -> Graph:
    """The deploy graph of a PyTorch net made of supported layers; raises :class:`ExportError` otherwise.

    ``example`` is an input as the net takes it, a batch of NCHW images or of vectors, or a tuple that holds one; only
    its shape and type matter. A module is exported in eval mode, as a copy on the CPU; an ``ExportedProgram`` (from
    ``torch.export.export`` or :func:`load_torch`) is taken as it is and needs no example.
    """
    torch = _torch()
    if isinstance(module, torch.nn.Module):
        program = _export(module, example)
    elif isinstance(module, torch.export.ExportedProgram):
        program = module
    else:
        raise ExportError(f"expected an nn.Module or an ExportedProgram, found {type(module).__name__}")
    with torch.no_grad():
        return _Reader(_functional(program), labels or []).graph()


def load_torch(path: str | Path) -> ExportedProgram:
    """The program in a ``.pt2`` file that ``torch.export.save`` wrote; for :func:`from_torch`.

    Safe for files of unknown origin: ``torch.export.load`` itself unpickles, evaluates and imports what the file says,
    so it is only given the graph and the raw tensors, rewritten and checked; see :mod:`flipbit.export.read.pt2_file`.
    Sample inputs, guards and extra files are not read. Files that need a pickle (tensor subclasses, custom objects),
    compiled code or operators outside ATen are refused, and so are pickled ``.pt`` and ``.pth`` files: these hold
    Python code or bare weights without a net.
    """
    torch = _torch()
    path = Path(path)
    if path.suffix in (".pt", ".pth", ".pkl", ".ckpt", ".bin"):
        raise ExportError(f"{path}: a pickle, which can run code when opened; expected a .pt2 file: {HOW}")
    if not path.is_file():
        raise ExportError(f"{path}: no such file")
    archive = without_code(path)
    try:
        return torch.export.load(archive)
    except Exception as error:
        raise ExportError(f"{path}: PyTorch {torch.__version__} cannot read it: {_first_line(error)}; {HOW}") from error


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise ExportError(f"PyTorch models need PyTorch ({error}); pip install torch") from None
    return torch


def _export(module: torch.nn.Module, example: Any) -> ExportedProgram:
    import torch

    if example is None:
        raise ExportError("a module needs an example input, such as torch.zeros(1, 3, 32, 32)")
    inputs = tuple(example) if isinstance(example, (tuple, list)) else (example,)
    try:
        inputs = tuple(torch.as_tensor(x).detach().cpu() for x in inputs)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ExportError(f"the example input must be a tensor, or a tuple that holds one: {error}") from error
    try:
        # In no_grad, so that a no_grad inside forward does not become a sub-graph of its own.
        with torch.no_grad():
            return torch.export.export(copy.deepcopy(module).cpu().eval(), inputs)
    except Exception as error:
        raise ExportError(
            f"torch.export cannot trace {type(module).__name__}: {_first_line(error)}; forward must take tensors and "
            "run the same operations for every image"
        ) from error


def _functional(program: ExportedProgram) -> ExportedProgram:
    """The program without operations in place, which change what others read, and without sub-graphs for no_grad."""
    if not any(
        node.op == "get_attr" or getattr(getattr(node.target, "_schema", None), "is_mutable", False)
        for node in program.graph.nodes
    ):
        return program
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # PyTorch's, of its own parts
        return program.run_decompositions({})


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _nearly_binary(weights: Array) -> Array:
    """``weights`` with filters of nearly two values ±s made exact, if all filters are such."""
    flat = np.abs(weights.reshape(-1, weights.shape[-1]))
    if not flat.size or binary_filters(weights) or not np.isfinite(flat).all():
        return weights
    magnitude = np.median(flat, axis=0)
    if (np.abs(flat - magnitude) <= NEARLY * magnitude).all() and (magnitude > 0).all():
        return np.where(weights > 0, magnitude, -magnitude)
    return weights


@dataclass(frozen=True)
class _Value:
    """What a node holds: a tensor of the deploy graph, of which pixels are yet to be left out and zeros to be added."""

    name: str
    stride: tuple[int, int] = (1, 1)
    channels: tuple[int, int] = (0, 0)  # zero channels in front and behind
    padding: Edges = NO_EDGES


class _Reader:
    """Walks the graph of an exported program in running order."""

    def __init__(self, program: ExportedProgram, labels: list[str]):
        self.program, self.labels = program, labels
        self.ops: list[Op] = []
        self.tensors: dict[str, Tensor] = {}
        self.order: dict[str, Array] = {}
        self.at: dict[Node, _Value] = {}
        self.constants: dict[Node, Any] = {}
        self.made: dict[tuple[_Value, str], str] = {}  # tensors made for a _Value, so that none is made twice
        self.passed: dict[Node, Node] = {}  # nodes that hold what another one does
        self.live: set[Node] = set()
        self.in_module: Counter[str] = Counter()  # path of a module → how many operations it has
        self.ends = ""

    def graph(self) -> Graph:
        nodes = list(self.program.graph.nodes)
        result = self._result(nodes[-1])
        pending = [result]
        while pending:
            node = pending.pop()
            if node not in self.live:
                self.live.add(node)
                pending += node.all_input_nodes
        nodes = [node for node in nodes if node in self.live]
        self._placeholders(nodes)
        calls = []
        for node in nodes:
            if node.op == "call_function":
                if not self._fold(node):
                    calls.append(node)
            elif node.op != "placeholder":
                self._refuse(
                    node, f"the sub-graph {node.target} is not supported; a net without torch.cond and loops is"
                )
        self.in_module.update(_path(node) for node in calls if _operator(node) not in _ALIASES)
        for node in calls:
            self._read(node, result)
        output = self.at.get(result)
        if output is None:
            raise ExportError("the output does not depend on the input")
        name = self._tensor(result)
        shape = self._shape(result)
        if len(shape) == 1:
            name = self._vector(result)
        elif shape != self._torch_shape(name):
            self._refuse(result, f"the output is a {shape} view of {self._torch_shape(name)}, which is not supported")
        if name in self.order:
            self._refuse(result, "the output's values stand in another order than PyTorch's; end with a linear layer")
        graph = Graph("input", name, self.ops, self.tensors, self.labels)
        graph.reference = Reference("PyTorch", lambda images: self._run(nodes, result, images), self.ends)
        graph.check()
        return graph

    def _run(self, nodes: list[Node], result: Node, images: Array) -> Array:
        """What PyTorch gives for images as the graph takes them. Only what was read is run: of a file of unknown
        origin, no operator outside those this module knows."""
        import torch

        (source,) = (node for node in nodes if node in self.at and node.op == "placeholder")
        fixed = source.meta["val"].shape[0]
        size = fixed if isinstance(fixed, int) else len(images)
        found = []
        for start in range(0, len(images), size):
            part = np.moveaxis(images[start : start + size], -1, 1)
            whole = np.resize(part, (size, *part.shape[1:]))  # a batch of a fixed size is filled up
            known = {**self.constants, source: torch.tensor(whole).to(source.meta["val"].dtype)}
            with torch.no_grad():
                for node in nodes:
                    if node not in known:
                        if _is_size(node) and _operator(node) not in _SIZES:
                            self._refuse(node, f"{node.target} is not supported; supported are {SUPPORTED}")
                        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), known.__getitem__)
                        operator: Any = node.target
                        known[node] = operator(*args, **kwargs)
            value = known[result]
            value = value[0] if isinstance(value, (tuple, list)) else value
            found.append(np.moveaxis(value.double().numpy(), 1, -1)[: len(part)])
        return np.concatenate(found)

    def _result(self, output: Node) -> Node:
        from torch.export.graph_signature import OutputKind

        kinds = [spec.kind for spec in self.program.graph_signature.output_specs]
        returned: Any = output.args[0]  # torch.fx calls it an Argument: anything
        results = [arg for arg, kind in zip(returned, kinds) if kind == OutputKind.USER_OUTPUT]
        if len(results) != 1 or not hasattr(results[0], "op"):
            raise ExportError(f"the model has {len(results)} outputs; one tensor is supported")
        return results[0]

    def _placeholders(self, nodes: list[Node]) -> None:
        from torch.export.graph_signature import InputKind

        signature, program = self.program.graph_signature, self.program
        changed = set(signature.buffers_to_mutate.values())
        inputs = [spec for spec in signature.input_specs if spec.kind == InputKind.USER_INPUT]
        if len(inputs) != 1:
            raise ExportError(f"the model has {len(inputs)} inputs; one is supported")
        targets = {spec.arg.name: spec for spec in signature.input_specs}
        for node in nodes:
            if node.op != "placeholder":
                continue
            spec = targets[node.name]
            if spec.kind == InputKind.USER_INPUT:
                shape = self._shape(node)
                if len(shape) not in (1, 3):
                    raise ExportError(
                        f"the input has shape {tuple(node.meta['val'].shape)}; "
                        "expected (batch, channels, height, width) or (batch, units)"
                    )
                self.tensors["input"] = Tensor("input", (*shape[1:], shape[0]))
                self.at[node] = _Value("input")
                continue
            if spec.target in changed:
                self._refuse(node, f"forward changes the buffer {spec.target} and uses it; is the model in eval mode?")
            name = str(spec.target)
            value = program.state_dict.get(name, program.constants.get(name))
            if value is None:
                self._refuse(node, f"no value for {name} in the model")
            self.constants[node] = value

    # Constants: what depends on parameters alone.

    def _fold(self, node: Node) -> bool:
        """Compute ``node`` if it does not depend on the image."""
        import torch

        called, inputs = _operator(node), node.all_input_nodes
        if any(n not in self.constants for n in inputs) or not (inputs or called in _FACTORIES):
            if called not in ("zeros_like", "new_zeros"):
                return False
            self.constants[node] = torch.zeros([1, *self._shape(node)])  # zeros, whatever the image
            return True
        if called == "getitem":
            self.constants[node] = self.constants[inputs[0]][node.args[1]]
            return True
        target: Any = node.target
        # Only functions of ATen that have no effect beside their result: a file says which are called.
        if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten" or target._schema.is_mutable:
            return False
        if torch.Tag.nondeterministic_seeded in target.tags:
            self._refuse(node, f"weights are drawn at random ({target}); the weights of a net to export are fixed")
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: self.constants[n])
        try:
            self.constants[node] = target(*args, **kwargs)
        except Exception as error:
            self._refuse(node, f"{target} of constants fails: {_first_line(error)}")
        return True

    def _numbers(self, value: Any) -> Array:
        """A constant as float64."""
        import torch

        return torch.as_tensor(value).detach().double().cpu().numpy()

    def _constant(self, node: Node, args: dict[str, Any], what: str) -> Array | None:
        found = args[what]
        if found is None:
            return None
        if found not in self.constants:
            self._refuse(node, f"its {what} depends on the image; weights must be constants")
        return self._numbers(self.constants[found])

    # Where things are, and messages.

    def _refuse(self, node: Node, why: str) -> Any:
        stack = list(node.meta.get("nn_module_stack", {}).values())
        kind = stack[-1][1] if stack else ""
        kind = kind.__name__ if isinstance(kind, type) else str(kind).rpartition(".")[2]
        place = f"{_path(node)} ({kind}, node {node.name})" if _path(node) else node.name
        raise ExportError(f"{place}: {why}")

    def _name(self, node: Node) -> str:
        """The module's path if the operation is all it does, else the path and the node's name; never twice."""
        path = _path(node)
        name = path if path and self.in_module[path] == 1 else f"{path}.{node.name}" if path else node.name
        while name in self.tensors:
            name += "_"
        return name

    def _shape(self, node: Node) -> tuple[int, ...]:
        """PyTorch's shape of a node, without the batch."""
        value = node.meta["val"]
        shape = (value[0] if isinstance(value, (tuple, list)) else value).shape[1:]
        if not all(isinstance(n, int) for n in shape):
            self._refuse(node, f"has the shape {tuple(shape)}; sizes other than the batch must be fixed")
        return tuple(int(n) for n in shape)

    def _torch_shape(self, name: str) -> tuple[int, ...]:
        shape = self.tensors[name].shape
        return (shape[-1], *shape[:-1])

    def _readers(self, node: Node) -> int:
        """How many operations read what ``node`` holds."""
        while node in self.passed:
            node = self.passed[node]
        return self._read_by(node)

    def _read_by(self, node: Node) -> int:
        count = 0
        for user in node.users:
            if user not in self.live or user in self.constants or _is_size(user):
                continue
            count += self._read_by(user) if user in self.passed or _operator(user) in _ALIASES else 1
        return count

    def _pass(self, node: Node, x: Node) -> None:
        """``node`` holds what ``x`` does."""
        self.at[node], self.passed[node] = self.at[x], x

    def _writer(self, node: Node, name: str) -> Op | None:
        """The operation that wrote ``name``, if at most one reads it, through ``node``, and so may change it."""
        if self._readers(node) > 1:
            return None
        return next((op for op in reversed(self.ops) if op.output == name), None)

    def _emit(self, node: Node, op: Op, shape: tuple[int, ...]) -> None:
        self.ops.append(op)
        self.tensors[op.output] = Tensor(op.output, shape)
        self.at[node] = _Value(op.output)

    def _put(self, op: Op) -> None:
        self.ops[[o.output for o in self.ops].index(op.output)] = op

    def _tensor(self, node: Node) -> str:
        """The tensor that holds the node's value, made if need be; zeros around it are refused."""
        if node not in self.at:
            self._refuse(node, "a constant where a tensor of the net was expected")
        if any(self.at[node].padding):
            self._refuse(node, "zero padding that no convolution follows; supported right before a convolution")
        return self._unpadded(node)

    def _unpadded(self, node: Node) -> str:
        value = replace(self.at[node], padding=NO_EDGES)
        if value == _Value(value.name):
            return value.name
        if (value, "shortcut") not in self.made:
            self.made[value, "shortcut"] = self._shortcut(node, value)
        return self.made[value, "shortcut"]

    def _shortcut(self, node: Node, value: _Value) -> str:
        """He et al.'s option A; zero channels go to the end, wherever PyTorch has them."""
        height, width, channels = self.tensors[value.name].shape
        if value.stride[0] != value.stride[1]:
            self._refuse(node, f"takes every {value.stride}th pixel; the same step in height and width is supported")
        front, back = value.channels
        step, total = value.stride[0], channels + front + back
        name = self._name(node)
        self.ops.append(PadShortcut(name, (value.name,), name, stride=step, channels=total))
        self.tensors[name] = Tensor(name, (-(-height // step), -(-width // step), total))
        order = self.order.get(value.name, np.arange(channels)) + front
        self._set_order(name, np.concatenate([order, np.arange(front), np.arange(front + channels, total)]))
        return name

    def _set_order(self, name: str, order: Array) -> None:
        if not np.array_equal(order, np.arange(len(order))):
            self.order[name] = order

    def _same_order(self, node: Node, source: str) -> None:
        """What ``node`` emitted keeps the order of ``source``."""
        if source in self.order:
            self.order[self.at[node].name] = self.order[source]

    def _image(self, node: Node, x: Node) -> str:
        name = self._tensor(x)
        self._expect_image(node, x)
        return name

    def _expect_image(self, node: Node, x: Node) -> None:
        """Refuse what was reshaped on the way, or is no image at all."""
        value, shape = self.at.get(x), self._shape(x)
        expected: tuple[int, ...] | None = None
        if value and len(self.tensors[value.name].shape) == 3:
            height, width, channels = self.tensors[value.name].shape
            top, bottom, left, right = value.padding
            down, across = value.stride
            rows, columns = -(-height // down) + top + bottom, -(-width // across) + left + right
            expected = (channels + sum(value.channels), rows, columns)
        if shape != expected:
            self._refuse(node, f"reads a tensor of shape {('batch', *shape)}; expected an image that was not reshaped")

    def _vector(self, node: Node) -> str:
        """The node's value as a vector: flattened, or, of a global average, written as one to begin with."""
        name = self._tensor(node)
        tensor = self.tensors[name]
        if self._shape(node) != (tensor.size,):
            self._refuse(
                node, f"is a vector of {self._shape(node)} out of {tensor.shape}; flatten keeps the batch axis"
            )
        if len(tensor.shape) == 1:
            return name
        height, width, channels = tensor.shape
        writer = self._writer(node, name)
        if isinstance(writer, AveragePool) and height == width == 1:
            self.tensors[name] = replace(tensor, shape=(channels,))
            return name
        key = (_Value(name), "flat")
        if key not in self.made:
            flat = self.made[key] = f"{name}.flat"
            self.ops.append(Flatten(flat, (name,), flat))
            self.tensors[flat] = Tensor(flat, (tensor.size,))
            order = self.order.get(name, np.arange(channels))
            at = order * (height * width) + np.arange(height * width)[:, None]  # PyTorch: channels first
            self._set_order(flat, at.reshape(-1))
        return self.made[key]

    # Each method below reads one kind of operator.

    def _read(self, node: Node, result: Node) -> None:
        called = _operator(node)
        args = _arguments(node)
        if _is_size(node):
            return
        if called in _SOFTMAX:
            self._softmax(node, args, result)
        elif called in _OPERATORS:
            _OPERATORS[called](self, node, args)
        else:
            self._refuse(node, f"{node.target} is not supported; supported are {SUPPORTED}")

    def _conv(self, node: Node, args: dict[str, Any]) -> None:
        dilation, groups = _pair(args["dilation"]), args["groups"]
        if dilation != (1, 1) or groups != 1 or args.get("transposed"):
            kind = "transposed, " if args.get("transposed") else ""
            self._refuse(node, f"{kind}dilation {dilation} and {groups} groups; a convolution with 1 each is supported")
        weights = self._constant(node, args, "weight")
        assert weights is not None
        x = args["input"]
        if weights.ndim != 4:
            self._refuse(node, f"weights of shape {weights.shape}; Conv2d is supported")
        self._expect_image(node, x)
        name = self._unpadded(x)
        kernel, stride = weights.shape[2:], _pair(args["stride"])
        padding: Edges
        if args["padding"] == "same":
            edges = [((k - 1) // 2, k - 1 - (k - 1) // 2) for k in kernel]
            padding = (*edges[0], *edges[1])
        elif args["padding"] == "valid":
            padding = NO_EDGES
        else:
            vertical, horizontal = _pair(args["padding"])
            padding = (vertical, vertical, horizontal, horizontal)
        top, bottom, left, right = (a + b for a, b in zip(padding, self.at[x].padding))
        weights = weights.transpose(2, 3, 1, 0)
        if name in self.order:
            weights = weights[:, :, self.order[name]]
        bias = self._constant(node, args, "bias")
        op = Conv(
            self._name(node),
            (name,),
            self._name(node),
            bias=np.zeros(weights.shape[-1]) if bias is None else bias,
            stride=stride,
            padding=(top, bottom, left, right),
            **weighted(_nearly_binary(weights)),
        )
        channels, height, width = self._shape(node)
        self._emit(node, op, (height, width, channels))

    def _linear(self, node: Node, args: dict[str, Any]) -> None:
        weights = self._constant(node, args, "weight")
        assert weights is not None
        self._dense(node, args["input"], weights.T, self._constant(node, args, "bias"))

    def _matmul(self, node: Node, args: dict[str, Any]) -> None:
        """x @ weights, or, of linear layers taken apart, bias + x @ weights."""
        x = args.get("mat1", args["self"])
        args = {"weight": args.get("mat2", args.get("other")), "bias": args["self"] if "mat1" in args else None} | {
            what: args.get(what, 1) for what in ("alpha", "beta")
        }
        weights = self._constant(node, args, "weight")
        bias = self._constant(node, args, "bias")
        assert weights is not None
        self._dense(node, x, args["alpha"] * weights, None if bias is None else args["beta"] * bias)

    def _dense(self, node: Node, x: Node, weights: Array, bias: Array | None) -> None:
        if weights.ndim != 2 or x not in self.at or len(self._shape(x)) != 1:
            self._refuse(node, f"a linear layer on shape {('batch', *self._shape(x))}; flatten to (batch, units) first")
        name = self._vector(x)
        units = weights.shape[1]
        if name in self.order:
            weights = weights[self.order[name]]
        bias = np.zeros(units) if bias is None else np.broadcast_to(bias, (units,))
        fields = weighted(_nearly_binary(weights))
        self._emit(node, Dense(self._name(node), (name,), self._name(node), bias=bias, **fields), (units,))

    def _affine(self, node: Node, x: Node, gain: Array, offset: Array, what: str) -> None:
        """gain · x + offset per channel, folded into the operation that wrote x."""
        name = self._tensor(x)
        op = self._writer(x, name)
        if not isinstance(op, Weighted) or op.relu or self._shape(x) != self._torch_shape(name):
            found = "a tensor that others read too" if self._readers(x) > 1 else op.kind if op else "the input"
            if isinstance(op, Weighted):
                found += " with ReLU" if op.relu else " that was reshaped"
            self._refuse(node, f"{what} after {found}; supported right after Conv2d or Linear")
        self._put(affine(op, gain, offset))
        self.at[node] = _Value(name)

    def _batch_norm(self, node: Node, args: dict[str, Any]) -> None:
        if args.get("training") or args["running_mean"] is None:
            self._refuse(
                node, "BatchNorm with the statistics of the batch; export the model in eval mode, with running ones"
            )
        mean, variance = (self._constant(node, args, what) for what in ("running_mean", "running_var"))
        gamma, beta = (self._constant(node, args, what) for what in ("weight", "bias"))
        assert mean is not None and variance is not None
        gain = (1.0 if gamma is None else gamma) / np.sqrt(variance + args["eps"])
        self._affine(node, args["input"], gain, -mean * gain + (0.0 if beta is None else beta), "BatchNorm")

    def _arithmetic(self, node: Node, args: dict[str, Any]) -> None:
        """Addition of two tensors, or +, −, ·, / with a constant per channel."""
        a, b, alpha = args["self"], args["other"], args.get("alpha", 1)
        called = _operator(node)
        if a in self.at and b in self.at:
            if called != "add" or alpha != 1:
                self._refuse(node, f"{node.target} of two tensors; plain addition is supported")
            self._add(node, a, b)
            return
        x, other = (a, b) if a in self.at else (b, a)
        c = self._per_channel(node, x, other)
        one, zero = np.ones_like(c), np.zeros_like(c)
        folded: dict[str, tuple[Array, Array]] = {
            "add": (one, alpha * c) if x is a else (alpha * one, c),
            "sub": (one, -alpha * c) if x is a else (-alpha * one, c),
            "rsub": (-alpha * one, c) if x is a else (one, -alpha * c),
            "mul": (c, zero),
        }
        if called == "div":
            if x is not a or args.get("rounding_mode"):
                self._refuse(node, f"{node.target} by a tensor or with rounding; division by a constant is supported")
            with np.errstate(divide="ignore"):
                folded["div"] = (1 / c, zero)
        if np.array_equal(folded[called][0], one) and not folded[called][1].any():
            self._pass(node, x)  # x · 1, x + 0
            return
        self._affine(node, x, *folded[called], f"{called} with a constant")

    def _per_channel(self, node: Node, x: Node, other: Any) -> Array:
        value = self._numbers(self.constants.get(other, other))
        shape = self._shape(x)
        try:
            return np.broadcast_to(value, (1, shape[0], *([1] * (len(shape) - 1)))).reshape(-1)
        except ValueError:
            return self._refuse(
                node, f"a constant of shape {value.shape} beside {('batch', *shape)}; one per channel is supported"
            )

    def _add(self, node: Node, a: Node, b: Node) -> None:
        names = self._tensor(a), self._tensor(b)
        if self.tensors[names[0]].shape != self.tensors[names[1]].shape and len(self._shape(node)) == 1:
            names = self._vector(a), self._vector(b)
        shapes = [self.tensors[name].shape for name in names]
        if shapes[0] != shapes[1] or self._shape(a) != self._shape(b):
            self._refuse(node, f"adds {self._shape(a)} and {self._shape(b)}; two tensors of one shape are supported")
        self._agree(node, (a, b), names)
        self._emit(node, Add(self._name(node), names, self._name(node)), shapes[0])
        self._same_order(node, names[0])

    def _agree(self, node: Node, nodes: tuple[Node, Node], names: tuple[str, str]) -> None:
        """Bring two tensors to one order of channels, by permuting the weights that wrote one of them."""
        channels = self.tensors[names[0]].shape[-1]
        orders = [self.order.get(name, np.arange(channels)) for name in names]
        if np.array_equal(*orders):
            return
        for i, j in ((0, 1), (1, 0)):
            op = self._writer(nodes[i], names[i])
            if isinstance(op, Weighted):
                at = np.argsort(orders[i])[orders[j]]
                self._put(replace(op, weights=op.weights[..., at], scale=op.scale[at], bias=op.bias[at]))
                self.order.pop(names[i], None)
                self._set_order(names[i], orders[j])
                return
        self._refuse(node, "adds two shortcuts with zero channels in different places; a convolution must write one")

    def _relu(self, node: Node, args: dict[str, Any]) -> None:
        if args.get("min", 0) != 0 or args.get("max") is not None:
            self._refuse(node, f"clamps to {args.get('min')} … {args.get('max')}; a plain ReLU is supported")
        (x, name) = (args["self"], self._tensor(args["self"]))
        op = self._writer(x, name)
        if isinstance(op, (Weighted, Add)):
            self._put(replace(op, relu=True))
            self.at[node] = _Value(name)
            return
        self._emit(node, Relu(self._name(node), (name,), self._name(node)), self.tensors[name].shape)
        self._same_order(node, name)

    def _max_pool(self, node: Node, args: dict[str, Any]) -> None:
        size, padding = _pair(args["kernel_size"]), _pair(args["padding"])
        stride = _pair(args["stride"]) if args["stride"] else size
        if _pair(args["dilation"]) != (1, 1):
            self._refuse(node, f"max pooling with dilation {args['dilation']}; 1 is supported")
        name = self._image(node, args["self"])
        shape = self._shape(node)
        edges: list[int] = []
        for n, out, k, s, p in zip(self.tensors[name].shape, shape[1:], size, stride, padding):
            # ceil_mode looks past the border: padding at the end, which never wins.
            edges += [p, max(p, (out - 1) * s + k - n - p)]
        top, bottom, left, right = edges
        op = MaxPool(self._name(node), (name,), self._name(node), size, stride, (top, bottom, left, right))
        self._emit(node, op, (*shape[1:], shape[0]))
        self._same_order(node, name)

    def _average_pool(self, node: Node, args: dict[str, Any]) -> None:
        size = _pair(args["kernel_size"])
        stride = _pair(args["stride"]) if args["stride"] else size
        name = self._image(node, args["self"])
        shape = self._shape(node)
        inside = all((o - 1) * s + k <= n for n, o, k, s in zip(self.tensors[name].shape, shape[1:], size, stride))
        if _pair(args["padding"]) != (0, 0) or not inside:
            self._refuse(node, "average pooling over the border; windows inside the image are supported")
        if args["divisor_override"] not in (None, size[0] * size[1]):
            self._refuse(node, f"average pooling divides by {args['divisor_override']}; the window's size is supported")
        self._average(node, name, size, stride, (*shape[1:], shape[0]))

    def _adaptive_pool(self, node: Node, args: dict[str, Any]) -> None:
        name = self._image(node, args["self"])
        height, width, channels = self.tensors[name].shape
        _, rows, columns = self._shape(node)
        if height % rows or width % columns:
            self._refuse(
                node, f"adaptive pooling of {height}×{width} to {rows}×{columns}; sizes that divide are supported"
            )
        size = (height // rows, width // columns)
        self._average(node, name, size, size, (rows, columns, channels))

    def _mean(self, node: Node, args: dict[str, Any]) -> None:
        x = args["self"]
        axes = sorted(axis % (len(self._shape(x)) + 1) for axis in args.get("dim") or ())
        if axes != [2, 3] or len(self._shape(x)) != 3:
            self._refuse(node, f"the mean over axes {args.get('dim')}; over height and width of an image is supported")
        name = self._image(node, x)
        height, width, channels = self.tensors[name].shape
        shape = (1, 1, channels) if args["keepdim"] else (channels,)
        self._average(node, name, (height, width), (height, width), shape)

    def _average(
        self, node: Node, name: str, size: tuple[int, int], stride: tuple[int, int], shape: tuple[int, ...]
    ) -> None:
        self._emit(node, AveragePool(self._name(node), (name,), self._name(node), size=size, stride=stride), shape)
        self._same_order(node, name)

    def _slice(self, node: Node, args: dict[str, Any]) -> None:
        """Every n-th pixel, as option-A shortcuts take them."""
        x, step, start, end = args["self"], args["step"], args["start"] or 0, args["end"]
        axis = args["dim"] % (len(self._shape(x)) + 1)
        size = x.meta["val"].shape[axis]
        whole = start == 0 and (end is None or (isinstance(size, int) and end >= size) or end >= 2**62)
        if whole and step == 1:
            self._pass(node, x)
            return
        if not whole or axis not in (2, 3) or any(self.at[x].padding):
            self._refuse(node, f"takes [{start}:{end}:{step}] of axis {axis}; every n-th pixel from 0 on is supported")
        self._expect_image(node, x)
        down, right = self.at[x].stride
        self.at[node] = replace(self.at[x], stride=(down * step, right) if axis == 2 else (down, right * step))

    def _pad(self, node: Node, args: dict[str, Any]) -> None:
        edges, x = list(args["pad"]), args["self"]
        if args.get("mode", "constant") != "constant" or args["value"] not in (None, 0):
            value = args["value"] if args.get("mode", "constant") == "constant" else args["mode"]
            self._refuse(node, f"pads with {value}; zeros are supported")
        left, right, top, bottom, front, back, *more = edges + [0] * (6 - len(edges))
        if min(edges, default=0) < 0 or any(more):
            self._refuse(node, f"pads by {edges}; zeros around the image and zero channels are supported")
        if not any(edges):
            self._pass(node, x)
            return
        self._expect_image(node, x)
        before = self.at[x]
        self.at[node] = replace(
            before,
            channels=(before.channels[0] + front, before.channels[1] + back),
            padding=tuple(a + b for a, b in zip(before.padding, (top, bottom, left, right))),
        )

    def _cat(self, node: Node, args: dict[str, Any]) -> None:
        """Zero channels as a concatenation."""
        parts = args["tensors"]
        found = [part for part in parts if part in self.at]
        zeros = all(not self._numbers(self.constants[part]).any() for part in parts if part in self.constants)
        if len(found) != 1 or not zeros or args["dim"] not in (1, 1 - node.meta["val"].dim()):
            self._refuse(node, "concatenates tensors; one tensor and zero channels are supported")
        (x,) = found
        counts = [int(part.meta["val"].shape[1]) for part in parts]
        place = parts.index(x)
        front, back = sum(counts[:place]), sum(counts[place + 1 :])
        self._expect_image(node, x)
        before = self.at[x]
        self.at[node] = replace(before, channels=(before.channels[0] + front, before.channels[1] + back))

    def _softmax(self, node: Node, args: dict[str, Any], result: Node) -> None:
        while result is not node and _operator(result) in _ALIASES:
            result = result.all_input_nodes[0]
        if result is not node:
            self._refuse(node, "a softmax inside the net; only a final one is supported")
        if args["dim"] not in (1, 1 - node.meta["val"].dim()):
            self._refuse(node, f"a softmax over axis {args['dim']}; over the classes, axis 1, is supported")
        self.ends = "log_softmax" if "log" in _operator(node) else "softmax"
        self._pass(node, args["self"])

    def _alias(self, node: Node, args: dict[str, Any]) -> None:
        """A view, a copy, a dropout at rest: the same values in the same order."""
        if args.get("train") or args.get("training"):
            self._refuse(node, "dropout at work; export the model in eval mode")
        x = node.all_input_nodes[0]
        value = node.meta["val"]
        if x not in self.at or ("dtype" in args and _operator(node) == "view"):
            self._refuse(node, f"{node.target} of constants or to another type is not supported")
        batch, before = value.shape[:1], x.meta["val"]
        before = before[0] if isinstance(before, (tuple, list)) else before
        if batch != before.shape[:1]:
            self._refuse(
                node, f"reshapes {tuple(before.shape)} to {tuple(value.shape)}; the batch axis must stay first"
            )
        if not value.dtype.is_floating_point:
            self._refuse(node, f"turns into {value.dtype}; the net must stay in floating point")
        if value.shape != before.shape and self.at[x] != _Value(self.at[x].name):
            self.at[node] = _Value(self._tensor(x))
        else:
            self._pass(node, x)

    def _item(self, node: Node, args: dict[str, Any]) -> None:
        """The first of several results, of operators whose others are statistics or indices."""
        if node.args[1] != 0:
            self._refuse(
                node, f"uses result {node.args[1]} of {node.all_input_nodes[0].target}; the first is supported"
            )
        self._pass(node, node.all_input_nodes[0])


def _path(node: Node) -> str:
    """The path of the module that a node belongs to."""
    stack = list(node.meta.get("nn_module_stack", {}).values())
    return str(stack[-1][0]).removeprefix("L['self'].").removeprefix("L['self']") if stack else ""


def _operator(node: Node) -> str:
    """The operator's name without namespace and overload: ``conv2d`` of ``aten.conv2d.default``."""
    if node.op != "call_function":
        return ""
    target: Any = node.target
    schema = getattr(target, "_schema", None)
    if schema is None:
        return "getitem" if target is operator.getitem else str(target)
    return str(schema.name).removeprefix("aten::")


def _is_size(node: Node) -> bool:
    """Whether a node computes with sizes, of a batch that may vary; the shapes of tensors are known without."""
    return not hasattr(node.meta.get("val"), "shape") and not isinstance(node.meta.get("val"), (tuple, list))


def _arguments(node: Node) -> dict[str, Any]:
    """Arguments by name, defaults filled in."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return {}
    named = {a.name: a.default_value if a.has_default_value() else None for a in schema.arguments}
    return {**named, **dict(zip(named, node.args)), **node.kwargs}


def _pair(value: Any) -> tuple[int, int]:
    values = [value] if isinstance(value, int) else list(value)
    return int(values[0]), int(values[-1])


_SIZES = {"sym_size", *map(str, (operator.add, operator.sub, operator.mul, operator.floordiv))}
_SOFTMAX = {"softmax", "log_softmax", "_softmax", "_log_softmax"}
_FACTORIES = {"full", "zeros", "ones", "scalar_tensor", "arange", "linspace", "eye"}
_ALIASES = set(
    "view reshape _unsafe_view flatten squeeze unsqueeze view_as dropout feature_dropout alpha_dropout "
    "feature_alpha_dropout clone contiguous alias detach lift_fresh_copy to _to_copy getitem".split()
)
_OPERATORS: dict[str, Callable[..., None]] = {
    **dict.fromkeys(_ALIASES, _Reader._alias),
    "getitem": _Reader._item,
    "conv2d": _Reader._conv,
    "convolution": _Reader._conv,
    "linear": _Reader._linear,
    "addmm": _Reader._matmul,
    "mm": _Reader._matmul,
    "matmul": _Reader._matmul,
    "batch_norm": _Reader._batch_norm,
    "_native_batch_norm_legit_no_training": _Reader._batch_norm,
    "relu": _Reader._relu,
    "clamp": _Reader._relu,
    "clamp_min": _Reader._relu,
    **dict.fromkeys(("add", "sub", "rsub", "mul", "div"), _Reader._arithmetic),
    "max_pool2d": _Reader._max_pool,
    "max_pool2d_with_indices": _Reader._max_pool,
    "avg_pool2d": _Reader._average_pool,
    "adaptive_avg_pool2d": _Reader._adaptive_pool,
    "_adaptive_avg_pool2d": _Reader._adaptive_pool,
    "mean": _Reader._mean,
    "slice": _Reader._slice,
    "pad": _Reader._pad,
    "constant_pad_nd": _Reader._pad,
    "cat": _Reader._cat,
}
