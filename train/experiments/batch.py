"""Figure 5: a bigger batch makes SR greedier.

SR moves at random in proportion to a noisy gradient. Averaging over a bigger batch leaves the mean and shrinks the
noise, so that more of the moves go downhill: fewer weights change, and the error falls. BC needs no such help.

At equal epochs a batch eight times as big takes an eighth of the steps, so two things change at once. The runs at
**equal steps** hold the number of steps instead: each batch gets as many epochs as it takes.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from matplotlib import colormaps
from matplotlib.figure import Figure

from flipbit.train.experiments.drawing import draw_errors, finish, table
from flipbit.train.experiments.grid import Result, Runner
from flipbit.train.experiments.sign_window import WINDOW
from flipbit.train.theory.outcome import Outcome, save_figure, size_of

NETS = {"quick": "vgg-small", "small": "resnet8", "paper": "resnet56"}

BATCHES = 4  # from the scale's batch, doubling to its big batch: 128, 256, 512, 1024 in the paper


def run(scale: str, runner: Runner, folder: Path, seed: int = 0) -> Outcome:
    """SR at every batch size and BC at the smallest and biggest, at equal epochs; then SR at equal steps."""
    recipe, net = runner.scale(scale), size_of(scale, NETS)
    batches = [recipe.batch * 2**i for i in range(BATCHES)]
    small, big = batches[0], batches[-1]
    plan = [("SR", b) for b in batches] + [("BC", b) for b in (small, big)]
    cells = [recipe.settings(method.lower(), seed, net=net, batch=b) for method, b in plan]
    # As many steps as the biggest batch takes.
    equal = [
        recipe.settings("sr", seed, net=net, batch=b, epochs=max(1, round(recipe.epochs * b / big))) for b in batches
    ]
    results = runner.run(cells + equal)
    runs = dict(zip(plan, results))
    at_equal_steps = dict(zip(batches, results[len(plan) :]))

    changed = {key: 100 * r.over_weights("changed_since_start")[-1] for key, r in runs.items()}
    error = {key: r.test_error for key, r in runs.items()}
    checks = {
        "the bigger SR's batch, the lower its error": all(
            error["SR", a] > error["SR", b] for a, b in pairwise(batches)
        ),
        "SR does better with the biggest batch than with the smallest": error["SR", big] < error["SR", small],
        "BC does better with the smallest batch than with the biggest": error["BC", small] < error["BC", big],
        "big batches change fewer weights, SR": changed["SR", big] < changed["SR", small],
        "big batches change fewer weights, BC": changed["BC", big] < changed["BC", small],
        "at equal steps SR does better with the biggest batch": (
            at_equal_steps[big].test_error < at_equal_steps[small].test_error
        ),
    }
    return Outcome(
        name="batch",
        claim="A big batch lowers SR's error and makes it change fewer weights; BC does best with a small one.",
        held=all(v for k, v in checks.items() if not k.startswith(("the bigger", "at equal"))),
        summary=(
            f"{net} on {recipe.data}, {recipe.epochs} epochs, batch {small} → {big}: "
            f"SR {error['SR', small]:.2f} → {error['SR', big]:.2f} %, BC {error['BC', small]:.2f} → "
            f"{error['BC', big]:.2f} %; SR changes {changed['SR', small]:.1f} → {changed['SR', big]:.1f} % "
            "of the weights. "
            f"The big batch takes {runs['SR', big].steps} steps, the small one {runs['SR', small].steps}; "
            f"in {at_equal_steps[small].steps} steps the small one gives {at_equal_steps[small].test_error:.2f} %"
        ),
        numbers={
            "net": net, "data": recipe.data, "epochs": recipe.epochs, "checks": checks, "window": WINDOW,
            "runs": [_numbers(method, b, r) for (method, b), r in runs.items()],
            "equal_steps": [_numbers("SR", b, r) for b, r in at_equal_steps.items()],
            "table": table(
                ["method", "batch", "epochs", "steps", "training error, %", "test error, %", "changed, %"],
                [
                    [n["method"], n["batch"], n["epochs"], n["steps"], f"{n['error'][-1]:.2f}",
                     f"{n['test_error'][-1]:.2f}", f"{n['changed_since_start'][-1]:.1f}"]
                    for n in (
                        *(_numbers(method, b, r) for (method, b), r in runs.items()),
                        *(_numbers("SR, equal steps", b, r) for b, r in at_equal_steps.items()),
                    )
                ],
            ),
        },
        figures=[_draw(folder / "batch.png", runs, at_equal_steps, f"{net} on {recipe.data}")],
    )  # fmt: skip


def _numbers(method: str, batch: int, result: Result) -> dict[str, Any]:
    window_epochs, window = result.window_changes()
    return {
        "method": method, "batch": batch, "epochs": len(result.history), "steps": result.steps,
        "error": result.percent("error"), "test_error": result.percent("test_error"),
        "changed_since_start": [100 * v for v in result.over_weights("changed_since_start")],
        "window_epochs": window_epochs, "changed_in_window": window,
    }  # fmt: skip


def _draw(path: Path, runs: dict[tuple[str, int], Result], equal: dict[int, Result], where: str) -> Path:
    """Figure 5 (a), (b) and (c), and a fourth panel at equal steps."""
    figure = Figure(figsize=(14, 9), layout="constrained")
    ((errors, since), (window, steps)) = figure.subplots(2, 2)
    shades = {batch: 0.35 + 0.65 * i / (len(equal) - 1) for i, batch in enumerate(equal)}
    for (method, batch), result in runs.items():
        colour = colormaps["Oranges" if method == "SR" else "Blues"](shades[batch])
        label = f"{method}, batch {batch}"
        draw_errors(errors, result, label, colour)
        since.plot(
            result.epochs, [100 * v for v in result.over_weights("changed_since_start")], color=colour, label=label
        )
        window.plot(*result.window_changes(), ".-", color=colour, label=label)
    for batch, result in equal.items():
        colour, each = colormaps["Oranges"](shades[batch]), result.steps / len(result.history)
        at = [each * epoch for epoch in result.epochs]
        steps.plot(
            at, result.percent("test_error"), ".--", color=colour, label=f"batch {batch}: {result.test_error:.1f}"
        )
    finish(errors, "(a) training error (solid), test error (dashed)", "error, %", columns=2)
    finish(since, "(b) weights changed since the start", "% of weights")
    finish(window, f"(c) weights changed in the last {WINDOW} epochs", "% of weights")
    finish(steps, "SR at equal steps, each with its own schedule: test error", "error, %", "step")
    figure.suptitle(f"Batch size, {where}. At equal epochs, (a) to (c), a bigger batch takes fewer steps.")
    return save_figure(figure, path)
