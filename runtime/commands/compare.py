"""``flipbit compare``: which bits differ between two images of a net, and what that does to its answers."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from flipbit.runtime.core.model import Model, describe
from flipbit.runtime.data.load import load_data
from flipbit.runtime.data.pictures import FIT, add_resize_option
from flipbit.runtime.errors import ArgumentError
from flipbit.runtime.image.reader import Operation
from flipbit.runtime.image.reference import signs
from flipbit.runtime.shown import say, shown, shown_json
from flipbit.runtime.text_table import text_table


def add_compare_parser(commands: Any) -> None:
    p = commands.add_parser(
        "compare",
        help="which bits differ between two images",
        description="Compare two images: weights layer by layer, metadata, and what they answer.",
        epilog="examples:\n  flipbit compare before.fbit after.fbit\n"
        "  flipbit compare before.fbit after.fbit --data cifar-10-batches-py",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("first", metavar="A", help="a .fbit file")
    p.add_argument("second", metavar="B", help="another .fbit file")
    p.add_argument("--data", metavar="DATA", help="images to run both on, as for flipbit run (random ones)")
    p.add_argument("--limit", type=int, default=100, metavar="N", help="how many images to run (100)")
    add_resize_option(p)
    p.add_argument("--json", action="store_true", help="print JSON")
    p.set_defaults(command=_compare)


def _compare(given: argparse.Namespace) -> int:
    if given.limit < 1:
        raise ArgumentError(f"--limit {given.limit}: at least 1")
    a, b = Model(given.first), Model(given.second)
    result = compare(a, b, given.data, given.limit, given.resize)
    print(shown_json(result) if given.json else _text(result))
    return 0


def compare(a: Model, b: Model, source: str | None = None, limit: int = 100, resize: str = FIT) -> dict[str, Any]:
    """Differences between two models, for scripts."""
    shapes = [[(layer.description, layer.output_shape, layer.inputs) for layer in m.layers] for m in (a, b)]
    same_net = shapes[0] == shapes[1] and a.input_shape == b.input_shape
    keys = sorted({*a.image.metadata, *b.image.metadata})
    return {
        "files": [str(a.path), str(b.path)],
        "identical": a.image.data == b.image.data,
        "same_net": same_net,
        "layers": [_layer(a, b, i) for i in range(len(a.layers))] if same_net else [],
        "metadata": {
            key: [m.image.metadata.get(key) for m in (a, b)]
            for key in keys
            if a.image.metadata.get(key) != b.image.metadata.get(key)
        },
        "outputs": _outputs(a, b, source, limit, resize),
    }


def _layer(a: Model, b: Model, i: int) -> dict[str, Any]:
    """How an operation differs: weights (flipped bits, for binary ones), parameters, and the scale it writes with."""
    ops = [m.image.operations[i] for m in (a, b)]
    outputs = [m.image.tensors[op.output] for m, op in zip((a, b), ops)]
    weights = [_weights(m, op) for m, op in zip((a, b), ops)]
    parameters = sum(int(np.sum(x != y)) for x, y in zip(_parameters(ops[0]), _parameters(ops[1])))
    return {
        "layer": a.layers[i].name,
        "kind": describe(ops[0]),
        "weights": a.layers[i].weights,
        "bits": [m.layers[i].bits for m in (a, b)],
        "differ": int(np.sum(weights[0] != weights[1])),
        "parameters": parameters,
        "shift": [op.shift for op in ops],
        "scale": [t.scale for t in outputs],
        "zero_point": [t.zero_point for t in outputs],
    }


def _weights(model: Model, op: Operation) -> np.ndarray:
    """Weights in one order whatever the layout; ±1 where they are binary."""
    if op.weights is None:
        return np.zeros(0)
    return (signs(op, model.image.tensors[op.inputs[0]].channels) if op.binary else op.weights).reshape(-1)


def _parameters(op: Operation) -> list[np.ndarray]:
    factors = [np.array([op.first, op.second])] if op.weights is None else []
    return [*factors, *(p for p in (op.bias, op.multiplier) if p is not None)]


def _outputs(a: Model, b: Model, source: str | None, limit: int, resize: str) -> dict[str, Any] | None:
    """What both say to the same images; None if they take or give different shapes."""
    if a.input_shape != b.input_shape or a.output_shape != b.output_shape:
        return None
    y = np.full(limit, -1)
    if source is None:
        x = np.random.default_rng(0).integers(-128, 128, (limit, *a.input_shape)).astype(np.int8)
        name = "random images"
    else:
        data = load_data(source, a.input_shape, a.labels, resize, limit, a.image.front_end, a.value_count)
        say(data.notes)
        x, y, name = data.x, data.y, data.name
    logits = [m.predict(x).reshape(len(x), -1) for m in (a, b)]
    largest = float(np.abs(logits[0] - logits[1]).max(initial=0))
    if a.values or b.values:
        return {"data": name, "images": len(x), "largest_difference": largest, "rmse": _rmse(logits, y)}
    best = [values.argmax(1) for values in logits]
    known = bool(len(y)) and bool((y >= 0).all())
    return {
        "data": name,
        "images": len(x),
        "same_answer": int(np.sum(best[0] == best[1])),
        "largest_difference": largest,
        "accuracy": [float(np.mean(answers == y)) for answers in best] if known else None,
    }


def _rmse(outputs: list[np.ndarray], y: np.ndarray) -> list[float] | None:
    """Of both nets' values, where it is known what they should be."""
    if not np.issubdtype(y.dtype, np.floating):
        return None
    return [float(np.sqrt(np.mean((values - y) ** 2))) for values in outputs]


def _text(result: dict[str, Any]) -> str:
    first, second = map(shown, result["files"])
    lines = []
    if result["identical"]:
        lines.append(f"{first} and {second} are the same, byte for byte")
    elif not result["same_net"]:
        lines.append(f"{first} and {second} are different nets: their layers are not the same (see flipbit info)")
    else:
        rows = []
        for row in result["layers"]:
            if not row["weights"] and not row["parameters"] and row["scale"][0] == row["scale"][1]:
                continue
            share = f"{100 * row['differ'] / row['weights']:.2f} %" if row["weights"] else None
            scales = "" if row["scale"][0] == row["scale"][1] else f"{row['scale'][0]:.4g} → {row['scale'][1]:.4g}"
            bits = row["bits"][0] if row["bits"][0] == row["bits"][1] else f"{row['bits'][0]} → {row['bits'][1]}"
            rows.append(
                (
                    row["layer"],
                    row["kind"],
                    bits,
                    row["weights"] or None,
                    row["differ"],
                    share,
                    row["parameters"],
                    scales,
                )
            )
        head = ("layer", "kind", ">bits", ">weights", ">differ", ">share", ">parameters that differ", "scale")
        lines.append(text_table(head, rows))
        binary = [row for row in result["layers"] if row["bits"] == [1, 1]]
        flipped, total = sum(row["differ"] for row in binary), sum(row["weights"] for row in binary)
        lines += ["", f"{flipped:,} of {total:,} bits flipped" + (f" ({100 * flipped / total:.2f} %)" if total else "")]
    for key, (old, new) in result["metadata"].items():
        lines.append(shown(f"metadata {key}: {old} → {new}"))
    outputs = result["outputs"]
    if outputs is None:
        lines.append("they take or give different shapes: no answers to compare")
        return "\n".join(lines)
    if "rmse" in outputs:
        lines.append(f"{shown(outputs['data'])}: values differ by {outputs['largest_difference']:.4g} at most")
        if outputs["rmse"]:
            lines.append("RMSE: " + " and ".join(f"{error:.4g}" for error in outputs["rmse"]))
        return "\n".join(lines)
    lines.append(
        f"{shown(outputs['data'])}: the same answer to {outputs['same_answer']:,} of {outputs['images']:,}; "
        f"outputs differ by {outputs['largest_difference']:.4g} at most"
    )
    if outputs["accuracy"]:
        lines.append("right: " + " and ".join(f"{100 * share:.2f} %" for share in outputs["accuracy"]))
    return "\n".join(lines)
