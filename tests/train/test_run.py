"""train/run.py as a user meets it: learning, stopping, going on, and every wrong input."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flipbit.train import Settings, bench, run
from flipbit.train.checkpoint import Checkpoint
from flipbit.train.data import batches as data_sets
from flipbit.train.loop import train
from flipbit.train.nets.model_file import load_model
from flipbit.train.trainer import Trainer, Watcher
from tests.checkout import ROOT
from tests.patience import PATIENCE

SCRIPT = ROOT / "train" / "run.py"
FAST = ["--net", "vgg-small", "--width", "0.5", "--limit", "256", "--no-plot", "--no-tensorboard"]


def command(*arguments: object) -> list[str]:
    return [sys.executable, str(SCRIPT), *map(str, arguments)]


def slow(*values: Any) -> Any:
    """A parameter set that only make test-all runs."""
    return pytest.param(*values, marks=pytest.mark.slow)


def accuracy(folder: Path) -> float:
    return 1 - json.loads((folder / "run.json").read_text())["result"]["test_error"]


@pytest.mark.parametrize(
    ("arguments", "least"),
    [
        slow(["--method", "adam"], 0.97),
        (["--method", "bc"], 0.97),
        slow(["--method", "bc", "--scale", "filter"], 0.97),
        slow(["--method", "bc", "--optimizer", "sgd"], 0.95),
        slow(["--method", "bc", "--bits", "2", "--quantize", "all"], 0.95),
        (["--method", "sr", "--buffer-bits", "3"], 0.95),
        slow(["--method", "sr"], 0.85),
        slow(["--method", "r"], 0.70),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_each_method_learns_the_digits(arguments: list[str], least: float, tmp_path: Path) -> None:
    assert run.main([*arguments, "--epochs", "30", "-o", str(tmp_path), "--no-plot", "--no-tensorboard"]) == 0
    assert accuracy(tmp_path) >= least
    layers = json.loads((tmp_path / "history.json").read_text())[-1]["layers"]
    if arguments[-1] == "r":  # the paper's Figure 4a: Adam's steps are too small to round anywhere else
        assert all(layer["changed_since_start"] == 0 for layer in layers)
    if arguments[-1] == "sr":
        assert all(layer["changed_since_start"] > 0 and layer["distance"] == 0 for layer in layers)


def test_the_output_folder_has_all_a_user_needs(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder = tmp_path / "out"
    assert run.main(["--method", "bc", "--epochs", "2", "--width", "0.5", "-o", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert f"model: {folder / 'model.h5'}" in printed
    assert "97 bits per quantized weight (1 weight + 32 buffer + 64 moments)" in printed
    names = {p.name for p in folder.iterdir()}
    assert names == {"model.h5", "checkpoint.npz", "run.json", "history.json", "history.csv", "layers.csv",
                     "curves.png", "confusion.json", "confusion.png", "tensorboard"}  # fmt: skip
    saved = json.loads((folder / "run.json").read_text())
    assert saved["status"] == "finished"
    again = Settings.from_json(saved["settings"]).resolve()
    assert json.loads(json.dumps(again.to_json())) == saved["settings"]
    history = json.loads((folder / "history.json").read_text())
    assert [record["epoch"] for record in history] == [1, 2]
    assert len((folder / "layers.csv").read_text().splitlines()) == 1 + 2 * 6
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert list((folder / "tensorboard").glob("events.out.tfevents.*"))
    # What the file says is what the training measured.
    digits = data_sets.load("digits")
    assert isinstance(digits, data_sets.ImageArrays)
    logits = load_model(folder / "model.h5")((digits.x_test.astype(np.float32) - 128) / 128).numpy()
    assert np.mean(logits.argmax(1) != digits.y_test) == pytest.approx(saved["result"]["test_error"])


def test_the_mean_image_is_subtracted_and_kept(tmp_path: Path) -> None:
    assert run.main(["--method", "bc", "--input", "mean", "--epochs", "1", "-o", str(tmp_path), *FAST]) == 0
    mean = np.load(tmp_path / "input_mean.npy")
    digits = data_sets.load("digits", limit=256)
    assert isinstance(digits, data_sets.ImageArrays)
    assert mean == pytest.approx(digits.x_train.mean(0), abs=1e-3)


def settings(**given: Any) -> Settings:
    return Settings(width=0.5, limit=300, **given).resolve()


@pytest.mark.parametrize(
    "given",
    [
        slow({"method": "adam"}),
        {"method": "bc", "forward": "stochastic"},
        slow({"method": "bc", "optimizer": "sgd", "momentum": 0.9, "weight_decay": 1e-4}),
        slow({"method": "sr", "optimizer": "sgd"}),
        {"method": "sr", "buffer_bits": 3},
    ],
    ids=str,
)
def test_a_resumed_run_ends_with_the_same_bits(given: dict[str, Any], tmp_path: Path) -> None:
    whole = train(settings(epochs=4, **given), tmp_path / "whole")

    class PowerCut(Exception):
        pass

    class Cut(Watcher):
        def epoch_started(self, epoch: int) -> None:
            self.epoch, self.steps = epoch, 0

        def step(self, images: int, loss: float, wrong: int) -> None:
            self.steps += 1
            if self.epoch == 2 and self.steps == 3:
                raise PowerCut

    with pytest.raises(PowerCut):
        train(settings(epochs=4, **given), tmp_path / "parts", Cut())
    resumed = train(settings(epochs=4, **given), tmp_path / "parts", resume=True)
    ours, theirs = resumed.checkpoint(), whole.checkpoint()
    for mine, other in zip(ours.weights + ours.optimizer, theirs.weights + theirs.optimizer):
        assert mine.dtype == other.dtype
        assert (np.asarray(mine) == np.asarray(other)).all()
    assert all((a == b).all() for a, b in zip(ours.first_signs, theirs.first_signs))
    times = ("seconds", "images_per_second")
    for a, b in zip(ours.history, theirs.history):
        assert {k: v for k, v in a.items() if k not in times} == {k: v for k, v in b.items() if k not in times}


def wait_for(path: Path, process: subprocess.Popen, seconds: float = PATIENCE) -> None:
    end = time.monotonic() + seconds
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, f"{path} did not appear"
        time.sleep(0.02)


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, slow(signal.SIGINT), slow(signal.SIGTERM)], ids=lambda number: number.name
)
def test_a_run_that_is_stopped_keeps_its_epochs_and_goes_on(number: signal.Signals, tmp_path: Path) -> None:
    arguments = ["--method", "sr", "--buffer-bits", "2", "--epochs", "40", *FAST]
    process = subprocess.Popen(
        command(*arguments, "-o", tmp_path / "run"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for(tmp_path / "run" / "checkpoint.npz", process)
    process.send_signal(number)
    _, errors = process.communicate(timeout=PATIENCE)
    if number == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 130
        assert "Traceback" not in errors
        assert f"go on with: python train/run.py --resume {tmp_path / 'run'}" in errors
    done = Checkpoint.load(tmp_path / "run" / "checkpoint.npz").epochs_done
    assert 1 <= done < 40
    assert run.main(["--resume", str(tmp_path / "run"), "--no-plot", "--no-tensorboard"]) == 0
    assert run.main([*arguments, "-o", str(tmp_path / "whole")]) == 0
    a, b = (Checkpoint.load(tmp_path / name / "checkpoint.npz") for name in ("run", "whole"))
    assert all((x == y).all() for x, y in zip(a.weights + a.optimizer, b.weights + b.optimizer))


def test_a_full_disk_is_said_and_the_last_epoch_survives(tmp_path: Path) -> None:
    run.main(["--method", "bc", "--epochs", "2", "-o", str(tmp_path), *FAST])
    saved = json.loads((tmp_path / "run.json").read_text())
    saved["settings"]["epochs"] = 4
    (tmp_path / "run.json").write_text(json.dumps(saved))
    before = (tmp_path / "checkpoint.npz").read_bytes()
    limit = len(before) // 2048  # in KiB: no file may grow beyond half of what a checkpoint needs
    line = f"ulimit -f {limit}; trap '' XFSZ; exec \"$@\""
    done = subprocess.run(["bash", "-c", line, "bash", *command("--resume", tmp_path)], capture_output=True, text=True)
    assert done.returncode == 2
    assert "File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "checkpoint.npz").read_bytes() == before
    assert not list(tmp_path.glob(".*part*"))


def test_resuming_a_finished_run_only_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    run.main(["--method", "bc", "--epochs", "1", "-o", str(tmp_path), *FAST])
    before = (tmp_path / "model.h5").read_bytes()
    assert run.main(["--resume", str(tmp_path), "--no-plot"]) == 0
    assert "after 1 epochs" in capsys.readouterr().out
    assert (tmp_path / "model.h5").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--method is needed: adam, bc, sr, r"),
        (["--method", "bc", "--data", "nowhere"], "no such data set or folder"),
        (["--method", "bc", "--data", "cifar10", "--data-dir", "."], "cifar10: not found: put the official files"),
        (["--method", "bc", "--data", "imagenet", "--data-dir", "."], "has no train/ folder"),
        (["--method", "bc", "--data", "x.npz"], "not a readable .npz"),
        (["--method", "bc", "--buffer-bits", "2"], "--buffer-bits goes with --method sr"),
        (["--method", "sr", "--buffer-bits", "9"], "--buffer-bits 9: 0 to 8"),
        (["--method", "sr", "--buffer-bits", "2", "--bits", "2"], "beside one sign bit: drop --bits"),
        (["--method", "sr", "--scale", "filter"], "use --method bc"),
        (["--method", "r", "--forward", "stochastic"], "use --method bc"),
        (["--method", "adam", "--bits", "2"], "--method adam trains in full precision"),
        (["--method", "bc", "--bits", "9"], "--bits 9: at most 8"),
        (["--method", "bc", "--width", "0"], "--width 0.0: must be more than 0"),
        (["--method", "bc", "--batch", "0"], "--batch 0: must be at least 1"),
        (["--method", "bc", "--epochs", "-1"], "--epochs -1: must be at least 1"),
        (["--method", "bc", "--lr", "-1"], "--lr -1.0: must be at least 0"),
        (["--method", "bc", "--seed", "-1"], "--seed -1: must be 0 to"),
        (["--method", "bc", "--lr-drops", "0"], "--lr-drops: epochs count from 1"),
        (["--resume", "nowhere"], "no run.json there"),
        (["--resume", ".", "--method", "bc"], "drop --method"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_input_is_one_clear_line_and_status_2(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FLIPBIT_DATA", raising=False)
    assert run.main(arguments) == 2
    errors = capsys.readouterr().err
    assert errors.startswith("error: ")
    assert message in errors
    assert len(errors.strip().splitlines()) == 1
    assert not any(p.is_file() for p in tmp_path.rglob("*"))


@pytest.mark.parametrize(
    "arguments", [["--method", "xyz"], ["--net", "alexnet"], ["--lr", "much"], ["--lr-drops", "a,b"]]
)
def test_words_the_parser_does_not_know_give_status_2(arguments: list[str], capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as stopped:
        run.main(arguments)
    assert stopped.value.code == 2
    assert arguments[0] in capsys.readouterr().err


def test_an_output_that_holds_a_run_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "run.json").write_text("{}")
    assert run.main(["--method", "bc", "-o", str(tmp_path)]) == 2
    assert "holds a run already; go on with --resume" in capsys.readouterr().err


def test_an_output_that_cannot_be_made_is_said(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    assert run.main(["--method", "bc", "-o", str(tmp_path / "file" / "x")]) == 2
    assert "Not a directory" in capsys.readouterr().err


def test_runs_without_a_folder_get_one_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert run.main(["--method", "r", "--epochs", "1", *FAST]) == 0
    assert {p.name for p in (tmp_path / "runs").iterdir()} == {"digits-vgg-small-w0.5-r", "digits-vgg-small-w0.5-r-2"}


def test_a_damaged_checkpoint_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    run.main(["--method", "bc", "--epochs", "1", "-o", str(tmp_path), *FAST])
    content = (tmp_path / "checkpoint.npz").read_bytes()
    (tmp_path / "checkpoint.npz").write_bytes(content[: len(content) // 2])
    assert run.main(["--resume", str(tmp_path)]) == 2
    assert "not a readable checkpoint" in capsys.readouterr().err


def test_a_checkpoint_of_another_net_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    run.main(["--method", "bc", "--epochs", "1", "-o", str(tmp_path), *FAST])
    saved = json.loads((tmp_path / "run.json").read_text())
    saved["settings"]["width"] = 0.25
    (tmp_path / "run.json").write_text(json.dumps(saved))
    assert run.main(["--resume", str(tmp_path)]) == 2
    assert "belongs to another net" in capsys.readouterr().err


def test_a_diverging_run_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    arguments = ["--method", "adam", "--optimizer", "sgd", "--lr", "3e38", "--epochs", "2", "-o", str(tmp_path)]
    assert run.main([*arguments, *FAST]) == 2
    assert "try a smaller --lr" in capsys.readouterr().err


def test_the_paper_recipe_is_the_papers() -> None:
    s = Settings(method="bc", data="cifar10", recipe="paper").resolve()
    assert (s.net, s.batch, s.lr, s.epochs, s.weight_decay, s.input) == ("vgg9", 128, 0.01, 160, 0, "mean")
    rates = [s.learning_rate(e) for e in (0, 81, 82, 121, 122, 159)]
    assert rates == pytest.approx([0.01, 0.01, 0.001, 0.001, 0.0001, 0.0001])
    s = Settings(method="sr", data="imagenet", recipe="paper").resolve()
    assert (s.net, s.epochs, s.lr_drops) == ("resnet18", 90, (30, 60))


def test_sr_and_r_start_from_rademacher_variables() -> None:
    digits = data_sets.load("digits", limit=64)
    for method in ("sr", "r"):
        trainer = Trainer(Settings(method=method, recipe="paper", net="vgg-small").resolve(), digits)
        for kernel in trainer.kernels:
            w = kernel.read_value().numpy()
            assert set(np.unique(w)) == {-1, 1}
            assert abs(w.mean()) < 5 / np.sqrt(w.size)


def test_integrity_check_notices_a_weight_off_its_grid() -> None:
    trainer = Trainer(
        Settings(method="sr", buffer_bits=2, net="vgg-small").resolve(), data_sets.load("digits", limit=64)
    )
    trainer.check_integrity()
    w = trainer.kernels[0].read_value().numpy()
    w[0, 0, 0, 0] = 0.5
    trainer.kernels[0].assign(w)
    with pytest.raises(AssertionError, match="conv1: weights off the grid"):
        trainer.check_integrity()


@pytest.mark.slow
def test_real_cifar10_is_learned_in_a_short_run(cifar10: Path, tmp_path: Path) -> None:
    for method in ("bc", "sr"):
        folder = tmp_path / method
        arguments = ["--method", method, "--data", "cifar10", "--data-dir", str(cifar10), "--limit", "4000"]
        assert run.main([*arguments, "--epochs", "2", "-o", str(folder), "--no-plot", "--no-tensorboard"]) == 0
        first, last = (r["loss"] for r in json.loads((folder / "history.json").read_text()))
        assert last < first < 2.5
        assert last < np.log(10) - 0.2


@pytest.mark.slow
def test_the_benchmark_prints_ratios(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / "bench.json"
    arguments = ["--net", "vgg-small", "--variant", "sr", "--batch", "32", "--seconds", "0.2", "--json", str(path)]
    assert bench.main(arguments) == 0
    rows = json.loads(path.read_text())["nets"]["vgg-small"]
    assert rows["float Keras"]["ratio"] == 1
    assert rows["sr"]["ratio"] > 0
    assert rows["sr"]["peak_kb"] > 50_000
    assert rows["sr"]["peak_kb"] != rows["float Keras"]["peak_kb"]  # each process' own, not their parent's
    assert "data pipeline alone" in capsys.readouterr().out


def test_help_fits_a_screen_and_has_examples() -> None:
    done = subprocess.run(command("--help"), capture_output=True, text=True, env={**os.environ, "COLUMNS": "110"})
    assert done.returncode == 0
    assert "python train/run.py --method bc" in done.stdout
    assert len(done.stdout.splitlines()) < 85
