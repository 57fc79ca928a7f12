"""Walks the graph of an exported program in running order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from flipbit.export.graph import Array, ExportError, Graph, Reference, Tensor
from flipbit.export.read.aten import arithmetic, constants, layers, pooling, views
from flipbit.export.read.aten.builder import Builder, Value
from flipbit.export.read.aten.nodes import ALIASES, SIZES, SOFTMAX, arguments, is_size, module_path, operator_of
from flipbit.export.read.fuse import fuse

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

SUPPORTED = (
    "Conv2d (also depthwise) and Linear, BatchNorm, constants per channel, ReLU, ReLU6, LeakyReLU, "
    "PReLU, ELU, Sigmoid, Tanh, SiLU, GELU, Hardsigmoid, Hardswish, MaxPool2d, AvgPool2d, AdaptiveMaxPool2d, "
    "AdaptiveAvgPool2d and the mean over height and width, addition of two tensors, concatenation of channels, strided "
    "slices with zero channels (option-A shortcuts), flatten, zero padding before a convolution, Dropout, a final "
    "softmax"
)
OPERATORS: dict[str, Callable[..., None]] = {
    **dict.fromkeys(ALIASES, views.alias),
    "getitem": views.first_result,
    "conv2d": layers.conv,
    "convolution": layers.conv,
    "linear": layers.linear,
    "addmm": layers.matmul,
    "mm": layers.matmul,
    "matmul": layers.matmul,
    "batch_norm": layers.batch_norm,
    "_native_batch_norm_legit_no_training": layers.batch_norm,
    "relu": arithmetic.relu,
    "clamp": arithmetic.relu,
    "hardtanh": arithmetic.relu,
    "relu6": arithmetic.relu,
    **dict.fromkeys(
        ("leaky_relu", "elu", "sigmoid", "tanh", "silu", "gelu", "hardsigmoid", "hardswish"), arithmetic.function
    ),
    "prelu": arithmetic.one_slope,
    "_prelu_kernel": arithmetic.one_slope,
    "adaptive_max_pool2d": pooling.adaptive_max,
    "clamp_min": arithmetic.relu,
    **dict.fromkeys(("add", "sub", "rsub", "mul", "div"), arithmetic.arithmetic),
    "max_pool2d": pooling.max_pool,
    "max_pool2d_with_indices": pooling.max_pool,
    "avg_pool2d": pooling.average_pool,
    "adaptive_avg_pool2d": pooling.adaptive_pool,
    "_adaptive_avg_pool2d": pooling.adaptive_pool,
    "mean": pooling.mean,
    "slice": views.every_nth_pixel,
    "pad": views.pad,
    "constant_pad_nd": views.pad,
    "cat": views.zero_channels,
}
# What to do without operators that no device here runs.
_NO_UPSAMPLING = "upsampling is not supported; end the net at its smallest image"
_NO_RECURRENCE = "recurrent layers are not supported; use convolutions over the sequence"
_NO_NORM = "it normalizes by statistics of each image; use BatchNorm"
INSTEAD = {
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "pixel_shuffle"), _NO_UPSAMPLING),
    **dict.fromkeys(
        ("upsample_nearest1d", "upsample_nearest2d", "upsample_bilinear2d", "upsample_bicubic2d"), _NO_UPSAMPLING
    ),
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), _NO_RECURRENCE),
    **dict.fromkeys(("layer_norm", "native_layer_norm", "group_norm", "native_group_norm", "instance_norm"), _NO_NORM),
    "scaled_dot_product_attention": "attention is not supported; use convolutions",
    "embedding": "look-ups of tokens are not supported; feed the net numbers",
    "conv1d": "Conv1d is read from ONNX: torch.onnx.export",
    "conv3d": "3-D convolutions are not supported; put the frames into the channels of Conv2d",
}


class Walk:
    """From the program's placeholders to its output."""

    def __init__(self, program: ExportedProgram, labels: list[str]):
        self.program, self.labels = program, labels
        self.build = Builder()
        self.unknown = False  # an operator of which there is nothing to say but what is supported

    def graph(self) -> Graph:
        nodes = list(self.program.graph.nodes)
        result = self._result(nodes[-1])
        pending = [result]
        while pending:
            node = pending.pop()
            if node not in self.build.live:
                self.build.live.add(node)
                pending += node.all_input_nodes
        nodes = [node for node in nodes if node in self.build.live]
        self._placeholders(nodes)
        calls = []
        for node in nodes:
            if node.op == "call_function":
                if not constants.fold(self.build, node):
                    calls.append(node)
            elif node.op != "placeholder":
                self.build.refuse(
                    node, f"the sub-graph {node.target} is not supported; a net without torch.cond and loops is"
                )
        self.build.in_module.update(module_path(node) for node in calls if operator_of(node) not in ALIASES)
        self._read_all(calls, result)
        output = self.build.at.get(result)
        if output is None:
            raise ExportError("the output does not depend on the input")
        name = self.build.tensor(result)
        shape = self.build.shape(result)
        if len(shape) == 1:
            name = self.build.vector(result)
        elif shape != self.build.torch_shape(name):
            self.build.refuse(
                result, f"the output is a {shape} view of {self.build.torch_shape(name)}, which is not supported"
            )
        if name in self.build.order:
            self.build.refuse(
                result, "the output's values stand in another order than PyTorch's; end with a linear layer"
            )
        ops, name = fuse(self.build.ops, name, self.build.tensors)
        tensors = {tensor: self.build.tensors[tensor] for tensor in ("input", *(op.output for op in ops))}
        graph = Graph("input", name, ops, tensors, self.labels)
        graph.reference = Reference("PyTorch", lambda images: self._run(nodes, result, images), self.build.ends)
        graph.check()
        return graph

    def _run(self, nodes: list[Node], result: Node, images: Array) -> Array:
        """What PyTorch gives for images as the graph takes them. Only what was read is run: of a file of unknown
        origin, no operator outside those this module knows."""
        import torch

        (source,) = (node for node in nodes if node in self.build.at and node.op == "placeholder")
        fixed = source.meta["val"].shape[0]
        size = fixed if isinstance(fixed, int) else len(images)
        found = []
        for start in range(0, len(images), size):
            part = np.moveaxis(images[start : start + size], -1, 1)
            whole = np.resize(part, (size, *part.shape[1:]))  # a batch of a fixed size is filled up
            known = {**self.build.constants, source: torch.tensor(whole).to(source.meta["val"].dtype)}
            with torch.no_grad():
                for node in nodes:
                    if node not in known:
                        if is_size(node) and operator_of(node) not in SIZES:
                            self.build.refuse(node, f"{node.target} is not supported; supported are {SUPPORTED}")
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
            raise ExportError(f"the model has {len(results)} outputs; one tensor is supported: join them by torch.cat")
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
                shape = self.build.shape(node)
                if len(shape) not in (1, 3):
                    raise ExportError(
                        f"the input has shape {tuple(node.meta['val'].shape)}; "
                        "expected (batch, channels, height, width) or (batch, units); a net of sequences (Conv1d) is "
                        "read from ONNX (torch.onnx.export)"
                    )
                self.build.tensors["input"] = Tensor("input", (*shape[1:], shape[0]))
                self.build.at[node] = Value("input")
                continue
            if spec.target in changed:
                self.build.refuse(
                    node, f"forward changes the buffer {spec.target} and uses it; is the model in eval mode?"
                )
            name = str(spec.target)
            value = program.state_dict.get(name, program.constants.get(name))
            if value is None:
                self.build.refuse(node, f"no value for {name} in the model")
            self.build.constants[node] = value

    def _read_all(self, calls: list[Node], result: Node) -> None:
        """Every node; what cannot be read is said of all of them at once."""
        complaints: dict[str, None] = {}  # in order, each once
        beyond: set[Node] = set()  # what hangs on a refused node whose result is neither an image nor a vector
        for node in calls:
            if beyond.intersection(node.all_input_nodes):
                beyond.add(node)
                continue
            try:
                self._read(node, result)
            except ExportError as error:
                complaints[str(error)] = None
                if not self._stand_in(node):
                    beyond.add(node)
        if complaints:
            known = [f"supported are {SUPPORTED}"] if self.unknown else []  # said once
            if len(complaints) == 1:
                raise ExportError("; ".join([*complaints, *known]))
            numbered = [f"({i}) {complaint}" for i, complaint in enumerate(complaints, 1)]
            raise ExportError(f"{len(complaints)} operations cannot be exported: {'; '.join([*numbered, *known])}")

    def _stand_in(self, node: Node) -> bool:
        """A tensor in the place of what could not be read, so that the rest can be; False if there is none."""
        value = node.meta.get("val")
        shape = tuple(getattr(value, "shape", ()))[1:]
        if len(shape) not in (1, 3) or not all(isinstance(n, int) for n in shape):
            return False
        name = self.build.name(node)
        self.build.tensors[name] = Tensor(name, (*shape[1:], shape[0]))
        self.build.at[node] = Value(name)
        return True

    def _read(self, node: Node, result: Node) -> None:
        called = operator_of(node)
        args = arguments(node)
        if is_size(node):
            return
        if called in SOFTMAX:
            arithmetic.softmax(self.build, node, args, result)
        elif called in OPERATORS:
            OPERATORS[called](self.build, node, args)
        elif called in INSTEAD:
            self.build.refuse(node, f"{node.target}: {INSTEAD[called]}")
        else:
            self.unknown = True
            self.build.refuse(node, f"{node.target} is not supported")
