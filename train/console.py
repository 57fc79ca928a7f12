"""What a person at a terminal sees of a training run: a progress bar, a line an epoch, a table at the end."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from flipbit.train.history import plot_history, write_tensorboard
from flipbit.train.loop import MODEL_FILE, Trainer, Watcher
from flipbit.train.summary import layer_rows


class Terminal(Watcher):
    """Draws on ``console``: a moving bar on a terminal, plain lines elsewhere."""

    def __init__(self, folder: Path, console: Console, plot: bool = True, tensorboard: bool = True):
        self.folder, self.console, self.plot, self.tensorboard = folder, console, plot, tensorboard
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=28),
            TextColumn("{task.fields[status]}"),
            TimeRemainingColumn(compact=True),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )

    def started(self, trainer: Trainer) -> None:
        s, data = trainer.settings, trainer.data
        bits = trainer.state_bits()
        self.trainer = trainer
        self.console.print(
            f"[bold]{s.method}[/] ({s.optimizer}, lr {s.lr:g}, {s.schedule}, batch {s.batch}) on {data.name}: "
            f"{data.train_size} + {data.test_size} images of {'×'.join(map(str, data.shape))}, "
            f"{len(data.classes)} classes"
        )
        self.console.print(
            f"{s.net}, width {s.width:g}: {trainer.model.count_params():,} parameters; training keeps "
            f"{bits['total']} bits per quantized weight ({bits['weight']} weight + {bits['buffer']} buffer + "
            f"{bits['moments']} moments)"
        )
        done = len(trainer.history)
        if done:
            self.console.print(f"going on after epoch {done} of {s.epochs}")
        self.console.print(f"writing to {self.folder}", highlight=False)
        self.progress.start()
        self.task = self.progress.add_task("", status="", total=1)

    def epoch_started(self, epoch: int) -> None:
        self.begin, self.seen, self.loss, self.wrong = time.perf_counter(), 0, 0.0, 0
        s, size = self.trainer.settings, self.trainer.data.train_size
        self.progress.update(
            self.task,
            total=int(s.epochs or 1) * size,
            completed=epoch * size,
            description=f"epoch {epoch + 1}/{s.epochs}",
        )

    def step(self, images: int, loss: float, wrong: int) -> None:
        self.seen, self.loss, self.wrong = self.seen + images, self.loss + loss * images, self.wrong + wrong
        rate = self.seen / (time.perf_counter() - self.begin)
        status = f"loss {self.loss / self.seen:.3f}  error {100 * self.wrong / self.seen:5.2f} %  {rate:,.0f} images/s"
        self.progress.update(self.task, advance=images, status=status)

    def epoch_done(self, record: dict[str, Any]) -> None:
        layers = record["layers"]
        moved = ""
        if layers:
            flips = sum(layer["flips"] for layer in layers)
            moved = f"  {flips:,} flips"
        self.console.print(
            f"epoch {record['epoch']:3d}  loss {record['loss']:.4f}  error {100 * record['error']:5.2f} %  "
            f"test {100 * record['test_error']:5.2f} %  {record['images_per_second']:,.0f} images/s{moved}",
            highlight=False,
        )
        if self.tensorboard:
            write_tensorboard(self.folder, record)

    def close(self) -> None:
        self.progress.stop()

    def finished(self, trainer: Trainer) -> None:
        self.close()
        if self.plot and trainer.history:
            plot_history(self.folder / "curves.png", trainer.history, trainer.settings.name())
        print_summary(self.console, trainer)
        self.console.print(f"model: {self.folder / MODEL_FILE}", style="bold", highlight=False, soft_wrap=True)


def print_summary(console: Console, trainer: Trainer) -> None:
    """Layers with their bits, bytes and multiply-accumulates, then what the run reached."""
    table = Table(title=f"{trainer.settings.net} on {trainer.data.name}", title_justify="left")
    for name in ("layer", "kind", "output", "weights", "bits", "bytes", "MACs", "changed", "|w_b−w_r|"):
        table.add_column(name, justify="left" if name in ("layer", "kind") else "right")
    rows = layer_rows(trainer.model)
    last = {layer["name"]: layer for layer in trainer.history[-1]["layers"]} if trainer.history else {}
    for row in rows:
        change = last.get(row.name)
        table.add_row(
            row.name, row.kind, "×".join(map(str, row.output)), f"{row.weights:,}", str(row.bits),
            f"{row.bytes:,}", f"{row.macs:,}",
            f"{100 * change['changed_since_start']:.1f} %" if change else "",
            f"{change['distance']:.3f}" if change else "",
        )  # fmt: skip
    console.print(table)
    size, parameters = sum(r.bytes for r in rows), sum(r.parameters for r in rows)
    one_bit = sum(r.weights for r in rows if r.bits == 1)
    console.print(
        f"{parameters:,} parameters, {one_bit:,} of them single bits: {size:,} bytes, "
        f"{4 * parameters:,} in float32 ({4 * parameters / size:.1f}×); {sum(r.macs for r in rows):,} MACs",
        highlight=False,
    )
    if trainer.history:
        record = trainer.history[-1]
        seconds = sum(r["seconds"] for r in trainer.history)
        console.print(
            f"after {record['epoch']} epochs ({seconds:.0f} s): training error {100 * record['error']:.2f} %, "
            f"[bold]test error {100 * record['test_error']:.2f} %[/] "
            f"(accuracy {100 - 100 * record['test_error']:.2f} %)",
            highlight=False,
        )
