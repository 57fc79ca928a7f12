"""Run a data set on emulated boards, through the application and its protocol, and compare every score with the host.

  python firmware/boards/run_images.py net.fbit --data cifar-10-batches-py --images 1000
  python firmware/boards/run_images.py digits.fbit --data digits --boards microbit hifive1 --json out.json

Every image is loaded over the board's UART and run with INFER; of the first --layers images every layer is compared as
well. Boards follow each other; those whose memory the net does not fit are left out, with the linker's or the report's
numbers. Exit status 1 if anything differed. DATA is what `flipbit run` takes.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import read_profile
import report_sizes
from board_toml import ProfileError

from flipbit.runtime.board.profile import BoardError, build, load_profile
from flipbit.runtime.core.model import Model
from flipbit.runtime.data.load import Data, load_data
from flipbit.runtime.errors import ArgumentError
from flipbit.runtime.exits import CommandParser, guarded
from flipbit.runtime.files import write_json
from flipbit.runtime.link.device import open_device
from flipbit.runtime.text_table import text_table


@dataclass(frozen=True)
class BoardRun:
    """What a board made of the images. ``differing`` counts scores, of ``images`` × classes; sizes are bytes."""

    board: str
    images: int
    differing: int
    layer_inputs: int  # images of which every layer was compared
    first_difference: str  # of those layers; "" if none differed
    right: int | None  # images whose class is the labelled one
    seconds: float
    sent_again: int  # requests
    code: int
    core: int
    model: int
    room: int  # RAM for input, output and arena
    needs: int  # of that, at least


def one_cpu() -> None:
    """Stay on one processor, and the emulators started from here.

    The emulated UARTs hold a byte or a few, so that QEMU's two threads, the CPU that polls and the loop that reads the
    socket, wait for each other at each byte. On one processor they change places at once; on two that are busy with
    other work, loading an image of 3,072 bytes took 1.2 to 5.0 s instead of 0.26 to 0.50.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def run_board(name: str, path: Path, model: Model, data: Data, layers: int, folder: Path) -> BoardRun:
    elf = build(load_profile(name), path, folder).elf
    sizes = report_sizes.measure(read_profile.read(name), elf)
    needs = report_sizes.needs(folder / "host" / "arena_needs", path)
    expected = model.predict(data.x, raw=True).reshape(len(data.x), -1)
    classes = np.zeros(len(data.x), int)
    differing = 0
    begin = time.perf_counter()
    with open_device(f"qemu:{name}", elf, timeout=10) as device:
        device.use(model)
        for i, x in enumerate(data.x):
            result = device.infer(x)
            differing += int((result.values != expected[i]).sum())
            classes[i] = result.index
            progress(name, i + 1, len(data.x), begin)
        seconds = time.perf_counter() - begin
        difference = device.verify(data.x[:layers]) if layers else None
        sent_again = device.retried
    right = int((classes == data.y).sum()) if data.labelled else None
    return BoardRun(
        name, len(data.x), differing, layers, str(difference or ""), right, round(seconds, 1), sent_again,
        sizes.code, sizes.core, sizes.model, sizes.room, needs.total,
    )  # fmt: skip


def progress(name: str, done: int, total: int, begin: float) -> None:
    """A line that counts on a terminal; elsewhere, a line for each tenth."""
    spent = time.perf_counter() - begin
    text = f"{name}: {done:,} of {total:,} images, {spent:.0f} s"
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{text}" + ("\n" if done == total else ""))
    elif done * 10 // total != (done - 1) * 10 // total:
        sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def table(runs: list[BoardRun]) -> str:
    head = ("board", ">images", ">differing scores", ">accuracy", ">seconds", ">application", ">of which core",
            ">model", ">RAM free", ">needed")  # fmt: skip
    rows = [
        (r.board, r.images, r.differing, None if r.right is None else f"{100 * r.right / r.images:.2f} %",
         f"{r.seconds:.0f}", r.code, r.core, r.model, r.room, r.needs)
        for r in runs
    ]  # fmt: skip
    return text_table(head, rows)


def emulated_boards() -> list[str]:
    return [name for name in read_profile.names() if read_profile.read(name).emulated]


def count(text: str) -> int:
    """A whole number, not negative."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return int(text)


def parser() -> argparse.ArgumentParser:
    p = CommandParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", type=Path, help="an image (.fbit)")
    p.add_argument("--data", required=True, metavar="DATA", help="images: a data set's folder, .npz, digits …")
    p.add_argument("--images", type=count, metavar="N", help="only the first N")
    p.add_argument("--layers", type=count, default=10, metavar="N", help="images of which all layers are compared (10)")
    p.add_argument("--boards", nargs="+", choices=emulated_boards(), metavar="BOARD", help="only these")
    p.add_argument("--json", type=Path, metavar="FILE", help="write the results there, after each board")
    return p


def run(given: argparse.Namespace, folder: Path) -> list[BoardRun]:
    model = Model(given.model)
    data = load_data(given.data, model.input_shape, model.labels).first(given.images)
    if not len(data.x):
        raise ArgumentError(f"no images: {given.data} with --images {given.images}; ask for at least one")
    model.predict(data.x[:1])  # that they fit the net is said before anything is built
    if given.json and not given.json.parent.is_dir():
        raise ArgumentError(f"--json {given.json}: there is no folder {given.json.parent}; make it first")
    runs = []
    for name in given.boards or emulated_boards():
        try:
            runs.append(run_board(name, given.model, model, data, min(given.layers, len(data.x)), folder))
        except BoardError as error:
            if given.boards:
                raise
            sys.stderr.write(f"{name}: left out: {error}\n")
            continue
        if given.json:
            write_json(given.json, [asdict(r) for r in runs])
    if not runs:
        raise BoardError("no board has run; why is said above")
    return runs


def main(argv: list[str] | None = None) -> int:
    return guarded(lambda: _main(parser().parse_args(argv)), also=(ProfileError,))


def _main(given: argparse.Namespace) -> int:
    one_cpu()
    with tempfile.TemporaryDirectory() as folder:
        runs = run(given, Path(folder))
    sys.stdout.write(table(runs) + "\n")
    for r in runs:
        if r.first_difference:
            sys.stdout.write(f"{r.board}: {r.first_difference}\n")
    return 1 if any(r.differing or r.first_difference for r in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
