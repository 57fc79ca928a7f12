"""Training a net that gives values: mean squared error, RMSE and MAE, going on, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from flipbit.train import run
from flipbit.train.data import batches as data_sets
from flipbit.train.loop import train
from flipbit.train.measures import UNITS
from flipbit.train.nets.model_file import load_model
from flipbit.train.settings import InputError, Settings
from flipbit.train.trainer import Trainer, Watcher
from tests.nets.bars import bars, write_bars


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_bars(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def trained(folder: Path, *arguments: str, data: str = "bars.npz", net: str = "net.py:build") -> dict:
    """What run.json says of a run."""
    quiet = ["--no-plot", "--no-tensorboard"]
    assert run.main(["--method", "bc", "--data", data, "--net", net, "-o", "run", *quiet, *arguments]) == 0
    return json.loads((folder / "run" / "run.json").read_text())


def test_a_net_learns_angles_and_says_how_far_it_is_off(folder: Path) -> None:
    said = trained(folder, "--epochs", "8", "--batch", "32")
    result = said["result"]
    x, y = bars(120, seed=1)
    values = load_model(folder / "run" / "model.h5")((x.astype(np.float32) - 128) / 128).numpy()
    apart = values - y
    assert said["output"] == "values" and said["classes"] == []
    assert result["test_rmse"] == pytest.approx(np.sqrt(np.mean(apart**2)), rel=1e-4)
    assert result["test_mae"] == pytest.approx(np.mean(np.abs(apart)), rel=1e-4)
    assert result["test_rmse_of_each"] == pytest.approx(np.sqrt(np.mean(apart**2, 0)), rel=1e-4)
    assert result["test_loss"] == pytest.approx(np.mean(apart**2) / bars(480)[1].var(0).mean(), rel=1e-4)
    assert result["test_rmse"] < 0.5 * np.sqrt(y.var(0).mean())  # of a net that always gives the mean
    assert (folder / "run" / "history.csv").read_text().startswith("epoch,lr,loss,rmse,mae,test_loss,test_rmse")
    assert not (folder / "run" / "confusion.json").exists()


def test_a_net_may_give_an_image(folder: Path) -> None:
    said = trained(folder, "--epochs", "2", data="same.npz", net="net.py:same_size")
    assert said["output_shape"] == [12, 12, 1]
    assert said["result"]["test_loss"] < 1
    assert "test_rmse_of_each" not in said["result"]  # 144 values are not listed


def test_a_run_of_values_resumes_bit_for_bit_and_keeps_its_best_epoch(folder: Path) -> None:
    class Stop(Exception):
        pass

    class Cut(Watcher):
        def epoch_started(self, epoch: int) -> None:
            if epoch == 1:
                raise Stop

    def settings() -> Settings:
        chosen = {"activation_bits": 8, "holdout": 0.25, "keep": "best", "limit": 128}
        return Settings(method="bc", data="bars.npz", net="net.py:build", epochs=2, **chosen).resolve()

    whole = train(settings(), folder / "whole")
    with pytest.raises(Stop):
        train(settings(), folder / "cut", Cut())
    resumed = train(settings(), folder / "cut", resume=True)
    for a, b in zip(whole.model.get_weights(), resumed.model.get_weights()):
        assert np.array_equal(a, b)
    epochs = [record for record in whole.history if "quantized_validation_rmse" in record]
    best = min(epochs, key=lambda record: record["quantized_validation_rmse"])
    assert whole.result["epoch"] == best["epoch"]
    assert whole.result["quantized_test_rmse"] == pytest.approx(whole.result["test_rmse"], rel=0.2)


def test_the_layer_that_brings_values_into_units_never_learns(folder: Path) -> None:
    data = data_sets.load("bars.npz")
    trainer = Trainer(Settings(method="bc", data="bars.npz", net="vgg-small", quantize="all").resolve(), data)
    layer = trainer.model.get_layer(UNITS)
    gain, centre, mean, variance = (weight.numpy() for weight in layer.weights)
    _, y = bars(480)
    assert gain == pytest.approx(y.std(0), rel=1e-5) and centre == pytest.approx(y.mean(0), rel=1e-5)
    assert not mean.any() and variance == pytest.approx([1, 1], abs=1e-5)
    assert not {id(weight) for weight in layer.weights} & {id(weight) for weight in trainer.model.trainable_variables}
    assert trainer.model.layers[-2].trainable  # weights of ±1 cannot grow: a BatchNorm that learns lies between


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--net", "net.py:two_outputs"], "Concatenate"),
        (["--net", "net.py:build", "--label-smoothing", "0.1"], "--label-smoothing"),
        (["--net", "net.py:build", "--mixup", "0.2"], "--mixup"),
        (["--net", "net.py:build", "--augment", "photos"], "--augment photos"),
        (["--net", "net.py:same_size"], "values of (2,)"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_makes_no_sense_for_values_is_refused(
    arguments: list[str], word: str, folder: Path, capsys: pytest.CaptureFixture
) -> None:
    before = sorted(folder.rglob("*"))
    assert run.main(["--method", "bc", "--data", "bars.npz", "-o", "run", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and word in said and said.count("\n") == 1
    assert [path for path in sorted(folder.rglob("*")) if "__pycache__" not in str(path)] == before


def test_values_are_told_from_labels(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (20, 8, 8), np.uint8)

    def load(y: np.ndarray) -> data_sets.DataSet:
        np.savez(tmp_path / "own.npz", x_train=x, y_train=y)
        return data_sets.load(str(tmp_path / "own.npz"))

    assert load(np.arange(20) % 4).values is None
    assert load(np.linspace(-1, 1, 20)).values == (1,)
    assert load(np.random.default_rng(0).normal(size=(20, 3))).outputs == 3
    assert load(x).values == (8, 8)
    whole = load((np.arange(20) % 4).astype(np.float64))
    assert whole.values == (1,) and "store integers" in whole.notes[0]
    assert (whole.train_size, whole.test_size) == (16, 4)
    with pytest.raises(InputError, match=r"np\.argmax"):
        load(np.eye(4)[np.arange(20) % 4])
    with pytest.raises(InputError, match="NaN"):
        load(np.full(20, np.nan))
