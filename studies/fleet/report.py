"""A run as a table and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flipbit.runtime.errors import ArgumentError
from flipbit.runtime.files import replacing
from flipbit.runtime.tune.plot import pyplot
from flipbit.studies.fleet.lead import Round

HEAD = (">round", ">answered", ">refused", ">flips", ">bytes down", ">bytes up", ">loss", ">on devices", ">held back")


def cells(row: Round) -> tuple[object, ...]:
    n = max(row.samples, 1)
    held = f"{100 * row.accuracy:.2f} %" if row.accuracy is not None else "–"
    return (
        row.number + 1, f"{row.answered}/{row.asked}", row.refused, row.flips, f"{row.down:,}", f"{row.up:,}",
        f"{row.loss / n:.3f}", f"{100 * row.right / n:.1f} %", held,
    )  # fmt: skip


def plot(logs: dict[str, Any], path: Path) -> None:
    """Accuracy over rounds, and over bytes sent both ways, a line for each run."""
    plt = pyplot("--plot")
    figure, (left, right) = plt.subplots(1, 2, sharey=True, figsize=(9, 4))
    for name, log in logs.items():
        rows = [row for row in log["rounds"] if row["accuracy"] is not None]
        shares = [100 * log["before"], *(100 * row["accuracy"] for row in rows)] if rows else []
        sent = [0.0]
        for row in rows:
            sent.append(sent[-1] + row["down"] + row["up"])
        left.plot(range(len(shares)), shares, marker=".", label=name)
        right.plot(sent[1:], shares[1:], marker=".", label=name)
    left.set_xlabel("rounds")
    left.set_ylabel("accuracy, held back (%)")
    right.set_xlabel("bytes, all devices, both ways")
    right.set_xscale("log")
    left.legend()
    figure.tight_layout()
    try:
        with replacing(path) as temporary:
            figure.savefig(temporary, dpi=120)
    except ValueError as error:  # a suffix matplotlib does not write
        raise ArgumentError(f"--plot {path}: {error}") from None
    finally:
        plt.close(figure)
