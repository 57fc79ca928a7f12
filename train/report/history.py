"""What a run measured, as files: JSON and CSV, TensorBoard, and a picture of curves."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from flipbit.runtime.files import replacing, write_json, write_text
from flipbit.runtime.shown import drawn

WATCHED = ("test", "validation")  # a run tells either, epoch by epoch
FIGURES = ("error", "rmse", "mae")  # the first for classes, the others for values
EPOCH_COLUMNS = (
    "epoch", "lr", "loss", *FIGURES, *(f"{w}_{v}" for w in WATCHED for v in ("loss", *FIGURES)),
    *(f"quantized_{w}_{v}" for w in WATCHED for v in FIGURES), "images_per_second", "seconds",
)  # fmt: skip
LAYER_COLUMNS = ("name", "changed_since_start", "changed_this_epoch", "flips", "distance")


def write_history(folder: Path, history: list[dict[str, Any]]) -> None:
    """``history.json`` (all), ``history.csv`` (a row an epoch) and ``layers.csv`` (a row an epoch and layer)."""
    write_json(folder / "history.json", history)
    columns = tuple(c for c in EPOCH_COLUMNS if any(c in r for r in history))
    write_text(folder / "history.csv", _csv(columns, [[r.get(c, "") for c in columns] for r in history]))
    rows = [[r["epoch"], *(layer[c] for c in LAYER_COLUMNS)] for r in history for layer in r["layers"]]
    write_text(folder / "layers.csv", _csv(("epoch", *LAYER_COLUMNS), rows))


def watched(record: dict[str, Any]) -> str:
    """Whose error a run tells after each epoch: test or validation."""
    return next(w for w in WATCHED if f"{w}_loss" in record)


def _csv(columns: tuple[str, ...], rows: list[list[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


def write_tensorboard(folder: Path, record: dict[str, Any]) -> None:
    """Append one epoch to the event files in ``folder/tensorboard``."""
    from flipbit.train.keras_larq import tf

    try:
        writer = tf.summary.create_file_writer(str(folder / "tensorboard"))
        with writer.as_default(step=record["epoch"]):
            for name in EPOCH_COLUMNS[1:]:
                if name in record:
                    tf.summary.scalar(name, record[name])
            for layer in record["layers"]:
                for name in LAYER_COLUMNS[1:]:
                    tf.summary.scalar(f"{name}/{layer['name']}", layer[name])
        writer.close()
    except tf.errors.OpError as error:  # TensorFlow's word for a full disk
        raise OSError(error.message) from None


def plot_history(path: Path, history: list[dict[str, Any]], title: str) -> None:
    """Error (of values, its root mean square) and loss; and, for quantized nets, how the bits of each layer moved."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    layers = [layer["name"] for layer in history[0]["layers"]]
    rows = 2 if layers else 1
    figure, axes = pyplot.subplots(rows, 2, figsize=(11, 4 * rows), squeeze=False, layout="constrained")
    epochs = [record["epoch"] for record in history]
    held = watched(history[-1])
    last = history[-1]
    classes = "error" in last
    figure_name, percent = ("error", 100) if classes else ("rmse", 1)
    for name, style, label in ((figure_name, "-", "training"), (f"{held}_{figure_name}", "--", held)):
        axes[0][0].plot(epochs, [percent * record[name] for record in history], style, label=label)
    for name, style, label in (("loss", "-", "training"), (f"{held}_loss", "--", held)):
        axes[0][1].plot(epochs, [record[name] for record in history], style, label=label)
    if classes:
        reached, axis_name = f"{100 * last[f'{held}_error']:.2f} % {held} error", "error, %"
    else:
        reached, axis_name = f"{held} RMSE {last[f'{held}_rmse']:.4g}", "root mean square of the errors"
    axes[0][0].set(title=f"{drawn(title)}: {reached}", ylabel=axis_name, ylim=(0, None))
    axes[0][1].set(
        title="loss", ylabel="cross-entropy, nats" if classes else "squared error / variance", ylim=(0, None)
    )
    if layers:
        colours = pyplot.cm.viridis([i / max(1, len(layers) - 1) for i in range(len(layers))])
        for i, colour in enumerate(colours):
            since = [100 * record["layers"][i]["changed_since_start"] for record in history]
            during = [100 * record["layers"][i]["changed_this_epoch"] for record in history]
            shown = layers[i] if len(layers) <= 12 or i in (0, len(layers) - 1) else None
            axes[1][0].plot(epochs, since, color=colour, label=shown)
            axes[1][1].plot(epochs, during, color=colour, label=shown)
        axes[1][0].set(title="signs changed since the start", ylabel="% of weights", ylim=(0, None))
        axes[1][1].set(title="signs changed in each epoch", ylabel="% of weights", ylim=(0, None))
    for axis in axes.flat:
        axis.set_xlabel("epoch")
        axis.grid(alpha=0.3)
        axis.legend(fontsize="small", ncols=2 if axis in axes[1:].flat else 1)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=110)
    pyplot.close(figure)
