"""Training: epochs of steps, what is watched, what is saved."""

from __future__ import annotations

import json
import logging
import math
import os
import platform
import subprocess
import sys
import time
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.train import data as data_sets
from flipbit.train import stopping
from flipbit.train.checkpoint import Checkpoint
from flipbit.train.files import write_json
from flipbit.train.history import write_history
from flipbit.train.keras_larq import keras, tf
from flipbit.train.model_file import save_model
from flipbit.train.networks import Layers, build, quantized_layers
from flipbit.train.optimizers import core, quantized, state_bits
from flipbit.train.quantizers import Grid
from flipbit.train.settings import InputError, Settings

SETTLE_IMAGES = 2560  # that BatchNorm's statistics are taken from after each epoch
SETTLE_STREAM = 1_000_000  # added to the epoch for their order, apart from the training batches'
RUN_FILE, CHECKPOINT_FILE, MODEL_FILE, MEAN_FILE = "run.json", "checkpoint.npz", "model.h5", "input_mean.npy"


class Watcher:
    """Told what happens in a run. This one says nothing; :mod:`flipbit.train.console` has one that draws."""

    def started(self, trainer: Trainer) -> None: ...

    def epoch_started(self, epoch: int) -> None: ...

    def step(self, images: int, loss: float, wrong: int) -> None: ...

    def epoch_done(self, record: dict[str, Any]) -> None: ...

    def finished(self, trainer: Trainer) -> None: ...


class Trainer:
    """A net, its optimizer and its data set, ready to run epochs."""

    def __init__(self, settings: Settings, data: data_sets.DataSet, mean: np.ndarray | None = None):
        self.settings = settings
        self.data = data
        self.mean = mean
        # The same bits on every run: no atomics in reductions, a fixed order in threads.
        tf.config.experimental.enable_op_determinism()
        keras.utils.set_random_seed(settings.seed)
        self.model = build(
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
            ),
        )
        self.layers = quantized_layers(self.model)
        self.kernels = [layer.kernel for layer in self.layers]
        self.optimizer = self._optimizer()
        self.first_signs = self.signs()
        self.history: list[dict[str, Any]] = []
        image = tf.TensorSpec((None, *data.shape), tf.uint8)
        label = tf.TensorSpec((None,), tf.int64)
        self._train_step = tf.function(self._train_step_eager, input_signature=[image, label])
        self._test_step = tf.function(self._test_step_eager, input_signature=[image, label])
        self._share = tf.Variable(0.0, trainable=False)
        self._settle_step = self._traced_settle_step(image)

    def _optimizer(self) -> Any:
        s = self.settings
        core_class, core_settings = core(s.optimizer, s.learning_rate(0), s.momentum)
        rule = "bc" if s.method == "adam" else s.rule  # with no kernels to quantize, the rule is idle
        optimizer = quantized(
            core_class,
            rule=rule,
            grid=Grid.of(s.bits, float(s.delta or 1.0)),
            buffer_bits=s.buffer_bits or 0,
            seed=s.seed,
            weight_decay_l2=s.weight_decay,
            kernels=self.kernels,
            **core_settings,
        )
        optimizer.build(self.model.trainable_variables)
        start = [kernel.read_value() for kernel in self.kernels]
        if s.init == "spread":
            start = [w * (optimizer.grid.limit / tf.reduce_max(tf.abs(w))) for w in start]
        optimizer.start_from(start)
        return optimizer

    def normalize(self, images: Any) -> Any:
        """uint8 pixels to what the net sees; see :mod:`flipbit.train.data`."""
        return (tf.cast(images, tf.float32) - (128.0 if self.mean is None else self.mean)) / 128.0

    def _train_step_eager(self, images: Any, labels: Any) -> tuple[Any, Any]:
        with tf.GradientTape() as tape:
            logits = self.model(self.normalize(images), training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_mean(losses)
        variables = self.model.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss, wrong_answers(logits, labels)

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
        batch = int(self.settings.batch or 1)
        batches = self.data.train_batches(batch, self.settings.seed, SETTLE_STREAM + epoch)
        for i, (images, _) in enumerate(data_sets.prefetch(batches)):
            if i >= max(2, SETTLE_IMAGES // batch):
                break
            self._share.assign(i / (i + 1))
            self._settle_step(tf.constant(images))

    def signs(self) -> list[np.ndarray]:
        return [kernel.read_value().numpy() >= 0 for kernel in self.kernels]

    def test(self) -> tuple[float, float]:
        """Mean loss and error (a fraction) on the test images."""
        loss, wrong = 0.0, 0
        for images, labels in data_sets.prefetch(self.data.test_batches(500)):
            batch_loss, batch_wrong = self._test_step(images, labels)
            loss, wrong = loss + float(batch_loss), wrong + int(batch_wrong)
        return loss / self.data.test_size, wrong / self.data.test_size

    def run_epoch(self, watch: Watcher) -> None:
        """One more epoch; afterwards ``history`` has one more record."""
        epoch = len(self.history)
        watch.epoch_started(epoch)
        rate = self.settings.learning_rate(epoch)
        self.optimizer.learning_rate = rate
        before, flips_before = self.signs(), [int(f) for f in self.optimizer.flips]
        start, seen, loss_sum, wrong_sum = time.perf_counter(), 0, 0.0, 0
        batches = self.data.train_batches(int(self.settings.batch or 1), self.settings.seed, epoch)
        for images, labels in data_sets.prefetch(batches):
            loss, wrong = self._train_step(images, labels)
            if not math.isfinite(float(loss)):
                raise InputError(f"the loss became {float(loss)} in epoch {epoch + 1}: try a smaller --lr")
            seen, loss_sum, wrong_sum = seen + len(images), loss_sum + float(loss) * len(images), wrong_sum + int(wrong)
            watch.step(len(images), float(loss), int(wrong))
            stopping.check()
        seconds = time.perf_counter() - start
        self.settle(epoch)
        test_loss, test_error = self.test()
        record = {
            "epoch": epoch + 1,
            "lr": rate,
            "loss": loss_sum / seen,
            "error": wrong_sum / seen,
            "test_loss": test_loss,
            "test_error": test_error,
            "images_per_second": seen / seconds,
            "seconds": time.perf_counter() - start,
            "layers": self._layer_changes(before, flips_before),
        }
        self.history.append(record)
        watch.epoch_done(record)

    def _layer_changes(self, before: list[np.ndarray], flips_before: list[int]) -> list[dict[str, Any]]:
        records = []
        for i, (layer, now) in enumerate(zip(self.layers, self.signs())):
            weights = layer.kernel_quantizer(layer.kernel.read_value(), training=False)
            latent = self.optimizer.latent(i)
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
    """Run ``settings`` to the end in ``folder``, saving after each epoch; with ``resume``, go on from what is there."""
    watch = watch or Watcher()
    settings.resolve()
    _use_threads(settings.threads)
    data = data_sets.load(settings.data, settings.data_dir, settings.augment, settings.image_size, settings.limit)
    mean = data.mean_image() if settings.input == "mean" else None
    trainer = trainer_class(settings, data, mean)
    folder.mkdir(parents=True, exist_ok=True)
    if resume and (folder / CHECKPOINT_FILE).exists():
        trainer.restore(Checkpoint.load(folder / CHECKPOINT_FILE))
    if mean is not None:
        np.save(folder / MEAN_FILE, mean)
    run = describe(trainer, started=_now())
    if not resume or not (folder / RUN_FILE).exists():
        write_json(folder / RUN_FILE, run)
    watch.started(trainer)
    while len(trainer.history) < int(settings.epochs or 0):
        trainer.run_epoch(watch)
        trainer.check_integrity()
        trainer.checkpoint().save(folder / CHECKPOINT_FILE)
        save_model(trainer.model, folder / MODEL_FILE)
        write_history(folder, trainer.history)
    if trainer.history:
        saved = json.loads((folder / RUN_FILE).read_text())
        saved["status"], saved["finished"] = "finished", saved.get("finished") or _now()
        saved["result"] = {k: v for k, v in trainer.history[-1].items() if k != "layers"}
        saved["result"]["training_seconds"] = sum(record["seconds"] for record in trainer.history)
        write_json(folder / RUN_FILE, saved)
    watch.finished(trainer)
    return trainer


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
        "train_images": trainer.data.train_size,
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
