"""``flipbit info``: what is in an image, and what it needs."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

from flipbit.runtime.image import HEADER, OP, TENSOR
from flipbit.runtime.inputs import as_text, user_shape
from flipbit.runtime.model import Layer, Model
from flipbit.runtime.text_table import text_table


def add_info_parser(commands: Any) -> None:
    p = commands.add_parser(
        "info",
        help="layers, sizes and RAM of an image",
        description="Check an image and show its layers, tensors, sizes and the RAM it needs.",
        epilog="examples:\n  flipbit info resnet8.fbit\n"
        "  flipbit info resnet8.fbit --arena 16384     which kernels fit 16 KB?",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("image", metavar="IMAGE", help="a .fbit file")
    p.add_argument("--arena", type=int, metavar="BYTES", help="RAM for activations and tables (as much as is useful)")
    p.add_argument("--json", action="store_true", help="print JSON")
    p.set_defaults(command=_info)


def _info(given: argparse.Namespace) -> int:
    model = Model(given.image, given.arena)
    print(json.dumps(facts(model), indent=1, ensure_ascii=False) if given.json else _text(model))
    return 0


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
    sizes = flash(model)
    lines = [
        f"{model.path}: a flipbit image, version 1, {sizes['total']:,} bytes, CRC {crc(model):08x}",
        f"input    {as_text(model.input_shape)} int8, scale {source.scale:g}, zero point {source.zero_point}",
        f"output   {as_text(model.output_shape)} int8, scale {target.scale:g}, zero point {target.zero_point}",
    ]
    if image.metadata.get("input"):
        lines.append(f"pixels   {image.metadata['input']}")
    if model.labels:
        lines.append(f"classes  {', '.join(model.labels)}")
    lines += ["", _layers(model), ""]
    lines.append("flash    " + ", ".join(f"{name} {size:,}" for name, size in sizes.items() if size) + " bytes")
    lines.append(f"work     {sum(layer.macs for layer in model.layers):,} multiply-accumulates")
    peak = model.peak_layer
    lines += [
        f"RAM      {model.peak_ram:,} bytes: {peak.ram:,} of the arena, input {source.size:,}, output {target.size:,}",
        f"         {peak.name} sets it: {peak.live:,} of activations, {peak.scratch:,} of scratch for {peak.kernel}",
        f"arena    {model.arena:,} bytes; {model.arena_size:,} give every layer its fastest kernel, "
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
