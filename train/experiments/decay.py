"""Figure 7: weight decay on BC.

Weight decay pulls the real-valued weights w_r towards zero, where their signs flip at a touch; the weights in
use, w_b = ±1, do not shrink at all. The mean of |w_b − w_r| tells: at 1 every w_r is zero.
"""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from flipbit.train.experiments.drawing import draw_errors, draw_layers, finish, table
from flipbit.train.experiments.grid import Runner
from flipbit.train.theory.outcome import Outcome, save_figure, size_of

DECAY = 1e-5
NETS = {"quick": "vgg-small", "small": "resnet8", "paper": "vgg-bc"}


def run(scale: str, runner: Runner, folder: Path, seed: int = 0) -> Outcome:
    """Train BC without and with weight decay, and measure |w_b − w_r| after each epoch."""
    recipe, net = runner.scale(scale), size_of(scale, NETS)
    without, decayed = runner.run(
        [recipe.settings("bc", seed, net=net), recipe.settings("bc", seed, net=net, weight_decay=DECAY)]
    )
    curves = {"0": without.over_weights("distance"), f"{DECAY:g}": decayed.over_weights("distance")}
    near, far = (curve[-1] for curve in curves.values())
    checks = {
        "the distance is larger with weight decay": far > near,
        "the test error is not better with weight decay": decayed.test_error >= without.test_error,
    }

    figure = Figure(figsize=(15, 4.5), layout="constrained")
    errors, left, right = figure.subplots(1, 3)
    for result, label, colour in ((without, "decay 0", "tab:blue"), (decayed, f"decay {DECAY:g}", "tab:red")):
        draw_errors(errors, result, label, colour)
    finish(errors, "training error (solid), test error (dashed)", "error, %")
    figure.suptitle(f"Weight decay on BC-ADAM, {net} on {recipe.data}")
    for axis, result, decay in ((left, decayed, f"{DECAY:g}"), (right, without, "0")):
        draw_layers(axis, result, "distance")
        axis.plot(result.epochs, curves[decay], "k--", label="all weights")
        finish(axis, f"mean |w_b − w_r|, weight decay {decay}", "distance", legend=axis is right, beside=True)
        axis.set_ylim(0, 1.05)

    return Outcome(
        name="decay",
        claim="With weight decay on BC, |w_b − w_r| is larger (towards 1) and the test error is not better.",
        held=all(checks.values()),
        summary=(
            f"{net} on {recipe.data}, decay 0 → {DECAY:g}: distance {near:.3f} → {far:.3f}, "
            f"test error {without.test_error:.2f} → {decayed.test_error:.2f} % after {recipe.epochs} epochs, one seed"
        ),
        numbers={
            "net": net, "data": recipe.data, "epochs": recipe.epochs, "checks": checks, "distance": curves,
            "test_error": {"0": without.percent("test_error"), f"{DECAY:g}": decayed.percent("test_error")},
            "table": table(
                ["weight decay", "mean |w_b − w_r|", "training error, %", "test error, %"],
                [[d, f"{curves[d][-1]:.3f}", f"{r.percent('error')[-1]:.2f}", f"{r.test_error:.2f}"]
                 for d, r in zip(curves, (without, decayed))],
            ),
        },
        figures=[save_figure(figure, folder / "decay.png")],
    )  # fmt: skip
