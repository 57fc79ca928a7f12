"""What a node of the program is: its operator, its arguments, where it stands in the model."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.fx import Node

SIZES = {"sym_size", *map(str, (operator.add, operator.sub, operator.mul, operator.floordiv))}
SOFTMAX = {"softmax", "log_softmax", "_softmax", "_log_softmax"}
FACTORIES = {"full", "zeros", "ones", "scalar_tensor", "arange", "linspace", "eye"}
ALIASES = set(
    "view reshape _unsafe_view flatten squeeze unsqueeze view_as dropout feature_dropout alpha_dropout "
    "feature_alpha_dropout clone contiguous alias detach lift_fresh_copy to _to_copy getitem".split()
)


def module_path(node: Node) -> str:
    """The path of the module that a node belongs to."""
    stack = list(node.meta.get("nn_module_stack", {}).values())
    return str(stack[-1][0]).removeprefix("L['self'].").removeprefix("L['self']") if stack else ""


def operator_of(node: Node) -> str:
    """The operator's name without namespace and overload: ``conv2d`` of ``aten.conv2d.default``."""
    if node.op != "call_function":
        return ""
    target: Any = node.target
    schema = getattr(target, "_schema", None)
    if schema is None:
        return "getitem" if target is operator.getitem else str(target)
    return str(schema.name).removeprefix("aten::")


def is_size(node: Node) -> bool:
    """Whether a node computes with sizes, of a batch that may vary; the shapes of tensors are known without."""
    return not hasattr(node.meta.get("val"), "shape") and not isinstance(node.meta.get("val"), (tuple, list))


def arguments(node: Node) -> dict[str, Any]:
    """Arguments by name, defaults filled in."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return {}
    named = {a.name: a.default_value if a.has_default_value() else None for a in schema.arguments}
    return {**named, **dict(zip(named, node.args)), **node.kwargs}


def pair(value: Any) -> tuple[int, int]:
    values = [value] if isinstance(value, int) else list(value)
    return int(values[0]), int(values[-1])


def first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
