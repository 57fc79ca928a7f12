"""Training from the first epoch to the last: what is loaded, who works on it, what is saved after each epoch."""

from __future__ import annotations

import hashlib
import logging
import os
from contextlib import nullcontext
from importlib import metadata
from pathlib import Path

from flipbit.train.bits.precision import in_hardware
from flipbit.train.data import batches as data_sets
from flipbit.train.data.splits import hold_out, refuse_if_it_saw_held_out
from flipbit.train.keras_larq import tf
from flipbit.train.measures import refuse_for_values
from flipbit.train.nets.model_file import save_model
from flipbit.train.nets.networks import NETWORKS
from flipbit.train.report.history import write_history
from flipbit.train.run_folder import CHECKPOINT_FILE, MODEL_FILE, files_of, finish, kept_epoch, open_run
from flipbit.train.settings import InputError, Settings
from flipbit.train.teacher import load_teacher
from flipbit.train.trainer import Trainer, Watcher
from flipbit.train.workers.cluster import Cluster
from flipbit.train.workers.meeting import WAIT, Facts, meet
from flipbit.train.workers.replicas import Replicas

# Settings that may differ between workers: what they name is compared by its content.
OWN = ("data", "data_dir", "threads", "teacher", "init_from")


def train(
    settings: Settings,
    folder: Path,
    watch: Watcher | None = None,
    resume: bool = False,
    trainer_class: type[Trainer] = Trainer,
    cluster: Cluster | None = None,
    wait: float = WAIT,
) -> Trainer:
    """Run ``settings`` to the end in ``folder``, saving after each epoch; with ``resume``, go on from what is there.

    With more epochs than ``run.json`` says, a resumed run is extended. In a ``cluster`` this is one of its workers,
    which waits for the others; the chief alone reads and writes ``folder`` and is watched.
    """
    watch = watch or Watcher()
    settings.resolve()
    _use_threads(settings.threads or (max(1, cores() // cluster.neighbours) if cluster else 0))
    if settings.precision == "bfloat16" and not in_hardware():
        logging.getLogger(__name__).warning("this CPU has no bfloat16: --precision float32 is faster here")
    data = data_sets.load(settings.data, settings.data_dir, settings.augment, settings.image_size, settings.limit)
    if data.values is None:
        data_sets.require_classes(data)
    else:
        refuse_for_values(settings)
    validation = None
    if settings.holdout:
        data, validation = hold_out(data, settings.holdout)
    mean = data.mean_image() if settings.input == "mean" else None
    for option, path in (("--teacher", settings.teacher), ("--init-from", settings.init_from)):
        if path:
            refuse_if_it_saw_held_out(Path(path), option, settings)
    if cluster is not None:
        meet(cluster, facts(settings, data, validation), wait)
    replicas = Replicas.of(cluster) if cluster is not None or trainer_class is Trainer else None
    if replicas is not None and settings.teacher_epochs:
        raise InputError("--teacher-epochs keeps the answers of one worker: with several workers or GPUs leave it out")
    teacher = load_teacher(Path(settings.teacher), data) if settings.teacher else None
    trainer = trainer_class(settings, data, mean, validation, teacher, **({"replicas": replicas} if replicas else {}))
    with replicas.or_lost() if replicas else nullcontext():
        _train(trainer, folder, watch if cluster is None or cluster.chief else Watcher(), resume)
    return trainer


def _train(trainer: Trainer, folder: Path, watch: Watcher, resume: bool) -> None:
    settings, replicas = trainer.settings, trainer.replicas
    writes = replicas is None or replicas.chief
    if writes:
        open_run(trainer, folder, resume)
    trainer.start_as_chief()
    watch.started(trainer)
    while len(trainer.history) < int(settings.epochs or 0):
        trainer.run_epoch(watch)
        trainer.check_integrity()
        trainer.assert_same_weights()
        if not writes:
            continue
        # The model before the checkpoint: a run that stops between the two makes this epoch again, and with it both.
        if settings.keep == "last" or kept_epoch(settings, trainer.history) == len(trainer.history):
            save_model(trainer.model, folder / MODEL_FILE, half=settings.model_file == "float16")
        trainer.checkpoint().save(folder / CHECKPOINT_FILE)
        write_history(folder, trainer.history)
    if trainer.history and writes:
        finish(trainer, folder)
    if replicas is not None:
        replicas.wait()  # for the chief: whoever leaves earlier looks lost
    watch.finished(trainer)


def facts(settings: Settings, data: data_sets.DataSet, validation: data_sets.DataSet | None) -> Facts:
    """What all workers of a run must agree on, in words for a message."""
    found = {
        "--" + name.replace("_", "-"): str(value)
        for name, value in settings.to_json().items()
        if name not in OWN and not (name == "net" and value not in NETWORKS)
    }
    for name, digest in files_of(settings).items():
        found[f"the file of --{name}"] = digest[:12]
    if settings.init_from:
        content = Path(settings.init_from).read_bytes()
        found["the file of --init-from"] = hashlib.sha256(content).hexdigest()[:12]
    found["--data"] = f"{data.name} ({data.digest()[:12]})"
    if validation is not None:
        found["validation images"] = validation.digest()[:12]
    found["flipbit"] = metadata.version("flipbit")
    return found | {package: metadata.version(package) for package in ("tensorflow", "tf-keras", "larq")}


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _use_threads(count: int) -> None:
    if not count or count == tf.config.threading.get_intra_op_parallelism_threads():
        return
    try:
        tf.config.threading.set_intra_op_parallelism_threads(count)
    except RuntimeError:  # TensorFlow fixes it with its first computation, as when a program trains twice
        logging.getLogger(__name__).warning("TensorFlow is running already: it stays at the threads it has")
