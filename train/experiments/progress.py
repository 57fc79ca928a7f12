"""What a person at a terminal sees of a grid of runs: a bar for the run at work, a line for each that is done."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from flipbit.train.experiments.grid import GridWatcher, Result, watched_error
from flipbit.train.trainer import Trainer

STATES = {"new": "", "resumed": "going on", "kept": "finished before"}


class GridTerminal(GridWatcher):
    """Draws on ``console``: a moving bar on a terminal, plain lines elsewhere. ``kept`` counts runs found finished."""

    def __init__(self, console: Console):
        self.console = console
        self.kept = 0

    def grid_started(self, runs: int) -> None:
        self.runs, self.number = runs, 0
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=28),
            TextColumn("{task.fields[status]}"),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self.progress.start()
        self.task = self.progress.add_task("", status="", total=1)

    def run_started(self, name: str, state: str) -> None:
        self.number, self.name, self.state, self.begin = self.number + 1, name, state, time.perf_counter()
        self.kept += state == "kept"

    def started(self, trainer: Trainer) -> None:
        self.size, self.epochs = trainer.data.train_size, int(trainer.settings.epochs or 1)
        self.progress.update(self.task, total=self.epochs * self.size, completed=0, description=self._title())

    def _title(self) -> str:
        return f"{self.number:3d}/{self.runs}  {self.name}"

    def epoch_started(self, epoch: int) -> None:
        self.seen, self.loss = 0, 0.0
        self.progress.update(self.task, completed=epoch * self.size, status=f"epoch {epoch + 1}/{self.epochs}")

    def step(self, images: int, loss: float, counted: np.ndarray) -> None:
        self.progress.update(self.task, advance=images)

    def epoch_done(self, record: dict[str, Any]) -> None:
        self.progress.update(self.task, status=watched_error(record))

    def run_done(self, result: Result) -> None:
        took = STATES["kept"] if self.state == "kept" else f"{time.perf_counter() - self.begin:.0f} s"
        note = f", {STATES[self.state]}" if self.state == "resumed" else ""
        self.console.print(
            f"{self._title()}  {watched_error(result.history[-1])}  ({took}{note})", highlight=False, soft_wrap=True
        )

    def grid_finished(self) -> None:
        self.progress.stop()
