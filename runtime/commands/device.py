"""``flipbit device``: talk to a board that runs the flipbit firmware."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.runtime.board.plan import BoardPlan, board_plan
from flipbit.runtime.board.profile import Profile, build, elf_path, load_profile
from flipbit.runtime.commands.device_text import identity_facts, identity_text, timing_text
from flipbit.runtime.commands.listen import add_listen_options, listen_here, listen_on_board
from flipbit.runtime.core.model import Model
from flipbit.runtime.data.drift import apply_drift
from flipbit.runtime.data.load import Data, load_data
from flipbit.runtime.data.pictures import add_resize_option
from flipbit.runtime.errors import ArgumentError, FlipbitError
from flipbit.runtime.exits import CommandParser, guarded
from flipbit.runtime.files import write_atomically
from flipbit.runtime.link.device import BUILT_IN, Device, Inference, LayerReport, open_device, slot_name
from flipbit.runtime.link.guard import THRESHOLD, WINDOW, Guard
from flipbit.runtime.link.line import open_line
from flipbit.runtime.link.memory import BoardMemory
from flipbit.runtime.link.protocol import Identity
from flipbit.runtime.shown import say, shown
from flipbit.runtime.text_table import text_table

PORTS = """PORT is a serial port (/dev/ttyACM0, COM3: needs pyserial), tcp:HOST:PORT, unix:PATH, or qemu:BOARD: the
emulated board as "flipbit flash --qemu" and earlier commands left it (--fresh: as new). With --model or --firmware
this command gets a separate emulated board, which is not kept."""


def add_device_parser(commands: Any) -> None:
    p = commands.add_parser(
        "device",
        help="talk to a board",
        description="Talk to a board that runs the flipbit firmware.",
        epilog=PORTS
        + """

examples:
  flipbit device info --port /dev/ttyACM0
  flipbit device infer --port /dev/ttyACM0 seven.png
  flipbit device verify --port qemu:microbit --model digits.fbit digits --limit 20
  flipbit device upload --port /dev/ttyACM0 better.fbit --select""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = p.add_subparsers(title="what to do", metavar="VERB", required=True)

    def verb(name: str, run: Callable[..., int], text: str) -> argparse.ArgumentParser:
        q = verbs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", epilog=PORTS)
        q.add_argument("--port", required=True, metavar="PORT", help="see below")
        q.add_argument("--firmware", type=Path, metavar="ELF", help="run this program on a separate qemu:BOARD")
        q.add_argument("--fresh", action="store_true", help="qemu:BOARD starts as new: no program, empty storage")
        q.add_argument("--model", type=Path, metavar="IMAGE", help="the .fbit on the board (else read from it)")
        q.add_argument(
            "--baud", type=_positive(int), default=115200, metavar="N", help="baud rate of a serial port (115200)"
        )
        q.add_argument(
            "--timeout", type=_positive(float), default=2.0, metavar="S", help="seconds to wait for an answer (2)"
        )
        q.add_argument("--key", type=Path, metavar="FILE", help="the key of a locked board")
        q.add_argument("--json", action="store_true", help="print JSON")
        q.set_defaults(command=run)
        return q

    verb("info", _info, "show board, memory, model and slots")
    infer = verb("infer", _infer, "run the net on the board")
    infer.add_argument("data", metavar="DATA", help="picture, folder, .npy, .npz or data set: see flipbit run --help")
    infer.add_argument("--limit", type=int, metavar="N", help="only the first N images")
    add_resize_option(infer)
    add_listen_options(verb("listen", _listen, "stream a recording to the board, show what it detects"))
    bench = verb("bench", _bench, "time the net, layer by layer")
    bench.add_argument("--repeats", type=int, default=5, metavar="N", help="whole runs to time (5)")
    check = verb("verify", _verify, "compare every layer with this machine")
    check.add_argument("data", metavar="DATA", nargs="?", help="inputs as for infer (random ones if left out)")
    check.add_argument("--limit", type=int, default=10, metavar="N", help="only the first N images (10)")
    add_resize_option(check)
    upload = verb("upload", _upload, "put an image into a slot of the board's storage")
    upload.add_argument("image", type=Path, metavar="IMAGE", help="a .fbit file")
    upload.add_argument("--slot", type=int, metavar="N", help="which slot (one that is not in use)")
    upload.add_argument("--select", action="store_true", help="use it from now on")
    download = verb("download", _download, "save the image in use, with what the board has learned")
    download.add_argument("output", type=Path, metavar="FILE", help="the .fbit file to write")
    download.add_argument("--slot", type=int, metavar="N", help="the image in slot N (the one in use)")
    select = verb("select", _select, "use the image of a slot from now on")
    select.add_argument("slot", metavar="SLOT", help="a number, or built-in")
    guard = verb("guard", _guard, "watch a stream of inputs for drift, and recalibrate without labels")
    guard.add_argument("data", metavar="DATA", nargs="?", help="the stream: inputs as for infer; none with --undo")
    guard.add_argument("--limit", type=int, metavar="N", help="only the first N images")
    guard.add_argument("--window", type=int, default=WINDOW, metavar="N", help=f"samples per window ({WINDOW})")
    guard.add_argument(
        "--threshold", type=float, default=THRESHOLD, metavar="D", help=f"recalibrate above this drift ({THRESHOLD})"
    )
    guard.add_argument("--only-watch", action="store_true", help="report the drift and change nothing")
    guard.add_argument("--drift", metavar="CHANGE", help="change the images: cast:2, dim:1, blur:3, noise:2")
    guard.add_argument("--undo", action="store_true", help="go back to the image as it was uploaded")
    add_resize_option(guard)
    verb("reset", _reset, "restart the board")
    monitor = verb("monitor", _monitor, "show messages that the board sends on its own")
    monitor.add_argument("--seconds", type=float, metavar="S", help="stop after S seconds (Ctrl-C)")


def _positive(kind: Callable[[str], float]) -> Callable[[str], float]:
    """A number more than 0, for argparse."""

    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = 0
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text!r}: expected a number more than 0")
        return value

    return read


@contextlib.contextmanager
def _open(given: argparse.Namespace, model: Path | None = None) -> Iterator[Device]:
    """The device at --port: a real one, an emulated one that remembers, or one for this command alone."""
    kind, _, board = given.port.partition(":")
    if kind != "qemu" and given.fresh:
        raise ArgumentError(f"--fresh is for emulated boards (qemu:BOARD), not for {given.port}")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flipbit-")))
        firmware, memory = given.firmware, None
        linked = model or given.model
        if kind == "qemu" and firmware is None and linked:
            _note(f"building the firmware for {board} with {linked}, for this command alone")
            firmware = build(load_profile(board), linked, folder).elf
        elif kind == "qemu" and firmware is None:
            memory = stack.enter_context(BoardMemory(_emulated(board)))
            firmware = _remembered(memory, given.fresh, folder)
        device = stack.enter_context(
            open_device(given.port, firmware, given.baud, timeout=given.timeout, memory=memory)
        )
        if given.key is not None:
            device.unlock(given.key.read_bytes())
            stack.callback(_lock_again, device)
        yield device


def _lock_again(device: Device) -> None:
    with contextlib.suppress(FlipbitError):  # a board that was reset, or unplugged, is locked
        device.unlock(b"")


def _emulated(board: str) -> Profile:
    profile = load_profile(board)
    if profile.qemu is None:
        raise ArgumentError(f"QEMU does not emulate the {profile.title}; connect a real one (--port /dev/tty…)")
    return profile


def _remembered(memory: BoardMemory, fresh: bool, folder: Path) -> Path:
    """The program of an emulated board that remembers; a new one gets the firmware without a model."""
    if fresh:
        memory.forget()
    board = memory.profile.name
    if memory.program is None:
        built = elf_path(memory.profile)
        if not built.is_file() or fresh:
            _note(f"building the firmware for {board}")
            built = build(memory.profile, None, folder).elf
        memory.keep_program(built)
        _note(f"qemu:{board} is new, and kept in {memory.folder}")
    else:
        _note(f"qemu:{board} as it was left, kept in {memory.folder} (--fresh: as new)")
    found = memory.program
    assert found is not None
    return found


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _progress(what: str) -> Callable[[int, int], None] | None:
    """A line that counts, on a terminal."""
    if not sys.stderr.isatty():
        return None
    begin = time.monotonic()

    def show(done: int, total: int) -> None:
        if time.monotonic() - begin > 1 or done == total:
            print(f"\r{what} {done:,} of {total:,}", end="\n" if done == total else "", file=sys.stderr, flush=True)

    return show


def _info(given: argparse.Namespace) -> int:
    with _open(given) as device:
        info, slots, counters = device.info(), device.slots(), device.counters()
    if given.json:
        facts = identity_facts(info)
        facts["images"] = [
            {"slot": s.name, "bytes": s.size, "crc": f"{s.crc:08x}" if s.size else None, "in_use": s.in_use}
            for s in slots
        ]
        print(json.dumps({**facts, "frames": counters}, indent=1))
        return 0
    rows = [(s.name, s.size or "empty", f"{s.crc:08x}" if s.size else "", "in use" if s.in_use else "") for s in slots]
    print(identity_text(info))
    print(f"line     {counters['good']:,} frames received, {counters['bad']:,} unreadable\n")
    print(text_table(("slot", ">image", "CRC", ""), rows))
    return 0


def _data(given: argparse.Namespace, model: Model) -> Data:
    return load_data(
        given.data, model.input_shape, model.labels, given.resize, given.limit, model.image.front_end, model.value_count
    )


def _model(device: Device, given: argparse.Namespace) -> Model:
    return device.use(given.model) if given.model else device.model


def _infer(given: argparse.Namespace) -> int:
    with _open(given) as device:
        model = _model(device, given)
        data = _data(given, model)
        say(data.notes)
        show, results = _progress("inputs"), []
        for i, x in enumerate(_batch(data.x, model)):
            results.append(device.infer(x))
            if show:
                show(i + 1, len(data.x))
        info = device.info()
    names = [data.names[i] if i < len(data.names) else str(i) for i in range(len(results))]
    expected: list[Any] = data.y.tolist() if data.has_values else [int(y) if y >= 0 else None for y in data.y]
    expected = expected or [None] * len(results)
    if given.json:
        modelled = _modelled(given, info, model)
        rows = [
            {
                "name": name, "class": r.index, "label": r.label, "scores": [float(s) for s in r.scores],
                "values": r.values.tolist(), "ticks": r.ticks, "expected": y, **_seconds(given, r, modelled),
            }
            for name, r, y in zip(names, results, expected)
        ]  # fmt: skip
        print(json.dumps(rows, indent=1))
        return 0
    told = list(zip(names[:20], results))
    if model.values:
        print(text_table(("input", "values", ">ticks"), [(name, r.label, r.ticks or None) for name, r in told]))
    else:
        table = [(name, r.label, f"{r.scores.max():.3f}", r.ticks or None) for name, r in told]
        print(text_table(("input", "class", ">score", ">ticks"), table))
    if len(results) > 20:
        print(f"… {len(results) - 20:,} more")
    if results and data.has_values:
        print(
            f"RMSE {np.sqrt(np.mean((np.stack([r.scores for r in results]).reshape(data.y.shape) - data.y) ** 2)):.4g}"
        )
    elif results and all(y is not None for y in expected):
        right = sum(r.index == y for r, y in zip(results, expected))
        print(f"{right:,} of {len(results):,} right, {100 * right / len(results):.2f} %")
    print(timing_text(results, _modelled(given, info, model), _is_emulated(given)))
    return 0


def _listen(given: argparse.Namespace) -> int:
    if given.port == "sim":
        return listen_here(given)
    with _open(given) as device:
        return listen_on_board(given, device, _model(device, given), _progress("samples"))


def _guard(given: argparse.Namespace) -> int:
    if (given.data is None) != given.undo:
        raise ArgumentError("guard needs DATA, the stream to watch, or --undo")
    with _open(given) as device:
        model = _model(device, given)
        guard = Guard(device)
        if given.undo:
            guard.undo()
            print("back to the image as it was uploaded")
            return 0
        data = load_data(
            given.data, model.input_shape, model.labels, given.resize, given.limit, values=model.value_count
        )
        say(data.notes)
        stream = _batch(data.x, model)
        if given.drift:
            stream = apply_drift(stream, given.drift)
        guard.start(given.window, None if given.only_watch else given.threshold)
        right, seen, passes = 0, 0, 0
        for i, x in enumerate(stream):
            answer = device.infer(x)
            seen += 1
            right += bool(data.labelled and answer.index == int(data.y[i]))
            if (i + 1) % given.window:
                continue
            state = guard.state()
            share = right / seen if data.labelled else None
            did = state.passes > passes
            right, seen, passes = 0, 0, state.passes
            row = {"window": state.windows, "drift": state.drift, "recalibrated": did, "accuracy": share}
            accuracy = "" if share is None else f", {100 * share:.1f} % right"
            text = f"window {state.windows}: drift {state.drift:.3f}{accuracy}{'; recalibrated' if did else ''}"
            print(json.dumps(row) if given.json else text, flush=True)
        guard.stop()
    return 0


def _batch(x: np.ndarray, model: Model) -> np.ndarray:
    return x[None] if x.shape == model.input_shape else x


def _is_emulated(given: argparse.Namespace) -> bool:
    """At a Unix socket there is an emulator, too: flipbit flash --qemu --run."""
    return str(given.port).startswith(("qemu:", "unix:"))


def _modelled(given: argparse.Namespace, info: Identity, model: Model) -> BoardPlan | None:
    """What an emulated board's net would take on the real one; None for a real board, and where it is not known."""
    if not _is_emulated(given):
        return None
    try:
        return board_plan(model, info.board)
    except FlipbitError:
        return None


def _seconds(given: argparse.Namespace, run: Inference, modelled: BoardPlan | None) -> dict[str, float | None]:
    """Whose time it is: ``seconds`` are a real board's."""
    if not _is_emulated(given):
        return {"seconds": run.seconds}
    return {
        "seconds": None,
        "emulator_seconds": run.seconds,
        "modelled_seconds": modelled.seconds if modelled else None,
    }


def _bench(given: argparse.Namespace) -> int:
    if given.repeats < 1:
        raise ArgumentError(f"--repeats {given.repeats}: at least 1")
    with _open(given) as device:
        model = _model(device, given)
        layers, runs = device.bench(given.repeats)
        info = device.info()
    if given.json:
        modelled = _modelled(given, info, model)
        facts = [{"ticks": r.ticks, "round_trip": r.round_trip, **_seconds(given, r, modelled)} for r in runs]
        board = {"board": info.board, "core": info.core, "tick_hz": info.tick_hz}
        print(json.dumps({**board, "layers": [asdict(layer) for layer in layers], "runs": facts}, indent=1))
        return 0
    total = sum(layer.ticks for layer in layers)

    def row(layer: LayerReport) -> tuple[object, ...]:
        share = f"{100 * layer.ticks / total:.1f} %" if total else None
        return (layer.name, layer.kernel, layer.size, layer.live, layer.scratch, layer.ticks or None, share)

    print(text_table(("layer", "kernel", ">output", ">live", ">scratch", ">ticks", ">share"), map(row, layers)))
    spent = timing_text(runs, _modelled(given, info, model), _is_emulated(given))
    print(f"{info.board}, {info.core} at {info.clock_hz / 1e6:g} MHz: {spent}")
    return 0


def _verify(given: argparse.Namespace) -> int:
    with _open(given) as device:
        model = _model(device, given)
        if given.data:
            data = _data(given, model)
            say(data.notes)
            x = _batch(data.x, model)
        else:
            shape = (given.limit, *model.input_shape)
            x = np.random.default_rng(0).integers(-128, 128, shape).astype(np.int8)
        difference = device.verify(x, progress=_progress("inputs"))
        board = device.info().board
    count = len(model.layers)
    if given.json:
        facts = {"board": board, "inputs": len(x), "layers": count, "equal": difference is None}
        print(json.dumps({**facts, "difference": asdict(difference) if difference else None}, indent=1))
    elif difference is None:
        print(f"{board}: all {count} layers equal this machine's, bit for bit, for {len(x):,} inputs")
    else:
        print(f"{board}: {difference}")
    return 0 if difference is None else 1


def _upload(given: argparse.Namespace) -> int:
    with _open(given) as device:
        begin = time.perf_counter()
        slot = device.upload(given.image, given.slot, _progress("bytes"))
        seconds = time.perf_counter() - begin
        if given.select:
            device.select(slot)
        info = device.info()
    size = given.image.stat().st_size
    if given.json:
        print(json.dumps({"slot": slot, "bytes": size, "seconds": seconds, "in_use": slot_name(info.slot)}))
    else:
        print(
            f"{given.image}: {size:,} bytes in slot {slot}, checked, in {seconds:.1f} s; in use: {slot_name(info.slot)}"
        )
    return 0


def _download(given: argparse.Namespace) -> int:
    with _open(given) as device:
        data = device.read_image(given.slot)
    Model(data)  # never save a bad one
    write_atomically(given.output, data)
    crc = data[12:16][::-1].hex()
    if given.json:
        print(json.dumps({"file": str(given.output), "bytes": len(data), "crc": crc}))
    else:
        print(f"{shown(given.output)}: {len(data):,} bytes, CRC {crc}")
    return 0


def _select(given: argparse.Namespace) -> int:
    if given.slot != "built-in" and not given.slot.isdigit():
        raise ArgumentError(f"slot {given.slot}: expected a number, or built-in")
    with _open(given) as device:
        info = device.select(BUILT_IN if given.slot == "built-in" else min(int(given.slot), 0xFD))
    print(json.dumps(identity_facts(info), indent=1) if given.json else identity_text(info))
    return 0


def _reset(given: argparse.Namespace) -> int:
    with _open(given) as device:
        info = device.reset()
    print(json.dumps(identity_facts(info), indent=1) if given.json else identity_text(info))
    return 0


def _monitor(given: argparse.Namespace) -> int:
    if given.port.startswith("qemu:"):
        with _open(given) as device:
            return _watch(device, given)
    with Device(open_line(given.port, given.baud)) as device:  # no questions: it may run anything
        return _watch(device, given)


def _watch(device: Device, given: argparse.Namespace) -> int:
    for text in device.monitor(given.seconds):
        print(json.dumps({"time": time.time(), "text": text}) if given.json else shown(text), flush=True)
    return 0


def run_alone(add_parser: Callable[[Any], None], name: str, argv: list[str] | None = None) -> int:
    """A command without the others."""

    def command() -> int:
        p = CommandParser(prog="flipbit")
        add_parser(p.add_subparsers(required=True))
        given = p.parse_args([name, *(sys.argv[1:] if argv is None else argv)])
        return int(given.command(given))

    return guarded(command)


def main(argv: list[str] | None = None) -> int:
    """``python -m flipbit.runtime.commands.device``"""
    return run_alone(add_device_parser, "device", argv)


if __name__ == "__main__":
    sys.exit(main())
