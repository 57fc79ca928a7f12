"""The options of a long training: each does what it says, and a run with it resumes bit for bit."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from flipbit.train import Settings, run
from flipbit.train.bits.few_bits import float_state
from flipbit.train.bits.optimizers import PlainSGD, quantized
from flipbit.train.bits.precision import in_hardware
from flipbit.train.bits.quantizers import Grid, sharpening
from flipbit.train.checkpoint import Checkpoint
from flipbit.train.data import batches as data_sets
from flipbit.train.data import mixing
from flipbit.train.data.splits import hold_out
from flipbit.train.keras_larq import tf
from flipbit.train.loop import train
from flipbit.train.losses import distillation, soft_targets
from flipbit.train.nets.model_file import load_model
from flipbit.train.nets.networks import Layers, build
from flipbit.train.nets.start_from import copy_matching
from flipbit.train.report.console import Terminal, epoch_line
from flipbit.train.run_folder import kept_epoch
from flipbit.train.settings import InputError
from flipbit.train.teacher import load_teacher
from flipbit.train.trainer import Trainer, Watcher

FAST = ["--net", "vgg-small", "--width", "0.5", "--limit", "256", "--no-plot", "--no-tensorboard"]


def settings(**given: Any) -> Settings:
    return Settings(**{"method": "bc", "width": 0.5, "limit": 300, **given}).resolve()


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A float net of the same shape, trained for two epochs."""
    folder = tmp_path_factory.mktemp("teacher")
    train(settings(method="adam", epochs=2, input="mean", holdout=0.1, keep="last"), folder)
    return folder / "model.h5"


class PowerCut(Exception):
    pass


class Cut(Watcher):
    """Stops a run in the middle of its third epoch."""

    def epoch_started(self, epoch: int) -> None:
        self.epoch, self.steps = epoch, 0

    def step(self, images: int, loss: float, wrong: int) -> None:
        self.steps += 1
        if self.epoch == 2 and self.steps == 2:
            raise PowerCut


def assert_same_run(ours: Trainer, theirs: Trainer) -> None:
    a, b = ours.checkpoint(), theirs.checkpoint()
    for mine, other in zip(a.weights + a.optimizer, b.weights + b.optimizer, strict=True):
        assert mine.dtype == other.dtype
        assert (np.asarray(mine) == np.asarray(other)).all()
    times = ("seconds", "images_per_second")
    for x, y in zip(a.history, b.history, strict=True):
        assert {k: v for k, v in x.items() if k not in times} == {k: v for k, v in y.items() if k not in times}


@pytest.mark.parametrize(
    "given",
    [
        {"teacher": True, "init_from": True, "holdout": 0.1, "label_smoothing": 0.1, "cutout": 3, "mixup": 0.2},
        {"teacher": True, "teacher_epochs": 2},
        {"standardize": True, "estimator": "ede", "clip": 0.0, "activation_bits": 8, "activation_epochs": 2},
        {"weight_decay": 1e-3, "decay_on": "float", "schedule": "restarts", "restarts": 1, "warmup": 1},
        {"method": "sr", "buffer_bits": 4, "buffer_rule": "mean", "batch_growth": 4},
        {"precision": "bfloat16", "teacher": True, "activation_bits": 8},
    ],
    ids=str,
)
def test_a_run_with_a_recipe_resumes_with_the_same_bits(given: dict[str, Any], teacher: Path, tmp_path: Path) -> None:
    chosen = {**given, **{name: str(teacher) for name in ("teacher", "init_from") if given.get(name)}, "epochs": 4}
    whole = train(settings(**chosen), tmp_path / "whole")
    with pytest.raises(PowerCut):
        train(settings(**chosen), tmp_path / "parts", Cut())
    saved = json.loads((tmp_path / "parts" / "run.json").read_text())["settings"]
    resumed = train(Settings.from_json(saved), tmp_path / "parts", resume=True)
    assert_same_run(resumed, whole)
    assert (tmp_path / "parts" / "model.h5").exists()
    results = [json.loads((tmp_path / name / "run.json").read_text())["result"] for name in ("whole", "parts")]
    assert results[0]["test_error"] == results[1]["test_error"]


def test_bfloat16_computes_the_steps_and_leaves_the_model_as_it_is(tmp_path: Path) -> None:
    trained = {name: train(settings(precision=name, epochs=2), tmp_path / name) for name in ("float32", "bfloat16")}
    losses = [trainer.history[0]["loss"] for trainer in trained.values()]
    assert losses[0] != losses[1]  # or it made no difference
    assert losses[1] == pytest.approx(losses[0], rel=0.02)
    assert "bfloat16" not in load_model(tmp_path / "bfloat16" / "model.h5").to_json()
    assert not in_hardware(tmp_path / "absent")
    (tmp_path / "cpuinfo").write_text("model name : x\nflags : fma avx512_bf16\n")
    assert in_hardware(tmp_path / "cpuinfo")


def test_a_standardized_net_exports_the_signs_of_centred_filters(tmp_path: Path) -> None:
    from flipbit.export import oracle
    from flipbit.export.read.from_keras import from_keras

    trainer = train(settings(standardize=True, epochs=2, net="resnet8"), tmp_path)
    model = load_model(tmp_path / "model.h5")
    graph = from_keras(model)
    binary = {op.name: op for op in graph if getattr(op, "binary", False)}
    assert set(binary) == {layer.name for layer in trainer.layers}
    flipped = 0
    for layer in trainer.layers:
        w = layer.kernel.numpy()
        centred = w - w.mean((0, 1, 2), keepdims=True)
        # Export inverts the bits of a filter whose BatchNorm gain is negative.
        same = (binary[layer.name].weights > 0) == (centred >= 0)
        assert all(part.all() or not part.any() for part in np.moveaxis(same, -1, 0))
        flipped += np.sum((w >= 0) != (centred >= 0))
    assert flipped > 0  # or centring would not have mattered here
    x = (trainer.data.x_test[:50].astype(np.float32) - 128) / 128  # type: ignore[union-attr]
    assert oracle.run(graph, x)[graph.output] == pytest.approx(model(x).numpy(), abs=1e-3)


def test_80_columns_show_the_tables_whole(tmp_path: Path) -> None:
    text = io.StringIO()
    console = Console(width=80, file=text)
    given = settings(net="resnet8", width=1.0, epochs=2, holdout=0.1, activation_bits=8)
    trainer = train(given, tmp_path, Terminal(tmp_path, console, plot=False, tensorboard=False))
    lines = text.getvalue().splitlines()
    assert max(len(one) for one in lines if not one.startswith("model: ")) <= 80  # a path is never broken
    assert "…" not in text.getvalue()
    for layer in trainer.layers:  # a name that is folded is on no line
        (line,) = [one for one in lines if one.startswith(layer.name + " ")]
        assert line.rstrip()[-1].isdigit()
    shown = [one for one in lines if "flips" in one]
    assert len(shown) == 2
    assert all("loss" in one and "valid" in one and "/s" in one for one in shown)


@pytest.mark.parametrize("quantized", [None, 1.0, 0.1234])
@pytest.mark.parametrize("error", [1.0, 0.8888, 0.0])
@pytest.mark.parametrize("loss", [float("nan"), 2.3026, 10.302, 0.012345, 1234567.0])
@pytest.mark.parametrize("count", [7, 2480, 36912, 236912, 1234567])
def test_an_epoch_is_one_line_of_80_columns_whatever_it_holds(
    count: int, loss: float, error: float, quantized: float | None
) -> None:
    record = {"epoch": 100, "loss": loss, "error": error, "validation_loss": loss, "validation_error": error}
    record |= {"images_per_second": count + 0.4, "layers": [{"flips": count}]}
    if quantized is not None:
        record["quantized_validation_error"] = quantized
    line = epoch_line(record, 80, 8)
    assert len(line) <= 80
    assert all(word in line for word in ("loss", "error", "valid", "/s", "flips"))


def test_the_end_of_a_run_tells_which_classes_are_taken_for_which(tmp_path: Path) -> None:
    assert run.main(["--method", "bc", "--epochs", "1", "--width", "0.5", "-o", str(tmp_path), "--no-tensorboard"]) == 0
    saved = json.loads((tmp_path / "confusion.json").read_text())
    matrix = np.array(saved["matrix"])
    digits = data_sets.load("digits")
    assert isinstance(digits, data_sets.ImageArrays)
    answers = load_model(tmp_path / "model.h5")((digits.x_test.astype(np.float32) - 128) / 128).numpy().argmax(1)
    for i in range(10):
        for j in range(10):
            assert matrix[i, j] == np.sum((digits.y_test == i) & (answers == j))
    assert saved["images"] == np.bincount(digits.y_test).tolist()
    assert saved["accuracy"] == pytest.approx((matrix.diagonal() / matrix.sum(1)).tolist())
    result = json.loads((tmp_path / "run.json").read_text())["result"]
    assert 1 - matrix.trace() / matrix.sum() == pytest.approx(result["test_error"])
    assert (tmp_path / "confusion.png").read_bytes().startswith(b"\x89PNG")


def test_one_tenth_held_out_is_every_tenth_image_of_each_class() -> None:
    labels = np.array([0, 1] * 30 + [2] * 9, np.int64)
    x = np.arange(len(labels), dtype=np.uint8).reshape(-1, 1, 1, 1)
    data = data_sets.ImageArrays("x", x, labels, x[:3], labels[:3], ["a", "b", "c"])
    rest, held = hold_out(data, 0.1)
    assert held.x_test.ravel().tolist() == [18, 19, 38, 39, 58, 59]  # [9::10] of each class; nine images are too few
    assert sorted([*rest.x_train.ravel(), *held.x_test.ravel()]) == list(range(len(labels)))
    assert (rest.x_test == x[:3]).all()
    with pytest.raises(InputError, match="hold out a larger share"):
        hold_out(data_sets.ImageArrays("x", x[:6], labels[:6], x[:3], labels[:3], ["a", "b", "c"]), 0.1)


def test_image_files_are_held_out_the_same_way() -> None:
    files = [(Path(f"{i}.png"), i % 2) for i in range(20)]
    rest, held = hold_out(data_sets.ImageFiles("x", files, files[:2], ["a", "b"]), 0.2)
    assert [path.stem for path, _ in held.test_files] == ["8", "9", "18", "19"]
    assert len(rest.train_files) == 16
    assert rest.test_files == files[:2]


def test_the_test_images_are_looked_at_once_and_the_best_epoch_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    whole = data_sets.ImageArrays.test_batches

    def noted(self: data_sets.ImageArrays, batch: int, *share: int) -> Any:
        looked.append("validation" if self.train_size == 0 else "test")
        return whole(self, batch, *share)

    monkeypatch.setattr(data_sets.ImageArrays, "test_batches", noted)
    trainer = train(settings(epochs=5, keep="best", lr=0.3, schedule="constant"), tmp_path)
    assert looked[:5] == ["validation"] * 5
    assert "validation" not in looked[5:]
    errors = [record["validation_error"] for record in trainer.history]
    assert all("test_error" not in record for record in trainer.history)
    result = json.loads((tmp_path / "run.json").read_text())["result"]
    assert result["epoch"] == 1 + int(np.argmin(errors))
    assert result["validation_error"] == min(errors)
    assert trainer.validation is not None
    trainer.model.set_weights(load_model(tmp_path / "model.h5").get_weights())
    assert trainer.test(trainer.validation)["error"] == min(errors)
    assert "validation_error" in (tmp_path / "history.csv").read_text().splitlines()[0]


def test_the_kept_epoch_is_the_best_of_those_with_simulated_activations() -> None:
    history = [
        {"epoch": 1, "validation_error": 0.1},
        {"epoch": 2, "validation_error": 0.3, "quantized_validation_error": 0.4},
        {"epoch": 3, "validation_error": 0.4, "quantized_validation_error": 0.2},
        {"epoch": 4, "validation_error": 0.2, "quantized_validation_error": 0.2},
    ]
    assert kept_epoch(settings(keep="best", epochs=4), history) == 3
    assert kept_epoch(settings(keep="best", epochs=4), history[:1]) == 1
    assert kept_epoch(settings(keep="last", holdout=0.1, epochs=4), history) == 4


def test_a_run_extended_twice_equals_one_extended_at_once(tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert run.main(["--method", "bc", "--epochs", "2", "-o", str(tmp_path / name), *FAST]) == 0
    quiet = ["--no-plot", "--no-tensorboard"]
    assert run.main(["--resume", str(tmp_path / "a"), "--epochs", "4", *quiet]) == 0
    saved = json.loads((tmp_path / "a" / "run.json").read_text())
    assert saved["status"] == "finished"
    assert saved["settings"]["epochs"] == 4
    assert [(note["after_epoch"], note["from"], note["to"]) for note in saved["extended"]] == [(2, 2, 4)]
    history = json.loads((tmp_path / "a" / "history.json").read_text())
    # The rate from there on is that of a run of four epochs.
    assert [r["lr"] for r in history] == pytest.approx([0.01, 0.005, 0.005, 0.01 * (1 - 2**-0.5) / 2])
    # Stopped within the extension, and continued: the same bits.
    with pytest.raises(PowerCut):
        train(Settings.from_json({**saved["settings"], "epochs": 4}), tmp_path / "b", Cut(), resume=True)
    assert run.main(["--resume", str(tmp_path / "b"), *quiet]) == 0
    a, b = (Checkpoint.load(tmp_path / name / "checkpoint.npz") for name in ("a", "b"))
    assert all((x == y).all() for x, y in zip(a.weights + a.optimizer, b.weights + b.optimizer, strict=True))


def test_a_run_is_not_shortened(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    run.main(["--method", "bc", "--epochs", "2", "-o", str(tmp_path), *FAST])
    assert run.main(["--resume", str(tmp_path), "--epochs", "1"]) == 2
    assert "--epochs 1: the run has done 2 epochs already" in capsys.readouterr().err


def test_restarts_are_cosines_that_double_in_length_and_end_with_the_run() -> None:
    s = settings(epochs=62, schedule="restarts", restarts=4, lr=1.0)
    rates = [s.learning_rate(epoch) for epoch in range(62)]
    assert [epoch for epoch, rate in enumerate(rates) if rate == 1.0] == [0, 2, 6, 14, 30]
    assert rates[-1] < 0.003
    assert settings(epochs=2, schedule="restarts", restarts=4, lr=1.0).learning_rate(1) <= 1.0


def test_warm_up_climbs_to_the_schedule() -> None:
    s = settings(epochs=100, schedule="constant", warmup=3, lr=1.0)
    assert [s.learning_rate(epoch) for epoch in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]


def test_weight_decay_on_float_leaves_binary_kernels_alone() -> None:
    kernel, other = tf.Variable([[0.5, -0.5]]), tf.Variable([0.5, -0.5])
    for everywhere, shrinks in ((True, True), (False, False)):
        optimizer = quantized(
            PlainSGD, rule="bc", grid=Grid.binary(), kernels=[kernel], weight_decay_l2=0.1, learning_rate=1.0,
            decay_kernels=everywhere,
        )  # fmt: skip
        optimizer.build([kernel, other])
        kernel.assign([[0.5, -0.5]])
        other.assign([0.5, -0.5])
        optimizer.apply_gradients([(tf.zeros((1, 2)), kernel), (tf.zeros(2), other)])
        assert np.allclose(np.abs(kernel.numpy()), 0.45 if shrinks else 0.5)
        assert np.allclose(np.abs(other.numpy()), 0.45)


def test_a_buffer_stays_within_its_clip() -> None:
    for clip, bound in ((None, 1.0), (0.25, 0.25), (0.0, np.inf)):
        kernel = tf.Variable([[0.2, -0.2]])
        optimizer = quantized(
            PlainSGD, rule="bc", grid=Grid.binary(), kernels=[kernel], learning_rate=1.0, clip=clip
        )  # fmt: skip
        optimizer.build([kernel])
        optimizer.apply_gradients([(tf.constant([[-3.0, 3.0]]), kernel)])
        assert np.allclose(np.abs(kernel.numpy()), min(3.2, bound))


def test_the_sharpening_estimator_is_the_derivative_of_its_tanh() -> None:
    w = tf.constant([-2.0, -0.3, 0.0, 0.1, 1.5])
    for t in (0.1, 1.0, 10.0):
        with tf.GradientTape() as tape:
            tape.watch(w)
            y = sharpening(w, tf.sign(w), tf.constant(t))
        assert (y.numpy() == np.sign(w.numpy())).all()
        k = max(1, 1 / t)
        step = 1e-6
        x = w.numpy().astype(np.float64)
        slope = k * (np.tanh(t * (x + step)) - np.tanh(t * (x - step))) / (2 * step)
        assert tape.gradient(y, w).numpy() == pytest.approx(slope, abs=1e-4)


def test_the_estimator_sharpens_from_a_tenth_to_ten() -> None:
    s = settings(estimator="ede", epochs=100)
    assert s.sharpness(0) == pytest.approx(0.1)
    assert s.sharpness(50) == pytest.approx(1.0)
    assert s.sharpness(100) == pytest.approx(10.0)


def test_distillation_is_hintons() -> None:
    random = np.random.default_rng(0)
    student, teacher = random.normal(size=(2, 4, 3))

    def softmax(x: np.ndarray) -> np.ndarray:
        e = np.exp(x)
        return e / e.sum(1, keepdims=True)

    p, q = softmax(teacher / 3), softmax(student / 3)
    assert distillation(student, teacher, 3.0).numpy() == pytest.approx(9 * (p * np.log(p / q)).sum(1))
    assert distillation(teacher, teacher, 3.0).numpy() == pytest.approx(0)


def test_soft_targets_share_between_classes_and_partners() -> None:
    labels = tf.constant([0, 2], tf.int64)
    assert soft_targets(labels, 4, 0.2).numpy()[0] == pytest.approx([0.85, 0.05, 0.05, 0.05])
    assert soft_targets(labels, 4, 0.0, 0.75).numpy()[0] == pytest.approx([0.75, 0, 0.25, 0])


def test_cutout_greys_one_square_and_nothing_else() -> None:
    white = tf.fill([200, 8, 8, 3], 255.0)
    cut = mixing.cutout(white, 3, 0, 7).numpy()
    grey = (cut == mixing.GREY).all(-1)
    assert ((cut == 255) | (cut == mixing.GREY)).all()
    for image in grey:
        rows, columns = image.any(1), image.any(0)
        assert image.sum() == rows.sum() * columns.sum()  # a rectangle
        assert 2 <= rows.sum() <= 3  # it may stick out by one
    assert grey.any(0).all()  # anywhere
    assert (mixing.cutout(white, 3, 0, 7).numpy() == cut).all()
    assert (mixing.cutout(white, 3, 0, 8).numpy() != cut).any()


def test_mixup_mixes_pixels_as_it_says() -> None:
    pixels = tf.constant(np.random.default_rng(0).uniform(0, 255, (5, 2, 2, 1)), tf.float32)
    shares = set()
    for step in range(20):
        mixed, share = mixing.mixup(pixels, 0.5, 0, step)
        assert 0.5 <= float(share) <= 1
        shares.add(float(share))
        x = pixels.numpy()
        assert mixed.numpy() == pytest.approx(float(share) * x + (1 - float(share)) * x[::-1], rel=1e-5)
    assert len(shares) == 20


def test_a_teacher_is_asked_with_its_own_pixels(teacher: Path) -> None:
    digits = data_sets.load("digits", limit=300)
    assert isinstance(digits, data_sets.ImageArrays)
    found = load_teacher(teacher, digits)
    mean = np.load(teacher.with_name("input_mean.npy"))
    x = digits.x_test[:20]
    expected = load_model(teacher)((x.astype(np.float32) - mean) / 128).numpy()
    assert found.logits(x).numpy() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_labels_and_teacher_share_the_loss(weight: float, teacher: Path) -> None:
    digits = data_sets.load("digits", limit=300)
    assert isinstance(digits, data_sets.ImageArrays)
    found = load_teacher(teacher, digits)
    given = settings(teacher=str(teacher), teacher_weight=weight, teacher_temperature=2.0)
    trainer = Trainer(given, digits, teacher=found)
    x, y = digits.x_train[:16], tf.constant(digits.y_train[:16])
    logits = trainer.model(trainer.normalize(x), training=True)
    labelled = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits).numpy()
    taught = distillation(logits, found.logits(x), 2.0).numpy()
    losses = trainer.losses(logits, x, y, None).numpy()
    assert losses == pytest.approx((1 - weight) * labelled + weight * taught, rel=1e-5)


def test_a_teacher_of_other_data_is_refused(teacher: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    random = np.random.default_rng(0)
    x, y = random.integers(0, 256, (40, 16, 16, 3), np.uint8), np.arange(40) % 4
    np.savez(tmp_path / "other.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    arguments = ["--method", "bc", "--data", str(tmp_path / "other.npz"), "--teacher", str(teacher)]
    assert run.main([*arguments, "-o", str(tmp_path / "out")]) == 2
    assert "takes images of 8×8×1 and knows 10 classes, " in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--teacher", "--init-from"])
def test_a_model_that_saw_the_validation_images_is_refused(
    option: str, teacher: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    arguments = ["--method", "bc", *FAST, option, str(teacher), "--holdout", "0.2", "-o", str(tmp_path)]
    assert run.main(arguments) == 2
    assert "was trained with --holdout 0.1, so it has seen images that --holdout 0.2" in capsys.readouterr().err


def test_a_finished_run_without_its_checkpoint_keeps_its_model(tmp_path: Path) -> None:
    train(settings(epochs=1), tmp_path)
    (tmp_path / "checkpoint.npz").unlink()
    before = (tmp_path / "model.h5").read_bytes()
    with pytest.raises(InputError, match=r"finished run without its checkpoint.npz cannot go on; .*--init-from"):
        train(settings(epochs=2), tmp_path, resume=True)
    assert (tmp_path / "model.h5").read_bytes() == before


def test_a_run_whose_teacher_changed_is_not_continued(teacher: Path, tmp_path: Path) -> None:
    copy = tmp_path / "model.h5"
    copy.write_bytes(teacher.read_bytes())
    train(settings(epochs=1, teacher=str(copy)), tmp_path / "run")
    train(settings(method="adam", epochs=1), tmp_path / "other")
    copy.write_bytes((tmp_path / "other" / "model.h5").read_bytes())
    with pytest.raises(InputError, match=r"--teacher .*: the file has changed since the run began"):
        train(settings(epochs=2, teacher=str(copy)), tmp_path / "run", resume=True)


def test_a_run_starts_from_the_weights_it_is_given(teacher: Path) -> None:
    digits = data_sets.load("digits", limit=300)
    source = load_model(teacher)
    trainer = Trainer(settings(), digits)
    trainer.start_from(source, teacher)
    for mine, theirs in zip(trainer.model.get_weights(), source.get_weights(), strict=True):
        assert (mine == theirs).all()
    binary = Trainer(settings(method="sr"), digits)
    binary.start_from(source, teacher)
    for kernel, layer in zip(binary.kernels, binary.layers, strict=True):
        theirs = source.get_layer(layer.name).kernel.numpy()
        assert (kernel.numpy() == np.where(theirs >= 0, 1, -1)).all()
    with pytest.raises(InputError, match=r"conv1/kernel is 3×3×1×8 there and 3×3×1×16 here"):
        Trainer(settings(width=1.0), digits).start_from(source, teacher)
    with pytest.raises(InputError, match="use a model of the same --net"):
        Trainer(settings(net="resnet8"), digits).start_from(source, teacher)


def test_simulated_activations_lie_on_256_steps_and_leave_the_model_alone(tmp_path: Path) -> None:
    trainer = train(settings(epochs=2, activation_bits=8, activation_epochs=1, net="resnet8"), tmp_path)
    simulation = trainer.simulation
    assert simulation is not None
    # What a device keeps: each block's two convolutions and its shortcut, sums, the average and the logits.
    names = [layer.name for layer in simulation.layers]
    assert names[0] == "conv1_relu"
    assert "stage1_block1_conv2_bn" in names
    assert "stage2_block1_shortcut_bn" in names
    assert names[-2:] == ["average", "logits"]
    assert not {"conv1", "conv1_bn", "stage1_block1_add"} & set(names)
    digits = trainer.data
    assert isinstance(digits, data_sets.ImageArrays)
    x = trainer.normalize(digits.x_test[:64])
    plain = trainer.model(x, training=False).numpy()
    with simulation.active(calibrated=True):
        rounded = trainer.model(x, training=False).numpy()
    assert (trainer.model(x, training=False).numpy() == plain).all()
    assert len(np.unique(rounded)) <= 256 < len(np.unique(plain))
    assert np.mean(rounded.argmax(1) == plain.argmax(1)) > 0.9
    assert load_model(tmp_path / "model.h5")(x).numpy() == pytest.approx(plain, abs=1e-4)


def test_simulated_ranges_are_those_export_calibrates(tmp_path: Path) -> None:
    from flipbit.export import oracle
    from flipbit.export.conversion import convert

    trainer = train(settings(epochs=4, activation_bits=8, activation_epochs=2, net="resnet8"), tmp_path)
    digits, simulation = trainer.data, trainer.simulation
    assert isinstance(digits, data_sets.ImageArrays)
    assert simulation is not None
    simulation.calibrate(iter([trainer.simulated_steps()[2](tf.constant(digits.x_train))]))
    graph = convert(tmp_path / "model.h5", digits.x_train)
    scales = [graph.tensors[op.output].scale for op in graph]
    assert (simulation.high - simulation.low).numpy() / 255 == pytest.approx(scales, rel=1e-3)
    with simulation.active(calibrated=True):
        simulated = trainer.model(trainer.normalize(digits.x_test), training=False).numpy()
    out = graph.tensors[graph.output]
    integers = oracle.run(graph, (digits.x_test.astype(np.int16) - 128).astype(np.int8))[graph.output]
    steps = simulated / out.scale + out.zero_point - integers
    assert np.abs(steps).mean() < 1


def test_the_mean_rule_keeps_five_bits_per_weight_and_no_float(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    arguments = ["--method", "sr", "--buffer-bits", "4", "--buffer-rule", "mean", "--batch-growth", "4"]
    assert run.main([*arguments, "--epochs", "20", "-o", str(tmp_path), "--no-plot", "--no-tensorboard"]) == 0
    assert "5 bits per quantized weight (1 weight + 4 buffer + 0 moments)" in capsys.readouterr().out
    trainer = train(settings(method="sr", buffer_bits=4, buffer_rule="mean", epochs=1), tmp_path / "short")
    assert float_state(trainer.optimizer, trainer.kernels) == []
    assert json.loads((tmp_path / "run.json").read_text())["result"]["test_error"] < 0.05


def test_a_net_of_any_recipe_can_be_tuned_without_it() -> None:
    """As the fine-tuning that fine-tuning on a device is compared with does."""
    given = settings(standardize=True, clip=0.0, teacher="gone.h5", mixup=0.2, holdout=0.1, activation_bits=8)
    plain = given.without_recipes().resolve()
    assert plain == settings(standardize=True, clip=0.0)
    few_bits = settings(method="sr", buffer_bits=4, buffer_rule="mean").without_recipes()
    assert replace(few_bits, method="bc", buffer_bits=None).resolve().rule == "bc"


def test_the_batch_doubles_along_the_run() -> None:
    s = settings(batch=32, epochs=10, batch_growth=8)
    sizes = [s.batch_of(epoch) for epoch in range(10)]
    assert sizes[0] == 32
    assert sizes[-1] == 256
    assert sorted(sizes) == sizes
    assert set(sizes) == {32, 64, 128, 256}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--holdout", "0.6"], "--holdout 0.6: must be at least 0 and at most 0.5"),
        (["--keep", "best", "--holdout", "0"], "--keep best chooses by validation images"),
        (["--teacher", "none.h5"], "none.h5: no such file"),
        (["--teacher-weight", "1.5"], "--teacher-weight 1.5: must be at least 0 and at most 1"),
        (["--teacher-temperature", "0"], "--teacher-temperature 0: must be more than 0"),
        (["--label-smoothing", "1"], "--label-smoothing 1: must be at least 0 and less than 1"),
        (["--cutout", "-1"], "--cutout -1: must be at least 0"),
        (["--mixup", "-1"], "--mixup -1.0: must be at least 0"),
        (["--method", "sr", "--standardize"], "use --method bc, --bits 1"),
        (["--bits", "2", "--estimator", "ede"], "use --method bc, --bits 1"),
        (["--standardize", "--forward", "stochastic"], "drop --forward stochastic"),
        (["--method", "sr", "--clip", "1"], "--clip bounds a real-valued buffer"),
        (["--decay-on", "float"], "says where --weight-decay acts"),
        (["--activation-bits", "9"], "--activation-bits 9: 2 to 8"),
        (["--activations", "binary", "--net", "resnet8"], "does not go with --net resnet8: binary goes with bireal"),
        (["--activations", "real", "--net", "bireal"], "does not go with --net bireal"),
        (["--activations", "binary", "--net", "bireal", "--bits", "2"], "needs one-bit weights too: use --method bc"),
        (["--activation-epochs", "3"], "says when --activation-bits is simulated"),
        (["--activation-bits", "8", "--activation-epochs", "3", "--epochs", "2"], "the run has only 2 epochs"),
        (["--buffer-rule", "mean"], "use --method sr --buffer-bits 4"),
        (["--batch-growth", "3"], "use a power of 2"),
        (["--init-from", "none.h5"], "none.h5: no such file"),
        (["--net", "none.py:build"], "there is no file"),
        (["--warmup", "-1"], "--warmup -1: must be at least 0"),
        (["--restarts", "0"], "--restarts 0: must be at least 1"),
        (["--pace", "nan"], "--pace nan: must be more than 0"),
        (["--holdout", "nan"], "--holdout nan: must be at least 0"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_recipe_that_makes_no_sense_is_one_clear_line(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run.main(["--method", "bc", *arguments]) == 2
    errors = capsys.readouterr().err
    assert errors.startswith("error: ")
    assert message in errors
    assert len(errors.strip().splitlines()) == 1
    assert not any(p.is_file() for p in tmp_path.rglob("*"))


def test_layers_that_match_start_from_another_net(teacher: Path) -> None:
    source, net = load_model(teacher), build("vgg-small", (8, 8, 1), 4, Layers(width=0.5, seed=5))
    fresh = net.get_layer("logits").kernel.numpy()
    others = copy_matching(source, net, teacher)
    kernels = {layer.name: layer.kernel.numpy() for layer in net.layers if hasattr(layer, "kernel")}
    same = {name for name, kernel in kernels.items() if name not in others}
    assert others
    assert same
    for name in same:
        assert (kernels[name] == source.get_layer(name).kernel.numpy()).all()
    assert "logits" in others  # of other classes
    assert (kernels["logits"] == fresh).all()


def test_a_run_starts_from_the_layers_of_another_net_that_match(
    teacher: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    arguments = [
        "--method",
        "bc",
        *FAST,
        "--epochs",
        "1",
        "--net",
        "vgg-small",
        "--width",
        "0.25",
        "-o",
        str(tmp_path / "run"),
    ]
    assert run.main([*arguments, "--init-from", str(teacher)]) == 2  # other shapes: refused unless asked for
    assert run.main([*arguments, "--init-from", str(teacher), "--init-matching"]) == 2  # nothing is alike
    own = tmp_path / "own.py"
    own.write_text(
        "from flipbit.train.keras_larq import keras\n"
        "def build(shape, classes, layers):\n"
        "    image = keras.Input(shape)\n"
        "    x = layers.conv(image, 'conv1', 8)\n"
        "    x = keras.layers.GlobalAveragePooling2D(name='average')(layers.conv(x, 'first', 12))\n"
        "    return keras.Model(image, layers.dense(x, 'logits', classes, last=True))\n"
    )
    arguments = ["--method", "bc", *FAST, "--epochs", "1", "--net", f"{own}:build", "-o", str(tmp_path / "run")]
    assert run.main([*arguments, "--init-from", str(teacher), "--init-matching"]) == 0
    assert "first, first_bn, logits start anew" in caplog.text
