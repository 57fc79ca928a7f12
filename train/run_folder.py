"""The folder of a run: ``run.json``, the epoch that is kept, what a resumed run is checked against, the result."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.runtime.files import write_json
from flipbit.train.checkpoint import Checkpoint
from flipbit.train.nets.model_file import load_model
from flipbit.train.nets.networks import NETWORKS
from flipbit.train.nets.own_net import net_file
from flipbit.train.settings import InputError, Settings
from flipbit.train.trainer import Trainer

MOST_LISTED = 100  # values whose errors run.json lists one by one
ALONE = {"processes": 1, "replicas": 1}  # what run.json says of workers where it says nothing
RUN_FILE, CHECKPOINT_FILE, MODEL_FILE, MEAN_FILE = "run.json", "checkpoint.npz", "model.h5", "input_mean.npy"


def open_run(trainer: Trainer, folder: Path, resume: bool) -> None:
    """Begin a run in ``folder``, or take up the one that is there."""
    settings = trainer.settings
    folder.mkdir(parents=True, exist_ok=True)
    if resume and (folder / CHECKPOINT_FILE).exists():
        trainer.restore(Checkpoint.load(folder / CHECKPOINT_FILE))
    elif settings.init_from:
        trainer.start_from(load_model(settings.init_from), Path(settings.init_from))
    if trainer.mean is not None:
        np.save(folder / MEAN_FILE, trainer.mean)
    if resume and (folder / RUN_FILE).exists():
        _continue(folder / RUN_FILE, trainer)
    else:
        write_json(folder / RUN_FILE, describe(trainer, started=_now()))


def kept_epoch(settings: Settings, history: list[dict[str, Any]]) -> int:
    """The epoch whose weights ``model.h5`` holds, counted from 1.

    With ``--keep best`` that of the smallest validation error (of values, its root mean square), the first of equals.
    Where activations are simulated, it is one of the epochs that did so, by its error in that many bits.
    """
    if settings.keep != "best":
        return len(history)
    names = [f"{how}validation_{figure}" for how in ("quantized_", "") for figure in ("error", "rmse")]
    name = next(name for name in names if any(name in record for record in history))
    best = min((record for record in history if name in record), key=lambda record: record[name])
    return int(best["epoch"])


def finish(trainer: Trainer, folder: Path) -> None:
    """Take the weights that are kept, look at the test images, and write what came out."""
    settings, history = trainer.settings, trainer.history
    epoch = kept_epoch(settings, history)
    if epoch != len(history):
        trainer.model.set_weights(load_model(folder / MODEL_FILE).get_weights())
    result = {k: v for k, v in history[epoch - 1].items() if k != "layers"}
    if trainer.validation is not None:
        result |= {f"test_{figure}": value for figure, value in trainer.test(alone=True).items()}
        if trainer.simulation is not None and settings.simulates(epoch - 1):
            found = trainer.test_simulated(trainer.data, alone=True)
            result |= {f"quantized_test_{figure}": value for figure, value in found.items()}
    result["training_seconds"] = sum(record["seconds"] for record in history)
    trainer.result = result
    if trainer.data.values is None:
        trainer.confusion = trainer.confuse()
        trainer.confusion.save(folder)
    elif trainer.data.outputs <= MOST_LISTED:
        result |= {f"test_{figure}": values for figure, values in trainer.errors_of_each().items()}
    saved = json.loads((folder / RUN_FILE).read_text())
    saved["status"], saved["finished"] = "finished", saved.get("finished") or _now()
    saved["result"] = result
    write_json(folder / RUN_FILE, saved)


def _continue(path: Path, trainer: Trainer) -> None:
    """Check a resumed run against its ``run.json``, and note there when it is extended."""
    saved, epochs, done = json.loads(path.read_text()), int(trainer.settings.epochs or 0), len(trainer.history)
    if saved.get("status") == "finished" and not done:
        raise InputError(
            f"{path.parent}: a finished run without its {CHECKPOINT_FILE} cannot go on; to train its model further, "
            f"start another run with --init-from {path.with_name(MODEL_FILE)}"
        )
    for name, digest in saved.get("files", {}).items():
        if digest != files_of(trainer.settings).get(name):
            raise InputError(f"--{name} {getattr(trainer.settings, name)}: the file has changed since the run began")
    if epochs < done:
        raise InputError(f"--epochs {epochs}: the run has done {done} epochs already")
    if epochs != saved["settings"]["epochs"]:
        note = {"after_epoch": done, "from": saved["settings"]["epochs"], "to": epochs, "at": _now()}
        saved["settings"]["epochs"], saved["status"] = epochs, "running"
        saved["extended"] = [*saved.get("extended", []), note]
        saved.pop("finished", None)
        write_json(path, saved)
    before, now = saved.get("workers", []), _workers(trainer)
    if now != {k: v for k, v in (before[-1] if before else ALONE).items() if k != "from_epoch"}:
        saved["workers"] = [*before, {"from_epoch": done + 1, **now}]
        write_json(path, saved)


def _workers(trainer: Trainer) -> dict[str, int]:
    replicas = trainer.replicas
    return {"processes": replicas.processes, "replicas": replicas.count} if replicas else ALONE


def files_of(settings: Settings) -> dict[str, str]:
    """Digests of the files every epoch depends on, beside the data."""
    paths = {"teacher": Path(settings.teacher)} if settings.teacher else {}
    if settings.net not in NETWORKS:
        paths["net"] = net_file(str(settings.net))
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in paths.items()}


def describe(trainer: Trainer, started: str) -> dict[str, Any]:
    """The content of ``run.json``: enough to run it again and to use the model."""
    packages = ("numpy", "tensorflow", "tf-keras", "larq")
    return {
        "flipbit": metadata.version("flipbit"),
        "status": "running",
        "command": " ".join(["python", *sys.argv]),
        "commit": _commit(),
        "started": started,
        "settings": trainer.settings.to_json(),
        "classes": trainer.data.classes,
        **({} if trainer.data.values is None else {"output": "values", "output_shape": list(trainer.data.values)}),
        "image_shape": list(trainer.data.shape),
        "input": {
            "formula": "(pixel - 128) / 128" if trainer.mean is None else f"(pixel - {MEAN_FILE}) / 128",
            "scale": 1 / 128,
            "offset": 128 if trainer.mean is None else MEAN_FILE,
            **_front_end(trainer),
        },
        "state_bits_per_weight": trainer.state_bits(),
        "files": files_of(trainer.settings),
        **({"workers": [{"from_epoch": 1, **_workers(trainer)}]} if trainer.replicas else {}),
        "train_images": trainer.data.train_size,
        "validation_images": trainer.validation.test_size if trainer.validation else 0,
        "test_images": trainer.data.test_size,
        "versions": {"python": platform.python_version(), **{p: metadata.version(p) for p in packages}},
        "machine": {"cpu": _cpu(), "cores": os.cpu_count(), "system": platform.platform()},
    }


def _front_end(trainer: Trainer) -> dict[str, Any]:
    """How recordings became the images, where the data are recordings."""
    front_end = getattr(trainer.data, "front_end", None)
    return {} if front_end is None else {"front_end": front_end.to_json()}


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _commit() -> str | None:
    try:
        here = Path(__file__).resolve().parent
        done = subprocess.run(["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12"],
                              capture_output=True, text=True, timeout=5)  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
