"""``flipbit finetune``: let a net learn on a device, simulated or real, from a stream of samples.

Also runs as ``python runtime/finetune.py``. docs/learning.md explains it for newcomers.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from flipbit.runtime.board.profile import build, load_profile
from flipbit.runtime.core.learner_config import ALL_OPS
from flipbit.runtime.core.model import Model
from flipbit.runtime.data.pictures import add_resize_option
from flipbit.runtime.errors import ArgumentError
from flipbit.runtime.files import check_place, write_atomically
from flipbit.runtime.link.device import open_device
from flipbit.runtime.link.learn_device import DeviceTarget
from flipbit.runtime.link.memory import BoardMemory
from flipbit.runtime.shown import say, shown, shown_json
from flipbit.runtime.simulate.power import load_device
from flipbit.runtime.text_table import text_table
from flipbit.runtime.tune.compare import best_of, compare
from flipbit.runtime.tune.job import SEED, STEPS, Job
from flipbit.runtime.tune.methods import (
    AUGMENT,
    METHODS,
    PLAIN,
    PRIOR,
    REFERENCED,
    augmenting,
    check_used,
    default_method,
)
from flipbit.runtime.tune.offline import NAME as OFFLINE
from flipbit.runtime.tune.offline import tune_offline
from flipbit.runtime.tune.page import tuning_page
from flipbit.runtime.tune.plan import TRIED, plan, plan_table
from flipbit.runtime.tune.plot import plot, pyplot
from flipbit.runtime.tune.replay import add_class
from flipbit.runtime.tune.report import duration, report_text, timeline_text
from flipbit.runtime.tune.result import Row, TuningResult
from flipbit.runtime.tune.run import tune, tune_on_board
from flipbit.runtime.tune.samples import HELD_BACK, SAMPLES, Samples, accuracy, load_samples


def add_finetune_parser(commands: Any) -> None:
    p = commands.add_parser(
        "finetune",
        help="let a net learn on a device",
        description="Let a net learn on a device, simulated or real, from labelled samples.",
        epilog="""DATA is what "flipbit run" takes, with labels. It is shuffled; some of it is learned from, some held
back to measure accuracy on. SUPPLY is mains, battery:MILLIAMPHOURS or capacitor:FARADS:TRACE.

examples:
  flipbit finetune resnet8.fbit --data cifar-10-batches-py --drift cast:2 --target sim:nucleo-l4r5zi
  flipbit finetune digits.fbit --data digits --drift noise:3 --target sim:nrf52840-dk \\
      --supply capacitor:0.47:thermal --timeline
  flipbit finetune resnet8.fbit --data cifar-10-batches-py --drift dim:2 --target sim:pico --compare \\
      --bc models/cifar10-resnet8/model.h5""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("model", metavar="MODEL", type=Path, help="a .fbit image")
    p.add_argument("--data", required=True, help="labelled images")
    add_resize_option(p)
    p.add_argument("--target", required=True, help="sim:BOARD, qemu:BOARD, or a serial port")
    p.add_argument(
        "--remember", action="store_true", help="qemu:BOARD as 'flipbit flash --qemu' left it; store what it learns"
    )
    p.add_argument("-o", "--output", type=Path, help="the improved image (MODEL-tuned.fbit)")
    p.add_argument(
        "--method", choices=METHODS, help=f"what learns ({REFERENCED}; {PLAIN} for images without references)"
    )
    p.add_argument(
        "--prior", type=int, default=PRIOR, metavar="N", help=f"prior of recalibrating, in samples ({PRIOR})"
    )
    p.add_argument("--augment", choices=AUGMENT, help="augment samples, in methods that move gains (both for photos)")
    p.add_argument("--buffer-bits", type=int, metavar="K", help="buffer bits per weight, with --method buffer (2)")
    p.add_argument(
        "--sums", type=int, default=32, metavar="BITS", help="bits of gradient sums: 32; if bits flip also 16 or 8 (32)"
    )
    p.add_argument(
        "--layers", type=_layers, default=(0, ALL_OPS), metavar="A-B", help="train only operations A to B (all)"
    )
    p.add_argument("--plan", action="store_true", help="try which layers bring most, print a table, and stop")
    p.add_argument("--new", metavar="CLASS", help="a class to add: learn from samples of it alone")
    p.add_argument(
        "--replay", metavar="N|DATA", help="with --new, also from N stored samples of each other class, or from DATA"
    )
    p.add_argument("--steps", type=int, metavar="N", help=f"updates ({STEPS}; recalibrate: 1)")
    p.add_argument(
        "--rate", type=float, metavar="R", help="share of bits that flip in the first step; falls to 0 (by method)"
    )
    p.add_argument("--bias-rate", type=float, metavar="R", help="step size of gains and biases; falls to 0 (by method)")
    p.add_argument("--samples", type=int, metavar="N", help=f"the virtual batch ({SAMPLES}, or 2/3 of DATA)")
    p.add_argument(
        "--held-back", type=int, default=HELD_BACK, metavar="N", help=f"samples to test on, at most ({HELD_BACK})"
    )
    p.add_argument("--seed", type=int, default=SEED, help=f"seed of the shuffle and of learning ({SEED})")
    p.add_argument("--arena", type=int, metavar="BYTES", help="RAM to learn in (what the board has left)")
    p.add_argument("--supply", default="mains", help="power supply of a simulated device (mains)")
    p.add_argument("--drift", metavar="CHANGE", help="change the images: cast:2, dim:1, blur:3, noise:2")
    p.add_argument("--compare", action="store_true", help="run several methods side by side; -o keeps the best image")
    p.add_argument("--bc", type=Path, metavar="H5", help="with --compare, also BC on this computer (flipbit[train])")
    p.add_argument("--checkpoint", type=Path, metavar="DIR", help="save progress there; the same command resumes")
    p.add_argument("--timeline", action="store_true", help="print what the simulated device did, and when")
    p.add_argument("--plot", type=Path, metavar="PNG", help="energy and accuracy over time (needs matplotlib)")
    p.add_argument("--report", type=Path, metavar="FILE", help="write what --json prints: .json, or as a page: .html")
    p.add_argument("--json", action="store_true", help="print JSON")
    p.set_defaults(command=_finetune)


def _finetune(given: argparse.Namespace) -> int:
    job = Job(
        given.method or PLAIN, given.steps, given.rate, given.bias_rate, given.buffer_bits, given.seed, given.arena,
        given.supply, prior=given.prior, sum_bits=given.sums, layers=given.layers,
    )  # fmt: skip
    job.check()
    if given.bc and not given.compare:
        raise ArgumentError("--bc goes with --compare")
    if given.replay is not None and given.new is None:
        raise ArgumentError("--replay goes with --new")
    kind, _, board = given.target.partition(":")
    if given.remember and kind != "qemu":
        raise ArgumentError(f"--remember is for emulated boards (qemu:BOARD), not for {given.target}")
    output = given.output or given.model.with_name(f"{given.model.stem}-tuned.fbit")
    check_place(output, given.plot, given.report)  # now and not after the run
    if given.plot:
        known = pyplot("--plot").figure().canvas.get_supported_filetypes()
        if given.plot.suffix[1:].lower() not in known:
            raise ArgumentError(f"--plot {given.plot}: expected a name that ends in .{', .'.join(sorted(known))}")
    if given.plan and given.report and _is_page(given.report):
        raise ArgumentError("--plan: --report writes JSON here; expected a name that ends in .json")
    model = Model(given.model)
    image = given.model.read_bytes()
    method = given.method or default_method(model.image)
    if not given.compare:
        check_used(method, given.rate, given.bias_rate, given.augment)
    job = replace(job, method=method, augment=augmenting(given.augment, model.image))
    samples = load_samples(model, given.data, given.samples, given.held_back, given.seed, given.drift, given.resize)
    if given.new is not None:
        samples = add_class(model, samples, given.new, given.replay, given.resize)
    say(samples.notes)
    if given.plan:
        return _plan(given, job, image, samples, model)
    if kind != "sim":
        return _on_board(given, job, image, samples, output)
    if given.compare:
        return _compare(given, image, samples, board, job)
    live = _Live(given.json)
    live.note(
        f"{given.model} learns on a simulated {load_device(board).title}: {len(samples.x)} samples per step, "
        f"{len(samples.held_y)} held back, of {samples.name}{f', {given.drift}' if given.drift else ''}"
    )
    result = tune(image, samples, board, job, live.row, given.checkpoint)
    write_atomically(output, result.image)
    if given.plot:
        plot([result], given.plot)
    facts = result.facts()
    if _reported(given, {**facts, "output": str(output), **_steps(result, given.timeline)}):
        return 0
    if given.timeline:
        print("\n" + timeline_text(result.device.timeline))
    print("\n" + report_text(facts))
    print(f"\nwrote {shown(output)}")
    return 0


def _layers(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last) <= ALL_OPS):
        raise argparse.ArgumentTypeError(f"{text}: expected the first and the last operation that learns, such as 8-13")
    return int(first), int(last)


def _plan(given: argparse.Namespace, job: Job, image: bytes, samples: Samples, model: Model) -> int:
    live = _Live(given.json)
    live.note(f"{given.model}: a few steps of each layer, of {samples.name}; {job.method}")
    trials = plan(image, samples, replace(job, method=TRIED.get(job.method, job.method), steps=given.steps))
    if not _reported(given, [asdict(trial) for trial in trials]):
        print(plan_table(model.image, trials))
    return 0


def _steps(result: TuningResult, timeline: bool) -> dict[str, Any]:
    events = [asdict(event) for event in result.device.timeline] if timeline else []
    return {"steps": [asdict(row) for row in result.rows], "timeline": events}


def _on_board(given: argparse.Namespace, job: Job, image: bytes, samples: Samples, output: Path) -> int:
    for option, value in (("--compare", given.compare), ("--plot", given.plot), ("--timeline", given.timeline)):
        if value:
            raise ArgumentError(f"{option} is for simulated devices: --target sim:BOARD")
    live = _Live(given.json)
    with _opened(given.target, given.model, given.remember) as device:
        device.use(given.model, learned=True)
        # With --checkpoint it goes on from what the board has saved, else from the image.
        target = DeviceTarget(device, job.config, fresh=given.checkpoint is None)
        live.note(
            f"{given.model} learns on the {device.info().board} at {given.target}: {len(samples.x)} samples per step, "
            f"{len(samples.held_y)} held back; arena {target.memory.arena:,} bytes"
        )
        before = accuracy(image, samples)
        rows, tuned = tune_on_board(target, samples, job, live.row)
        facts = asdict(target.memory)
        saved = not target.unsaved
    write_atomically(output, tuned)
    after = accuracy(tuned, samples)
    report = {"method": job.method, "target": given.target, "accuracy_before": before, "accuracy_after": after}
    steps = [asdict(row) for row in rows]
    if _reported(given, {**report, "memory": facts, "output": str(output), "saved": saved, "steps": steps}):
        return 0
    print(f"\naccuracy    {100 * before:.1f} % before, {100 * after:.1f} % after, held back")
    kept = "has saved what it learned, and starts with it" if saved else "has not saved what it learned"
    print(f"the board   {kept}")
    print(f"wrote {shown(output)}")
    return 0


def _is_page(report: Path) -> bool:
    return report.suffix.lower() in (".html", ".htm")


def _reported(given: argparse.Namespace, report: dict[str, Any] | list[dict[str, Any]]) -> bool:
    """Write the report to where it was asked for; whether it was printed, too."""
    text = shown_json(report)
    if given.report:
        kept = text + "\n"
        if _is_page(given.report):
            changed = f", changed by {given.drift}" if given.drift else ""
            source = f"{given.model} learned from {given.data}{changed}, on {given.target}."
            kept = tuning_page(f"{given.model.name}, tuned", source, report if isinstance(report, list) else [report])
        write_atomically(given.report, kept.encode())
    if given.json:
        print(text)
    return bool(given.json)


@contextlib.contextmanager
def _opened(port: str, model: Path, remember: bool) -> Iterator[Any]:
    """The device at a port; an emulated one is built with the model first, unless it remembers its program."""
    kind, _, board = port.partition(":")
    if remember:
        with BoardMemory(load_profile(board)) as memory:
            if memory.program is None:
                raise ArgumentError(f"{port} was never flashed: flipbit flash --board {board} --model {model} --qemu")
            with open_device(port, memory.program, memory=memory) as device:
                yield device
        return
    with tempfile.TemporaryDirectory(prefix="flipbit-") as folder:
        firmware = build(load_profile(board), model, Path(folder)).elf if kind == "qemu" else None
        with open_device(port, firmware) as device:
            device.hello()
            yield device


def _compare(given: argparse.Namespace, image: bytes, samples: Samples, board: str, job: Job) -> int:
    """Several methods on the same samples. With -o the image of the best is kept, with --plot all are drawn."""
    offline = accuracy(tune_offline(given.bc, samples.pixels, samples.y, job.seed), samples) if given.bc else None
    results = compare(image, samples, board, job, given.checkpoint)
    before, best = results[0].before, best_of(results)
    if given.output:
        write_atomically(given.output, best.image)
    if given.plot:
        plot(results, given.plot)
    every: list[dict[str, Any]] = []
    for result in results:
        written = str(given.output) if given.output and result is best else None
        every.append({**result.facts(), "output": written, **_steps(result, given.timeline)})
    if offline is not None:
        every.append({"method": OFFLINE, "accuracy_before": before, "accuracy_after": offline})
    if _reported(given, every):
        return 0
    if given.timeline:
        for result in results:
            print(f"{result.method}\n{timeline_text(result.device.timeline)}\n")
    rows: list[tuple[object, ...]] = [("none", f"{100 * before:.1f} %", "", "", "", "", "")]
    for r in results:
        facts = r.facts()
        rows.append((
            r.method, f"{100 * r.after:.1f} %", f"{100 * (r.after - before):+.1f}", sum(row.flips for row in r.rows),
            f"{facts['joules']:.3g} J", duration(r.seconds), facts["ram"],
        ))  # fmt: skip
    if offline is not None:
        rows.append((OFFLINE, f"{100 * offline:.1f} %", f"{100 * (offline - before):+.1f}", "", "", "", ""))
    print(text_table(("method", ">held back", ">points", ">flips", ">energy", ">device time", ">RAM"), rows))
    if given.output:
        print(f"\nwrote {shown(given.output)}: {best.method}, the best of these on the held-back images")
    if given.plot:
        print(f"wrote {shown(given.plot)}")
    if offline is None:
        print(
            f"\n{OFFLINE}, on this computer in floating point, is left out: name the model.h5 of this image with --bc"
        )
    return 0


class _Live:
    """The table that grows with every step."""

    HEAD = ("step", "loss", "samples", "held back", "flips", "energy", "device time")
    WIDTHS = (5, 7, 8, 10, 7, 10, 12)

    def __init__(self, silent: bool):
        self.silent = silent
        self.started = False
        self.begin = time.monotonic()

    def note(self, text: str) -> None:
        if not self.silent:
            print(shown(text), flush=True)

    def _line(self, cells: tuple[str, ...]) -> None:
        self.note(" ".join(cell.rjust(width) for cell, width in zip(cells, self.WIDTHS)))

    def row(self, row: Row) -> None:
        if not self.started:
            self._line(self.HEAD)
        self.started = True
        self._line((
            str(row.step), f"{row.loss:.3f}", f"{100 * row.accuracy:.1f} %", f"{100 * row.held_back:.1f} %",
            str(row.flips), "-" if row.joules is None else f"{row.joules:.4g} J",
            "-" if row.seconds is None else duration(row.seconds),
        ))  # fmt: skip
