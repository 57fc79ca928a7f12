"""The whole way on one page: train a net with one-bit weights, put it on a board, let it learn there.

1. train a net on real handwritten digits (scikit-learn's, bundled) with BinaryConnect,
2. export it as a device image,
3. build the firmware, flash it into an emulated board (QEMU) over GDB, and hold every layer against this machine's,
4. dim the light: the same digits, darker; let the board learn from some of them, and save it in its storage,
5. switch the board off and on: it starts with what it has learned, byte for byte,
6. draw what happened: demo.png, and demo.html, one file to open or pass on.

Everything is written to a new folder, runs/demo-…; Ctrl-C stops at any time. Where the cross-compiler, the emulator or
GDB is not installed, the board is simulated with the same C core: same bits, no firmware.
"""

from __future__ import annotations

import argparse
import base64
import html
import json
import os
import shlex
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

try:
    from flipbit.runtime import Model
    from flipbit.runtime.errors import FlipbitError, InputError
    from flipbit.runtime.exits import CommandParser, guarded
    from flipbit.runtime.link.memory import ENVIRONMENT
    from flipbit.runtime.stopping import run_child
    from flipbit.runtime.tune.samples import load_samples
except ModuleNotFoundError:
    sys.exit("flipbit is not installed here; run:  make demo")

HERE = Path(__file__).resolve().parent.parent
EMULATED = "mps2-an386"  # a Cortex-M4 whose storage an emulator can write, and keeps while the board is off
SIMULATED = "netduinoplus2"  # the same core on a board that people can have
DRIFT = "dim:2"
SAMPLES, STEPS, SEED = 80, 15, 1
NEEDED = ("make", "arm-none-eabi-gcc", "qemu-system-arm", "gdb-multiarch")  # to build, emulate and flash the board
SHOWN = 10  # digits in the picture
BLUE, ORANGE, GREEN, GREY = "#2b6cb0", "#c05621", "#2f855a", "#a0aec0"

steps_taken: list[tuple[str, str]] = []


def run(title: str, *command: str | Path, state: Path | None = None) -> None:
    """Show a command and run it; its output is the demonstration. ``state``: where the emulated board is kept."""
    words = [str(part) for part in command]
    text = shlex.join(words)
    if state is not None:
        os.environ[ENVIRONMENT] = str(state)
        text = f"{ENVIRONMENT}={shlex.quote(str(state))} {text}"
    steps_taken.append((title, text))
    print(f"\n== {title}\n$ {text}", flush=True)
    program = [sys.executable] if words[0] == "python" else [str(Path(sys.executable).with_name(words[0]))]
    status = run_child([*program, *words[1:]], cwd=HERE, capture=False).returncode
    if status:  # it has said why
        print(f"\nThe demo ends here: that command ended with status {status}.", file=sys.stderr)
        sys.exit(status)


@dataclass(frozen=True)
class Outcome:
    """What the picture shows. Accuracies are shares, of digits that nothing learned from."""

    folder: Path
    target: str
    history: list[dict[str, Any]]  # of training, by epoch
    report: dict[str, Any]  # of learning on the board, by step
    bright: float
    held: int
    kept: bool  # whether a board that was switched off came back with what it had learned
    pixels: np.ndarray  # of a few digits: as they were, and darker
    dark: np.ndarray
    labels: np.ndarray
    answers: list[np.ndarray]  # to the bright ones, to the dark ones, to the dark ones after learning

    @property
    def accuracies(self) -> tuple[float, float, float]:
        return self.bright, self.report["accuracy_before"], self.report["accuracy_after"]


def look_back(folder: Path, target: str, kept: bool) -> Outcome:
    """Gather what the commands left in the folder."""
    before, after = Model(folder / "model.fbit"), Model(folder / "tuned.fbit")
    parts = [load_samples(before, "digits", SAMPLES, 500, SEED, drift) for drift in (None, DRIFT)]
    bright, dark = (part.held_x for part in parts)
    labels = parts[0].held_y
    answers = [
        model.predict(x, raw=True).reshape(len(labels), -1).argmax(1)
        for model, x in ((before, bright), (before, dark), (after, dark))
    ]
    # First those that learning put right, then the rest, as they come.
    mended = (answers[0] == labels) & (answers[1] != labels) & (answers[2] == labels)
    chosen = np.argsort(~mended, kind="stable")[:SHOWN]
    return Outcome(
        folder=folder,
        target=target,
        history=json.loads((HERE / folder / "history.json").read_text(encoding="utf-8")),
        report=json.loads((HERE / folder / "report.json").read_text(encoding="utf-8")),
        bright=float(np.mean(answers[0] == labels)),
        held=len(labels),
        kept=kept,
        pixels=bright[chosen],
        dark=dark[chosen],
        labels=labels[chosen],
        answers=[given[chosen] for given in answers],
    )


def draw(outcome: Outcome) -> bytes:
    """A PNG: the training curve, accuracy in both lights and by step, and some digits."""
    import io

    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure = pyplot.figure(figsize=(12, 7), layout="constrained")
    grid = figure.add_gridspec(2, 3, height_ratios=(1.25, 1))
    epochs = [row["epoch"] for row in outcome.history]
    curve = figure.add_subplot(grid[0, 0])
    for key, colour, label in (("error", GREY, "training"), ("test_error", BLUE, "test")):
        curve.plot(epochs, [100 * (1 - row[key]) for row in outcome.history], color=colour, label=label)
    curve.set(title="1  trained here, one bit per weight", xlabel="epoch", ylabel="accuracy (%)", ylim=(0, 101))
    curve.legend(loc="lower right")

    light = figure.add_subplot(grid[0, 1])
    names = ("before", "light\ndimmed", f"after {len(outcome.report['steps'])}\nsteps")
    bars = light.bar(names, [100 * share for share in outcome.accuracies], color=(BLUE, ORANGE, GREEN))
    light.bar_label(bars, fmt="%.1f %%")
    light.set(title=f"2  {outcome.held} digits it never learned from", ylabel="accuracy (%)", ylim=(0, 108))

    steps = [0, *(row["step"] for row in outcome.report["steps"])]
    held = [outcome.accuracies[1], *(row["held_back"] for row in outcome.report["steps"])]
    learning = figure.add_subplot(grid[0, 2])
    learning.axhline(100 * outcome.bright, color=BLUE, linestyle=":", label="before the light was dimmed")
    learning.plot(steps, [100 * share for share in held], color=GREEN, marker="o", label="in dim light")
    learning.set(title="3  learning on the board", xlabel=f"step of {SAMPLES} samples", ylabel="accuracy (%)")
    learning.set(ylim=(0, 101), xticks=range(0, len(steps), 5))
    learning.legend(loc="lower right")

    strip = grid[1, :].subgridspec(2, len(outcome.labels))
    for column in range(len(outcome.labels)):
        for row, (pixels, answers) in enumerate(
            ((outcome.pixels, outcome.answers[:1]), (outcome.dark, outcome.answers[1:]))
        ):
            axes = figure.add_subplot(strip[row, column])
            axes.imshow(pixels[column, ..., 0], cmap="gray", vmin=0, vmax=255)
            axes.set_xticks([])
            axes.set_yticks([])
            right = answers[-1][column] == outcome.labels[column]
            text = " → ".join(str(given[column]) for given in answers)
            axes.set_xlabel(text, color=GREEN if right else ORANGE)
            if column == 0:
                axes.set_ylabel("dimmed:\nbefore → after" if row else "as it was")
    data = io.BytesIO()
    figure.savefig(data, dpi=110, format="png")
    pyplot.close(figure)
    return data.getvalue()


def page(outcome: Outcome, picture: bytes) -> str:
    """One HTML file with everything in it."""
    bright, dim, learned = (f"{100 * share:.1f} %" for share in outcome.accuracies)
    size = (HERE / outcome.folder / "model.fbit").stat().st_size
    flips = sum(row["flips"] for row in outcome.report["steps"])
    kept = " Switched off and on again, the board still had every one of them." if outcome.kept else ""
    rows = "".join(
        f"<tr><td>{row['step']}<td>{row['loss']:.3f}<td>{100 * row['held_back']:.1f} %<td>{row['flips']}"
        for row in outcome.report["steps"]
    )
    done = "".join(f"<dt>{html.escape(title)}<dd><code>{html.escape(command)}</code>" for title, command in steps_taken)
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>flipbit demo</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:68rem;margin:2rem auto;padding:0 1rem;color:#1a202c}}
img{{max-width:100%}}table{{border-collapse:collapse}}td,th{{padding:.1rem 1rem;text-align:right}}
code{{background:#edf2f7;padding:.1rem .3rem}}dt{{margin-top:.6rem}}dd{{margin:0}}</style>
<h1>A one-bit net learns on the board it runs on</h1>
<p>A net whose convolutions have one bit per weight ({size:,} bytes in all) reads {outcome.held} handwritten digits that
it never learned from. In the light it was trained for it gets <b>{bright}</b> right; with the light dimmed,
<b>{dim}</b>; after {len(outcome.report["steps"])} steps of {SAMPLES} dim samples, learned on
{html.escape(outcome.target)} in integers, <b>{learned}</b>, with {flips} weights flipped.{kept}</p>
<img alt="training curve, accuracy in both lights, accuracy by step, sample digits"
 src="data:image/png;base64,{base64.b64encode(picture).decode()}">
<h2>Step by step</h2><table><tr><th>step<th>loss<th>held back<th>flips{rows}</table>
<h2>What was run</h2><dl>{done}</dl></html>
"""


def main(argv: list[str] | None = None) -> int:
    return guarded(lambda: _main(argv))


def _main(argv: list[str] | None) -> None:
    title, rest = (__doc__ or "").split("\n\n", 1)
    p = CommandParser(
        prog="firmware/demo.py", description=title, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("-o", "--output", type=Path, metavar="DIR", help="a new folder to write (runs/demo-…)")
    p.add_argument("--simulate", action="store_true", help="simulate the board even where it can be emulated")
    given = p.parse_args(argv)
    folder = given.output.resolve() if given.output else Path("runs") / time.strftime("demo-%Y%m%d-%H%M%S")
    if (HERE / folder).exists():
        raise InputError(f"{folder}: exists already; name another folder")
    start = time.monotonic()
    missing = [name for name in NEEDED if not shutil.which(name)]
    if missing and not given.simulate:
        print(f"not installed: {', '.join(missing)}. The board is simulated; make tools would let it be emulated.")
    emulated = not (missing or given.simulate)
    target = f"qemu:{EMULATED}" if emulated else f"sim:{SIMULATED}"
    image, tuned, returned = folder / "model.fbit", folder / "tuned.fbit", folder / "returned.fbit"
    state = (HERE / folder / "state") if emulated else None

    run("train one-bit weights on handwritten digits", "python", "train/run.py", "--method", "bc", "-o", folder)
    run("write the device image", "python", "export/to_fbit.py", folder / "model.h5")
    if emulated:
        port = ("--port", target)
        run(
            f"flash an emulated {EMULATED}", "flipbit", "flash", "--board", EMULATED, "--model", image, "--qemu",
            state=state,
        )  # fmt: skip
        run("digits on the board", "flipbit", "device", "infer", "digits", *port, "--limit", "8", state=state)
        run(
            "is every layer on the board the same as here?", "flipbit", "device", "verify", "digits", *port, state=state
        )
    else:
        run("digits, computed by the board's C core on this machine", "flipbit", "run", image, "digits")
    run(
        "the light is dimmed: let the board learn", "python", "runtime/finetune.py", image, "--data", "digits",
        "--drift", DRIFT, "--target", target, "--method", "sr+bias", "--samples", str(SAMPLES), "--steps", str(STEPS),
        "--seed", str(SEED), "-o", tuned, "--report", folder / "report.json", *(["--remember"] if emulated else []),
        state=state,
    )  # fmt: skip
    run("what changed in the image", "flipbit", "compare", image, tuned)
    if emulated:
        title = "the board was switched off; switch it on and read its net: is it what it learned?"
        run(title, "flipbit", "device", "download", returned, "--port", target, state=state)
        run("what came back, beside what was learned", "flipbit", "compare", tuned, returned)
        if (HERE / returned).read_bytes() != (HERE / tuned).read_bytes():
            raise FlipbitError(f"the {EMULATED} came back with another net than it had learned: {returned}")

    outcome = look_back(
        HERE / folder, f"the emulated {EMULATED}" if emulated else f"the simulated {SIMULATED}", kept=emulated
    )
    picture = draw(outcome)
    (HERE / folder / "demo.png").write_bytes(picture)
    (HERE / folder / "demo.html").write_text(page(outcome, picture), encoding="utf-8")
    bright, dim, learned = (f"{100 * share:.1f} %" for share in outcome.accuracies)
    print(f"\nAccuracy {bright}; with the light dimmed {dim}; after learning on the board {learned}.")
    if emulated:
        print("Switched off and on again, the board still had what it learned.")
    print(f"The net: {image}. What the board made of it: {tuned}.")
    print(f"What happened, as a picture: {folder / 'demo.png'}, and as a page: {folder / 'demo.html'}.")
    print(f"Done in {time.monotonic() - start:.0f} s.")


if __name__ == "__main__":
    sys.exit(main())
