"""References for ``recalibrate``: what each channel's results are like on plain training images, kept in the image."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flipbit.export import oracle
from flipbit.export.graph import Array, Graph, Op, Weighted
from flipbit.export.write.fbit import fbit_bytes
from flipbit.runtime.core.references import measure
from flipbit.runtime.image.kinds import REFERENCES

IMAGES = 2000


def with_references(graph: Graph, inputs: Array) -> Graph:
    """The same quantized graph with references. ``inputs`` are real numbers, as the net takes them."""
    marked = graph.with_ops([_marked(op, graph) for op in graph], graph.tensors)
    x = oracle.quantize(inputs, graph.tensors[graph.input])
    planes = np.moveaxis(x, -1, 1) if x.ndim == 4 else x
    found = measure(fbit_bytes(marked), np.ascontiguousarray(planes))
    ops = [replace(op, references=pairs) if isinstance(op, Weighted) else op for op, pairs in zip(marked, found)]
    return replace(graph, ops=ops)


def may_have(op: Weighted, graph: Graph) -> bool:
    """Convolutions have references, but for the last layer: what a net answers depends on what it is shown."""
    return bool(op.traits.kernel and op.traits.flags & REFERENCES and op.output != graph.output)


def _marked(op: Op, graph: Graph) -> Op:
    if not isinstance(op, Weighted) or not may_have(op, graph):
        return op
    return replace(op, references=np.zeros((op.channels, 2), np.int64))
