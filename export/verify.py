"""Run a model and the files made from it on the same images, and say where they differ.

Keras and the oracle run in real numbers. Files with int8 activations are held against the oracle in integers, in
steps of the int8 grid (LSB), layer by layer; a .fbit image runs in NumPy and in the C core. Give the calibration flags
the files were made with.

examples:
  python export/verify.py model.h5 model.fbit model.onnx model.tflite
  python export/verify.py model.h5 model.fbit --images 10000
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

try:
    from flipbit.export.calibrate import METHODS
    from flipbit.export.graph import ExportError
except ModuleNotFoundError as error:
    if error.name is None or not error.name.startswith("flipbit"):
        raise
    sys.exit(
        "flipbit is not installed here; run:  pip install -c constraints.txt -e '.[train,export]'   (or: make setup)"
    )

LAYER_IMAGES = 50  # compared layer by layer; all images are compared at the output


def parser() -> argparse.ArgumentParser:
    doc = (__doc__ or "").split("\n\n", 1)
    p = argparse.ArgumentParser(
        prog="export/verify.py", description=doc[0], epilog=doc[1], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("model", type=Path, help="model.h5 or model.pt2")
    p.add_argument("files", type=Path, nargs="+", metavar="FILE", help=".fbit, .onnx, .tflite")
    p.add_argument("--images", type=int, default=1000, metavar="N", help="test images to run (1000)")
    p.add_argument("--data", metavar="DATA", help="data set with test images; else what run.json names")
    p.add_argument("--data-dir", metavar="DIR", help="where official data files lie (FLIPBIT_DATA)")
    p.add_argument("--calibrate", metavar="DATA")
    p.add_argument("--samples", type=int, default=500, metavar="N")
    p.add_argument("--method", choices=METHODS, default=METHODS[0])
    p.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there too")
    return p


def main(argv: list[str] | None = None) -> int:
    from flipbit.train.settings import InputError

    given = parser().parse_args(argv)
    try:
        return _verify(given)
    except (ExportError, InputError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130


def _verify(given: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.progress import track
    from rich.table import Table

    from flipbit.export.compare import Tally, compare_layers
    from flipbit.export.conversion import open_source, sample_images, to_int8
    from flipbit.export.runners import core_runner, file_runner, keras_runner, oracle_runner
    from flipbit.train import data as data_sets

    console = Console()
    if not console.is_terminal:
        console.width = 120
    source = open_source(given.model)
    real = source.real()
    images = sample_images(source, given.calibrate, given.samples, given.data_dir)
    integer = to_int8(real, source, images, given.method)
    settings = source.run.get("settings", {})
    name = given.data or settings.get("data")
    if name is None:
        raise ExportError("no test images: name a data set with --data")
    data = data_sets.load(name, given.data_dir or settings.get("data_dir"), "none", settings.get("image_size"))
    data.limited(given.images)
    runners = {"oracle, real": (oracle_runner(real), real), "oracle, int8": (oracle_runner(integer), integer)}
    if given.model.suffix == ".h5":
        runners = {"Keras": (keras_runner(source.model, real), real), **runners}
    layered = {}
    for path in given.files:
        graph = integer if _is_integer(path) else real
        runners[path.name] = (file_runner(path, graph, output_only=True), graph)
        layered[path.name] = (file_runner(path, graph), graph)
        if path.suffix == ".fbit":  # beside the NumPy reference
            name = f"{path.name}, C core"
            runners[name] = (core_runner(path, graph, output_only=True), graph)
            layered[name] = (core_runner(path, graph), graph)
    tallies = {name: Tally(graph) for name, (_, graph) in runners.items()}
    first = None
    batches = list(range(0, data.test_size, 50))
    for (pixels, labels), _ in zip(
        data.test_batches(50), track(batches, "running", console=console, disable=not console.is_terminal)
    ):
        x = source.pixels(pixels)
        first = x if first is None else first
        results = {name: run(x)[graph.output] for name, (run, graph) in runners.items()}
        for name, (_, graph) in runners.items():
            expected = results["oracle, int8" if graph.quantized else "oracle, real"]
            tallies[name].add(results[name], expected, labels)
    assert first is not None
    table = Table(title=f"{data.test_size} test images of {data.name}", title_justify="left")
    for column in ("", "accuracy", "top-1 as oracle", "largest difference", "first layer that differs"):
        table.add_column(column, justify="left" if column in ("", "first layer that differs") else "right")
    report: dict[str, Any] = {"images": data.test_size, "data": data.name, "runs": {}}
    details = {}
    for name, tally in tallies.items():
        layers = []
        if name in layered:
            run, graph = layered[name]
            layers = compare_layers(graph, run(first[:LAYER_IMAGES]), oracle_runner(graph)(first[:LAYER_IMAGES]))
            details[name] = layers
        differs = next((row.name for row in layers if row.differs), "")
        table.add_row(
            name, f"{100 * tally.accuracy:.2f} %", f"{100 * tally.agreement:.2f} %", tally.largest_text, differs
        )
        report["runs"][name] = {**tally.to_json(), "layers": [row.to_json() for row in layers]}
    console.print(table)
    for name, layers in details.items():
        table = Table(title=f"{name}, layer by layer ({min(LAYER_IMAGES, len(first))} images)", title_justify="left")
        for column in ("tensor", "largest difference", "values that differ"):
            table.add_column(column, justify="left" if column == "tensor" else "right")
        for row in layers:
            table.add_row(row.name, row.largest_text, f"{100 * row.share:.3f} %")
        console.print(table)
    if given.json:
        from flipbit.train.files import write_json

        write_json(given.json, report)
    worst = min(tally.agreement for tally in tallies.values())
    console.print(f"top-1 agreement of at least {100 * worst:.2f} % everywhere", highlight=False)
    return 0


def _is_integer(path: Path) -> bool:
    """Whether a file computes in integers; a .fbit image always does."""
    from flipbit.export.describe import describe

    if path.suffix == ".fbit":
        return True
    kinds = {node.kind for node in describe(path).nodes}
    if path.suffix == ".onnx":
        return "QuantizeLinear" in kinds
    from flipbit.export.tflite_load import load_tflite

    return load_tflite(path).get_input_details()[0]["dtype"].__name__ == "int8"


if __name__ == "__main__":
    sys.exit(main())
