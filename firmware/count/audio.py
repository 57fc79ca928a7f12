"""Count the instructions of the audio front end on every core, in QEMU: per row of features and per second of sound.

  python firmware/count/audio.py                         the configuration for keywords
  python firmware/count/audio.py --cores M0 M4 --set window=512 --set high_hz=4000
  python firmware/count/audio.py --json counts.json

The rows are compared with the C core on this machine and with NumPy. Needs what firmware/count/bench.py needs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import zlib
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path

import counting
import cycles
import numpy as np
import read_profile
from counting import CORES, Core, CountError

from flipbit.runtime.audio.config import RATE, AudioConfig
from flipbit.runtime.audio.features import features
from flipbit.runtime.audio.front_end import FrontEnd
from flipbit.runtime.errors import InputError
from flipbit.runtime.exits import CommandParser, guarded
from flipbit.runtime.files import check_place, write_text

ALSO = {"M0": ("M0", "M0+")}  # whose cycles the same code is modelled for


@dataclass(frozen=True)
class AudioCount:
    """Instructions, and bytes. ``cycles`` of a second are modelled, by core."""

    core: str
    row: int  # the costliest
    second: int  # all rows of a second
    open: int
    cycles: dict[str, int]
    memory: int
    structure: int
    stack: int
    flash: int


def bench_samples(config: AudioConfig) -> np.ndarray:
    """The second of sound that audio_main.c makes."""
    rows = config.rows(RATE)
    size = config.window + (rows - 1) * config.hop
    values = counting.bench_input(2 * size).astype(np.int32)
    row = np.maximum(np.arange(size) - config.window + config.hop, 0) // config.hop
    return (values[::2] * 256 + (values[1::2] & 255) >> row % 16).astype(np.int16)


def host_rows(config: AudioConfig) -> np.ndarray:
    """Features by the C core on this machine, which must be NumPy's."""
    samples = bench_samples(config)
    found = FrontEnd(config).push(samples)
    if not np.array_equal(found, features(samples, config)):
        raise CountError("on this machine the C core and NumPy differ")
    return found


def flash_size(core: Core, folder: Path, elf: Path) -> int:
    """Bytes of code and constants in the files of core/audio."""
    profile = read_profile.read(core.board)
    made = (elf.parent / "board.mk").read_text(encoding="utf-8")
    flags = core.flags or next(line.split("=", 1)[1] for line in made.splitlines() if line.startswith("BOARD_FLAGS"))
    place = "core" + "".join(flags.split()).replace("=", "-")
    objects = sorted((folder.resolve() / place / "core" / "audio").glob("*.o"))
    said = subprocess.run([profile.compiler + "size", *map(str, objects)], check=True, capture_output=True, text=True)
    return sum(int(line.split()[0]) for line in said.stdout.splitlines()[1:])


def count(core: Core, config: AudioConfig, folder: Path, plugin: Path) -> AudioCount:
    """Build, run and count one core."""
    defines = f"-DAUDIO_CONFIG={','.join(map(str, astuple(config)))}"
    elf = counting.build(core.board, folder, None, "audio", core.flags, f"audio-{core.board}-{core.name}", defines)
    report, (opened, *rows) = counting.count_regions(core.board, elf, plugin, ("open", "row"))
    said = {line.split()[0]: [int(word) for word in line.split()[1:]] for line in report.splitlines()}
    expected = host_rows(config)
    if said["rows"] != [len(expected), zlib.crc32(expected.tobytes())]:
        raise CountError(
            f"{core.name}: features differ from the host's: {said['rows'][1]:08x} in {said['rows'][0]} rows"
        )
    if len(rows) != len(expected):
        raise CountError(f"{core.name}: {len(rows)} rows were counted of {len(expected)}")
    modelled = {}
    for name in ALSO.get(core.name, (core.name,)) if cycles.available() else ():
        each = [cycles.modelled_cycles(name, row.instructions) for row in rows]
        if None not in each:
            modelled[name] = sum(n for n in each if n)
    memory, structure = said["ram"]
    return AudioCount(
        core.name, max(row.total for row in rows), sum(row.total for row in rows), opened.total, modelled, memory,
        structure, said["stack"][0], flash_size(core, folder, elf),
    )  # fmt: skip


def table(found: list[AudioCount]) -> str:
    rows: list[tuple[str, ...]] = [
        ("core", "per row", "per second", "modelled cycles", "opening", "memory", "fb_audio", "stack", "flash")
    ]
    for f in found:
        spent = ", ".join(f"{n:,}" + (f" ({name})" if name == "M0+" else "") for name, n in f.cycles.items())
        rows.append((
            f.core, f"{f.row:,}", f"{f.second:,}", spent or "-", f"{f.open:,}", f"{f.memory:,}", f"{f.structure:,}",
            f"{f.stack:,}", f"{f.flash:,}",
        ))  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in rows)


def _setting(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    names = [field.name for field in fields(AudioConfig)]
    if name not in names or not value.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: expected NAME=NUMBER with one of {', '.join(names)}")
    return name, int(value)


def parser() -> argparse.ArgumentParser:
    found = CommandParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--cores", nargs="+", choices=[core.name for core in CORES], help="all without")
    found.add_argument("--set", action="append", type=_setting, default=[], metavar="NAME=NUMBER", help="configuration")
    found.add_argument("--json", type=Path, metavar="FILE", help="write the results there as well")
    found.add_argument("--build", type=Path, metavar="DIR", help="keep what is built there")
    return found


def main(argv: list[str] | None = None) -> int:
    return guarded(lambda: _main(parser().parse_args(argv)), also=(CountError, read_profile.ProfileError))


def _main(given: argparse.Namespace) -> None:
    check_place(given.json)
    config = AudioConfig(**dict(given.set))
    if not config.rows(RATE):
        raise InputError("a second has no row of this configuration")
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.build or Path(temporary)
        plugin = counting.build_plugin(folder)
        for core in CORES:
            if given.cores and core.name not in given.cores:
                continue
            sys.stderr.write(f"{core.name}: building and running on {core.board} …\n")
            results.append(count(core, config, folder, plugin))
    if given.json:
        write_text(given.json, json.dumps([asdict(result) for result in results], indent=1) + "\n")
    sys.stdout.write(f"{config}: {config.rows(RATE)} rows in the second\n\n{table(results)}\n\n")
    sys.stdout.write(
        "Instructions are counted; every row equals the host's and NumPy's, bit for bit. Cycles are a model: Arm's\n"
        "published costs for memory without wait states. Bytes: memory of the caller, fb_audio, stack, code, tables.\n"
    )


if __name__ == "__main__":
    sys.exit(main())
