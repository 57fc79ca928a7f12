"""Count the instructions of an image's inference on every core, in QEMU.

  python firmware/count/bench.py                        MLPerf Tiny's ResNet-8 of models/ (exported first)
  python firmware/count/bench.py net.fbit --cores M0 M4
  python firmware/count/bench.py net.fbit --boards microbit hifive1    on boards, in the RAM they have
  python firmware/count/bench.py net.fbit --json counts.json

Every layer's output is compared with the C core on this machine. Needs qemu-system-arm, qemu-system-riscv32 (Debian:
qemu-system-misc), arm-none-eabi-gcc and riscv64-unknown-elf-gcc; capstone (pip) for the model of cycles.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import counting
import cycles
from counting import CORES, Core, Count, CountError, read_profile

from flipbit.runtime.errors import FlipbitError
from flipbit.runtime.image import Image, read_image

ROOT = counting.FIRMWARE.parent
DEFAULT = ROOT / "models" / "cifar10-resnet8" / "model.h5"

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
    if op.kind == "conv":
        return target.size * op.kernel[0] * op.kernel[1] * source.channels
    return target.size * source.size if op.kind == "dense" else 0


def short_name(core: Core) -> str:
    """ "M4" of a board whose core is cortex-m4."""
    if core in CORES:
        return core.name
    return str(read_profile.read(core.board).facts["core"]).removeprefix("cortex-").upper()


def result_of(core: Core, count: Count, image: Image) -> CoreResult:
    """Join what was counted with what the image says."""
    name = short_name(core)
    modelled = {"M0": ("M0", "M0+")}.get(name, (name,)) if cycles.available() else ()
    whole = {like: cycles.modelled_cycles(like, count.whole.instructions) for like in modelled}
    layers = []
    for run, region in zip(count.run.layers, count.layers):
        op = image.operations[run.op]
        spent = cycles.modelled_cycles(name, region.instructions) if modelled else None
        layers.append(LayerResult(run.op, op.name, op.kind, run.kernel, macs(image, run.op), region.total, spent))
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


def exported(folder: Path) -> Path:
    """ResNet-8 as an image, out of the trained model."""
    target = folder / "resnet8.fbit"
    command = [sys.executable, str(ROOT / "export" / "to_fbit.py"), str(DEFAULT), "-o", str(target)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        last = "\n".join(done.stderr.strip().splitlines()[-3:])
        raise CountError(f"could not export {DEFAULT}: give an image instead (bench.py net.fbit):\n{last}")
    return target


def emulated_boards() -> list[str]:
    return [name for name in read_profile.names() if read_profile.read(name).emulated]


def chosen(given: argparse.Namespace) -> list[Core]:
    if given.boards:
        return [Core(name, name) for name in given.boards]
    return [core for core in CORES if not given.cores or core.name in given.cores]


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("model", nargs="?", type=Path, help="an image (.fbit); ResNet-8 without")
    where = found.add_mutually_exclusive_group()
    where.add_argument("--cores", nargs="+", choices=[core.name for core in CORES], help="all without")
    where.add_argument(
        "--boards", nargs="+", choices=emulated_boards(), metavar="BOARD", help="boards instead of cores"
    )
    found.add_argument(
        "--json", type=Path, metavar="FILE", help="write the results there as well ('-': only, to stdout)"
    )
    found.add_argument("--build", type=Path, metavar="DIR", help="keep what is built there")
    return found


def run(given: argparse.Namespace, folder: Path) -> list[CoreResult]:
    model = given.model or exported(folder)
    image = read_image(model)
    expected = counting.host_crcs(image.data)
    plugin = counting.build_plugin(folder)
    results = []
    for core in chosen(given):
        sys.stderr.write(f"{core.name}: building and running on {core.board} …\n")
        count = counting.count(core, model, folder, plugin)
        compare(core, count, expected)
        results.append(result_of(core, count, image))
    return results


def main(argv: list[str] | None = None) -> int:
    given = parser().parse_args(argv)
    try:
        with tempfile.TemporaryDirectory() as temporary:
            results = run(given, given.build or Path(temporary))
    except (CountError, FlipbitError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    text = json.dumps([asdict(result) for result in results], indent=1) + "\n"
    if str(given.json) == "-":
        sys.stdout.write(text)
        return 0
    if given.json:
        given.json.write_text(text, encoding="utf-8")
    sys.stdout.write(f"{totals_table(results)}\n\n{layers_table(results)}\n\n")
    sys.stdout.write(
        "Instructions are counted; every layer's output equals the host's, bit for bit. Cycles are a model: Arm's\n"
        "published costs for memory without wait states. CMSIS-NN is int8 and only the convolutions. Bytes: arena for\n"
        "the fastest kernels, the least arena, the arena there was, stack of fb_invoke, the core's code, the image.\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
