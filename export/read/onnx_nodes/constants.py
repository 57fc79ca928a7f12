"""What depends on constants alone is computed at once: weights, however the file makes them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from flipbit.export.graph import Array
from flipbit.export.read.onnx_file import array_of
from flipbit.export.read.onnx_nodes.values import OnnxBuilder, OnnxNode, StoredNumbers

LARGEST = 1 << 28  # values of a constant; vgg9 has 3 million weights
BROADCAST = frozenset("Add Sub Mul Div Pow Equal Greater GreaterOrEqual Less LessOrEqual And Or Where Max Min".split())
# Operators that give one array, of about the size of what they are given; the others are looked at below.
FOLDED = BROADCAST | frozenset(
    "Abs Cast Ceil Clip Concat Exp Flatten Floor Gather Identity Log Neg Not QuantizeLinear Reciprocal ReduceMax "
    "ReduceMean ReduceMin ReduceSum Relu Reshape Round Shape Sign Slice Sqrt Squeeze Tanh Transpose Unsqueeze".split()
)


def fold(build: OnnxBuilder, node: OnnxNode, proto: Any, opset: int) -> bool:
    """Compute ``node`` if nothing that it reads depends on the image."""
    if node.kind == "Constant":
        build.constants[node.outputs[0]] = StoredNumbers(_literal(node))
        return True
    if node.kind == "Shape" and node.inputs[0] in build.at:
        shape = build.at[node.inputs[0]].shape
        build.constants[node.outputs[0]] = StoredNumbers(
            np.array(shape[node.attribute("start", 0) : node.attribute("end")], np.int64)
        )
        return True
    if not node.inputs or any(name and name not in build.constants for name in node.inputs):
        return False
    given: list[Any] = [build.constants[name].value if name else None for name in node.inputs]
    if node.kind == "DequantizeLinear":
        build.constants[node.outputs[0]] = _dequantized(node, given)
    elif node.kind == "ConstantOfShape":
        shape = tuple(int(n) for n in np.atleast_1d(given[0]).tolist())
        _require_size(node, shape)
        fill = node.attributes.get("value")
        build.constants[node.outputs[0]] = StoredNumbers(np.full(shape, array_of(fill)[0] if fill else np.float32(0)))
    elif node.kind == "Expand":
        shape = np.broadcast_shapes(given[0].shape, tuple(int(n) for n in given[1]))
        _require_size(node, shape)
        build.constants[node.outputs[0]] = StoredNumbers(np.broadcast_to(given[0], shape))
    elif node.kind in FOLDED:
        if node.kind in BROADCAST:
            try:
                _require_size(node, np.broadcast_shapes(*(array.shape for array in given if array is not None)))
            except ValueError as error:
                node.refuse(f"of constants that do not fit each other ({error})")
        if node.kind == "Gather":
            axis = node.attribute("axis", 0)
            rest = given[0].size // max(1, given[0].shape[axis] if given[0].ndim else 1)
            _require_size(node, (given[1].size, rest))
        build.constants[node.outputs[0]] = StoredNumbers(_computed(node, proto, opset, given))
    else:
        node.refuse("of constants is not supported; weights must be stored, or made by plain arithmetic")
    return True


def _literal(node: OnnxNode) -> Array:
    for name, found in node.attributes.items():
        if name == "value":
            return array_of(found)
        if name in ("value_float", "value_floats"):
            return np.array(found, np.float32)
        if name in ("value_int", "value_ints"):
            return np.array(found, np.int64)
    return node.refuse(f"holds {', '.join(node.attributes)}; numbers are supported")


def _require_size(node: OnnxNode, shape: Any) -> None:
    if any(int(n) < 0 for n in shape) or math.prod(int(n) for n in shape) > LARGEST:
        node.refuse(f"makes a constant of shape {tuple(shape)}, which is larger than any net's weights")


def _computed(node: OnnxNode, proto: Any, opset: int, given: list[Array | None]) -> Array:
    """By the reference implementation of ONNX itself."""
    from onnx import TensorProto, helper
    from onnx.reference import ReferenceEvaluator

    feeds: dict[str, Any] = {name: array for name, array in zip(node.inputs, given) if name}
    inputs = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in feeds]
    outputs = [helper.make_tensor_value_info(node.outputs[0], TensorProto.UNDEFINED, None)]
    graph = helper.make_graph([proto], "constant", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    try:
        with np.errstate(all="ignore"):  # infinity and NaN are refused later, by layer
            results: Any = ReferenceEvaluator(model).run(None, feeds)
            return np.asarray(results[0])
    except Exception as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        return node.refuse(f"of constants fails: {first[:200]}")


def _dequantized(node: OnnxNode, given: list[Array | None]) -> StoredNumbers:
    values, steps = given[0], given[1]
    zeros = given[2] if len(given) > 2 else None
    assert values is not None and steps is not None
    if node.attribute("block_size", 0) or steps.ndim > 1:
        node.refuse("scales block by block; one scale per tensor or per filter is supported")
    axis = node.attribute("axis", 1) % max(1, values.ndim)
    if steps.ndim == 1 and steps.size not in (1, values.shape[axis] if values.ndim else 1):
        node.refuse(f"{steps.size} scales for an axis of {values.shape}")
    along = (-1,) + (1,) * (values.ndim - axis - 1) if steps.size > 1 else ()
    zeros = np.zeros(1, np.int32) if zeros is None else zeros.astype(np.int32)
    integers = values.astype(np.int32) - (zeros.reshape(along) if zeros.size > 1 else zeros.reshape(-1)[0])
    real = integers * steps.astype(np.float64).reshape(along or ())
    return StoredNumbers(real, integers, steps.astype(np.float64).reshape(-1), axis)
