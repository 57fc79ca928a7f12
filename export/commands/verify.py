"""Run a model and the files made from it on the same images, and say where they differ; exit status 1 if they disagree.

The model and the oracle run in real numbers. Files with int8 activations are compared with the oracle in integers, in
steps of the int8 grid (LSB), layer by layer; a .fbit image runs in NumPy and in the C core, and must give the same
bits. Pixels become a file's input by the formula in that file. Give the calibration options the files were made with.

examples:
  flipbit verify model.h5 model.fbit model.onnx model.tflite
  flipbit verify model.h5 model.fbit --images 10000
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flipbit.export.calibrate import METHODS
from flipbit.export.check.guard import NOISE, REAL, SMALLEST, STEPS, operation_apart
from flipbit.export.commands import convert as command
from flipbit.export.graph import Array, ExportError, Graph
from flipbit.runtime.data.sets import located
from flipbit.runtime.exits import CommandParser, guarded, typed
from flipbit.runtime.files import check_place
from flipbit.runtime.image.inputs import as_text
from flipbit.runtime.image.pixels import Pixels

if TYPE_CHECKING:
    from rich.console import Console

    from flipbit.export.check.compare import LayerDifferences, Tally
    from flipbit.runtime.data.parts import Images

PROG = "flipbit verify"
BATCH = 50


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    description, epilog = (__doc__ or "").split("\n\n", 1)
    p = CommandParser(
        prog=prog, description=description, epilog=epilog.replace(PROG, typed(prog)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    p.add_argument("model", type=Path, help="model.keras, model.h5, model.onnx or model.pt2")
    p.add_argument("files", type=Path, nargs="+", metavar="FILE", help=".fbit, .onnx, .tflite")
    p.add_argument("--images", type=int, default=1000, metavar="N", help="test images to run (1000)")
    p.add_argument("--data", metavar="DATA", help="data set with test images; else what run.json names")
    p.add_argument("--data-dir", metavar="DIR", help="folder of the official data files (FLIPBIT_DATA)")
    p.add_argument("--calibrate", metavar="DATA")
    p.add_argument("--samples", type=int, default=500, metavar="N")
    p.add_argument("--method", choices=METHODS, default=METHODS[0])
    command.add_pixel_options(p)
    command.add_values_option(p)
    p.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers there")
    return p


def main(argv: list[str] | None = None, prog: str = PROG) -> int:
    return guarded(lambda: _verify(parser(prog).parse_args(argv)), extras="train,export")


def _verify(given: argparse.Namespace) -> int:
    from rich.progress import track

    from flipbit.export import oracle
    from flipbit.export.check.compare import LayerDifferences, Tally
    from flipbit.export.check.guard import as_the_model_ends
    from flipbit.export.conversion import images_of, open_source, sample_images, scales_known, to_int8

    for what, count in (("--images", given.images), ("--samples", given.samples)):
        if count < 1:
            raise ExportError(f"{what} {count}: at least 1")
    check_place(given.json)
    console = command.a_console()
    source = open_source(given.model, command.stated_pixels(given), given.values)
    files = {path: _File.opened(path) for path in given.files}
    if source.known_pixels is None:
        path, found = next(((path, file.pixels) for path, file in files.items() if file.pixels), (None, None))
        source = replace(source, stated=found)
        if path:
            console.print(f"pixels as {path.name} says: {source.pixels.formula}", highlight=False)
    real = source.real()
    integer = None
    if any(file.integer for file in files.values()):
        images = np.zeros((0, *real.tensors[real.input].shape), np.uint8)
        if given.calibrate or not scales_known(real):
            images = sample_images(source, given.calibrate, given.samples, given.data_dir)
        integer = to_int8(real, source, images, given.method)
    settings = source.run.get("settings", {})
    name = given.data or (settings.get("data") and located(settings["data"], given.model.parent))
    if name is None:
        raise ExportError("no test images: name a data set with --data")
    data = images_of(source, name, given.data_dir)
    expected_shape = real.tensors[real.input].shape
    if tuple(data.shape) != tuple(expected_shape):
        raise ExportError(f"{name}: images of {as_text(data.shape)}, but the net takes {as_text(expected_shape)}")
    data.limit(given.images)
    _require_answers(name, data, real)
    if data.values is not None:
        real.values = True
        if integer:
            integer.values = True
    graphs = {"oracle, real": real} | ({"oracle, int8": integer} if integer else {})
    runs = [run for path, file in files.items() for run in file.runs(path, integer if file.integer else real)]
    reference, model_steps = real.reference, 0  # steps: of a model that came quantized, operation by operation
    names = ([reference.name] if reference else []) + [*graphs, *(run.name for run in runs)]
    tallies = {name: Tally(graphs.get(name, real)) for name in names} | {run.name: Tally(run.graph) for run in runs}
    loss = Tally(real)  # of the int8 oracle against the real one
    layers = {run.name: LayerDifferences(run.graph) for run in runs}
    steps = dict.fromkeys(layers, 0)
    batches = range(0, data.test_size, BATCH)
    progress = track(batches, "running", console=console, disable=not console.is_terminal)
    for _, (pixels, labels) in zip(progress, data.test_batches(BATCH)):
        x = source.pixels(pixels).astype(np.float32)
        expected = {name: oracle.run(graph, x) for name, graph in graphs.items()}
        answers = expected["oracle, real"][real.output]
        tallies["oracle, real"].add(answers, answers, labels)
        if reference:
            ended = as_the_model_ends(answers, reference.ends)
            tallies[reference.name].add(_log(reference.run(x), reference.ends), ended, labels)
            if reference.integers and integer:
                model_steps = max(model_steps, _steps(integer, reference.integers(x)))
        if integer:
            integers = expected["oracle, int8"][integer.output]
            tallies["oracle, int8"].add(integers, integers, labels)
            loss.add(oracle.dequantize(integers, integer.tensors[integer.output]), answers, labels)
        for run in runs:
            own = run.pixels(pixels).astype(np.float32) if run.pixels else x
            against = expected["oracle, int8" if run.graph.quantized else "oracle, real"]
            values = run.tensors(own)
            answer = run.output(own) if run.output else values
            tallies[run.name].add(answer[run.graph.output], against[run.graph.output], labels)
            layers[run.name].add(values, against)
            if run.graph.quantized and not run.exact:
                steps[run.name] = max(steps[run.name], _steps(run.graph, values))
    disagree = []
    if model_steps > STEPS:
        disagree.append(f"operations of {reference.name if reference else ''} and of the oracle: {model_steps} steps")
    if reference and not reference.integers and tallies[reference.name].relative > REAL:
        disagree.append(f"{reference.name} and the deploy graph in real numbers")
    if integer and loss.noise > NOISE:
        disagree.append(f"int8 and real numbers: the error is {100 * loss.noise:.0f} % of the answers' spread")
    for run in runs:
        why = _disagreement(run, source.pixels, tallies[run.name], layers[run.name], steps[run.name])
        if why:
            disagree.append(f"{run.name}: {why}")
    _print(console, f"{tallies['oracle, real'].seen} test images of {data.name}", tallies, layers)
    if integer:
        kept = f"int8 keeps {100 * loss.agreement:.2f} % of the answers in real numbers; its error is"
        kept = "int8 errs by" if real.values else kept
        console.print(f"{kept} {100 * loss.noise:.1f} % of their spread", highlight=False)
    if given.json:
        from flipbit.runtime.files import write_json

        rows = {name: [row.to_json() for row in layers[name].rows] if name in layers else [] for name in tallies}
        report: dict[str, Any] = {"images": tallies["oracle, real"].seen, "data": data.name, "disagree": disagree}
        report["pixels"] = source.pixels.formula
        report["runs"] = {name: {**tally.to_json(), "layers": rows[name]} for name, tally in tallies.items()}
        write_json(given.json, report)
    for line in disagree:
        print(f"disagree: {line}", file=sys.stderr)
    if not disagree:
        worst = min(tally.agreement for tally in tallies.values())
        how = "" if real.values else f"; top-1 agreement of at least {100 * worst:.2f} % everywhere"
        console.print(f"all agree{how}", highlight=False)
    return 1 if disagree else 0


def _require_answers(name: str, data: Images, graph: Graph) -> None:
    """Refuse data whose labels or values are not what the net gives."""
    size = graph.tensors[graph.output].size
    given = f"{size} values" if graph.values else f"scores of {size} classes"
    if data.values is None and graph.values:
        raise ExportError(f"{name}: has labels, and the net gives {given}; name data with floats as y_test")
    if data.values is not None and (graph.labels or data.outputs != size):
        raise ExportError(f"{name}: has {data.outputs} values for an image, and the net gives {given}")


@dataclass(frozen=True)
class _Run:
    """A file in one of the ways it can be run, and the graph it is held against."""

    name: str
    graph: Graph
    output: Callable[[Array], dict[str, Array]] | None  # where the file runs otherwise if only its output is asked for
    tensors: Callable[[Array], dict[str, Array]]
    exact: bool
    pixels: Pixels | None


@dataclass(frozen=True)
class _File:
    """What a file says of itself."""

    integer: bool
    pixels: Pixels | None

    @classmethod
    def opened(cls, path: Path) -> _File:
        from flipbit.export.commands.describe import describe

        facts = describe(path).facts
        return cls(_is_integer(path), Pixels.parse(facts.get("pixels")))

    def runs(self, path: Path, graph: Graph | None) -> list[_Run]:
        from flipbit.export.check.runners import core_runner, file_runner

        assert graph is not None
        exact = path.suffix == ".fbit"
        whole = file_runner(path, graph, output_only=True) if path.suffix == ".onnx" else None
        found = [_Run(path.name, graph, whole, file_runner(path, graph), exact, self.pixels)]
        if exact:  # beside the NumPy reference
            name = f"{path.name}, C core"
            runners = core_runner(path, graph, output_only=True), core_runner(path, graph)
            found.append(_Run(name, graph, *runners, exact, self.pixels))
        return found


def _log(outputs: Array, ends: str) -> Array:
    """Probabilities as log-probabilities, which are logits but for a constant."""
    return np.log(np.maximum(outputs.astype(np.float64), SMALLEST)) if ends == "softmax" else outputs


def _steps(graph: Graph, values: dict[str, Array]) -> int:
    """The most by which an operation of the file differs from the oracle's, on the inputs that it had."""
    shown = [op for op in graph if all(name in values for name in (*op.inputs, op.output))]
    return max((operation_apart(graph, op, values) for op in shown), default=0)


def _disagreement(run: _Run, pixels: Pixels, tally: Tally, layers: LayerDifferences, steps: int) -> str:
    """Why a file is not the model's, or nothing."""
    if run.pixels and not np.allclose(run.pixels(np.arange(256)), pixels(np.arange(256)), rtol=1e-4, atol=1e-6):
        return f"says that pixels become {run.pixels.formula}, the model's become {pixels.formula}"
    differs = next((row.name for row in layers.rows if row.differs), "the output")
    if run.exact and (tally.largest > 0 or any(row.differs for row in layers.rows)):
        return f"its integers are not the oracle's, from {differs} on; is it of this model and calibration?"
    if run.graph.quantized and (steps > STEPS or tally.noise > NOISE / 2):
        return (
            f"operations are up to {steps} steps off the oracle's, the error is {100 * tally.noise:.0f} % of the spread"
        )
    if not run.graph.quantized and tally.relative > REAL:
        return f"its answers differ from the graph's by {tally.relative:.1g} of their size"
    return ""


def _print(console: Console, title: str, tallies: dict[str, Tally], layers: dict[str, LayerDifferences]) -> None:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    values = any(tally.gives_values for tally in tallies.values())
    figures = ("RMSE", "MAE") if values else ("accuracy", "top-1 as oracle")
    for column in ("", *figures, "largest difference", "first layer that differs"):
        table.add_column(column, justify="left" if column in ("", "first layer that differs") else "right")
    for name, tally in tallies.items():
        rows = layers[name].rows if name in layers else []
        differs = next((row.name for row in rows if row.differs), "")
        shown = (f"{100 * tally.accuracy:.2f} %", f"{100 * tally.agreement:.2f} %")
        if values:
            shown = (f"{tally.rmse:.4g}", f"{tally.mae:.4g}")
        table.add_row(name, *shown, tally.largest_text, differs)
    console.print(table)
    for name, found in layers.items():
        table = Table(title=f"{name}, layer by layer", title_justify="left")
        for column in ("tensor", "largest difference", "values that differ"):
            table.add_column(column, justify="left" if column == "tensor" else "right")
        for row in found.rows:
            table.add_row(row.name, row.largest_text, f"{100 * row.share:.3f} %")
        console.print(table)


def _is_integer(path: Path) -> bool:
    """Whether a file computes in integers; a .fbit image always does."""
    from flipbit.export.commands.describe import describe

    if path.suffix == ".fbit":
        return True
    kinds = {node.kind for node in describe(path).nodes}
    if path.suffix == ".onnx":
        return "QuantizeLinear" in kinds
    from flipbit.export.check.tflite_load import load_tflite

    return load_tflite(path).get_input_details()[0]["dtype"].__name__ == "int8"
