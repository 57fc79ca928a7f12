"""Training: epochs of steps, what is watched, what is saved."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.runtime.files import write_json
from flipbit.train import stopping
from flipbit.train.answers import Answers
from flipbit.train.bits.activations import SimulatedActivations
from flipbit.train.bits.few_bits import FewBits
from flipbit.train.bits.optimizers import core, quantized, state_bits
from flipbit.train.bits.quantizers import Grid, Sharpness, standardized
from flipbit.train.checkpoint import Checkpoint
from flipbit.train.data import batches as data_sets
from flipbit.train.data import mixing
from flipbit.train.data.splits import hold_out, refuse_if_it_saw_held_out
from flipbit.train.keras_larq import keras, tf
from flipbit.train.losses import distillation, soft_targets
from flipbit.train.nets.model_file import load_model, save_model
from flipbit.train.nets.networks import NETWORKS, Layers, build, quantized_layers
from flipbit.train.nets.own_net import build_own, net_file
from flipbit.train.nets.start_from import copy_weights
from flipbit.train.report.confusion import Confusion
from flipbit.train.report.history import write_history
from flipbit.train.settings import InputError, Settings
from flipbit.train.teacher import Teacher, load_teacher

SETTLE_IMAGES = 2560  # that BatchNorm's statistics are taken from after each epoch
SETTLE_STREAM = 1_000_000  # added to the epoch for their order, apart from the training batches'
CALIBRATION_IMAGES = 500  # for the ranges of simulated activations, as many as export takes
RUN_FILE, CHECKPOINT_FILE, MODEL_FILE, MEAN_FILE = "run.json", "checkpoint.npz", "model.h5", "input_mean.npy"


class Watcher:
    """Told what happens in a run. This one says nothing; :mod:`flipbit.train.report.console` has one that draws."""

    def started(self, trainer: Trainer) -> None: ...

    def epoch_started(self, epoch: int) -> None: ...

    def step(self, images: int, loss: float, wrong: int) -> None: ...

    def epoch_done(self, record: dict[str, Any]) -> None: ...

    def finished(self, trainer: Trainer) -> None: ...


class Trainer:
    """A net, its optimizer and its data set, ready to run epochs."""

    def __init__(
        self,
        settings: Settings,
        data: data_sets.DataSet,
        mean: np.ndarray | None = None,
        validation: data_sets.DataSet | None = None,
        teacher: Teacher | None = None,
    ):
        self.settings = settings
        self.data = data
        self.mean = mean
        self.validation = validation
        self.teacher = teacher
        self.answers = Answers(teacher, data, settings.seed) if teacher and settings.teacher_epochs else None
        # The same bits on every run: no atomics in reductions, a fixed order in threads.
        tf.config.experimental.enable_op_determinism()
        keras.utils.set_random_seed(settings.seed)
        self.model = (build if settings.net in NETWORKS else build_own)(
            str(settings.net),
            data.shape,
            len(data.classes),
            Layers(
                seed=settings.seed,
                width=settings.width,
                quantize="none" if settings.method == "adam" else settings.quantize,
                bits=settings.bits,
                delta=float(settings.delta or 1.0),
                scale=settings.scale,
                forward=settings.forward,
                standardize=settings.standardize,
            ),
        )
        self.layers = quantized_layers(self.model)
        self.kernels = [layer.kernel for layer in self.layers]
        self.sharpness = Sharpness() if settings.estimator == "ede" else None
        for layer in self.layers:
            layer.kernel_quantizer.sharpness = self.sharpness
        bits = settings.activation_bits
        self.simulation = SimulatedActivations(self.model, bits) if bits else None
        self.optimizer = self._optimizer()
        self.first_signs = self.signs()
        self.history: list[dict[str, Any]] = []
        self.result: dict[str, Any] = {}  # of a finished run, as in run.json
        self.confusion: Confusion | None = None  # of a finished run, on the test images
        image = tf.TensorSpec((None, *data.shape), tf.uint8)
        label = tf.TensorSpec((None,), tf.int64)
        self._batch = [image, label]
        if self.answers is not None:
            self._batch.append(tf.TensorSpec((None, len(data.classes)), tf.float16))
        self._train_step = tf.function(self._train_step_eager, input_signature=self._batch)
        self._test_step = tf.function(self._test_step_eager, input_signature=[image, label])
        self._answer_step = tf.function(
            lambda x: tf.argmax(self.model(self.normalize(x), training=False), 1), input_signature=[image]
        )
        self._share = tf.Variable(0.0, trainable=False)
        self._settle_step = self._traced_settle_step(image)
        self._simulated: tuple[Any, Any, Any] | None = None

    def _optimizer(self) -> Any:
        s = self.settings
        chosen: dict[str, Any] = {
            "grid": Grid.of(s.bits, float(s.delta or 1.0)),
            "buffer_bits": s.buffer_bits or 0,
            "seed": s.seed,
            "weight_decay_l2": s.weight_decay,
            "decay_kernels": s.decay_on == "all",
            "kernels": self.kernels,
        }
        if s.buffer_rule == "mean":
            optimizer: Any = FewBits(learning_rate=s.lr, rule="buffer", moves="linear", pace=s.pace, **chosen)
        else:
            core_class, core_settings = core(s.optimizer, s.learning_rate(0), s.momentum)
            rule = "bc" if s.method == "adam" else s.rule  # with no kernels to quantize, the rule is idle
            before_sign = standardized if s.standardize else None
            chosen |= {"rule": rule, "clip": s.clip, "before_sign": before_sign}
            optimizer = quantized(core_class, **chosen, **core_settings)
        optimizer.build(self.model.trainable_variables)
        self._start(optimizer)
        return optimizer

    def _start(self, optimizer: Any) -> None:
        """Hand the kernels as they are to the optimizer, which keeps them as its rule does."""
        start = [kernel.read_value() for kernel in self.kernels]
        if self.settings.init == "spread":
            start = [w * (optimizer.grid.limit / tf.reduce_max(tf.abs(w))) for w in start]
        optimizer.start_from(start)

    def start_from(self, model: Any, path: Path) -> None:
        """Start from the weights of ``model`` instead of random ones."""
        copy_weights(model, self.model, path)
        self._start(self.optimizer)
        self.first_signs = self.signs()

    def normalize(self, images: Any) -> Any:
        """Pixels (uint8, or floats of that range) to what the net sees; see :mod:`flipbit.train.data.batches`."""
        return (tf.cast(images, tf.float32) - (128.0 if self.mean is None else self.mean)) / 128.0

    def _train_step_eager(self, images: Any, labels: Any, answers: Any = None) -> tuple[Any, Any]:
        images, share = self._mixed(images)
        with tf.GradientTape() as tape:
            logits = self.model(self.normalize(images), training=True)
            loss = tf.reduce_mean(self._losses(logits, images, labels, share, answers))
        variables = self.model.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss, wrong_answers(logits, labels)

    def _mixed(self, images: Any) -> tuple[Any, Any]:
        """The batch after cutout and mixup, as asked for, and mixup's share."""
        s, share = self.settings, None
        if s.cutout or s.mixup:
            images = tf.cast(images, tf.float32)
        if s.cutout:
            images = mixing.cutout(images, s.cutout, s.seed, self.optimizer.iterations)
        if s.mixup:
            images, share = mixing.mixup(images, s.mixup, s.seed, self.optimizer.iterations)
        return images, share

    def _losses(self, logits: Any, images: Any, labels: Any, share: Any, answers: Any = None) -> Any:
        """One loss per image."""
        s = self.settings
        if s.label_smoothing or share is not None:
            targets = soft_targets(labels, len(self.data.classes), s.label_smoothing, share)
            losses = tf.nn.softmax_cross_entropy_with_logits(targets, logits)
        else:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        if self.teacher is None:
            return losses
        answers = tf.stop_gradient(self.teacher.logits(images)) if answers is None else tf.cast(answers, tf.float32)
        taught = distillation(logits, answers, s.teacher_temperature)
        return (1.0 - s.teacher_weight) * losses + s.teacher_weight * taught

    def _test_step_eager(self, images: Any, labels: Any) -> tuple[Any, Any]:
        logits = self.model(self.normalize(images), training=False)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        return tf.reduce_sum(losses), wrong_answers(logits, labels)

    def _traced_settle_step(self, image: Any) -> Any:
        """A forward pass that updates BatchNorm's moving averages by 1 − ``_share``, with weights as at inference."""
        norms = [layer for layer in self.model.layers if isinstance(layer, keras.layers.BatchNormalization)]
        momenta = [layer.momentum for layer in norms]
        quantizers = [layer.kernel_quantizer for layer in self.layers]
        # What a layer does with momentum and quantizer is fixed when it is traced: change both for that time only.
        for layer in norms:
            layer.momentum = self._share
        for quantizer in quantizers:
            quantizer.frozen = True
        try:
            function = tf.function(lambda x: self.model(self.normalize(x), training=True), input_signature=[image])
            return function.get_concrete_function()
        finally:
            for layer, momentum in zip(norms, momenta):
                layer.momentum = momentum
            for quantizer in quantizers:
                quantizer.frozen = False

    def settle(self, epoch: int) -> None:
        """Take BatchNorm's statistics anew, as plain averages over training images, with the weights held still.

        Moving averages lag behind weights that flip: on CIFAR-10 resnet8's test error after 50 epochs of BC is 19.5 %
        with them, and 17.8 % with these. The images are augmented, as those the net was trained on.
        """
        batch = self.batch_of(epoch)
        batches = self.data.train_batches(batch, self.settings.seed, SETTLE_STREAM + epoch)
        for i, (images, _) in enumerate(data_sets.prefetch(batches)):
            if i >= max(2, SETTLE_IMAGES // batch):
                break
            self._share.assign(i / (i + 1))
            self._settle_step(tf.constant(images))

    def batch_of(self, epoch: int) -> int:
        """Images a step in an epoch, counted from 0."""
        return self.settings.batch_of(epoch)

    def signs(self) -> list[np.ndarray]:
        return [layer.kernel_quantizer.before_rounding(layer.kernel.read_value()).numpy() >= 0 for layer in self.layers]

    def test(self, data: data_sets.DataSet | None = None, step: Any = None) -> tuple[float, float]:
        """Mean loss and error (a fraction) on the test images of ``data``."""
        data, step = data or self.data, step or self._test_step
        loss, wrong = 0.0, 0
        for images, labels in data_sets.prefetch(data.test_batches(500)):
            batch_loss, batch_wrong = step(tf.constant(images), tf.constant(labels))
            loss, wrong = loss + float(batch_loss), wrong + int(batch_wrong)
        return loss / data.test_size, wrong / data.test_size

    def confuse(self) -> Confusion:
        """Which classes the net takes for which, over the test images."""
        labels, answers = [], []
        for x, y in data_sets.prefetch(self.data.test_batches(500)):
            labels.append(y)
            answers.append(self._answer_step(tf.constant(x)).numpy())
        return Confusion.of(self.data.classes, np.concatenate(labels), np.concatenate(answers))

    def simulated_steps(self) -> tuple[Any, Any, Any]:
        """Functions that train, test and measure ranges with activations as on a device; traced when first needed."""
        assert self.simulation is not None
        if self._simulated is None:
            image = tf.TensorSpec((None, *self.data.shape), tf.uint8)
            label = tf.TensorSpec((None,), tf.int64)
            with self.simulation.active(calibrated=False):
                train_step = tf.function(self._train_step_eager, input_signature=self._batch).get_concrete_function()
            with self.simulation.active(calibrated=True):
                test_step = tf.function(self._test_step_eager, input_signature=[image, label]).get_concrete_function()
            simulation = self.simulation
            ranges = tf.function(lambda x: simulation.ranges(self.normalize(x)), input_signature=[image])
            self._simulated = train_step, test_step, ranges
        return self._simulated

    def test_simulated(self, data: data_sets.DataSet) -> float:
        """Error (a fraction) on the test images of ``data`` with activations in as many bits as simulated."""
        assert self.simulation is not None
        _, step, ranges = self.simulated_steps()
        seen, found = 0, []
        for images, _ in self.data.train_batches(CALIBRATION_IMAGES, self.settings.seed, SETTLE_STREAM):
            found.append(ranges(tf.constant(images)))
            seen += len(images)
            if seen >= CALIBRATION_IMAGES:
                break
        self.simulation.calibrate(iter(found))
        return self.test(data, step)[1]

    def run_epoch(self, watch: Watcher) -> None:
        """One more epoch; afterwards ``history`` has one more record."""
        epoch = len(self.history)
        watch.epoch_started(epoch)
        rate = self.settings.learning_rate(epoch)
        self.optimizer.learning_rate = rate
        batch = self.batch_of(epoch)
        if isinstance(self.optimizer, FewBits):
            self.optimizer.growth.assign(batch / int(self.settings.batch or 1))
        if self.sharpness is not None:
            self.sharpness.t.assign(self.settings.sharpness(epoch))
        simulated = self.settings.simulates(epoch)
        train_step = self.simulated_steps()[0] if simulated else self._train_step
        before, flips_before = self.signs(), [int(f) for f in self.optimizer.flips]
        start, seen, loss_sum, wrong_sum = time.perf_counter(), 0, 0.0, 0
        for images, *known in data_sets.prefetch(self._batches(batch, epoch)):
            loss, wrong = train_step(tf.constant(images), *map(tf.constant, known))
            if not math.isfinite(float(loss)):
                raise InputError(f"the loss became {float(loss)} in epoch {epoch + 1}: try a smaller --lr")
            seen, loss_sum, wrong_sum = seen + len(images), loss_sum + float(loss) * len(images), wrong_sum + int(wrong)
            watch.step(len(images), float(loss), int(wrong))
            stopping.check()
        seconds = time.perf_counter() - start
        self.settle(epoch)
        # With validation images the test images are not looked at before the end.
        name, watched = ("test", self.data) if self.validation is None else ("validation", self.validation)
        test_loss, test_error = self.test(watched)
        record: dict[str, Any] = {
            "epoch": epoch + 1,
            "lr": rate,
            "loss": loss_sum / seen,
            "error": wrong_sum / seen,
            f"{name}_loss": test_loss,
            f"{name}_error": test_error,
        }
        if simulated:
            record[f"quantized_{name}_error"] = self.test_simulated(watched)
        record |= {
            "images_per_second": seen / seconds,
            "seconds": time.perf_counter() - start,
            "layers": self._layer_changes(before, flips_before),
        }
        self.history.append(record)
        watch.epoch_done(record)

    def _batches(self, batch: int, epoch: int) -> Iterator[tuple[np.ndarray, ...]]:
        """Images, labels and, where they are kept, the teacher's answers."""
        if self.answers is None:
            return self.data.train_batches(batch, self.settings.seed, epoch)
        return self.answers.batches(batch, epoch % self.settings.teacher_epochs)

    def _layer_changes(self, before: list[np.ndarray], flips_before: list[int]) -> list[dict[str, Any]]:
        records = []
        for i, (layer, now) in enumerate(zip(self.layers, self.signs())):
            weights = layer.kernel_quantizer(layer.kernel.read_value(), training=False)
            latent = layer.kernel_quantizer.before_rounding(self.optimizer.latent(i))
            records.append(
                {
                    "name": layer.name,
                    "changed_since_start": float(np.mean(now != self.first_signs[i])),
                    "changed_this_epoch": float(np.mean(now != before[i])),
                    "flips": int(self.optimizer.flips[i]) - flips_before[i],
                    "distance": float(tf.reduce_mean(tf.abs(weights - latent))),
                }
            )
        return records

    def check_integrity(self) -> None:
        """Quantized means quantized: assert that no kernel of sr, r or a buffer holds anything off its grid."""
        s, optimizer = self.settings, self.optimizer
        if s.method in ("adam", "bc"):
            return
        levels = optimizer.grid.value(np.arange(optimizer.grid.count, dtype=np.float32))
        for layer, kernel in zip(self.layers, self.kernels):
            assert np.isin(kernel.read_value().numpy(), levels).all(), f"{layer.name}: weights off the grid"
        for layer, buffer in zip(self.layers, optimizer.buffers):
            assert buffer.dtype.is_integer, f"{layer.name}: buffer is {buffer.dtype}"
            assert int(tf.reduce_max(buffer)) < 2 ** int(s.buffer_bits or 0), f"{layer.name}: buffer over its bits"

    def state_bits(self) -> dict[str, int]:
        """Bits kept per quantized weight while training, counted on the optimizer's own variables."""
        name = self.model.trainable_variables[0].name.split(":")[0]
        moments = [
            v for v in self.optimizer.variables if v.dtype.is_floating and v.name.split(":")[0].endswith("/" + name)
        ]
        return state_bits(self.settings.method, self.settings.buffer_bits, self.settings.bits, len(moments))

    def checkpoint(self) -> Checkpoint:
        return Checkpoint(
            len(self.history),
            self.model.get_weights(),
            [v.numpy() for v in self.optimizer.variables],
            self.first_signs,
            self.history,
        )

    def restore(self, saved: Checkpoint) -> None:
        mine = [v.shape for v in self.model.get_weights()] + [tuple(v.shape) for v in self.optimizer.variables]
        if mine != [w.shape for w in saved.weights] + [v.shape for v in saved.optimizer]:
            raise InputError("the checkpoint belongs to another net or method than run.json describes")
        self.model.set_weights(saved.weights)
        for variable, value in zip(self.optimizer.variables, saved.optimizer):
            variable.assign(value)
        self.first_signs, self.history = saved.first_signs, saved.history


def wrong_answers(logits: Any, labels: Any) -> Any:
    return tf.math.count_nonzero(tf.not_equal(tf.argmax(logits, 1), labels))


def train(
    settings: Settings,
    folder: Path,
    watch: Watcher | None = None,
    resume: bool = False,
    trainer_class: type[Trainer] = Trainer,
) -> Trainer:
    """Run ``settings`` to the end in ``folder``, saving after each epoch; with ``resume``, go on from what is there.

    With more epochs than ``run.json`` says, a resumed run is extended.
    """
    watch = watch or Watcher()
    settings.resolve()
    _use_threads(settings.threads)
    data = data_sets.load(settings.data, settings.data_dir, settings.augment, settings.image_size, settings.limit)
    data_sets.require_classes(data)
    validation = None
    if settings.holdout:
        data, validation = hold_out(data, settings.holdout)
    mean = data.mean_image() if settings.input == "mean" else None
    for option, path in (("--teacher", settings.teacher), ("--init-from", settings.init_from)):
        if path:
            refuse_if_it_saw_held_out(Path(path), option, settings)
    teacher = load_teacher(Path(settings.teacher), data) if settings.teacher else None
    trainer = trainer_class(settings, data, mean, validation, teacher)
    folder.mkdir(parents=True, exist_ok=True)
    if resume and (folder / CHECKPOINT_FILE).exists():
        trainer.restore(Checkpoint.load(folder / CHECKPOINT_FILE))
    elif settings.init_from:
        trainer.start_from(load_model(settings.init_from), Path(settings.init_from))
    if mean is not None:
        np.save(folder / MEAN_FILE, mean)
    if resume and (folder / RUN_FILE).exists():
        _continue(folder / RUN_FILE, trainer)
    else:
        write_json(folder / RUN_FILE, describe(trainer, started=_now()))
    watch.started(trainer)
    while len(trainer.history) < int(settings.epochs or 0):
        trainer.run_epoch(watch)
        trainer.check_integrity()
        # The model before the checkpoint: a run that stops between the two makes this epoch again, and with it both.
        if settings.keep == "last" or kept_epoch(settings, trainer.history) == len(trainer.history):
            save_model(trainer.model, folder / MODEL_FILE)
        trainer.checkpoint().save(folder / CHECKPOINT_FILE)
        write_history(folder, trainer.history)
    if trainer.history:
        finish(trainer, folder)
    watch.finished(trainer)
    return trainer


def kept_epoch(settings: Settings, history: list[dict[str, Any]]) -> int:
    """The epoch whose weights ``model.h5`` holds, counted from 1.

    With ``--keep best`` that of the smallest validation error, the first of equals. Where activations are simulated,
    it is one of the epochs that did so, by its error in that many bits.
    """
    if settings.keep != "best":
        return len(history)
    name = "quantized_validation_error"
    if not any(name in record for record in history):
        name = "validation_error"
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
        result["test_loss"], result["test_error"] = trainer.test()
        if trainer.simulation is not None and settings.simulates(epoch - 1):
            result["quantized_test_error"] = trainer.test_simulated(trainer.data)
    result["training_seconds"] = sum(record["seconds"] for record in history)
    trainer.result = result
    trainer.confusion = trainer.confuse()
    trainer.confusion.save(folder)
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
        if digest != _files(trainer.settings).get(name):
            raise InputError(f"--{name} {getattr(trainer.settings, name)}: the file has changed since the run began")
    if epochs < done:
        raise InputError(f"--epochs {epochs}: the run has done {done} epochs already")
    if epochs != saved["settings"]["epochs"]:
        note = {"after_epoch": done, "from": saved["settings"]["epochs"], "to": epochs, "at": _now()}
        saved["settings"]["epochs"], saved["status"] = epochs, "running"
        saved["extended"] = [*saved.get("extended", []), note]
        saved.pop("finished", None)
        write_json(path, saved)


def _files(settings: Settings) -> dict[str, str]:
    """Digests of the files every epoch depends on, beside the data."""
    paths = {"teacher": Path(settings.teacher)} if settings.teacher else {}
    if settings.net not in NETWORKS:
        paths["net"] = net_file(str(settings.net))
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in paths.items()}


def _use_threads(count: int) -> None:
    if not count or count == tf.config.threading.get_intra_op_parallelism_threads():
        return
    try:
        tf.config.threading.set_intra_op_parallelism_threads(count)
    except RuntimeError:  # TensorFlow fixes it with its first computation, as when a program trains twice
        logging.getLogger(__name__).warning("TensorFlow is running already: it stays at the threads it has")


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
        "image_shape": list(trainer.data.shape),
        "input": {
            "formula": "(pixel - 128) / 128" if trainer.mean is None else f"(pixel - {MEAN_FILE}) / 128",
            "scale": 1 / 128,
            "offset": 128 if trainer.mean is None else MEAN_FILE,
        },
        "state_bits_per_weight": trainer.state_bits(),
        "files": _files(trainer.settings),
        "train_images": trainer.data.train_size,
        "validation_images": trainer.validation.test_size if trainer.validation else 0,
        "test_images": trainer.data.test_size,
        "versions": {"python": platform.python_version(), **{p: metadata.version(p) for p in packages}},
        "machine": {"cpu": _cpu(), "cores": os.cpu_count(), "system": platform.platform()},
    }


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
