"""A model as a file of one format: what ``flipbit export`` and ``export/to_fbit.py``, ``to_onnx.py``, … do."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flipbit.export.calibrate import METHODS
from flipbit.export.graph import Array, ExportError, Graph
from flipbit.runtime.exits import CommandParser, guarded
from flipbit.runtime.files import check_place
from flipbit.runtime.image.pixels import Pixels

if TYPE_CHECKING:  # slow to import, and not needed for --help
    from rich.console import Console

    from flipbit.export.conversion import Source

FORMATS = {
    "fbit": ("fbit", "flipbit's device image"),
    "onnx": ("onnx", "an ONNX model of stock operators, weights packed to bits"),
    "tflite": ("tflite", "a TFLite model of builtin operators, weights packed to bits"),
    "c": ("c", "C source: the device image as a constant array, and a header"),
}
INTEGERS_ONLY = ("fbit", "c")
MOST_REFERENCES = 0xFFFF
STOPPED = "stopped; nothing was written"
PACKABLE = ("onnx", "tflite")
EXTRAS = "train,export"


def parser(kind: str) -> argparse.ArgumentParser:
    suffix, what = FORMATS[kind]
    script = f"python export/to_{kind}.py"
    p = CommandParser(
        prog=f"export/to_{kind}.py",
        description=f"Write a trained model as {what}.",
        epilog=f"examples:\n  {script} runs/digits-vgg-small-bc/model.h5\n"
        f"  {script} model.h5 -o net.{suffix} --calibrate my_photos/ --samples 200",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("model", type=Path, help="model.keras or model.h5 (Keras), model.onnx, model.pt2 (torch.export)")
    p.add_argument("-o", "--output", type=Path, metavar="FILE", help=f"where to write (beside the model, .{suffix})")
    if kind not in INTEGERS_ONLY:
        add_packing_options(p)
    add_options(p)
    return p


def add_packing_options(p: argparse.ArgumentParser) -> None:
    """Choices that formats for other tools leave open."""
    p.add_argument("--activations", choices=("int8", "float"), default="int8", help="type of activations (int8)")
    p.add_argument(
        "--weights", choices=("packed", "unpacked"), default="packed", help="one bit per weight, or unpacked"
    )


def add_options(p: argparse.ArgumentParser) -> None:
    """What every format takes."""
    p.add_argument(
        "--calibrate", metavar="DATA", help="data set, .npz, image folder, or .npy of inputs; else run.json's"
    )
    p.add_argument("--samples", type=int, default=500, metavar="N", help="images to calibrate on (500)")
    p.add_argument("--method", choices=METHODS, default=METHODS[0], help=f"calibration method ({METHODS[0]})")
    p.add_argument(
        "--references", type=int, default=0, metavar="N",
        help="store references from N training images, for finetune --method recalibrate; 2000 is usual (none)",
    )  # fmt: skip
    p.add_argument("--data-dir", metavar="DIR", help="folder of the official data files (FLIPBIT_DATA)")
    add_pixel_options(p)
    add_values_option(p)
    p.add_argument("--int8-weights", action="store_true", help="accept a net without binary layers")
    p.add_argument("--json", type=Path, metavar="FILE", help="write the table there too")


def add_values_option(p: argparse.ArgumentParser) -> None:
    p.add_argument("--values", action="store_true", help="outputs are values (angles, counts), not scores of classes")


def add_pixel_options(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--pixel-offset", type=_number, metavar="O", help="the model's input is (pixel − O)·S; else run.json's"
    )
    p.add_argument("--pixel-scale", type=_number, metavar="S", help="see above; 1/255 is understood")


def _number(text: str) -> float:
    """A decimal number, or a fraction such as 1/255."""
    number, _, divisor = text.partition("/")
    try:
        return float(number) / float(divisor or 1)
    except (ValueError, ZeroDivisionError):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number, or a fraction such as 1/255") from None


def stated_pixels(given: argparse.Namespace) -> Pixels | None:
    """The pixels that the command line states, if it does."""
    offset, scale = given.pixel_offset, given.pixel_scale
    if offset is None and scale is None:
        return None
    if offset is None or scale is None:
        missing = "--pixel-offset" if offset is None else "--pixel-scale"
        raise ExportError(f"{missing} is missing: the input is (pixel - offset) * scale; give both")
    try:
        return Pixels(offset, scale)
    except ValueError as error:
        raise ExportError(str(error)) from None


def main(kind: str, argv: list[str] | None = None) -> int:
    return guarded(lambda: export(kind, parser(kind).parse_args(argv)), stopped=STOPPED, extras=EXTRAS)


def a_console() -> Console:
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.width = 120
    return console


def read_graph(given: argparse.Namespace, console: Console) -> tuple[Source, Graph, Array]:
    """The model, its deploy graph as asked for, and the images it was calibrated on (none for real numbers)."""
    from flipbit.export.conversion import open_source, require_binary, sample_images, scales_known, to_int8

    if given.samples < 1:
        raise ExportError(f"--samples {given.samples}: at least 1")
    if not 0 <= given.references <= MOST_REFERENCES:
        raise ExportError(f"--references {given.references}: 0 to {MOST_REFERENCES} images")
    source = open_source(given.model, stated_pixels(given), given.values)
    graph = source.real()
    if not given.int8_weights:
        require_binary(graph)
    images = np.zeros((0, *graph.tensors[graph.input].shape), np.uint8)
    if getattr(given, "activations", "int8") == "int8":
        own = scales_known(graph)
        with console.status("calibrating"):
            if given.calibrate or not own:
                images = sample_images(source, given.calibrate, given.samples, given.data_dir)
            plain = None
            if given.references:
                plain = sample_images(source, given.calibrate, given.references, given.data_dir)
            graph = to_int8(graph, source, images, given.method, plain)
        how = "scales as the model has them" if own else f"calibrated on {len(images)} images ({given.method})"
        known = source.known_pixels if images.dtype == np.float32 else source.pixels
        console.print(f"{how}; the net sees {known.formula if known else 'real numbers as they are'}")
    return source, graph, images


def export(kind: str, given: argparse.Namespace) -> None:
    """Read, check and write, and say what came of it."""
    from flipbit.export.commands.table import print_table, rows, sizes

    suffix = FORMATS[kind][0]
    path = given.output or given.model.with_suffix(f".{suffix}")
    if path.suffix != f".{suffix}":
        raise ExportError(f"{path}: expected a name that ends in .{suffix}")
    if not path.parent.is_dir():
        raise ExportError(f"{path.parent}: no such folder to write to")
    check_place(path, given.json)
    console, begin = a_console(), time.perf_counter()
    source, graph, _ = read_graph(given, console)
    if path.resolve() == given.model.resolve():
        raise ExportError(f"{path}: would replace the model; name another file with -o")
    pixels = source.known_pixels  # a file in real numbers can do without
    options: dict[str, Any] = {"input_formula": pixels.formula if pixels else None}
    if kind in PACKABLE:
        options["packed"] = given.weights == "packed"
    checked: list[str] = []
    with console.status("writing and checking"):
        graph.save(path, checked.append, **options)
    print_table(console, graph)
    console.print(*checked, highlight=False, markup=False)
    console.print(
        f"{path}: {path.stat().st_size:,} bytes, {time.perf_counter() - begin:.1f} s", style="bold", highlight=False
    )
    if given.json:
        from flipbit.runtime.files import write_json

        table = {"file": str(path), "bytes": path.stat().st_size, "sizes": sizes(graph), "layers": rows(graph)}
        write_json(given.json, {**table, "pixels": options["input_formula"], "checked": "\n".join(checked)})
