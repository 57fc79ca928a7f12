"""Build the bench program for a core, run it in QEMU, and read what it did and how many instructions that took."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Iterator
from ctypes import string_at
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

FIRMWARE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(FIRMWARE / "boards"))

import read_profile  # noqa: E402
import report_sizes  # noqa: E402

PLUGIN = Path(__file__).with_name("count_plugin.c")
SECONDS = 300


class CountError(Exception):
    """Something could not be built, run or read; the message says what and why."""


@dataclass(frozen=True)
class Core:
    """A core to count on: a board that QEMU models, and compiler flags in place of the board's."""

    name: str
    board: str
    flags: str = ""


# No M0 that QEMU models has the RAM of larger nets: its code runs on the M3, which knows all of its instructions.
CORES = (
    Core("M0", "mps2-an385", "-mcpu=cortex-m0 -mthumb"),
    Core("M3", "mps2-an385"),
    Core("M4", "mps2-an386"),
    Core("M7", "mps2-an500"),
    Core("M33", "mps2-an505"),
    Core("M55", "mps3-an547"),
    Core("RV32IMAC", "rv32-virt"),
)


@dataclass(frozen=True)
class Instruction:
    """``taken``: how often something else than the next instruction followed."""

    address: int
    code: bytes
    count: int
    taken: int


@dataclass(frozen=True)
class Region:
    name: str
    total: int
    instructions: list[Instruction] = field(repr=False)


@dataclass(frozen=True)
class LayerRun:
    op: int
    crc: int
    kernel: str


@dataclass(frozen=True)
class Run:
    """What the bench program reported."""

    model_size: int
    model_crc: int
    arena: int
    arena_least: int
    arena_best: int
    layers: list[LayerRun]
    output_crc: int
    stack: int


@dataclass(frozen=True)
class Count:
    """A run with its counts: one region per layer, and the whole without hooks."""

    run: Run
    layers: list[Region]
    whole: Region
    sizes: report_sizes.Sizes


def bench_input(size: int, state: int = 1) -> np.ndarray:
    """The int8 values that the programs make for themselves (next_value in report.c), from this number on."""
    values = []
    for _ in range(size):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        values.append(state >> 24)
    return np.array(values, np.uint8).view(np.int8)


def host_crcs(image: bytes) -> list[int]:
    """CRC-32 of every layer's output for that input, by the C core on this machine."""
    from flipbit.runtime.core import library as core

    opened = core.Opened(image)
    tensors = [_tensor_size(image, index) for index in (opened.model.input, opened.model.output)]
    found: list[int] = []

    @core.AFTER
    def after(_context: int, _op: int, _tensor: int, values: int, size: int) -> None:
        found.append(zlib.crc32(string_at(values, size)))

    arena = core.aligned(opened.arena_size)
    opened.invoke(arena, bench_input(tensors[0]), np.zeros(tensors[1], np.int8), core.CHooks(after=after))
    return found


def _tensor_size(image: bytes, index: int) -> int:
    height, width, channels = np.frombuffer(image, "<u2", 3, 32 + 12 * index)
    return int(height) * int(width) * int(channels)


def build(
    board: str,
    folder: Path,
    model: Path | None,
    program: str = "bench",
    flags: str = "",
    name: str = "",
    defines: str = "",
) -> Path:
    """The ELF file of a program, in folder/name; ``defines`` are further options of the compiler, for the program.

    Raises :class:`CountError` with the end of what make said.
    """
    from flipbit.runtime.board.profile import BoardError, make

    variables = {"PROGRAM": program, "OUT": f"build/{name or board}", **({"BOARD_FLAGS": flags} if flags else {})}
    try:
        with _rest_flags(defines):
            done = make(board, model, folder, FIRMWARE, **variables)
    except BoardError as error:
        raise CountError(str(error)) from None
    if done.status:
        raise CountError(f"make BOARD={board} PROGRAM={program} failed:\n{done.last_words}")
    out = folder.resolve() / (name or board)
    return out / f"{'flipbit' if program == 'app' else program}.elf"


@contextlib.contextmanager
def _rest_flags(more: str) -> Iterator[None]:
    """In the environment: on make's command line they would override the flags that some files have of their own."""
    before = os.environ.get("REST_FLAGS")
    os.environ["REST_FLAGS"] = f"{before or '-Os'} {more}".strip()
    try:
        yield
    finally:
        if before is None:
            del os.environ["REST_FLAGS"]
        else:
            os.environ["REST_FLAGS"] = before


def build_plugin(folder: Path) -> Path:
    library = folder.resolve() / "libcount.so"
    folder.mkdir(parents=True, exist_ok=True)
    command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(PLUGIN)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise CountError(f"the counting plugin does not compile here:\n{done.stderr}")
    return library


def emulate(board: str, elf: Path, *more: str) -> str:
    """What a program says over semihosting; it has to end by itself with status 0."""
    from flipbit.runtime.stopping import run_child

    command = read_profile.read(board).qemu_command(elf, "-serial", "null", *more)
    if not shutil.which(command[0]):
        raise CountError(f"{command[0]} is missing: on Debian, apt install qemu-system-arm qemu-system-misc")
    try:
        done = run_child(command, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise CountError(f"{elf} on {board} did not end within {SECONDS} s") from None
    if done.returncode:
        raise CountError(
            f"{elf} on {board} ended with status {done.returncode}: {(done.stdout + done.stderr).strip()[-300:]}"
        )
    return done.stdout


def count_regions(board: str, elf: Path, plugin: Path, names: tuple[str, ...]) -> tuple[str, list[Region]]:
    """What a program says, and the counts of each time it ran from ``count_NAME_begin`` to ``count_NAME_end``."""
    at = report_sizes.symbols(read_profile.read(board), elf)
    regions = [f"region={n}:{at[f'count_{n}_begin']:#x}:{at[f'count_{n}_end']:#x}" for n in names]
    out = elf.with_suffix(".counts")
    said = emulate(board, elf, "-plugin", ",".join([str(plugin), f"out={out.resolve()}", *regions]))
    return said, parse_regions(out.read_text(encoding="ascii"))


def parse_run(text: str) -> Run:
    """The report of bench_main.c."""
    lines = [line.split() for line in text.splitlines()]
    words = {line[0]: [int(word) for word in line[1:]] for line in lines if line and line[0] not in ("layer", "done")}
    layers = [LayerRun(int(line[1]), int(line[2]), line[3]) for line in lines if line and line[0] == "layer"]
    (size, crc), (arena, least, best), (output,), (stack,) = (
        words[key] for key in ("model", "arena", "output", "stack")
    )
    return Run(size, crc, arena, least, best, layers, output, stack)


def parse_regions(text: str) -> list[Region]:
    """The file of count_plugin.c."""
    regions: list[Region] = []
    for line in text.splitlines():
        first, second, *rest = line.split()
        if first == "region":
            regions.append(Region(second, int(rest[0]), []))
        else:
            regions[-1].instructions.append(Instruction(int(first, 16), bytes.fromhex(second), *map(int, rest)))
    return regions


def count(core: Core, model: Path, folder: Path, plugin: Path, ram: int | None = None) -> Count:
    """Build, run and count one core, with ``ram`` bytes for input, output and arena, or all it has."""
    defines = "" if ram is None else f"-DBENCH_RAM={ram}u"
    elf = build(core.board, folder, model, flags=core.flags, name=f"{core.board}-{core.name}", defines=defines)
    profile = read_profile.read(core.board)
    report, found = count_regions(core.board, elf, plugin, ("layer", "run"))
    layers = [region for region in found if region.name == "layer"]
    whole = [region for region in found if region.name == "run"]
    run = parse_run(report)
    if len(layers) != len(run.layers) or len(whole) != 1:
        raise CountError(
            f"{core.name}: {len(layers)} layers and {len(whole)} runs were counted of {len(run.layers)}, 1"
        )
    return Count(run, layers, whole[0], report_sizes.measure(profile, elf))
