"""The order of values in a device's memory, and dense layers that suit it.

Images lie plane by plane on a device (channel, row, column), and flattening moves nothing, so that a flattened image is
in another order there than in the deploy graph (row, column, channel). Every vector has an order: what a Flatten writes
has its image's, the input, an average and the output have the graph's, and ReLU and additions need one order for all
they read and write. What a dense layer writes may have any, as its columns can be permuted. This module finds an
order for every vector, or names the operation that has none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from flipbit.export.graph import Array, Dense, ExportError, Graph, Op
from flipbit.runtime.image.kinds import Shape


@dataclass(frozen=True)
class _Order:
    """Which value of the graph stands at each place of a device, and what asks for it."""

    places: Array
    cause: str


def orders(graph: Graph) -> dict[str, Array]:
    """For each vector that a device holds in another order: the graph's index at each place."""
    group = {name: name for name, tensor in graph.tensors.items() if len(tensor.shape) == 1}

    def root(name: str) -> str:
        while group[name] != name:
            name = group[name]
        return name

    found: dict[str, _Order] = {}

    def settle(name: str, order: _Order, op: Op | None) -> None:
        known = found.setdefault(root(name), order)
        if not np.array_equal(known.places, order.places):
            where = op.name if op else name
            raise ExportError(
                f"{where}: meets values in two orders on a device, {known.cause} and {order.cause}, as devices flatten "
                "channel by channel; put a Dense layer between"
            )

    def as_in_graph(name: str, cause: str) -> _Order:
        return _Order(np.arange(graph.tensors[name].size), cause)

    if graph.input in group:
        found[graph.input] = as_in_graph(graph.input, "the input's")
    for op in graph:
        if op.traits.shape is Shape.BITS and op.inputs[0] in group:
            settle(op.inputs[0], as_in_graph(op.inputs[0], f"{op.name}'s"), op)
        if op.output not in group:
            continue
        if op.traits.shape is Shape.FLAT:
            if op.inputs[0] in group:
                raise ExportError(f"{op.name}: flattens a vector; leave it out")
            h, w, c = graph.tensors[op.inputs[0]].shape
            places = np.arange(h * w * c).reshape(h, w, c).transpose(2, 0, 1).reshape(-1)
            settle(op.output, _Order(places, f"{op.name}'s of {h}×{w}×{c}"), op)
        elif op.traits.shape is Shape.SAME:
            for name in op.inputs:
                first, other = root(op.output), root(name)
                if first == other:
                    continue
                group[first] = other
                if first in found:
                    settle(other, found.pop(first), op)
        elif op.traits.shape is Shape.JOINED:
            parts, start = [], 0
            for name in op.inputs:
                if root(name) not in found:
                    settle(name, as_in_graph(name, f"{op.name}'s"), op)
                parts.append(start + found[root(name)].places)
                start += graph.tensors[name].size
            settle(op.output, _Order(np.concatenate(parts), f"{op.name}'s"), op)
        elif op.traits.shape is not Shape.VECTORS:
            settle(op.output, as_in_graph(op.output, f"{op.name}'s"), op)
    if graph.output in group:
        writer = next((op for op in graph if op.output == graph.output), None)
        settle(graph.output, as_in_graph(graph.output, "the output's"), writer)
    result = {name: found[root(name)].places for name in group if root(name) in found}
    return {name: places for name, places in result.items() if not np.array_equal(places, np.arange(len(places)))}


def planar(graph: Graph) -> Graph:
    """The graph with dense layers that read and write vectors in a device's order."""
    places = orders(graph)
    return graph.with_ops([_permuted(op, places) if isinstance(op, Dense) else op for op in graph], graph.tensors)


def _permuted(op: Dense, places: dict[str, Array]) -> Dense:
    rows, columns = places.get(op.inputs[0]), places.get(op.output)
    if rows is not None:
        op = replace(op, weights=op.weights[rows])
    if columns is not None:
        op = replace(op, weights=op.weights[:, columns], scale=op.scale[columns], bias=op.bias[columns])
        r = op.requantize
        if r is not None:
            op = replace(op, requantize=replace(r, bias=r.bias[columns], multiplier=r.multiplier[columns]))
    return op


def in_graph_order(values: dict[str, Array], graph: Graph) -> dict[str, Array]:
    """Tensors of a device, batch first, with every vector in the graph's order."""
    places = orders(graph)
    return {name: v[:, np.argsort(places[name])] if name in places else v for name, v in values.items()}
