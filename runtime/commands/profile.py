"""``flipbit profile``: where time, RAM and instructions go, layer by layer."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.runtime.core.model import Model
from flipbit.runtime.data.load import load_data
from flipbit.runtime.errors import ArgumentError
from flipbit.runtime.image.inputs import Array
from flipbit.runtime.shown import say, shown, shown_json
from flipbit.runtime.text_table import text_table


def add_profile_parser(commands: Any) -> None:
    p = commands.add_parser(
        "profile",
        help="time, RAM and instructions of each layer",
        description="Measure each layer on this machine; with --counts, show instructions counted on an emulated core.",
        epilog="""Times are medians over the runs, and include less than a microsecond of measuring for each layer.

examples:
  flipbit profile resnet8.fbit
  python firmware/count/bench.py resnet8.fbit --json counts.json
  flipbit profile resnet8.fbit --counts counts.json""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("image", metavar="IMAGE", help="a .fbit file")
    p.add_argument("--runs", type=int, default=100, metavar="N", help="how often to run the net (100)")
    p.add_argument("--data", metavar="DATA", help="images to run it on, as for flipbit run (random ones)")
    p.add_argument(
        "--counts", type=Path, metavar="FILE", help="instruction counts, from firmware/count/bench.py --json"
    )
    p.add_argument("--arena", type=int, metavar="BYTES", help="RAM for activations and tables (as much as is useful)")
    p.add_argument("--json", action="store_true", help="print JSON")
    p.set_defaults(command=_profile)


def _profile(given: argparse.Namespace) -> int:
    if given.runs < 1:
        raise ArgumentError(f"--runs {given.runs}: at least 1")
    model = Model(given.image, given.arena)
    counts = read_counts(model, given.counts) if given.counts else {}
    result = profile(model, _inputs(model, given.data, given.runs))
    for i, row in enumerate(result["layers"]):
        row["instructions"] = {core: layers[i] for core, layers in counts.items()}
    print(shown_json(result) if given.json else _text(model, result))
    return 0


def _inputs(model: Model, source: str | None, runs: int) -> Array:
    if source is None:
        return np.random.default_rng(0).integers(-128, 128, (runs, *model.input_shape)).astype(np.int8)
    data = load_data(
        source, model.input_shape, model.labels, limit=runs, front_end=model.image.front_end, values=model.value_count
    )
    say(data.notes)
    x = data.x
    if not len(x):
        raise ArgumentError(f"{source}: no images")
    return x[np.arange(runs) % len(x)]


def read_counts(model: Model, path: Path) -> dict[str, list[int]]:
    """Instructions of each layer, by core, from a file of ``firmware/count/bench.py --json``."""
    mine = [(layer.kind, layer.macs) for layer in model.layers]
    found: dict[str, list[int]] = {}
    try:
        for core in json.loads(path.read_text(encoding="utf-8")):
            if [(layer["kind"], layer["macs"]) for layer in core["layers"]] != mine:
                raise ArgumentError(f"{path}: counts of another net than {model.path}")
            found[str(core["core"])] = [int(layer["instructions"]) for layer in core["layers"]]
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError(f"{path}: not written by firmware/count/bench.py --json ({error})") from None
    return found


def profile(model: Model, x: Array) -> dict[str, Any]:
    """Median seconds of each layer and of the whole net over the inputs ``x``."""
    model.predict(x[:3], raw=True)  # caches warm, pages touched
    whole, parts = [], []
    for one in x:  # in turn, so that both see the same load of the machine
        begin = time.perf_counter()
        model.predict(one, raw=True)
        whole.append(time.perf_counter() - begin)
        parts.append(model.time_layers(one)[0])
    seconds = np.median(parts, axis=0)
    layers = [
        {
            "layer": layer.name,
            "kind": layer.description,
            "kernel": layer.kernel,
            "macs": layer.macs,
            "ram": layer.ram,
            "seconds": float(s),
            "share": float(s / seconds.sum()),
        }
        for layer, s in zip(model.layers, seconds)
    ]
    return {
        "file": str(model.path) if model.path else None,
        "runs": len(x),
        "seconds": float(np.median(whole)),
        "peak_ram": model.peak_ram,
        "peak_layer": model.peak_layer.name,
        "layers": layers,
    }


def _text(model: Model, result: dict[str, Any]) -> str:
    cores = list(result["layers"][0]["instructions"])
    head = ["layer", "kind", ">MACs", "kernel", ">RAM", ">µs", ">share", ">MACs/ns", *(f">{core}" for core in cores)]

    def cells(row: dict[str, Any]) -> list[object]:
        rate = f"{row['macs'] / row['seconds'] / 1e9:.2f}" if row["macs"] else None
        return [
            row["layer"], row["kind"], row["macs"] or None, row["kernel"], row["ram"], f"{1e6 * row['seconds']:.1f}",
            f"{100 * row['share']:.1f} %", rate, *row["instructions"].values(),
        ]  # fmt: skip

    macs = sum(layer.macs for layer in model.layers)
    lines = [
        text_table(head, map(cells, result["layers"])),
        "",
        f"{1e6 * result['seconds']:.1f} µs for the whole net called from Python (median of {result['runs']} runs), "
        f"{macs:,} multiply-accumulates",
        f"{result['peak_ram']:,} bytes of RAM, set by {shown(result['peak_layer'])}",
    ]
    for core in cores:
        total = sum(row["instructions"][core] for row in result["layers"])
        lines.append(f"{core}: {total:,} instructions in the layers, with the kernels of that core")
    return "\n".join(lines)
