"""Count the instructions of learning on every core, in QEMU: forward and backward of a sample, and the update.

  python firmware/count/learn.py resnet8.fbit                          a table: every core, every method
  python firmware/count/learn.py resnet8.fbit --cores M0 M4 --methods sr --arenas 131072
  python firmware/count/learn.py resnet8.fbit --name resnet8 --store   into runtime/board/measured/counts.json, where
                                                                       the simulator of devices finds its costs

A step on one sample is run on the emulated core; the image after it must be the one the C core on this machine makes.
Needs what firmware/count/bench.py needs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import counting
import cycles
import numpy as np
from board_toml import ProfileError
from counting import CORES, Core, CountError, Region

from flipbit.runtime.core.learner import Learner, LearnerConfig
from flipbit.runtime.core.learner_config import SUM_BITS
from flipbit.runtime.exits import CommandParser, guarded
from flipbit.runtime.image.reader import read_image
from flipbit.runtime.simulate.workload import Workload
from flipbit.runtime.tune.methods import METHODS, buffer_start

ROOT = counting.FIRMWARE.parent
STORE = ROOT / "runtime" / "board" / "measured" / "counts.json"
PHASES = ("scale", "measure", "update")  # the sweeps of a first step
RECALIBRATE = "recalibrate"  # the one sweep of a step that does
LABEL, RATE = 1, 0.05  # of learn_main.c
NARROW_SAMPLES = 8
CONFIGS = {
    name: LearnerConfig(
        1, m.buffer_bits, buffer_start(m.buffer_bits) if m.buffer_bits else 0, m.bits, m.bias, gain=m.gain,
        recalibrate=int(m.recalibrate),
    )
    for name, m in sorted(METHODS.items(), key=lambda item: item[0] != "sr")  # SR first
    if not (m.recalibrate and m.bias)  # first one, then the other
}  # fmt: skip
CONFIGS |= {f"sr/{bits}": replace(CONFIGS["sr"], sum_bits=bits) for bits in SUM_BITS[1:]}
FIELDS = ("bits", "bias", "gain", "buffer_bits", "start", "recalibrate", "sums")  # that tell methods apart
ALSO = {"M0": ("M0", "M0+")}  # whose cycles the same code is modelled for


@dataclass(frozen=True)
class PassCount:
    """A pass on one sample: what it sums up, and what that took. ``cycles`` are modelled, by core."""

    phase: str
    high_op: int
    low_op: int
    first_filter: int
    end_filter: int
    sample: int  # instructions of the sample
    end: int  # instructions of fb_train_end_pass
    cycles: dict[str, int]  # of the sample
    end_cycles: dict[str, int]


@dataclass
class ArenaCount:
    arena: int
    passes: list[PassCount] = field(default_factory=list)
    flips: int | None = None

    def of(self, phase: str) -> list[PassCount]:
        return [p for p in self.passes if p.phase == phase]


@dataclass
class CoreCount:
    """What one core needs to learn one model; bytes and instructions."""

    core: str
    model: str
    method: str
    signature: str  # of the net's shape and the method
    macs: int
    weights: int  # trained bits and biases
    state: int
    arena_least: int
    arena_fast: int
    stack: int
    runs: list[ArenaCount] = field(default_factory=list)


def parse(
    text: str, regions: list[Region], core: str, method: str = "sr"
) -> tuple[dict[str, list[int]], list[ArenaCount]]:
    """The report of learn_main.c with what was counted."""
    words: dict[str, list[int]] = {}
    runs: list[ArenaCount] = []
    left = iter(regions)
    plan: list[int] = []
    modelled = ALSO.get(core, (core,))

    def costs(region: Region) -> dict[str, int]:
        found = {name: cycles.modelled_cycles(name, region.instructions) for name in modelled}
        return {name: n for name, n in found.items() if n is not None}

    for line in text.splitlines():
        name, *rest = line.split() or [""]
        if name == "arena":
            runs.append(ArenaCount(int(rest[0])))
            phase, top = -1, -1
        elif name == "pass":
            plan = [int(word) for word in rest]
            if not runs[-1].passes:
                phase = 0
            elif phase == 0 or (plan[0] == top and plan[2] == 0):
                phase += 1
                top = plan[0]
        elif name == "sample":
            sample, end = next(left), next(left)
            if (sample.name, end.name) != ("sample", "pass"):
                raise CountError(f"{core}: counted {sample.name} and {end.name}, expected a sample and a pass")
            high, low, first, last = plan
            took = sample.total, end.total, costs(sample), costs(end)
            name = RECALIBRATE if method == RECALIBRATE else PHASES[phase]
            runs[-1].passes.append(PassCount(name, high, low, first, last, *took))
        elif name == "step":
            runs[-1].flips = int(rest[0])
            words["image"] = [int(rest[1])]
        elif name in ("model", "ram", "stack"):
            words[name] = [int(word) for word in rest]
        elif name not in ("", "done"):
            raise CountError(f"{core}: {line}")
    return words, runs


def count(
    core: Core, model: Path, name: str, arenas: list[int], folder: Path, plugin: Path, method: str = "sr"
) -> CoreCount:
    """Build, run and count one core with one method."""
    config = CONFIGS[method]
    fields = (f"{key}={int(getattr(config, key))}" for key in FIELDS)
    what = ",".join(f".{field}" for field in fields)
    arenas_text = ",".join(map(str, arenas or [0]))
    defines = f"-DLEARN_ARENAS={arenas_text} -DLEARN_WHAT={what}"
    defines += f" -DLEARN_SAMPLES={samples_of(config)}"
    elf = counting.build(core.board, folder, model, "learn", core.flags, f"learn-{core.board}-{core.name}", defines)
    report, regions = counting.count_regions(core.board, elf, plugin, ("sample", "pass"))
    words, runs = parse(report, regions, core.name, method)
    expected = host_crc(model.read_bytes(), config)
    if words["image"] != [expected]:
        raise CountError(
            f"{core.name}, {method}: the image after a step has CRC {words['image'][0]:08x}, the host's {expected:08x}"
        )
    state, least, fast, _input = words["ram"]
    work = Workload(model.read_bytes(), config)
    return CoreCount(
        core.name, name, method, work.signature, work.macs, work.weights, state, least, fast, words["stack"][0], runs
    )


def samples_of(config: LearnerConfig) -> int:
    """Of the step, of which the last is counted: narrow sums are divided most often in the first ones."""
    return NARROW_SAMPLES if config.sums else 1


def host_crc(image: bytes, config: LearnerConfig) -> int:
    """CRC of the image after the same step on this machine."""
    learner = Learner(image, config)
    x = [counting.bench_input(learner.input_size, number) for number in range(samples_of(config), 0, -1)]
    learner.step(np.stack(x), np.full(len(x), LABEL), RATE, RATE)
    return int.from_bytes(learner.image[12:16], "little")


def table(found: list[CoreCount]) -> str:
    rows = [("core", "model", "method", "arena", "passes", "instructions per sample", "per MAC", "modelled cycles",
             "update", "a weight", "flips", "stack")]  # fmt: skip
    for f in found:
        for run in f.runs:
            passes, update = run.of("measure"), sum(p.end for p in run.of("update"))
            if f.method == RECALIBRATE:  # each sample takes so much in each pass
                passes = [max(run.passes, key=lambda one: one.sample)]
            total = sum(p.sample for p in passes)
            spent = {k: sum(p.cycles[k] for p in passes) for k in passes[0].cycles}
            rows.append((
                f.core, f.model, f.method, f"{run.arena:,}", str(len(passes)), f"{total:,}", f"{total / f.macs:.2f}",
                ", ".join(f"{n:,} ({k})" for k, n in spent.items()) or "-",
                f"{update:,}" if update else "-", f"{update / f.weights:.0f}" if update else "-",
                "-" if run.flips is None else str(run.flips), f"{f.stack:,}",
            ))  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in rows)


def merge(stored: dict[str, Any], found: list[CoreCount], command: str, commit: str) -> dict[str, Any]:
    """The store with these counts in place of older ones of the same core, model and method; SR before the others."""
    new = {(f.core, f.signature) for f in found}
    kept = [c for c in stored.get("counts", []) if (c["core"], c["signature"]) not in new]
    added = [{**asdict(f), "command": command, "commit": commit} for f in found]
    counts = sorted(kept + added, key=lambda c: (c["core"], c["model"], list(CONFIGS).index(c.get("method", "sr"))))
    return {"about": "made by firmware/count/learn.py; docs/learning.md explains", "counts": counts}


def as_text(stored: dict[str, Any]) -> str:
    """JSON with a line for each core and model."""
    lines = ",\n".join(json.dumps(count) for count in stored["counts"])
    return f'{{"about": {json.dumps(stored["about"])}, "counts": [\n{lines}\n]}}\n'


def commit_name() -> str:
    done = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def parser() -> argparse.ArgumentParser:
    p = CommandParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", type=Path, help="an image (.fbit)")
    p.add_argument("--cores", nargs="+", choices=[core.name for core in CORES], help="all without")
    p.add_argument("--methods", nargs="+", choices=CONFIGS, default=list(CONFIGS), help="all without")
    p.add_argument("--arenas", nargs="*", type=int, default=[], metavar="BYTES", help="also count with these arenas")
    p.add_argument("--name", help="what to call the model (its file's name)")
    p.add_argument("--store", action="store_true", help=f"write into {STORE.relative_to(ROOT)}")
    p.add_argument("--build", type=Path, metavar="DIR", help="keep what is built there")
    p.add_argument("--patience", type=int, default=1800, metavar="SECONDS", help="for one core (1800)")
    return p


def main(argv: list[str] | None = None) -> int:
    return guarded(lambda: _main(parser().parse_args(argv)), also=(CountError, ProfileError))


def _main(given: argparse.Namespace) -> None:
    counting.SECONDS = given.patience
    name = given.name or given.model.stem
    found: list[CoreCount] = []
    read_image(given.model)
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.build or Path(temporary)
        plugin = counting.build_plugin(folder)
        for core in CORES:
            if given.cores and core.name not in given.cores:
                continue
            for method in given.methods:
                sys.stderr.write(f"{core.name}, {method}: building and running on {core.board} …\n")
                found.append(count(core, given.model, name, given.arenas, folder, plugin, method))
    sys.stdout.write(table(found) + "\n")
    if given.store:
        stored = json.loads(STORE.read_text(encoding="utf-8")) if STORE.is_file() else {}
        arenas = f" --arenas {' '.join(map(str, given.arenas))}" if given.arenas else ""
        command = f"python firmware/count/learn.py {given.model.name}{arenas} --name {name} --store"
        STORE.parent.mkdir(exist_ok=True)
        STORE.write_text(as_text(merge(stored, found, command, commit_name())), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
