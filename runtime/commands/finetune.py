"""``flipbit finetune``: let a net learn on a device, simulated or real, from a stream of samples.

Also runs as ``python runtime/finetune.py``. docs/learning.md explains it for newcomers.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

try:
    from flipbit.runtime.board.profile import build, load_profile
    from flipbit.runtime.core.learner import LearnerConfig
    from flipbit.runtime.core.model import Model
    from flipbit.runtime.core.target import PowerLost, Rates, run_steps
    from flipbit.runtime.data.drift import apply_drift
    from flipbit.runtime.data.load import load_data
    from flipbit.runtime.data.pictures import FIT, add_resize_option
    from flipbit.runtime.data.traps import some
    from flipbit.runtime.errors import ArgumentError, FlipbitError, InputError
    from flipbit.runtime.files import check_place, replacing, write_atomically
    from flipbit.runtime.image.inputs import Array, to_planes
    from flipbit.runtime.link.device import open_device
    from flipbit.runtime.link.learn_device import DeviceTarget
    from flipbit.runtime.shown import say, shown, shown_json
    from flipbit.runtime.simulate.power import load_device
    from flipbit.runtime.simulate.simulator import Event, Meter, SimulatedDevice
    from flipbit.runtime.simulate.supply import EmptyError, parse_supply
    from flipbit.runtime.text_table import text_table
    from flipbit.runtime.tune.offline import NAME as OFFLINE
    from flipbit.runtime.tune.offline import tune_offline
except ModuleNotFoundError as error:
    if error.name is None or not error.name.startswith("flipbit"):
        raise
    sys.exit("flipbit is not installed here; run:  pip install -e .   (or: make setup)")

MAGIC, KIND = b"FBTUNE02", b"FBTUNE"
DAYS = 365.25


# ---- the defaults, all of them ----


@dataclass(frozen=True)
class Method:
    """What is trained and how fast: rates at the first step, falling to 0 in a line."""

    bits: bool = True
    bias: bool = False
    rate_bits: float = 0.0
    rate_bias: float = 0.0
    buffer_bits: int = 0


# Measured on resnet8 under four camera changes: docs/results/learning.md.
METHODS = {
    "bias": Method(bits=False, bias=True, rate_bias=0.5),
    "sr": Method(rate_bits=0.0007),
    "sr+bias": Method(bias=True, rate_bits=0.0004, rate_bias=0.5),
    "buffer": Method(rate_bits=0.004, buffer_bits=2),
}
METHOD, STEPS, SAMPLES, HELD_BACK, SEED = "bias", 20, 500, 500, 1
COMPARED = ("bias", "sr", "buffer")


def buffer_start(bits: int) -> int:
    """How sure buffers are of their bits at first: a quarter of the way."""
    return (1 << bits) // 4


# ---- what is asked for ----


@dataclass(frozen=True)
class Job:
    """A tuning run; everything that decides its result."""

    method: str = METHOD
    steps: int = STEPS
    rate_bits: float | None = None
    rate_bias: float | None = None
    buffer_bits: int | None = None
    seed: int = SEED
    arena: int | None = None
    supply: str = "mains"

    def check(self) -> None:
        if self.steps < 1:
            raise ArgumentError(f"--steps {self.steps}: at least 1")
        if not 0 <= self.seed < 2**32:
            raise ArgumentError(f"--seed {self.seed}: 0 to {2**32 - 1}")
        if self.buffer_bits is not None and not (self.method == "buffer" and 1 <= self.buffer_bits <= 8):
            raise ArgumentError(f"--buffer-bits {self.buffer_bits}: 1 to 8, and with --method buffer")
        if self.arena is not None and self.arena < 1:
            raise ArgumentError(f"--arena {self.arena}: at least 1")
        for name, rate in (("--rate", self.rate_bits), ("--bias-rate", self.rate_bias)):
            if rate is not None and not 0 < rate <= 1:
                raise ArgumentError(f"{name} {rate:g}: more than 0, at most 1")

    @property
    def config(self) -> LearnerConfig:
        method = METHODS[self.method]
        bits = method.buffer_bits if self.buffer_bits is None else self.buffer_bits
        return LearnerConfig(self.seed, bits, buffer_start(bits) if bits else 0, method.bits, method.bias)

    @property
    def rates(self) -> Rates:
        """Of every step, falling in a line to 0 behind the last."""
        method = METHODS[self.method]
        first = (
            (method.rate_bits if self.rate_bits is None else self.rate_bits) if method.bits else 0.0,
            (method.rate_bias if self.rate_bias is None else self.rate_bias) if method.bias else 0.0,
        )
        falling = [1 - i / self.steps for i in range(self.steps)]
        return Rates([first[0] * f for f in falling], [first[1] * f for f in falling])


@dataclass(frozen=True)
class Samples:
    """int8 inputs as the core takes them, and their labels: to learn from, and held back to measure accuracy on.
    ``pixels`` are those to learn from as they came; ``notes`` are for the person."""

    name: str
    x: Array
    y: Array
    held_x: Array
    held_y: Array
    pixels: Array
    notes: list[str] = field(default_factory=list)


def load_samples(
    model: Model,
    source: str,
    count: int | None,
    held_back: int,
    seed: int,
    drift: str | None = None,
    resize: str = FIT,
) -> Samples:
    """Labelled images, shuffled, after a change of the camera if one is given."""
    data = load_data(source, model.input_shape, model.labels, resize)
    classes = int(np.prod(model.output_shape))
    if not data.labelled or data.y.max() >= classes:
        without = int(np.sum((data.y < 0) | (data.y >= classes)))
        raise InputError(
            f"{source}: every image needs a label from 0 to {classes - 1}, {without} of {len(data.y)} have none: "
            "give an .npz with x_test and y_test, a data set, or pictures in folders named after the net's classes"
            + (f" ({some(model.labels)})" if model.labels else "")
        )
    chosen = min(SAMPLES, len(data.x) * 2 // 3) if count is None else count
    if held_back < 1:
        raise ArgumentError(f"--held-back {held_back}: at least 1")
    if chosen < 1 or chosen >= len(data.x) or chosen > 65535:
        raise ArgumentError(
            f"--samples {chosen}: {source} has {len(data.x)} images; at least 1 to learn from, at most 65,535, and "
            "others to hold back"
        )
    order = np.random.default_rng(seed).permutation(len(data.x))[: chosen + held_back]
    pixels, labels = data.x[order], data.y[order]
    if drift:
        pixels = apply_drift(pixels, drift, seed)
    planes, _ = to_planes(pixels, model.image.tensors[model.image.input], model.pixels)
    return Samples(
        data.name, planes[:chosen], labels[:chosen], pixels[chosen:], labels[chosen:], pixels[:chosen],
        [*data.notes, *_traps(labels[:chosen], labels[chosen:], model.labels or [str(i) for i in range(classes)])],
    )  # fmt: skip


def _traps(learned: Array, held: Array, names: list[str]) -> list[str]:
    """Notes on what is learned from: a single class, or classes that only the held-back images have."""
    known = sorted({int(label) for label in learned})
    if len(known) == 1:
        return [f"all samples are of one class, {_named(known[0], names)}: the net may forget the others"]
    only = sorted({int(label) for label in held} - set(known))
    return [f"no samples to learn from of {some([_named(i, names) for i in only])}, but held-back ones"] if only else []


def _named(label: int, names: list[str]) -> str:
    return names[label] if label < len(names) else str(label)


# ---- what happened ----


@dataclass(frozen=True)
class Row:
    """A step: means over its samples are from before its update, ``held_back`` is from after it."""

    step: int
    loss: float
    accuracy: float
    held_back: float
    flips: int
    joules: float | None  # None where nobody measures it
    seconds: float | None  # on the device


@dataclass
class Result:
    """A tuning run on a simulated device."""

    method: str
    before: float
    rows: list[Row]
    image: bytes = field(repr=False)
    device: SimulatedDevice = field(repr=False)
    samples: int
    ended: str = ""  # why it ended early

    @property
    def after(self) -> float:
        return self.rows[-1].held_back if self.rows else self.before

    @property
    def seconds(self) -> float:
        return self.device.supply.time

    def facts(self) -> dict[str, Any]:
        """For scripts, and for the table."""
        meter, memory, device = self.device.meter, self.device.memory, self.device.device
        joules, hours = meter.joules, self.seconds / 3600
        gained = self.after - self.before
        worst = max(self.device.flash.erases)
        return {
            "method": self.method,
            "device": device.name,
            "supply": self.device.supply.name,
            "accuracy_before": self.before,
            "accuracy_after": self.after,
            "points_per_joule": 100 * gained / joules if joules else 0.0,
            "joules": joules,
            "joules_computing": meter.computing,
            "joules_saving": meter.saving,
            "joules_sleeping": meter.sleeping,
            "joules_lost": meter.lost,
            "seconds": self.seconds,
            "samples_per_hour": self.samples * len(self.rows) / hours if hours else 0.0,
            "passes_per_step": len(self.device.cost.sweep),
            "brown_outs": meter.brown_outs,
            "sleeps": meter.sleeps,
            "saves": meter.saves,
            "ram": memory.total,
            "arena": memory.arena,
            "state": memory.state,
            "flash": memory.image + memory.state,
            "erases": sum(self.device.flash.erases),
            "worst_erases": worst,
            "years": device.figure("flash", "endurance") / worst / DAYS if worst else None,
            "costs": self.device.cost.source,
            "estimates": device.estimates,
            "ended": self.ended,
        }


# ---- running ----


def accuracy(image: bytes, samples: Samples) -> float:
    """On what was held back."""
    model = Model(image)
    answers = model.predict(samples.held_x, raw=True).reshape(len(samples.held_y), -1).argmax(1)
    return float(np.mean(answers == samples.held_y))


def tune(
    image: bytes,
    samples: Samples,
    board: str,
    job: Job,
    on_row: Callable[[Row], None] | None = None,
    checkpoint: Path | None = None,
) -> Result:
    """Tune on a simulated board."""
    job.check()
    profile = load_device(board)
    supply = parse_supply(job.supply, profile.volts, profile.figure("voltage", "brown_out"))
    device = SimulatedDevice(profile, image, job.config, job.arena, supply)
    result = Result(job.method, accuracy(image, samples), [], image, device, len(samples.x))
    keeper = Checkpoint(checkpoint, _fingerprint(image, samples, board, job)) if checkpoint else None
    if keeper:
        keeper.load(result)
        for row in result.rows:
            if on_row:
                on_row(row)
    save = (lambda: keeper.save(result)) if keeper else None
    try:
        for said in run_steps(device, samples.x, samples.y, job.rates, save):
            held = accuracy(device.image, samples)
            row = Row(said.step, said.loss, said.accuracy, held, said.flips, device.meter.joules, supply.time)
            result.rows = [r for r in result.rows if r.step < row.step] + [row]
            if save:
                save()
            if on_row:
                on_row(row)
        device.close()
        result.image = device.image
    except EmptyError as error:
        result.ended = str(error)
        result.image = device.saved_image
    return result


def tune_on_board(
    target: DeviceTarget, samples: Samples, job: Job, on_row: Callable[[Row], None] | None = None
) -> tuple[list[Row], bytes]:
    """Tune on a real or emulated board: its bits are those of a simulated one. Also the image it ends with. Goes on
    wherever the board loses power, in the last read as well."""
    job.check()
    rows: list[Row] = []
    while True:
        try:
            for said in run_steps(target, samples.x, samples.y, job.rates):
                held = accuracy(target.image, samples)
                row = Row(said.step, said.loss, said.accuracy, held, said.flips, None, target.seconds or None)
                rows = [r for r in rows if r.step < row.step] + [row]
                if on_row:
                    on_row(row)
            target.close()
            return rows, target.image
        except PowerLost:  # in a read: it is where it saved last, and run_steps goes on there or ends at once
            continue


def _fingerprint(image: bytes, samples: Samples, board: str, job: Job) -> dict[str, Any]:
    """What a checkpoint belongs to: every byte that decides the run, in its order."""
    return {
        "image": hashlib.sha256(image).hexdigest(),
        "samples": _digest(samples.x, samples.y),
        "held-back images": _digest(samples.held_x, samples.held_y),
        "board": board,
        **asdict(job),
    }


def _digest(*arrays: Array) -> str:
    """SHA-256 of arrays: their types, shapes and values."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype.str} {array.shape};".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


class Checkpoint:
    """A file that lets a run on a host go on after it was stopped: what the device would keep, and what was printed."""

    def __init__(self, folder: Path, belongs: dict[str, Any]):
        self.path = folder / "tuning.ckpt"
        self.belongs = belongs

    def load(self, result: Result) -> None:
        if not self.path.is_file():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return
        data = self.path.read_bytes()
        if data[: len(KIND)] == KIND and data[: len(MAGIC)] != MAGIC:
            raise InputError(
                f"{self.path}: a checkpoint of another version of flipbit, which did not keep what it belongs to; "
                "remove it and start anew, or go on with the version that wrote it"
            )
        try:
            if data[: len(MAGIC)] != MAGIC:
                raise ValueError("another kind of file")
            size = int.from_bytes(data[8:12], "little")
            head = json.loads(data[12 : 12 + size])
            rows, meter = [Row(**row) for row in head["rows"]], Meter(**head["meter"])
            belongs, level, seconds = dict(head["belongs"]), head["level"], float(head["time"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(f"{self.path}: not a checkpoint of this version ({error}); remove it") from None
        different = [key for key, value in self.belongs.items() if belongs.get(key) != value]
        if different:
            raise InputError(
                f"{self.path} is of another run ({', '.join(different)} differ): give its options, or another folder"
            )
        try:
            result.device.restore(data[12 + size :])
        except FlipbitError as error:
            raise error.about(self.path) from None
        result.device.meter = meter
        result.device.supply.time = seconds
        if math.isfinite(result.device.supply.capacity):
            result.device.supply.level = level
        result.rows = rows

    def save(self, result: Result) -> None:
        device = result.device
        head = {
            "belongs": self.belongs,
            "rows": [asdict(row) for row in result.rows],
            "meter": asdict(device.meter),
            "time": device.supply.time,
            "level": device.supply.level if math.isfinite(device.supply.level) else None,
        }
        text = json.dumps(head).encode()
        write_atomically(self.path, MAGIC + len(text).to_bytes(4, "little") + text + device.record)


# ---- the command ----


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
    p.add_argument("-o", "--output", type=Path, help="the improved image (MODEL-tuned.fbit)")
    p.add_argument("--method", choices=METHODS, default=METHOD, help=f"what learns ({METHOD})")
    p.add_argument("--buffer-bits", type=int, metavar="K", help="beside each bit, with --method buffer (2)")
    p.add_argument("--steps", type=int, default=STEPS, metavar="N", help=f"updates ({STEPS})")
    p.add_argument("--rate", type=float, metavar="R", help="of the bits, at the first step; falls to 0 (by method)")
    p.add_argument("--bias-rate", type=float, metavar="R", help="of the biases (0.5)")
    p.add_argument("--samples", type=int, metavar="N", help=f"the virtual batch ({SAMPLES}, or 2/3 of DATA)")
    p.add_argument("--held-back", type=int, default=HELD_BACK, metavar="N", help=f"at most ({HELD_BACK})")
    p.add_argument("--seed", type=int, default=SEED, help=f"of the shuffle and of learning ({SEED})")
    p.add_argument("--arena", type=int, metavar="BYTES", help="RAM to learn in (what the board has left)")
    p.add_argument("--supply", default="mains", help="of a simulated device (mains)")
    p.add_argument("--drift", metavar="CHANGE", help="change the images: cast:2, dim:1, blur:3, noise:2")
    p.add_argument("--compare", action="store_true", help="several methods side by side; -o keeps the best image")
    p.add_argument("--bc", type=Path, metavar="H5", help="with --compare, also BC on this computer (flipbit[train])")
    p.add_argument("--checkpoint", type=Path, metavar="DIR", help="go on from there after an interruption")
    p.add_argument("--timeline", action="store_true", help="print what the simulated device did when")
    p.add_argument("--plot", type=Path, metavar="PNG", help="energy and accuracy over time (needs matplotlib)")
    p.add_argument("--report", type=Path, metavar="JSON", help="also write what --json prints to this file")
    p.add_argument("--json", action="store_true", help="print JSON")
    p.set_defaults(command=_finetune)


def _finetune(given: argparse.Namespace) -> int:
    job = Job(
        given.method, given.steps, given.rate, given.bias_rate, given.buffer_bits, given.seed, given.arena, given.supply
    )
    job.check()
    if given.bc and not given.compare:
        raise ArgumentError("--bc goes with --compare")
    kind, _, board = given.target.partition(":")
    output = given.output or given.model.with_name(f"{given.model.stem}-tuned.fbit")
    check_place(output, given.plot, given.report)  # now and not after the run
    if given.plot:
        known = pyplot("--plot").figure().canvas.get_supported_filetypes()
        if given.plot.suffix[1:].lower() not in known:
            raise ArgumentError(f"--plot {given.plot}: expected a name that ends in .{', .'.join(sorted(known))}")
    model = Model(given.model)
    image = given.model.read_bytes()
    samples = load_samples(model, given.data, given.samples, given.held_back, given.seed, given.drift, given.resize)
    say(samples.notes)
    if kind != "sim":
        return _on_board(given, job, image, samples, output)
    if given.compare:
        return _compare(given, image, samples, board, job)
    live = _Live(given.json)
    live.note(
        f"{given.model} learns on a simulated {load_device(board).title}: {len(samples.x)} samples a step, "
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


def _steps(result: Result, timeline: bool) -> dict[str, Any]:
    events = [asdict(event) for event in result.device.timeline] if timeline else []
    return {"steps": [asdict(row) for row in result.rows], "timeline": events}


def _on_board(given: argparse.Namespace, job: Job, image: bytes, samples: Samples, output: Path) -> int:
    for option, value in (("--compare", given.compare), ("--plot", given.plot), ("--timeline", given.timeline)):
        if value:
            raise ArgumentError(f"{option} is for simulated devices: --target sim:BOARD")
    live = _Live(given.json)
    with _opened(given.target, given.model) as device:
        device.use(given.model, learned=True)
        # With --checkpoint it goes on from what the board has saved, else from the image.
        target = DeviceTarget(device, job.config, fresh=given.checkpoint is None)
        live.note(
            f"{given.model} learns on the {device.info().board} at {given.target}: {len(samples.x)} samples a step, "
            f"{len(samples.held_y)} held back; arena {target.memory.arena:,} bytes"
        )
        before = accuracy(image, samples)
        rows, tuned = tune_on_board(target, samples, job, live.row)
        facts = asdict(target.memory)
    write_atomically(output, tuned)
    after = accuracy(tuned, samples)
    report = {"method": job.method, "target": given.target, "accuracy_before": before, "accuracy_after": after}
    steps = [asdict(row) for row in rows]
    if _reported(given, {**report, "memory": facts, "output": str(output), "steps": steps}):
        return 0
    print(f"\naccuracy    {100 * before:.1f} % before, {100 * after:.1f} % after, held back")
    print(f"wrote {shown(output)}")
    return 0


def _reported(given: argparse.Namespace, report: dict[str, Any] | list[dict[str, Any]]) -> bool:
    """Write the report to where it was asked for; whether it was printed, too."""
    text = shown_json(report)
    if given.report:
        write_atomically(given.report, text.encode() + b"\n")
    if given.json:
        print(text)
    return bool(given.json)


@contextlib.contextmanager
def _opened(port: str, model: Path) -> Iterator[Any]:
    """The device at a port; an emulated one is built with the model first."""
    kind, _, board = port.partition(":")
    with tempfile.TemporaryDirectory(prefix="flipbit-") as folder:
        firmware = build(load_profile(board), model, Path(folder)).elf if kind == "qemu" else None
        with open_device(port, firmware) as device:
            device.hello()
            yield device


def _compare(given: argparse.Namespace, image: bytes, samples: Samples, board: str, job: Job) -> int:
    """Several methods on the same samples. With -o the image of the best is kept, with --plot all are drawn."""
    offline = accuracy(tune_offline(given.bc, samples.pixels, samples.y, job.seed), samples) if given.bc else None
    results = []
    for method in COMPARED:
        one = replace(job, method=method, buffer_bits=job.buffer_bits if method == "buffer" else None)
        keep = given.checkpoint / method if given.checkpoint else None
        results.append(tune(image, samples, board, one, checkpoint=keep))
    before, best = results[0].before, max(results, key=lambda result: result.after)  # the first among equals
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


def duration(seconds: float) -> str:
    """For people: 1.5 s, 12 min, 3.2 h, 4.1 days."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.2f} s"


def report_text(facts: dict[str, Any]) -> str:
    """What the run gained and what that cost."""
    years = facts["years"]
    before, after = (100 * facts[f"accuracy_{when}"] for when in ("before", "after"))
    spent = {part: facts[f"joules_{part}"] for part in ("computing", "saving", "sleeping", "lost")}
    power = ", ".join(f"{facts[key]} {key.replace('_', '-')}" for key in ("brown_outs", "sleeps", "saves"))
    wear = f"{facts['worst_erases']} at most of one page, {facts['erases']} in all"
    rows = [
        ("accuracy", f"{before:.1f} % before, {after:.1f} % after, held back"),
        ("energy", f"{facts['joules']:.4g} J: computing {spent['computing']:.4g}, saving {spent['saving']:.3g}, "
                   f"sleeping {spent['sleeping']:.3g}; {spent['lost']:.3g} J of work lost"),
        ("gained", f"{after - before:+.1f} points, {facts['points_per_joule']:.3g} points a joule"),
        ("time", f"{duration(facts['seconds'])} on the device, {facts['samples_per_hour']:.4g} samples an hour, "
                 f"{facts['passes_per_step']} passes a step"),
        ("power", f"{facts['supply']}: {power}"),
        ("RAM", f"{facts['ram']:,} bytes, of them arena {facts['arena']:,} and state {facts['state']:,}"),
        ("flash", f"{facts['flash']:,} bytes a save; erases: {wear}"),
        ("wear", "none" if years is None else f"{years:,.0f} years at one such run a day"),
        ("costs", facts["costs"]),
        ("estimates", ", ".join(facts["estimates"]) or "none"),
    ]  # fmt: skip
    if facts["ended"]:
        rows.append(("ended early", f"{facts['ended']}; the image is the one saved last"))
    return "\n".join(f"{name:<12}{text}" for name, text in rows)


def timeline_text(events: list[Event]) -> str:
    """What the device did when."""

    def stored(level: float) -> str:
        return f"{level:.3g} J" if math.isfinite(level) else ""

    rows = [(duration(event.time), event.kind, stored(event.level), event.text) for event in events]
    return text_table((">time", "what", ">stored", ""), rows)


def pyplot(option: str) -> Any:
    """matplotlib's, without a window; ``option`` is what needs it."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        raise ArgumentError(f"{option} needs matplotlib: pip install matplotlib") from None
    return plt


def plot(results: list[Result], path: Path) -> None:
    """Energy and accuracy over the device's time, a line for each method."""
    plt = pyplot("--plot")
    figure, (top, bottom) = plt.subplots(2, 1, sharex=True, figsize=(8, 5))
    for result in results:
        times = [0.0, *(row.seconds for row in result.rows)]
        shares = [100 * share for share in (result.before, *(row.held_back for row in result.rows))]
        top.plot(times, shares, marker="o", drawstyle="steps-post", label=result.method)
        used = f"used by {result.method}" if len(results) > 1 else "used"
        bottom.plot(times, [0.0, *(row.joules for row in result.rows)], marker="o", label=used)
        events = [event for event in result.device.timeline if math.isfinite(event.level)]
        if events:
            stored = used.replace("used", "stored")
            bottom.plot([e.time for e in events], [e.level for e in events], label=stored, linewidth=0.8)
    top.set_ylabel("accuracy, held back (%)")
    if len(results) > 1:
        top.legend()
    bottom.set_ylabel("energy (J)")
    bottom.set_xlabel(f"seconds on {results[0].device.device.title}")
    bottom.legend()
    figure.tight_layout()
    try:
        with replacing(path) as temporary:
            figure.savefig(temporary, dpi=120)
    except ValueError as error:  # a suffix matplotlib does not write
        raise ArgumentError(f"--plot {path}: {error}") from None
    finally:
        plt.close(figure)


if __name__ == "__main__":
    from flipbit.runtime.commands.cli import main

    sys.exit(main(["finetune", *sys.argv[1:]]))
