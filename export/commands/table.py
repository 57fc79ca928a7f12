"""A deploy graph as a table: layer, kind, bits, bytes, MACs and the range of its scales."""

from __future__ import annotations

from typing import Any

from flipbit.export.graph import Conv, DepthwiseConv, Graph, Table, Weighted


def rows(graph: Graph) -> list[dict[str, Any]]:
    """A row for each operation, as plain values."""
    found = []
    for op in graph:
        shape = graph.tensors[op.output].shape
        row: dict[str, Any] = {
            "layer": op.name, "kind": op.kind, "output": list(shape), "bits": None,
            "bytes": graph.weight_bytes(op), "macs": graph.macs(op), "weights": 0, "scale": None,
        }  # fmt: skip
        if isinstance(op, Weighted):
            row["bits"] = 1 if op.binary else 8 if op.requantize is not None else 32
            row["weights"] = int(op.weights.size)
            row["scale"] = [float(op.scale.min()), float(op.scale.max())]
        if isinstance(op, Table):
            row["kind"] = str(op.function)
        if isinstance(op, (Conv, DepthwiseConv)):
            row["kind"] = f"{op.weights.shape[0]}×{op.weights.shape[1]} {op.traits.name}" + (
                f" /{op.stride[0]}" if max(op.stride) > 1 else ""
            )
        if getattr(op, "relu", False):
            row["kind"] += " + ReLU"
        found.append(row)
    return found


def sizes(graph: Graph) -> dict[str, int]:
    """Bytes of all weights, and of the same net in float32 and in int8."""
    weights = sum(op.weights.size for op in graph.weighted())
    channels = sum(op.channels for op in graph.weighted())
    return {
        "weights": sum(graph.weight_bytes(op) for op in graph),
        "float32": 4 * (weights + channels),
        "int8": weights + 8 * channels,
    }


def print_table(console: Any, graph: Graph) -> None:
    from rich.table import Table

    table = Table()
    for name in ("layer", "kind", "output", "bits", "bytes", "MACs", "scale"):
        table.add_column(name, justify="left" if name in ("layer", "kind") else "right")
    for row in rows(graph):
        scale = f"{row['scale'][0]:.2g} … {row['scale'][1]:.2g}" if row["scale"] else ""
        table.add_row(
            row["layer"], row["kind"], "×".join(map(str, row["output"])), str(row["bits"] or ""),
            f"{row['bytes']:,}" if row["bytes"] else "", f"{row['macs']:,}" if row["macs"] else "", scale,
        )  # fmt: skip
    console.print(table)
    total = sizes(graph)
    console.print(
        f"weights {total['weights']:,} bytes; the same net takes {total['float32']:,} in float32 "
        f"({total['float32'] / total['weights']:.1f}×) and {total['int8']:,} in int8 "
        f"({total['int8'] / total['weights']:.1f}×); {sum(r['macs'] for r in rows(graph)):,} MACs",
        highlight=False,
    )
