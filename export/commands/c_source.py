"""A model or an image as C source, or as a project for another build system: ``flipbit export --to c``."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from flipbit.export.commands import convert as command
from flipbit.export.commands.table import print_table, rows, sizes
from flipbit.export.graph import Array, ExportError
from flipbit.export.write.c_file import pixel_table, write_c_image
from flipbit.export.write.c_project import TARGETS, check_place, write_image_project, write_project
from flipbit.export.write.fbit import fbit_bytes
from flipbit.export.write.save import check_as_image
from flipbit.runtime.core.model import Model
from flipbit.runtime.data.load import load_data
from flipbit.runtime.errors import FlipbitError
from flipbit.runtime.exits import guarded
from flipbit.runtime.files import write_json


def main(argv: list[str] | None = None) -> int:
    """``export/to_c.py``: C source, or with ``--for`` a project; of a model file or of a .fbit image."""
    return guarded(lambda: export(_parser().parse_args(argv)), stopped=command.STOPPED, extras=command.EXTRAS)


def _parser() -> argparse.ArgumentParser:
    p = command.parser("c")
    add_target_option(p)
    p.epilog = f"{p.epilog}\n  python export/to_c.py tuned.fbit --for arduino -o insects"
    for action in p._actions:
        if action.dest == "model":
            action.help = "model.keras, model.h5, model.onnx, model.pt2, or an image (.fbit), which is taken as it is"
    return p


def add_target_option(p: argparse.ArgumentParser) -> None:
    p.add_argument("--for", dest="target", choices=TARGETS, help=f"write a folder: {', '.join(TARGETS.values())}")


def export(given: argparse.Namespace) -> None:
    """A file, or with ``--for`` a folder."""
    if given.model.suffix == ".fbit":
        _from_image(given)
    elif given.target is None:
        command.export("c", given)
    else:
        _project(given.target, given)


def _project(target: str, given: argparse.Namespace) -> None:
    folder = _folder(given)
    check_place(folder)
    console, begin = command.a_console(), time.perf_counter()
    source, graph, images = command.read_graph(given, console)
    check_as_image(graph, lambda line: console.print(line, highlight=False, markup=False))
    write_project(graph, folder, target, source.pixels(images[0]), source.pixels.formula)
    print_table(console, graph)
    size = len(fbit_bytes(graph, source.pixels.formula))
    console.print(
        f"{folder}: {TARGETS[target]}, image {size:,} bytes, {time.perf_counter() - begin:.1f} s",
        style="bold",
        highlight=False,
    )
    if given.json:
        write_json(given.json, {"folder": str(folder), "bytes": size, "sizes": sizes(graph), "layers": rows(graph)})


def _folder(given: argparse.Namespace) -> Path:
    return given.output or given.model.with_name(f"{given.model.stem}_{given.target.replace('-', '_')}")


def _from_image(given: argparse.Namespace) -> None:
    """An image as C: nothing is trained, calibrated or quantized any more."""
    try:
        model = Model(given.model)
        data = model.image.data
        if given.target is None:
            path = given.output or given.model.with_suffix(".c")
            if path.suffix != ".c":
                raise ExportError(f"{path}: expected a name that ends in .c")
            write_c_image(data, path)
            print(f"{path}: an image of {len(data):,} bytes as C, and {path.with_suffix('.h').name}")
        else:
            path = _folder(given)
            check_place(path)
            write_image_project(data, path, given.target, _example_input(model, given.calibrate))
            print(f"{path}: {TARGETS[given.target]}, image {len(data):,} bytes")
    except FlipbitError as error:
        raise ExportError(str(error)) from None
    if given.json:
        write_json(given.json, {"output": str(path), "bytes": len(data)})


def _example_input(model: Model, data: str | None) -> Array:
    """What the example of an image's project classifies: the first picture of ``data``, else noise."""
    if data is not None:
        found = load_data(
            data, model.input_shape, model.labels, front_end=model.image.front_end, values=model.value_count
        )
        if not len(found.x):
            raise ExportError(f"{data}: no images")
        return found.x[0]
    random, pixels = np.random.default_rng(0), pixel_table(model) is not None
    low, high, kind = (0, 256, np.uint8) if pixels else (-128, 128, np.int8)
    return random.integers(low, high, model.input_shape).astype(kind)
