"""A net, its optimizer and its data set: the steps of an epoch, and what is measured after it."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.train import stopping
from flipbit.train.answers import Answers
from flipbit.train.bits.activations import SimulatedActivations
from flipbit.train.bits.few_bits import FewBits
from flipbit.train.bits.optimizers import core, quantized, state_bits
from flipbit.train.bits.precision import convolutions_in
from flipbit.train.bits.quantizers import Grid, Sharpness, standardized
from flipbit.train.checkpoint import Checkpoint
from flipbit.train.data import batches as data_sets
from flipbit.train.data import mixing
from flipbit.train.keras_larq import keras, tf
from flipbit.train.losses import distillation, soft_targets
from flipbit.train.measures import Values, measure_of
from flipbit.train.nets.networks import NETWORKS, Layers, build, quantized_layers
from flipbit.train.nets.own_net import build_own
from flipbit.train.nets.start_from import copy_matching, copy_weights
from flipbit.train.report.confusion import Confusion
from flipbit.train.settings import InputError, Settings
from flipbit.train.teacher import Teacher
from flipbit.train.workers.replicas import Replicas
from flipbit.train.workers.step import SharedSteps

SETTLE_IMAGES = 2560  # that BatchNorm's statistics are taken from after each epoch
SETTLE_STREAM = 1_000_000  # added to the epoch for their order, apart from the training batches'
CALIBRATION_IMAGES = 500  # for the ranges of simulated activations, as many as export takes


class Watcher:
    """Told what happens in a run. This one says nothing; :mod:`flipbit.train.report.console` has one that draws."""

    def started(self, trainer: Trainer) -> None: ...

    def epoch_started(self, epoch: int) -> None: ...

    def step(self, images: int, loss: float, counted: np.ndarray) -> None:
        """``counted`` as :mod:`flipbit.train.measures` has it: of classes, how many answers were wrong."""

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
        replicas: Replicas | None = None,
    ):
        self.settings = settings
        self.data = data
        self.mean = mean
        self.validation = validation
        self.teacher = teacher
        self.measure = measure_of(data)
        self.replicas = replicas
        self.answers = None
        if teacher and settings.teacher_epochs:
            self.answers = Answers(teacher, data, settings.seed, settings.precision)
        # The same bits on every run: no atomics in reductions, a fixed order in threads.
        tf.config.experimental.enable_op_determinism()
        keras.utils.set_random_seed(settings.seed)
        layers = Layers(
            seed=settings.seed,
            width=settings.width,
            quantize="none" if settings.method == "adam" else settings.quantize,
            bits=settings.bits,
            delta=float(settings.delta or 1.0),
            scale=settings.scale,
            forward=settings.forward,
            standardize=settings.standardize,
        )
        if settings.net in NETWORKS:
            self.model = build(str(settings.net), data.shape, data.outputs, layers)
        else:
            self.model = build_own(str(settings.net), data.shape, data.outputs, layers, data.values)
        if isinstance(self.measure, Values):
            self.model = self.measure.in_units(self.model)
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
        label = self.measure.target
        self._batch = [image, label]
        if self.answers is not None:
            self._batch.append(tf.TensorSpec((None, len(data.classes)), tf.float16))
        self._train_step = tf.function(self._train_step_eager, input_signature=self._batch)
        self._test_step = tf.function(self._test_step_eager, input_signature=[image, label])
        self._answer_step = tf.function(
            lambda x: self.model(self.normalize(x), training=False), input_signature=[image]
        )
        self._share = tf.Variable(0.0, trainable=False)
        self._settle_step = self._traced_settle_step(image)
        self._simulated: tuple[Any, Any, Any] | None = None
        self._shared = SharedSteps(self, replicas) if replicas else None

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
        if self.settings.init_matching:
            others = copy_matching(model, self.model, path)
            logging.getLogger(__name__).warning("--init-matching: %s start anew", ", ".join(others) or "no layers")
        else:
            copy_weights(model, self.model, path)
        self._start(self.optimizer)
        self.first_signs = self.signs()

    def normalize(self, images: Any) -> Any:
        """Pixels (uint8, or floats of that range) to what the net sees; see :mod:`flipbit.train.data.batches`."""
        return (tf.cast(images, tf.float32) - (128.0 if self.mean is None else self.mean)) / 128.0

    def _train_step_eager(self, images: Any, labels: Any, answers: Any = None) -> tuple[Any, Any]:
        images, share = self.mixed(images)
        with tf.GradientTape() as tape:
            with convolutions_in(self.settings.precision, self.model):
                logits = self.model(self.normalize(images), training=True)
            loss = tf.reduce_mean(self.losses(logits, images, labels, share, answers))
        variables = self.model.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss, self.measure.counted(logits, labels)

    def mixed(self, images: Any, places: Any = None, size: Any = None) -> tuple[Any, Any]:
        """The batch, or the images at ``places`` of it, after cutout and mixup, as asked for, and mixup's share."""
        s, share = self.settings, None
        if s.cutout or s.mixup:
            images = tf.cast(images, tf.float32)
        if s.cutout:
            images = mixing.cutout(images, s.cutout, s.seed, self.optimizer.iterations, places, size)
        if s.mixup:
            images, share = mixing.mixup(images, s.mixup, s.seed, self.optimizer.iterations)
        return images, share

    def losses(self, logits: Any, images: Any, labels: Any, share: Any, answers: Any = None) -> Any:
        """One loss per image."""
        s = self.settings
        if s.label_smoothing or share is not None:
            targets = soft_targets(labels, len(self.data.classes), s.label_smoothing, share)
            losses = tf.nn.softmax_cross_entropy_with_logits(targets, logits)
        else:
            losses = self.measure.losses(logits, labels)
        if self.teacher is None:
            return losses
        if answers is None:
            with convolutions_in(s.precision, self.teacher.model):
                answers = tf.stop_gradient(self.teacher.logits(images))
        answers = tf.cast(answers, tf.float32)
        taught = distillation(logits, answers, s.teacher_temperature)
        return (1.0 - s.teacher_weight) * losses + s.teacher_weight * taught

    def _test_step_eager(self, images: Any, labels: Any) -> tuple[Any, Any]:
        logits = self.model(self.normalize(images), training=False)
        return tf.reduce_sum(self.measure.losses(logits, labels)), self.measure.counted(logits, labels)

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

    def test(self, data: data_sets.DataSet | None = None, step: Any = None, alone: bool = False) -> dict[str, float]:
        """Mean loss and figures (``error``, a fraction; of values ``rmse`` and ``mae``) on the test images of
        ``data``; unless ``alone``, workers share them."""
        data, step = data or self.data, step or self._test_step
        replicas = None if alone else self.replicas
        first, every = (replicas.process, replicas.processes) if replicas else (0, 1)
        loss, counted = 0.0, np.zeros(self.measure.counts)
        for images, labels in data_sets.prefetch(data.test_batches(500, first, every)):
            batch_loss, batch_counted = step(tf.constant(images), tf.constant(labels))
            loss, counted = loss + float(batch_loss), counted + batch_counted.numpy()
        if replicas is not None:
            total = replicas.total(np.array([loss, *counted.ravel()], np.float64))
            loss, counted = float(total[0]), total[1:].reshape(counted.shape)
        return {"loss": loss / data.test_size, **self.measure.measured(counted, data.test_size)}

    def confuse(self) -> Confusion:
        """Which classes the net takes for which, over the test images."""
        labels, answers = self._answered()
        return Confusion.of(self.data.classes, labels, answers.argmax(1))

    def errors_of_each(self) -> dict[str, list[float]]:
        """Figures of each value that the net gives, over the test images."""
        values, outputs = self._answered()
        apart = outputs.reshape(values.shape).astype(np.float64) - values
        rmse, mae = np.sqrt(np.mean(apart**2, 0)), np.mean(np.abs(apart), 0)
        return {"rmse_of_each": rmse.tolist(), "mae_of_each": mae.tolist()}

    def _answered(self) -> tuple[np.ndarray, np.ndarray]:
        """What the test images are labelled with, and what the net gives for them."""
        known, given = [], []
        for x, y in data_sets.prefetch(self.data.test_batches(500)):
            known.append(y)
            given.append(self._answer_step(tf.constant(x)).numpy())
        return np.concatenate(known), np.concatenate(given)

    def simulated_steps(self) -> tuple[Any, Any, Any]:
        """Functions that train, test and measure ranges with activations as on a device; traced when first needed."""
        assert self.simulation is not None
        if self._simulated is None:
            image = tf.TensorSpec((None, *self.data.shape), tf.uint8)
            label = self.measure.target
            with self.simulation.active(calibrated=False):
                train_step = tf.function(self._train_step_eager, input_signature=self._batch).get_concrete_function()
            with self.simulation.active(calibrated=True):
                test_step = tf.function(self._test_step_eager, input_signature=[image, label]).get_concrete_function()
            simulation = self.simulation
            ranges = tf.function(lambda x: simulation.ranges(self.normalize(x)), input_signature=[image])
            self._simulated = train_step, test_step, ranges
        return self._simulated

    def test_simulated(self, data: data_sets.DataSet, alone: bool = False) -> dict[str, float]:
        """Figures on the test images of ``data`` with activations in as many bits as simulated."""
        assert self.simulation is not None
        _, step, ranges = self.simulated_steps()
        seen, found = 0, []
        for images, _ in self.data.train_batches(CALIBRATION_IMAGES, self.settings.seed, SETTLE_STREAM):
            found.append(ranges(tf.constant(images)))
            seen += len(images)
            if seen >= CALIBRATION_IMAGES:
                break
        self.simulation.calibrate(iter(found))
        figures = self.test(data, step, alone)
        return {name: figures[name] for name in self.measure.figures}

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
        before, flips_before = self.signs(), [int(f) for f in self.optimizer.flips]
        start, seen, loss_sum, counted_sum = time.perf_counter(), 0, 0.0, np.zeros(self.measure.counts)
        for images, loss, counted in (self._shared.epoch if self._shared else self._steps)(batch, epoch, simulated):
            if not math.isfinite(loss):
                raise InputError(f"the loss became {loss} in epoch {epoch + 1}: try a smaller --lr")
            seen, loss_sum, counted_sum = seen + images, loss_sum + loss * images, counted_sum + counted
            watch.step(images, loss, counted)
            stopping.check()
        seconds = time.perf_counter() - start
        self.settle(epoch)
        # With validation images the test images are not looked at before the end.
        name, watched = ("test", self.data) if self.validation is None else ("validation", self.validation)
        record: dict[str, Any] = {
            "epoch": epoch + 1,
            "lr": rate,
            "loss": loss_sum / seen,
            **self.measure.measured(counted_sum, seen),
            **{f"{name}_{figure}": value for figure, value in self.test(watched).items()},
        }
        if simulated:
            rounded = self.test_simulated(watched)
            record |= {f"quantized_{name}_{figure}": value for figure, value in rounded.items()}
        record |= {
            "images_per_second": seen / seconds,
            "seconds": time.perf_counter() - start,
            "layers": self._layer_changes(before, flips_before),
        }
        self.history.append(record)
        watch.epoch_done(record)

    def _steps(self, batch: int, epoch: int, simulated: bool) -> Iterator[tuple[int, float, np.ndarray]]:
        """Train an epoch: images, mean loss and what is counted (see :mod:`flipbit.train.measures`) of each step."""
        train_step = self.simulated_steps()[0] if simulated else self._train_step
        for images, *known in data_sets.prefetch(self._batches(batch, epoch)):
            loss, counted = train_step(tf.constant(images), *map(tf.constant, known))
            yield len(images), float(loss), counted.numpy()

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

    def assert_same_weights(self) -> None:
        """Assert that all workers hold the same bits of every quantized layer: they draw the same and send none."""
        if self.replicas is None:
            return
        held = {layer.name: [kernel.numpy()] for layer, kernel in zip(self.layers, self.kernels)}
        for arrays, buffer in zip(held.values(), self.optimizer.buffers):
            arrays.append(buffer.numpy())
        self.replicas.assert_same(held, f"after epoch {len(self.history)}")

    def start_as_chief(self) -> None:
        """Take over the chief's weights, optimizer and history."""
        if self.replicas is None or self.replicas.processes == 1:
            return
        sent = self.replicas.from_chief(self.checkpoint().content() if self.replicas.chief else b"")
        if not self.replicas.chief:
            self.restore(Checkpoint.of(sent, "what the chief sent"))

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
