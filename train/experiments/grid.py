"""A list of training runs, each in a folder of its own, that survives interruption.

A run is told by its settings. One that finished is not run again, one that was stopped goes on from its last epoch,
and two experiments that ask for the same settings share the run. Nothing else is remembered: delete the folder and
all is computed anew.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.train import loop
from flipbit.train.checkpoint import Checkpoint
from flipbit.train.experiments.rules import FewBitsTrainer, RuleSettings
from flipbit.train.experiments.scales import Scale, scale_of
from flipbit.train.experiments.sign_window import WINDOW, SignWindow
from flipbit.train.keras_larq import keras
from flipbit.train.run_folder import CHECKPOINT_FILE, RUN_FILE
from flipbit.train.settings import InputError, Settings
from flipbit.train.trainer import Trainer, Watcher

# Where the data lies and how many cores work on it make no other run (but for the last bits of sums).
NOT_COMPARED = ("data_dir", "threads")


@dataclass(frozen=True)
class Result:
    """A finished run: its settings, where it lies and what it measured, epoch by epoch."""

    settings: Settings
    folder: Path
    history: list[dict[str, Any]]
    described: dict[str, Any]  # run.json

    @property
    def state_bits(self) -> dict[str, int]:
        """Bits kept per quantized weight while training: weight, buffer, moments, total."""
        return dict(self.described["state_bits_per_weight"])

    @property
    def steps(self) -> int:
        """Updates the run made (with a batch that does not grow)."""
        return len(self.history) * -(-self.described["train_images"] // int(self.settings.batch or 1))

    @property
    def test_error(self) -> float:
        """After the last epoch, in %; not the best epoch, which would be chosen by looking at the test set."""
        return 100 * float(self.history[-1]["test_error"])

    @property
    def held_out_error(self) -> float:
        """Of a run that holds out training images: after the last epoch, in %, with what it simulated by then."""
        last = self.history[-1]
        return 100 * float(last.get("quantized_validation_error", last["validation_error"]))

    @property
    def epochs(self) -> list[int]:
        return [record["epoch"] for record in self.history]

    def percent(self, name: str) -> list[float]:
        """``error`` or ``test_error`` of each epoch, in %."""
        return [100 * record[name] for record in self.history]

    @property
    def layer_names(self) -> list[str]:
        return [layer["name"] for layer in self.history[0]["layers"]]

    def layer(self, number: int, name: str) -> list[float]:
        """A measure of one layer, epoch by epoch."""
        return [record["layers"][number][name] for record in self.history]

    @cached_property
    def layer_sizes(self) -> list[int]:
        return [signs.size for signs in Checkpoint.load(self.folder / CHECKPOINT_FILE).first_signs]

    def over_weights(self, name: str) -> list[float]:
        """A measure of the layers averaged over all quantized weights, epoch by epoch."""
        return [
            float(np.average([layer[name] for layer in record["layers"]], weights=self.layer_sizes))
            for record in self.history
        ]

    def window_changes(self) -> tuple[list[int], list[float]]:
        """Epochs, and the share of all weights (in %) whose sign differs from :data:`WINDOW` epochs before."""
        late = Result(self.settings, self.folder, self.history[WINDOW - 1 :], self.described)
        return late.epochs, [100 * v for v in late.over_weights("changed_in_window")]


class GridWatcher(Watcher):
    """Told what happens in a grid, and in the run at work. This one says nothing."""

    def grid_started(self, runs: int) -> None: ...

    def run_started(self, name: str, state: str) -> None:
        """``state`` is new, resumed or kept (finished before)."""

    def run_done(self, result: Result) -> None: ...

    def grid_finished(self) -> None: ...


@dataclass
class Runner:
    """Trains the runs of a grid under ``folder``.

    ``epochs`` and ``limit`` cut a scale short, for trials.
    """

    folder: Path
    data_dir: str | None = None
    threads: int = 0
    epochs: int | None = None
    limit: int | None = None
    watch: GridWatcher | None = None

    def scale(self, name: str) -> Scale:
        """The recipe of a scale, cut short where asked."""
        scale = scale_of(name)
        return replace(scale, epochs=self.epochs) if self.epochs else scale

    def run(self, cells: Sequence[Settings]) -> list[Result]:
        """Every cell finished, in the order given."""
        watch = self.watch or GridWatcher()
        watch.grid_started(len(cells))
        try:
            return [self._run(self.prepared(settings), watch) for settings in cells]
        finally:
            watch.grid_finished()

    def prepared(self, settings: Settings) -> Settings:
        """The cell as it will run here."""
        settings.data_dir, settings.threads = self.data_dir, self.threads
        if self.limit:
            settings.limit = self.limit
        return settings.resolve()

    def _run(self, settings: Settings, watch: GridWatcher) -> Result:
        name = cell_name(settings)
        folder = self.folder / name
        state = self._state(folder, settings)
        watch.run_started(name, state)
        if state != "kept":
            watchers = _All([SignWindow(folder), watch])
            kind = FewBitsTrainer if isinstance(settings, RuleSettings) else Trainer
            loop.train(settings, folder, watchers, resume=state == "resumed", trainer_class=kind)
            keras.backend.clear_session()  # graphs of former runs would pile up
        result = Result(settings, folder, _read(folder / "history.json"), _read(folder / RUN_FILE))
        watch.run_done(result)
        return result

    @staticmethod
    def _state(folder: Path, settings: Settings) -> str:
        """new, resumed or kept; refuses a folder that holds something else."""
        if not (folder / RUN_FILE).exists():
            return "new"
        saved = _read(folder / RUN_FILE)
        # A run from before a setting existed has what the setting's default does.
        theirs, ours = {**_as_json(Settings().resolve()), **saved.get("settings", {})}, _as_json(settings)
        differ = [n for n in sorted({*theirs, *ours} - {*NOT_COMPARED}) if theirs.get(n) != ours.get(n)]
        if differ:
            said = ", ".join(f"{n} {theirs.get(n)} there, {ours.get(n)} here" for n in differ[:3])
            raise InputError(f"{folder}: holds a run with other settings ({said}): choose another -o, or move it away")
        return "kept" if saved.get("status") == "finished" else "resumed"


def watched_error(record: dict[str, Any]) -> str:
    """What a run looks at after an epoch: the test images, or those held out."""
    name = "test" if "test_error" in record else "validation"
    return f"{name} error {100 * record[f'{name}_error']:.2f} %"


# What tells runs apart beside the things that a name always says, where it is not the default.
NAMED = (
    "holdout", "schedule", "momentum", "standardize", "estimator", "clip", "label_smoothing", "cutout", "mixup",
    "decay_on", "warmup", "activation_bits", "init_from", "teacher",
)  # fmt: skip


def _told(settings: Settings, name: str) -> bool:
    default = {"holdout": 0.0, "schedule": "steps" if settings.recipe == "paper" else "cosine"}
    return bool(getattr(settings, name) != default.get(name, getattr(Settings, name)))


def _named(value: Any) -> str:
    """A setting in a folder's name; of a file the folder it lies in."""
    return Path(value).parent.name if isinstance(value, str) and "/" in value else str(value)


def cell_name(settings: Settings) -> str:
    """A folder name that tells the runs of a grid apart."""
    s = settings
    parts = [s.name(), f"b{s.batch}", f"e{s.epochs}"]
    if s.weight_decay:
        parts.append(f"wd{s.weight_decay:g}")
    if s.init == "spread":
        parts.append("spread")
    if s.limit:
        parts.append(f"n{s.limit}")
    parts += [f"{name.replace('_', '-')}-{_named(getattr(s, name))}" for name in NAMED if _told(s, name)]
    if isinstance(s, RuleSettings):
        parts += [
            s.moves,
            s.normalize,
            f"f{s.pace:g}",
            f"c{s.cooling:g}",
            f"h{s.hysteresis}",
            f"p{s.parts}",
            f"g{s.grow}",
        ]
    return "-".join(parts)


class _All(Watcher):
    """Tells several watchers, in order: those that add to a record come before those that show it."""

    def __init__(self, watchers: list[Watcher]):
        self.watchers = watchers

    def started(self, trainer: Trainer) -> None:
        for watcher in self.watchers:
            watcher.started(trainer)

    def epoch_started(self, epoch: int) -> None:
        for watcher in self.watchers:
            watcher.epoch_started(epoch)

    def step(self, images: int, loss: float, counted: np.ndarray) -> None:
        for watcher in self.watchers:
            watcher.step(images, loss, counted)

    def epoch_done(self, record: dict[str, Any]) -> None:
        for watcher in self.watchers:
            watcher.epoch_done(record)

    def finished(self, trainer: Trainer) -> None:
        for watcher in self.watchers:
            watcher.finished(trainer)


def _as_json(settings: Settings) -> dict[str, Any]:
    return dict(json.loads(json.dumps(settings.to_json())))


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not readable ({error}); move its folder away to run it again") from None
