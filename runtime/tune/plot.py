"""A picture of tuning runs: accuracy and energy over time. Needs matplotlib."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from flipbit.runtime.errors import ArgumentError
from flipbit.runtime.files import replacing
from flipbit.runtime.tune.result import TuningResult


def pyplot(option: str) -> Any:
    """matplotlib's, without a window; ``option`` is what needs it."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        raise ArgumentError(f"{option} needs matplotlib: pip install matplotlib") from None
    return plt


def plot(results: list[TuningResult], path: Path) -> None:
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
