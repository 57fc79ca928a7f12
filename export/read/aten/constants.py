"""What depends on parameters alone is computed at once: weights, however the model makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flipbit.export.read.aten.builder import Builder
from flipbit.export.read.aten.nodes import FACTORIES, first_line, operator_of

if TYPE_CHECKING:
    from torch.fx import Node


def fold(build: Builder, node: Node) -> bool:
    """Compute ``node`` if it does not depend on the image."""
    import torch

    called, inputs = operator_of(node), node.all_input_nodes
    if any(n not in build.constants for n in inputs) or not (inputs or called in FACTORIES):
        if called not in ("zeros_like", "new_zeros"):
            return False
        build.constants[node] = torch.zeros([1, *build.shape(node)])  # zeros, whatever the image
        return True
    if called == "getitem":
        build.constants[node] = build.constants[inputs[0]][node.args[1]]
        return True
    target: Any = node.target
    # Only functions of ATen that have no effect beside their result: a file says which are called.
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten" or target._schema.is_mutable:
        return False
    if torch.Tag.nondeterministic_seeded in target.tags:
        build.refuse(node, f"weights are drawn at random ({target}); the weights of a net to export are fixed")
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: build.constants[n])
    try:
        build.constants[node] = target(*args, **kwargs)
    except Exception as error:
        build.refuse(node, f"{target} of constants fails: {first_line(error)}")
    return True
