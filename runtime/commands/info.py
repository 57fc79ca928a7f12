"""``flipbit info``: what is in an image, and what it needs."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import asdict
from typing import Any

from flipbit.runtime.board.plan import BoardPlan, board_plan, every_board
from flipbit.runtime.board.profile import BoardError
from flipbit.runtime.core.model import Layer, Model
from flipbit.runtime.errors import ArgumentError
from flipbit.runtime.image.inputs import as_text, user_shape
from flipbit.runtime.image.reader import HEADER, OP, TENSOR
from flipbit.runtime.shown import shown, shown_json
from flipbit.runtime.text_table import text_table


def add_info_parser(commands: Any) -> None:
    p = commands.add_parser(
        "info",
        help="layers, sizes and RAM of an image",
        description="Check an image and show its layers, tensors, sizes, and the RAM it needs here or on a board.",
        epilog="examples:\n  flipbit info resnet8.fbit                   on this machine; which boards have room?\n"
        "  flipbit info resnet8.fbit --board microbit  RAM, kernels and time there; does it fit?\n"
        "  flipbit info resnet8.fbit --arena 16384     which kernels fit 16 KB, on this machine?",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("image", metavar="IMAGE", help="a .fbit file")
    p.add_argument("--board", metavar="NAME", help="for this board, not this machine (flipbit flash --list)")
    p.add_argument("--arena", type=int, metavar="BYTES", help="RAM for activations and tables (as much as is useful)")
    p.add_argument("--json", action="store_true", help="print JSON")
    p.set_defaults(command=_info)


def _info(given: argparse.Namespace) -> int:
    if given.board and given.arena is not None:
        raise ArgumentError("--board has the RAM of that board: leave out --arena")
    model = Model(given.image, given.arena)
    if given.board:
        plan = board_plan(model, given.board)
        found = {"file": str(model.path), "crc": f"{crc(model):08x}", **plan.facts()}
        print(shown_json(found) if given.json else _board_text(model, plan))
        return 0
    if given.json:
        print(shown_json({**facts(model), "boards": _boards(model)}))
    else:
        print(f"{_text(model)}\n{_smallest_text(model)}".rstrip())
    return 0


def _boards(model: Model) -> dict[str, Any] | None:
    """Which boards have room for the net; None where no board is known."""
    try:
        plans = every_board(model)
    except BoardError:  # FLIPBIT_FIRMWARE names another folder, or a profile is wrong
        return None
    fitting = [plan.board for plan in plans if plan.fits]
    return {"smallest": fitting[0] if fitting else None, "fit": fitting,
            "do_not_fit": {plan.board: plan.missing for plan in plans if not plan.fits}}  # fmt: skip


def _smallest_text(model: Model) -> str:
    try:
        plans = every_board(model)
    except BoardError as error:
        return f"boards   not known here: {error}"
    fitting = [plan for plan in plans if plan.fits]
    if not fitting:
        return f"boards   none has room for it; {plans[-1].board}: {', '.join(plans[-1].missing)}" if plans else ""
    least, others = fitting[0], [plan.board for plan in fitting[1:]]
    more = f"\n         it fits {', '.join(others)}, too" if others else ""
    return (
        f"boards   smallest that it fits: {least.board} ({least.title}): needs {least.ram_needed:,} bytes of RAM, "
        f"has {least.ram_free:,};\n         see flipbit info {shown(shlex.quote(str(model.path)))} "
        f"--board {least.board}{more}"
    )


def _board_text(model: Model, plan: BoardPlan) -> str:
    lines = [
        f"{shown(model.path)}: {len(model.image.data):,} bytes, CRC {crc(model):08x}",
        f"board    {plan.board}: {plan.title}, {plan.core} at {plan.clock_hz / 1e6:g} MHz; all numbers are its own",
    ]
    if plan.layers:
        head = ("layer", "kind", ">MACs", "kernel", ">live", ">scratch", ">instructions")
        rows = [
            (layer.name, layer.description, layer.macs or None, there.kernel, there.live, there.scratch or None,
             there.instructions if there.counted or there.instructions is None else f"~ {there.instructions:,}")
            for layer, there in zip(model.layers, plan.layers)
        ]  # fmt: skip
        lines += ["", text_table(head, rows), ""]
    lines += [
        f"flash    {plan.flash_needed:,} bytes needed, {plan.flash_free:,} free beside the firmware",
        f"RAM      {plan.ram_needed:,} bytes needed at least, {plan.ram_free:,} free for the net; "
        f"fastest with {plan.ram_fastest:,}",
    ]
    if plan.seconds is not None and plan.instructions is not None:
        about = "" if plan.counted else "about "
        lines.append(
            f"time     {about}{plan.instructions:,} instructions, about {1e3 * plan.seconds:,.1f} ms: modelled, not "
            f"measured\n         ({plan.source})"
        )
    elif plan.layers:
        lines.append("time     not known: some of these kernels were not counted on this core")
    lines.append("fits" if plan.fits else f"does not fit: {'; '.join(plan.missing)}")
    return "\n".join(lines)


def facts(model: Model) -> dict[str, Any]:
    """Everything ``flipbit info`` knows, for scripts."""
    image = model.image
    tensors = [
        {"shape": user_shape(t), "scale": t.scale, "zero_point": t.zero_point, "bytes": t.size} for t in image.tensors
    ]
    return {
        "file": str(model.path) if model.path else None,
        "version": HEADER.unpack_from(image.data)[1],
        "crc": f"{crc(model):08x}",
        "input": image.input,
        "output": image.output,
        "metadata": image.metadata,
        "front_end": image.front_end.to_json() if image.front_end else None,
        "flash": flash(model),
        "ram": {
            "arena": model.arena,
            "arena_size": model.arena_size,
            "arena_least": model.arena_least,
            "peak": model.peak_ram,
            "peak_layer": model.peak_layer.name,
        },
        "tensors": tensors,
        "layers": [{**asdict(layer), "ram": layer.ram} for layer in model.layers],
    }


def crc(model: Model) -> int:
    return int(HEADER.unpack_from(model.image.data)[4])


def flash(model: Model) -> dict[str, int]:
    """Bytes of the image, by what they hold."""
    data, layers = model.image.data, model.layers
    tables = HEADER.size + TENSOR.size * len(model.image.tensors) + OP.size * len(layers)
    parts = {
        "binary weights and parameters": sum(layer.bytes for layer in layers if layer.bits == 1),
        "int8 weights and parameters": sum(layer.bytes for layer in layers if layer.bits == 8),
        "tables": tables,
        "metadata": int(HEADER.unpack_from(data)[-1]),
    }
    return {**parts, "filling": len(data) - sum(parts.values()), "total": len(data)}


def _text(model: Model) -> str:
    image = model.image
    source, target = image.tensors[image.input], image.tensors[image.output]
    sizes, version = flash(model), HEADER.unpack_from(image.data)[1]
    lines = [
        f"{shown(model.path)}: a flipbit image, version {version}, {sizes['total']:,} bytes, CRC {crc(model):08x}",
        f"input    {as_text(model.input_shape)} int8, scale {source.scale:g}, zero point {source.zero_point}",
        f"output   {as_text(model.output_shape)} int8, scale {target.scale:g}, zero point {target.zero_point}",
    ]
    if image.metadata.get("input"):
        lines.append(f"pixels   {shown(image.metadata['input'])}")
    if image.front_end:
        lines.append(f"hears    {image.front_end}")
    if model.values:
        lines.append("gives    values, not scores of classes")
    elif model.labels:
        lines.append(f"classes  {', '.join(map(shown, model.labels))}")
    lines += ["", _layers(model), ""]
    lines.append("flash    " + ", ".join(f"{name} {size:,}" for name, size in sizes.items() if size) + " bytes")
    lines.append(f"work     {sum(layer.macs for layer in model.layers):,} multiply-accumulates")
    peak = model.peak_layer
    sets = f"{shown(peak.name)} sets it"
    lines += [
        f"RAM      {model.peak_ram:,} bytes on this machine: {peak.ram:,} of the arena, input {source.size:,}, "
        f"output {target.size:,}",
        f"         {sets}: {peak.live:,} of activations, {peak.scratch:,} of scratch for {peak.kernel}",
        f"arena    {model.arena:,} bytes; {model.arena_size:,} give every layer the fastest kernel of this machine, "
        f"{model.arena_least:,} are the least",
    ]
    return "\n".join(lines)


def _layers(model: Model) -> str:
    head = ("layer", "kind", ">output", ">scale", ">zero", ">bits", ">bytes", ">MACs", "kernel", ">live", ">scratch")

    def row(layer: Layer) -> tuple[object, ...]:
        tensor = model.image.tensors[layer.output]
        return (
            layer.name, layer.description, as_text(layer.output_shape), f"{tensor.scale:.4g}", tensor.zero_point,
            layer.bits, layer.bytes or None, layer.macs or None, layer.kernel, layer.live, layer.scratch or None,
        )  # fmt: skip

    return text_table(head, map(row, model.layers))
