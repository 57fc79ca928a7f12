"""Write a trained model as flipbit's device image (.fbit), ONNX, TFLite or C.

examples:
  flipbit export runs/digits-vgg-small-bc/model.h5               model.fbit, beside it
  flipbit export model.h5 -o net.tflite                          the ending says which format
  flipbit export model.h5 --to onnx --activations float
  flipbit export model.h5 -o net.fbit --calibrate my_photos/ --samples 200
  flipbit export tuned.fbit --for arduino -o insects             an Arduino library of an image
"""

from __future__ import annotations

import argparse
from pathlib import Path

from flipbit.export.commands import c_source, convert
from flipbit.export.graph import ExportError
from flipbit.runtime.exits import CommandParser, guarded

PROG = "flipbit export"


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    description, epilog = (__doc__ or "").split("\n\n", 1)
    p = CommandParser(
        prog=prog, description=description, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("model", type=Path, help="model.keras, model.h5, model.onnx, model.pt2; for C also an image (.fbit)")
    p.add_argument("-o", "--output", type=Path, metavar="FILE", help="where to write (beside the model)")
    p.add_argument("--to", dest="kind", choices=convert.FORMATS, help="format (what -o ends in, else fbit)")
    c_source.add_target_option(p)
    convert.add_packing_options(p)
    convert.add_options(p)
    return p


def main(argv: list[str] | None = None, prog: str = PROG) -> int:
    return guarded(
        lambda: _export(parser(prog).parse_args(argv)), stopped=convert.STOPPED, extras=convert.EXTRAS
    )  # fmt: skip


def _export(given: argparse.Namespace) -> None:
    kind = _kind(given)
    if kind != "c" and given.target:
        raise ExportError(f"--for {given.target} goes with --to c, not with --to {kind}")
    if kind in convert.INTEGERS_ONLY:
        for option, value, only in (("activations", given.activations, "int8"), ("weights", given.weights, "packed")):
            if value != only:
                raise ExportError(f"--{option} {value}: with --to onnx and --to tflite; {kind} is {only} alone")
    if kind == "c":
        c_source.export(given)
    else:
        convert.export(kind, given)


def _kind(given: argparse.Namespace) -> str:
    """What was asked for; else what the name of the output says; else an image for devices."""
    if given.kind:
        return str(given.kind)
    if given.target:
        return "c"
    if given.output is None:
        return "fbit"
    endings = {f".{suffix}": kind for kind, (suffix, _) in convert.FORMATS.items()}
    if given.output.suffix not in endings:
        raise ExportError(f"{given.output}: expected a name that ends in {', '.join(endings)}, or a format with --to")
    return endings[given.output.suffix]
