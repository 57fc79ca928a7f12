"""Count the instructions of an image's inference on every core, in QEMU.

  python firmware/count/bench.py                        MLPerf Tiny's ResNet-8 of models/
  python firmware/count/bench.py net.fbit --cores M0 M4
  python firmware/count/bench.py net.fbit --boards microbit hifive1    on boards, in the RAM they have
  python firmware/count/bench.py net.fbit --ram 56000   with the kernels that fit
  python firmware/count/bench.py net.fbit --json counts.json
  python firmware/count/bench.py net.fbit --store       into inference.json, for flipbit info --board

Every layer's output is compared with the C core on this machine. Needs qemu-system-arm, qemu-system-riscv32 (Debian:
qemu-system-misc), arm-none-eabi-gcc and riscv64-unknown-elf-gcc; capstone (pip) for the model of cycles.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import counting
import cycles
import numpy as np
from board_toml import ProfileError
from counting import CORES, Core, Count, CountError, read_profile

from flipbit.runtime.board.estimate import layer_key
from flipbit.runtime.core.model import Model
from flipbit.runtime.exits import CommandParser, guarded
from flipbit.runtime.files import check_place, write_text
from flipbit.runtime.image.reader import Image, read_image

ROOT = counting.FIRMWARE.parent
DEFAULT = ROOT / "models" / "cifar10-resnet8" / "model.fbit"
INFERENCE = ROOT / "runtime" / "board" / "measured" / "inference.json"

# CMSIS-NN (99f736a): the int8 convolutions of ResNet-8, counted with a plugin of this kind. Nothing else of the net is
# in these numbers, everything is in ours.
CMSIS_NN = {"M0": 90.6e6, "M3": 39.3e6, "M4": 27.5e6, "M7": 27.5e6, "M55": 4.40e6, "RV32IMAC": 61.3e6}
RESNET8_CONV_MACS = 12_500_992


@dataclass(frozen=True)
class LayerResult:
    op: int
    name: str
    kind: str
    kernel: str
    macs: int
    instructions: int
    cycles: int | None
    modelled: dict[str, int]  # cycles by core: M0 also for M0+


@dataclass(frozen=True)
class CoreResult:
    """Bytes, instructions; ``cycles`` are modelled, by core: M0 also for M0+.

    ``arena`` is what the fastest kernels need, ``room`` what there was.
    """

    core: str
    board: str
    instructions: int
    cycles: dict[str, int]
    cmsis_nn: int | None
    room: int
    arena: int
    arena_least: int
    stack: int
    core_code: int
    model: int
    layers: list[LayerResult]


def macs(image: Image, op_index: int) -> int:
    """Multiply-accumulates of a layer with weights; 0 for others."""
    op = image.operations[op_index]
    source, target = image.tensors[op.inputs[0]], image.tensors[op.output]
    seen = op.taps * (1 if op.traits.per_channel else source.channels)
    return target.size * seen if op.traits.weights else 0


def short_name(core: Core) -> str:
    """ "M4" of a board whose core is cortex-m4."""
    if core in CORES:
        return core.name
    return read_profile.read(core.board).core.removeprefix("cortex-").upper()


def result_of(core: Core, count: Count, image: Image) -> CoreResult:
    """Join what was counted with what the image says."""
    name = short_name(core)
    modelled = {"M0": ("M0", "M0+")}.get(name, (name,)) if cycles.available() else ()
    whole = {like: cycles.modelled_cycles(like, count.whole.instructions) for like in modelled}
    layers = []
    for run, region in zip(count.run.layers, count.layers):
        op = image.operations[run.op]
        each = {like: cycles.modelled_cycles(like, region.instructions) for like in modelled}
        known = {like: n for like, n in each.items() if n is not None}
        layers.append(
            LayerResult(run.op, op.name, op.kind, run.kernel, macs(image, run.op), region.total, each.get(name), known)
        )
    conv_macs = sum(layer.macs for layer in layers if layer.kind == "conv")
    published = CMSIS_NN.get(name) if conv_macs == RESNET8_CONV_MACS else None
    return CoreResult(
        core.name, core.board, count.whole.total, {like: n for like, n in whole.items() if n is not None},
        int(published) if published else None, count.run.arena, count.run.arena_best, count.run.arena_least,
        count.run.stack, count.sizes.core, count.sizes.model, layers,
    )  # fmt: skip


def compare(core: Core, count: Count, expected: list[int]) -> None:
    """Raise where a layer's output is not the host's."""
    for run, crc in zip(count.run.layers, expected):
        if run.crc != crc:
            raise CountError(f"{core.name}: layer {run.op} ({run.kernel}) differs from the host: {run.crc}, not {crc}")
    if count.run.output_crc != expected[-1]:
        raise CountError(f"{core.name}: without hooks the output differs from the host's")


def _aligned(rows: list[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))])
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)


def totals_table(results: list[CoreResult]) -> str:
    rows: list[tuple[str, ...]] = [
        ("on", "instructions", "per MAC", "CMSIS-NN convs", "ratio", "modelled cycles", "arena", "least", "has",
         "stack", "core code", "model")
    ]  # fmt: skip
    for r in results:
        total = sum(layer.macs for layer in r.layers)
        modelled = ", ".join(f"{n:,}" + (f" ({name})" if name == "M0+" else "") for name, n in r.cycles.items())
        rows.append((
            r.core, f"{r.instructions:,}", f"{r.instructions / total:.3f}" if total else "-",
            f"{r.cmsis_nn:,}" if r.cmsis_nn else "-",
            f"{r.cmsis_nn / r.instructions:.2f}x" if r.cmsis_nn else "-", modelled or "-", f"{r.arena:,}",
            f"{r.arena_least:,}", f"{r.room:,}", f"{r.stack:,}", f"{r.core_code:,}", f"{r.model:,}",
        ))  # fmt: skip
    return _aligned(rows)


def layers_table(results: list[CoreResult]) -> str:
    """Instructions of every layer on every core, and how each core's kernel is called where they differ."""
    rows: list[tuple[str, ...]] = [("layer", "MACs", *(r.core for r in results))]
    for i, layer in enumerate(results[0].layers):
        counts = (f"{r.layers[i].instructions:,}" for r in results)
        rows.append((f"{layer.op} {layer.kind} {layer.name}", f"{layer.macs:,}", *counts))
    kernels = [("layer", *(r.core for r in results))]
    for i, layer in enumerate(results[0].layers):
        kernels.append((f"{layer.op}", *(r.layers[i].kernel.removeprefix("fb_") for r in results)))
    return _aligned(rows) + "\n\nkernels\n" + _aligned(kernels)


def emulated_boards() -> list[str]:
    return [name for name in read_profile.names() if read_profile.read(name).emulated]


def chosen(given: argparse.Namespace) -> list[Core]:
    if given.boards:
        return [Core(name, name) for name in given.boards]
    return [core for core in CORES if not given.cores or core.name in given.cores]


def ram(text: str) -> int:
    """Bytes that every emulated machine has."""
    if not text.isdecimal() or not 1024 <= int(text) <= 1 << 20:
        raise argparse.ArgumentTypeError(f"{text}: expected 1024 to {1 << 20} bytes")
    return int(text)


def parser() -> argparse.ArgumentParser:
    found = CommandParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("model", nargs="?", type=Path, help="an image (.fbit); ResNet-8 without")
    where = found.add_mutually_exclusive_group()
    where.add_argument("--cores", nargs="+", choices=[core.name for core in CORES], help="all without")
    where.add_argument(
        "--boards", nargs="+", choices=emulated_boards(), metavar="BOARD", help="boards instead of cores"
    )
    found.add_argument("--json", type=Path, metavar="FILE", help="also write the results there ('-': only, to stdout)")
    found.add_argument("--store", action="store_true", help=f"add them to {INFERENCE.relative_to(ROOT)}")
    found.add_argument("--ram", type=ram, metavar="BYTES", help="for input, output and arena (all the board has)")
    found.add_argument("--build", type=Path, metavar="DIR", help="keep what is built there")
    return found


def run(given: argparse.Namespace, folder: Path) -> list[CoreResult]:
    model = given.model or DEFAULT
    image = read_image(model)
    expected = counting.host_crcs(image.data)
    plugin = counting.build_plugin(folder)
    results = []
    for core in chosen(given):
        sys.stderr.write(f"{core.name}: building and running on {core.board} …\n")
        count = counting.count(core, model, folder, plugin, given.ram)
        compare(core, count, expected)
        results.append(result_of(core, count, image))
    return results


def store(model: Path, results: list[CoreResult], cores: list[Core]) -> None:
    """Add what was counted of every layer; the same layer, kernel and core only once."""
    known = json.loads(INFERENCE.read_text(encoding="utf-8"))["layers"] if INFERENCE.is_file() else []
    rows = {(row["core"], row["kernel"], row["layer"]): row for row in known}
    described = Model(model).layers
    for core, result in zip(cores, results):
        for counted, layer in zip(result.layers, described):
            if counted.kernel == "nothing":
                continue
            key = (short_name(core), counted.kernel, layer_key(layer))
            work = layer.macs or int(np.prod(layer.output_shape))
            rows[key] = {
                "core": key[0], "kernel": key[1], "layer": key[2], "work": work,
                "instructions": counted.instructions, "cycles": counted.modelled,
            }  # fmt: skip
    lines = ",\n".join(json.dumps(rows[key], ensure_ascii=False) for key in sorted(rows))
    about = "instructions of layers by core and kernel, counted by firmware/count/bench.py --store"
    INFERENCE.write_text(f'{{"about": "{about}", "layers": [\n{lines}\n]}}\n', encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    return guarded(lambda: _main(parser().parse_args(argv)), also=(CountError, ProfileError))


def _main(given: argparse.Namespace) -> None:
    check_place(None if str(given.json) == "-" else given.json)
    with tempfile.TemporaryDirectory() as temporary:
        results = run(given, given.build or Path(temporary))
    if given.store:
        store(given.model or DEFAULT, results, chosen(given))
    text = json.dumps([asdict(result) for result in results], indent=1) + "\n"
    if str(given.json) == "-":
        sys.stdout.write(text)
        return
    if given.json:
        write_text(given.json, text)
    sys.stdout.write(f"{totals_table(results)}\n\n{layers_table(results)}\n\n")
    sys.stdout.write(
        "Instructions are counted; every layer's output equals the host's, bit for bit. Cycles are a model: Arm's\n"
        "published costs for memory without wait states. CMSIS-NN is int8 and only the convolutions. Bytes: arena for\n"
        "the fastest kernels, the least arena, the arena there was, stack of fb_invoke, the core's code, the image.\n"
    )


if __name__ == "__main__":
    sys.exit(main())
