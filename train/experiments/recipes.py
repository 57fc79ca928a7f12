"""What each recipe of ``train/run.py`` brings in a short run: one option changed at a time, one seed.

The errors are those of held-out training images after the last epoch: test images are not looked at. A short run
favours what learns fast; mixup, cutout, a sharpening estimator and a teacher are meant for long ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from flipbit.train.experiments.drawing import finish, table
from flipbit.train.experiments.grid import Result, Runner, cell_name
from flipbit.train.run_folder import MODEL_FILE
from flipbit.train.settings import Settings
from flipbit.train.theory.outcome import Outcome, save_figure, size_of

PLAIN = "none"
FLOAT = "full precision (--method adam)"
# These take the model of the run in full precision.
FROM_FLOAT = {"--init-from float.h5": "init_from", "--teacher float.h5": "teacher"}
SQUARES = {"quick": 2, "small": 8, "paper": 8}  # sides of --cutout: a quarter of the image

NETS = {"quick": "vgg-small", "small": "resnet8", "paper": "vgg9"}
BATCHES = {"quick": 64, "small": 128, "paper": 128}  # train/run.py's own
EPOCHS = {"quick": 4, "small": 8, "paper": 160}


def recipes(scale: str, epochs: int) -> dict[str, dict[str, Any]]:
    """The options, as one types them, and what they set."""
    square, simulated = size_of(scale, SQUARES), min(2, epochs)
    return {
        "--standardize": {"standardize": True},
        "--standardize --estimator ede": {"standardize": True, "estimator": "ede"},
        "--clip 0.5": {"clip": 0.5},
        "--clip 0": {"clip": 0.0},
        "--label-smoothing 0.1": {"label_smoothing": 0.1},
        f"--cutout {square}": {"cutout": square},
        "--mixup 0.2": {"mixup": 0.2},
        "--schedule restarts --restarts 2": {"schedule": "restarts", "restarts": 2},
        "--warmup 2": {"warmup": 2},
        "--optimizer sgd --momentum 0.9 --lr 0.1": {"optimizer": "sgd", "momentum": 0.9, "lr": 0.1},
        "--weight-decay 1e-4 --decay-on float": {"weight_decay": 1e-4, "decay_on": "float"},
        f"--activation-bits 8 --activation-epochs {simulated}": {"activation_bits": 8, "activation_epochs": simulated},
    }


def run(scale: str, runner: Runner, folder: Path, seed: int = 0) -> Outcome:
    """Train BC plainly, in full precision, and with one recipe at a time."""
    recipe, epochs = runner.scale(scale), runner.epochs or size_of(scale, EPOCHS)

    def cell(method: str = "bc", **more: Any) -> Settings:
        common: dict[str, Any] = {"net": size_of(scale, NETS), "batch": size_of(scale, BATCHES), "epochs": epochs}
        return recipe.settings(method, seed, holdout=0.1, keep="last", **common, **more)

    (in_float,) = runner.run([cell("adam")])
    trained = str(in_float.folder / MODEL_FILE)
    options = {**recipes(scale, epochs), **{name: {setting: trained} for name, setting in FROM_FLOAT.items()}}
    names = [PLAIN, *options]
    results = dict(zip(names, runner.run([cell(**options.get(name, {})) for name in names])))
    error = {name: result.held_out_error for name, result in {**results, FLOAT: in_float}.items()}
    gain = {name: error[PLAIN] - error[name] for name in options}
    ordered = sorted(options, key=lambda name: -gain[name])

    return Outcome(
        name="recipes",
        claim="Each recipe lowers the held-out error of a short run.",
        held=all(value > 0 for value in gain.values()),
        summary=(
            f"{in_float.settings.net} on {recipe.data}, {epochs} epochs, one seed: {error[PLAIN]:.2f} % without any, "
            f"{error[FLOAT]:.2f} % in full precision; best {ordered[0]} ({error[ordered[0]]:.2f} %), "
            f"worst {ordered[-1]} ({error[ordered[-1]]:.2f} %)"
        ),
        numbers={
            "net": in_float.settings.net, "data": recipe.data, "epochs": epochs,
            "checks": {name: gain[name] > 0 for name in ordered},
            "held_out_error": error, "runs": {name: cell_name(result.settings) for name, result in results.items()},
            "table": table(
                ["recipe", "training error, %", "held-out error, %", "against none, points"],
                [_row(name, result, error) for name, result in
                 [(FLOAT, in_float), (PLAIN, results[PLAIN]), *((name, results[name]) for name in ordered)]],
            ),
        },
        figures=[_draw(folder / "recipes.png", ordered, gain)],
    )  # fmt: skip


def _row(name: str, result: Result, error: dict[str, float]) -> list[str]:
    apart = "" if name == PLAIN else f"{error[name] - error[PLAIN]:+.2f}"
    return [name, f"{result.percent('error')[-1]:.2f}", f"{error[name]:.2f}", apart]


def _draw(path: Path, names: list[str], gain: dict[str, float]) -> Path:
    figure = Figure(figsize=(8, 1 + 0.3 * len(names)), layout="constrained")
    axis = figure.subplots()
    axis.barh(names, [gain[name] for name in names], color=["tab:green" if gain[n] > 0 else "tab:red" for n in names])
    axis.invert_yaxis()
    finish(axis, "what each recipe brings in a short run", "", "points of held-out error less", legend=False)
    axis.set_ylim(len(names) - 0.5, -0.5)
    return save_figure(figure, path)
