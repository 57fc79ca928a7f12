"""What a person at a terminal sees of a training run: a progress bar, a line an epoch, tables at the end.

All of it fits 80 columns: on a narrow terminal lines say the same in fewer words, and tables round their numbers.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from flipbit.runtime.shown import shown
from flipbit.train.report.confusion import PICTURE_FILE, Confusion
from flipbit.train.report.history import plot_history, watched, write_tensorboard
from flipbit.train.report.summary import layer_rows
from flipbit.train.run_folder import MODEL_FILE
from flipbit.train.trainer import Trainer, Watcher

WIDE = 110  # columns from which nothing is shortened
CLASSES_SHOWN = 20


class Terminal(Watcher):
    """Draws on ``console``: a moving bar on a terminal, plain lines elsewhere."""

    def __init__(self, folder: Path, console: Console, plot: bool = True, tensorboard: bool = True):
        self.folder, self.console, self.plot, self.tensorboard = folder, console, plot, tensorboard
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=28 if console.width >= WIDE else 12),
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
        held = f" + {trainer.validation.test_size} held out" if trainer.validation else ""
        rule = "" if s.buffer_rule == "core" else f", rule {s.buffer_rule}"
        growth = "" if s.batch_growth == 1 else f" to {s.batch_of(int(s.epochs or 1) - 1)}"
        self.console.print(
            f"[bold]{s.method}[/] ({s.optimizer}{rule}, lr {s.lr:g}, {s.schedule}, batch {s.batch}{growth}) "
            f"on {escape(shown(data.name))}: {data.train_size}{held} + {data.test_size} images of "
            f"{'×'.join(map(str, data.shape))}, "
            + (f"{len(data.classes)} classes" if data.values is None else _counted(data.outputs, "value") + " each")
        )
        self.console.print(
            f"{escape(s.net_name)}, width {s.width:g}: {trainer.model.count_params():,} parameters; training keeps "
            f"{bits['total']} bits per quantized weight ({bits['weight']} weight + {bits['buffer']} buffer + "
            f"{bits['moments']} moments)"
        )
        for note in data.notes:
            self.console.print(f"note: {shown(note)}", markup=False, highlight=False, soft_wrap=True)
        if trainer.teacher is not None:
            wrong = 100 * trainer.teacher.error(data)
            self.console.print(f"teacher: {wrong:.1f} % wrong on 1,000 augmented training images", highlight=False)
        done = len(trainer.history)
        if done:
            self.console.print(f"going on after epoch {done} of {s.epochs}")
        self.console.print(f"writing to {shown(self.folder)}", markup=False, highlight=False)
        self.progress.start()
        self.task = self.progress.add_task("", status="", total=1)

    def epoch_started(self, epoch: int) -> None:
        self.begin, self.seen, self.loss, self.counted = time.perf_counter(), 0, 0.0, np.zeros(())
        s, size = self.trainer.settings, self.trainer.data.train_size
        self.progress.update(
            self.task,
            total=int(s.epochs or 1) * size,
            completed=epoch * size,
            description=f"epoch {epoch + 1}/{s.epochs}",
        )

    def step(self, images: int, loss: float, counted: np.ndarray) -> None:
        self.seen, self.loss, self.counted = self.seen + images, self.loss + loss * images, self.counted + counted
        rate = self.seen / (time.perf_counter() - self.begin)
        found = self.trainer.measure.measured(self.counted, self.seen)
        error = f"error {100 * found['error']:5.2f} %" if "error" in found else f"RMSE {found['rmse']:.4g}"
        status = f"loss {self.loss / self.seen:.3f}  {error}  {rate:,.0f} images/s"
        self.progress.update(self.task, advance=images, status=status)

    def epoch_done(self, record: dict[str, Any]) -> None:
        bits = self.trainer.settings.activation_bits
        self.console.print(epoch_line(record, self.console.width, bits), highlight=False)
        if self.tensorboard:
            write_tensorboard(self.folder, record)

    def close(self) -> None:
        self.progress.stop()

    def finished(self, trainer: Trainer) -> None:
        self.close()
        confusion = trainer.confusion
        if self.plot and trainer.result:
            plot_history(self.folder / "curves.png", trainer.history, trainer.settings.name())
        if self.plot and confusion is not None:
            confusion.draw(self.folder / PICTURE_FILE, trainer.settings.name())
        print_summary(self.console, trainer)
        if confusion is not None:
            print_classes(self.console, confusion)
            print_result(self.console, trainer)
        elif trainer.result:
            print_values(self.console, trainer)
        self.console.print(
            f"model: {shown(self.folder / MODEL_FILE)}", style="bold", highlight=False, markup=False, soft_wrap=True
        )


def epoch_line(record: dict[str, Any], width: int, activation_bits: int | None = None) -> str:
    """One epoch in one line of at most ``width`` columns, 80 or more."""
    held = watched(record)
    if "rmse" in record:
        return _value_line(record, width, activation_bits)
    error, quantized = 100 * record[f"{held}_error"], record.get(f"quantized_{held}_error")
    flips = sum(layer["flips"] for layer in record["layers"])
    rounded = "" if quantized is None else f" ({100 * quantized:.2f} % in {activation_bits} bits)"
    line = (
        f"epoch {record['epoch']:3d}  loss {record['loss']:.4f}  error {100 * record['error']:5.2f} %  "
        f"{held} {error:5.2f} %{rounded}  {record['images_per_second']:,.0f} images/s"
    )
    line += f"  {flips:,} flips" if record["layers"] else ""
    if len(line) <= width:
        return line
    rounded = "" if quantized is None else f" ({activation_bits} bits {100 * quantized:.4g})"
    fields = [
        f"{record['epoch']:3d}",
        f"loss {record['loss']:.3g}",
        f"error {100 * record['error']:.3g} %",
        f"{held[:5]} {error:.4g} %{rounded}",
        f"{short(record['images_per_second'])}/s",
        *([f"{short(flips)} flips"] if record["layers"] else []),
    ]
    line = "  ".join(fields)
    return line if len(line) <= width else " ".join(fields)


def _value_line(record: dict[str, Any], width: int, activation_bits: int | None) -> str:
    """The same of a net that gives values."""
    held = watched(record)
    flips = sum(layer["flips"] for layer in record["layers"])
    quantized = record.get(f"quantized_{held}_rmse")
    fields = [
        f"epoch {record['epoch']:3d}",
        f"loss {record['loss']:.4f}",
        f"RMSE {record['rmse']:.4g}",
        f"{held} RMSE {record[f'{held}_rmse']:.4g}"
        + ("" if quantized is None else f" ({quantized:.4g} in {activation_bits} bits)"),
        f"MAE {record[f'{held}_mae']:.4g}",
        f"{short(record['images_per_second'])} images/s",
        *([f"{short(flips)} flips"] if record["layers"] else []),
    ]
    line = "  ".join(fields)
    return line if len(line) <= width else "  ".join(fields[:4])


def short(number: float) -> str:
    """Three digits and a letter: 36.9k, 2.36M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= 0.9995 * size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}" if number % 1 else f"{number:.0f}"


def print_summary(console: Console, trainer: Trainer) -> None:
    """Layers with their bits, bytes and multiply-accumulates."""
    wide = console.width >= WIDE
    count = (lambda n: f"{n:,}") if wide else short
    title = f"{escape(shown(trainer.settings.net_name))} on {escape(shown(trainer.data.name))}"
    table = Table(title=title, title_justify="left") if wide else _narrow_table(title)
    for name in ("layer", "kind", "output", "weights", "bits", "bytes", "MACs", "changed", "|w_b−w_r|"):
        heading = name if wide else {"|w_b−w_r|": "|b−r|"}.get(name, name)
        left = name in ("layer", "kind")
        table.add_column(heading, justify="left" if left else "right", overflow="fold", no_wrap=name != "layer")
    rows = layer_rows(trainer.model)
    last = {layer["name"]: layer for layer in trainer.history[-1]["layers"]} if trainer.history else {}
    for row in rows:
        change = last.get(row.name)
        table.add_row(
            escape(row.name), row.kind if wide else row.kind.removesuffix(" conv"), "×".join(map(str, row.output)),
            count(row.weights), str(row.bits), count(row.bytes), count(row.macs),
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


def print_classes(console: Console, confusion: Confusion) -> None:
    """The test images of each class; of many classes the worst."""
    order = [i for i in range(len(confusion.classes)) if confusion.images[i]]
    title = "test images"
    if len(order) > CLASSES_SHOWN:
        order = sorted(order, key=lambda i: confusion.accuracy(i) or 0.0)[:CLASSES_SHOWN]
        title = f"test images, the {CLASSES_SHOWN} worst of {len(confusion.classes)} classes"
    table = _narrow_table(title)
    for name in ("class", "images", "right", "accuracy", "most often taken for"):
        left = name in ("class", "most often taken for")
        table.add_column(name, justify="left" if left else "right", overflow="fold", no_wrap=not left)
    for i in order:
        other = confusion.taken_for(i)
        table.add_row(
            escape(shown(confusion.classes[i])), f"{confusion.images[i]:,}", f"{confusion.matrix[i, i]:,}",
            f"{100 * (confusion.accuracy(i) or 0.0):.1f} %", f"{escape(shown(other[0]))} ({other[1]})" if other else "",
        )  # fmt: skip
    console.print(table)


def print_result(console: Console, trainer: Trainer) -> None:
    """What the run reached, in one line."""
    result, epochs = trainer.result, len(trainer.history)
    kept = "" if result["epoch"] == epochs else f", of which epoch {result['epoch']} is kept"
    validation = f"validation error {100 * result['validation_error']:.2f} %, " if trainer.validation else ""
    console.print(
        f"after {epochs} epochs ({result['training_seconds']:.0f} s){kept}: "
        f"training error {100 * result['error']:.2f} %, {validation}"
        f"[bold]test error {100 * result['test_error']:.2f} %[/] "
        f"(accuracy {100 - 100 * result['test_error']:.2f} %)",
        highlight=False,
    )
    if "quantized_test_error" in result:
        error, bits = 100 * result["quantized_test_error"], trainer.settings.activation_bits
        console.print(f"with activations simulated in {bits} bits: test error {error:.2f} %", highlight=False)


def print_values(console: Console, trainer: Trainer) -> None:
    """What a run reached whose net gives values, in one line."""
    result, epochs = trainer.result, len(trainer.history)
    kept = "" if result["epoch"] == epochs else f", of which epoch {result['epoch']} is kept"
    validation = f"validation RMSE {result['validation_rmse']:.4g}, " if trainer.validation else ""
    explained = 100 * (1 - result["test_loss"])
    console.print(
        f"after {epochs} epochs ({result['training_seconds']:.0f} s){kept}: training RMSE {result['rmse']:.4g}, "
        f"{validation}[bold]test RMSE {result['test_rmse']:.4g}, MAE {result['test_mae']:.4g}[/] "
        f"({explained:.1f} % of the values' variance explained)",
        highlight=False,
    )
    if "quantized_test_rmse" in result:
        bits = trainer.settings.activation_bits
        console.print(
            f"with activations simulated in {bits} bits: test RMSE {result['quantized_test_rmse']:.4g}",
            highlight=False,
        )


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _narrow_table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
