"""Reproduce the theorems, tables and figures of "Training Quantized Nets: A Deeper Understanding".

examples:
  flipbit reproduce toy                        the 1-D toy problem, seconds
  flipbit reproduce all                        everything on small data, minutes; writes report.html
  flipbit reproduce table1 --scale small       five methods on CIFAR-10, a few hours on two cores
  flipbit reproduce buffer --scale small --epochs 4
  flipbit reproduce table1 --scale long        SR against Big SR, 60 epochs, three seeds: a night
  flipbit reproduce table1 --scale paper       the full recipe, for GPUs

experiments:
  toy      BC against SR in one dimension (Figure 2)        changes  weights changed by R, BC, SR (Figure 4)
  convex   Lemma 1, Theorems 1 to 4                         batch    batch sizes for SR and BC (Figure 5)
  markov   SR as a Markov chain: Theorems 5, 6, Figure 3    decay    weight decay on BC (Figure 7)
  table1   test errors of five methods (Table 1, Figure 6)  buffer   what lies between SR and BC: buffer bits
  recipes  what options for long trainings bring in a short one

A run that was stopped goes on when the same command is given again. A claim that does not hold is a
result like any other: the exit status is 0.
"""

from __future__ import annotations

import argparse
import platform
import shlex
import sys
import time
from datetime import datetime, timezone
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from flipbit.runtime.exits import CommandParser, guarded, typed
from flipbit.runtime.files import write_json, write_text
from flipbit.runtime.shown import shown
from flipbit.train import stopping
from flipbit.train.settings import InputError

PROG = "flipbit reproduce"
THEORY = ("toy", "convex", "markov")
TRAINED = ("table1", "changes", "batch", "decay", "buffer", "recipes")
SCALES = ("quick", "small", "long", "paper")


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    description, epilog = (__doc__ or "").split("\n\n", 1)
    p = CommandParser(
        prog=prog,
        description=description,
        epilog=epilog.replace(PROG, typed(prog)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    p.add_argument("name", metavar="NAME", choices=(*THEORY, *TRAINED, "all"), help="an experiment below, or all")
    p.add_argument("--scale", choices=SCALES, default="quick", help="digits, CIFAR-10 on a CPU, the paper's (quick)")
    p.add_argument("-o", "--output", type=Path, metavar="DIR", help="folder to write (reproduced/NAME-SCALE)")
    p.add_argument("--seed", type=int, default=0, metavar="N", help="of weights, batches, rounding (0)")
    p.add_argument("--data-dir", metavar="DIR", help="where CIFAR and ImageNet lie (FLIPBIT_DATA, Keras' cache)")
    p.add_argument("--epochs", type=int, metavar="N", help="instead of the scale's, for trials")
    p.add_argument("--limit", type=int, metavar="N", help="use only N images of each part, for trials")
    p.add_argument("--threads", type=int, default=0, metavar="N", help="cores to use (all)")
    return p


def check(given: argparse.Namespace) -> Path:
    """The folder to write, made; refuses what makes no sense."""
    if given.scale == "long" and given.name != "table1":
        raise InputError(f"--scale long is for table1 alone: use --scale small for {given.name}")
    for name in ("epochs", "limit"):
        value = getattr(given, name)
        if value is not None and value < 1:
            raise InputError(f"--{name} {value}: must be at least 1")
    if given.threads < 0:
        raise InputError(f"--threads {given.threads}: must be at least 0")
    if not 0 <= given.seed < 2**31 - 1000:  # runs with several seeds count on from here
        raise InputError(f"--seed {given.seed}: must be 0 to {2**31 - 1001}")
    folder: Path = given.output or Path("reproduced") / f"{given.name}-{given.scale}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{folder}: is a file; choose another folder with -o") from None
    return folder


def reproduce(given: argparse.Namespace, folder: Path) -> None:
    """Run what was asked for, write its files and say what came out."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.width = 120  # lines for a log, not folded at 80 columns
    names = (*THEORY, *TRAINED) if given.name == "all" else (given.name,)
    console.print(f"{', '.join(names)} at scale {given.scale}, seed {given.seed}, writing to {folder}", highlight=False)
    run = _runs(given, folder, console)
    outcomes, start = [], time.perf_counter()
    for name in names:
        if len(names) > 1:
            console.print(f"\n[bold]{name}[/]")
        begin = time.perf_counter()
        outcome = run(name)
        seconds = time.perf_counter() - begin
        _save(folder, outcome, given, seconds)
        _say(console, outcome, seconds)
        outcomes.append(outcome)
    if given.name == "all":
        from flipbit.train.experiments.report import html_report

        facts = {
            "scale": given.scale, "seed": str(given.seed), "date": _today(), "flipbit": metadata.version("flipbit"),
            "Python": platform.python_version(), "machine": platform.platform(),
            "minutes": f"{(time.perf_counter() - start) / 60:.0f}",
        }  # fmt: skip
        write_text(folder / "report.html", html_report(outcomes, facts))
        _summarize(console, outcomes)
        console.print(f"report: {folder / 'report.html'}", style="bold", highlight=False, soft_wrap=True)


def _runs(given: argparse.Namespace, folder: Path, console: Any) -> Any:
    """A function from an experiment's name to its outcome."""
    if given.name in THEORY:
        # Theory needs no TensorFlow: leave it alone, as it takes seconds to import.
        return lambda name: import_module(f"flipbit.train.theory.{name}").run(given.scale, folder, given.seed)

    from flipbit.train.experiments.grid import Runner
    from flipbit.train.experiments.progress import GridTerminal

    terminal = GridTerminal(console)
    runner = Runner(folder / "runs", given.data_dir, given.threads, given.epochs, given.limit, terminal)

    def run(name: str) -> Any:
        if name in THEORY:
            return import_module(f"flipbit.train.theory.{name}").run(given.scale, folder, given.seed)
        terminal.kept = 0
        outcome = import_module(f"flipbit.train.experiments.{name}").run(given.scale, runner, folder, given.seed)
        if terminal.kept:
            console.print(f"runs finished before: {terminal.kept}; delete {runner.folder} to compute them anew")
        return outcome

    return run


def _save(folder: Path, outcome: Any, given: argparse.Namespace, seconds: float) -> None:
    write_json(
        folder / f"{outcome.name}.json",
        {
            "name": outcome.name, "claim": outcome.claim, "held": outcome.held, "summary": outcome.summary,
            "scale": given.scale, "seed": given.seed, "epochs_override": given.epochs, "limit": given.limit,
            "date": _today(), "flipbit": metadata.version("flipbit"), "seconds": round(seconds, 1),
            "figures": [path.name for path in outcome.figures], "numbers": outcome.numbers,
        },
    )  # fmt: skip


def _say(console: Any, outcome: Any, seconds: float) -> None:
    """The table, if there is one, what each check said, and the line with the verdict."""
    if "table" in outcome.numbers:
        from rich.table import Table

        content = outcome.numbers["table"]
        shown = Table(title=outcome.name, title_justify="left")
        for number, column in enumerate(content["columns"]):
            shown.add_column(column, justify="left" if number == 0 else "right")
        for row in content["rows"]:
            shown.add_row(*row)
        console.print(shown)
    for text, held in outcome.numbers.get("checks", {}).items():
        console.print(f"  {'yes' if held else 'NO '}  {text}", highlight=False)
    verdict = "[green]the claim held[/]" if outcome.held else "[red]the claim did NOT hold[/]"
    console.print(f"[bold]{outcome.name}[/]: {verdict}: {outcome.claim}", highlight=False, soft_wrap=True)
    console.print(f"  {outcome.summary}  ({seconds:.0f} s)", highlight=False, markup=False, soft_wrap=True)
    for path in outcome.figures:
        console.print(f"  figure: {path}", highlight=False, soft_wrap=True)


def _summarize(console: Any, outcomes: list[Any]) -> None:
    from rich.table import Table

    shown = Table(title="all", title_justify="left")
    for column in ("experiment", "claim", "held"):
        shown.add_column(column)
    for outcome in outcomes:
        shown.add_row(outcome.name, outcome.claim, "yes" if outcome.held else "[red]NO[/]")
    console.print(shown)


def _today() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def main(argv: list[str] | None = None, prog: str = PROG) -> int:
    again = shlex.join([*typed(prog).split(), *(sys.argv[1:] if argv is None else argv)])
    return guarded(
        lambda: _main(argv, prog),
        stopped=f"stopped; finished runs and epochs are kept; go on with: {shown(again)}",
        extras="train",
    )


def _main(argv: list[str] | None, prog: str) -> None:
    given = parser(prog).parse_args(argv)
    with stopping.heard():
        reproduce(given, check(given))
