"""The fine-tune command: learns on a simulated board, goes on after an interruption, and says what is wrong."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small_nets import photos, small_image

from flipbit.runtime import finetune
from flipbit.runtime.cli import main
from flipbit.runtime.drift import DRIFTS, SEVERITIES, apply_drift
from flipbit.runtime.errors import ArgumentError
from flipbit.runtime.finetune import METHODS, Job, Samples, load_samples, tune, tune_on_board, write_atomically
from flipbit.runtime.image import read_image
from flipbit.runtime.learner import Learner
from flipbit.runtime.model import Model
from flipbit.runtime.target import PowerLost


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "net.fbit").write_bytes(small_image())
    x = photos(40)
    y = Model(small_image()).predict(x, raw=True).argmax(1) % 5
    y[::3] = (y[::3] + 1) % 5  # something to learn
    np.savez(tmp_path / "data.npz", x_test=x, y_test=y)
    return tmp_path


def arguments(folder: Path, *more: str) -> list[str]:
    return ["finetune", str(folder / "net.fbit"), "--data", str(folder / "data.npz"), "--target", "sim:nrf52840-dk",
            "--steps", "3", "--samples", "24", *more]  # fmt: skip


def some_samples(folder: Path) -> Samples:
    return load_samples(Model(folder / "net.fbit"), str(folder / "data.npz"), 24, 16, 1)


# Learning


def test_the_tuned_image_is_the_one_the_core_makes(files: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(arguments(files, "--method", "sr", "--rate", "0.05")) == 0
    shown = capsys.readouterr().out
    samples = some_samples(files)
    learner = Learner(small_image(), Job("sr").config)
    for step in range(3):
        learner.step(samples.x, samples.y, 0.05 * (1 - step / 3))
    tuned = (files / "net-tuned.fbit").read_bytes()
    assert tuned == learner.image != small_image()
    for word in ("held back", "flips", "device time", "points a joule", "samples an hour", "years", "estimate"):
        assert word in shown


def test_json_has_every_step_and_the_report(files: Path, capsys: pytest.CaptureFixture) -> None:
    output = files / "o.fbit"
    assert main(arguments(files, "--json", "--timeline", "-o", str(output))) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [step["step"] for step in facts["steps"]] == [1, 2, 3]
    energies = [step["joules"] for step in facts["steps"]]
    assert energies == sorted(energies) and energies[0] > 0
    assert facts["joules"] == pytest.approx(facts["joules_computing"] + facts["joules_saving"])
    assert facts["accuracy_after"] == facts["steps"][-1]["held_back"]
    assert {"boot", "step", "save"} == {event["kind"] for event in facts["timeline"]}
    assert facts["saves"] == 1 and facts["erases"] > 0 and facts["years"] > 0
    read_image(output.read_bytes())


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_what_its_name_says(files: Path, method: str) -> None:
    result = tune(small_image(), some_samples(files), "nrf52840-dk", Job(method, 3, seed=2))
    before, after = read_image(small_image()), read_image(result.image)
    bits = any(
        not np.array_equal(a.weights, b.weights) for a, b in zip(before.operations, after.operations) if a.binary
    )
    int8 = [(a, b) for a, b in zip(before.operations, after.operations) if a.weights is not None and not a.binary]
    assert bits == METHODS[method].bits == (sum(row.flips for row in result.rows) > 0)
    assert any(not np.array_equal(a.bias, b.bias) for a, b in int8) == METHODS[method].bias


def test_rates_fall_in_a_line() -> None:
    rates = Job("sr+bias", 4, rate_bits=0.4, rate_bias=0.2).rates
    assert rates.bits == pytest.approx([0.4, 0.3, 0.2, 0.1])
    assert rates.bias == pytest.approx([0.2, 0.15, 0.1, 0.05])


def test_compare_shows_the_methods_side_by_side(files: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(arguments(files, "--compare")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:6]] == ["none", "bias", "sr", "buffer"]
    assert "BC offline" in lines[-1] and "--bc" in lines[-1]  # what is left out, and why
    assert not (files / "net-tuned.fbit").exists()


def test_a_battery_that_ends_leaves_a_good_image_and_says_why(files: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(arguments(files, "--supply", "battery:0.0045")) == 0
    assert "ended early" in capsys.readouterr().out
    read_image((files / "net-tuned.fbit").read_bytes())


def test_the_script_runs_by_its_path(files: Path) -> None:
    script = Path(finetune.__file__)
    command = [sys.executable, str(script), *arguments(files, "--steps", "1")[1:]]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "wrote" in done.stdout


def test_energy_and_accuracy_are_plotted(files: Path) -> None:
    pytest.importorskip("matplotlib")
    assert main(arguments(files, "--steps", "2", "--plot", str(files / "p.png"))) == 0
    assert (files / "p.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_an_emulated_board_learns_the_bits_of_the_simulated_one(files: Path) -> None:
    for tool in ("qemu-system-arm", "arm-none-eabi-gcc", "make"):
        if not shutil.which(tool):
            pytest.skip(f"needs {tool}")
    tuned = []
    for target in ("sim:netduinoplus2", "qemu:netduinoplus2"):
        more = (
            "--target",
            target,
            "--method",
            "sr",
            "--steps",
            "2",
            "--samples",
            "6",
            "--rate",
            "0.05",
            "-o",
            str(files / "o.fbit"),
        )
        assert main(arguments(files, *more)) == 0
        tuned.append((files / "o.fbit").read_bytes())
    assert tuned[0] == tuned[1] != small_image()


# Going on


def test_a_run_stopped_anywhere_goes_on_to_the_same_bits(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples, job = some_samples(files), Job("sr", steps=3, rate_bits=0.05, arena=12_000)
    whole = tune(small_image(), samples, "nrf52840-dk", job)
    plain = finetune.SimulatedDevice.sample
    for stop in (5, 60, 200, 333):
        folder, seen = files / f"stop{stop}", 0

        def interrupted(self, x, label, stop=stop):
            nonlocal seen
            seen += 1
            if seen == stop:
                raise KeyboardInterrupt
            return plain(self, x, label)

        monkeypatch.setattr(finetune.SimulatedDevice, "sample", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tune(small_image(), samples, "nrf52840-dk", job, checkpoint=folder)
        monkeypatch.setattr(finetune.SimulatedDevice, "sample", plain)
        result = tune(small_image(), samples, "nrf52840-dk", job, checkpoint=folder)
        assert result.image == whole.image
        assert [(r.step, r.held_back, r.flips) for r in result.rows] == [
            (r.step, r.held_back, r.flips) for r in whole.rows
        ]
        assert [p.name for p in folder.iterdir()] == ["tuning.ckpt"]


class Restarting(Learner):
    """A board that restarts while its image is read, as many times as it is told, and goes on from its last save."""

    seconds = None

    def __init__(self, restarts: set[int], saves: bool):
        super().__init__(small_image(), Job("sr").config)
        self.restarts, self.saves, self.reads = restarts, saves, 0

    @property
    def image(self) -> bytes:
        self.reads += 1
        if self.reads in self.restarts:
            saved = (super().image, super().state) if self.saves else (small_image(), None)
            Learner.__init__(self, saved[0], self.config, state=saved[1])
            raise PowerLost
        return super().image

    def close(self) -> None:
        pass


@pytest.mark.parametrize("saves", [True, False])
@pytest.mark.parametrize("restarts", [{1}, {3}, {4}, {2, 3, 5}, {1, 2, 3, 4, 5, 6, 7, 8}])
def test_a_board_that_restarts_while_it_is_read_ends_with_the_same_bits(
    files: Path, restarts: set, saves: bool
) -> None:
    samples, job = some_samples(files), Job("sr", steps=3, rate_bits=0.05)
    whole = Learner(small_image(), job.config)
    for rate in job.rates.bits:
        whole.step(samples.x, samples.y, rate)
    rows, image = tune_on_board(Restarting(restarts, saves), samples, job)
    assert image == whole.image != small_image()
    assert [row.step for row in rows] == sorted({row.step for row in rows})


def test_a_checkpoint_of_another_run_is_refused(files: Path) -> None:
    samples, folder = some_samples(files), files / "c"
    tune(small_image(), samples, "nrf52840-dk", Job(steps=1), checkpoint=folder)
    with pytest.raises(ArgumentError, match="seed differ"):
        tune(small_image(), samples, "nrf52840-dk", Job(steps=1, seed=3), checkpoint=folder)
    (folder / "tuning.ckpt").write_bytes(b"something else")
    with pytest.raises(ArgumentError, match="not a checkpoint"):
        tune(small_image(), samples, "nrf52840-dk", Job(steps=1), checkpoint=folder)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_atomically(tmp_path / "f", b"old")

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(finetune.os, "fsync", fails)
    with pytest.raises(OSError, match="space"):
        write_atomically(tmp_path / "f", b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["f"] and (tmp_path / "f").read_bytes() == b"old"


# What is wrong


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--target", "sim:abacus"), "no device 'abacus'"),
        (("--target", "sim:stm32vldiscovery"), "bytes of RAM"),
        (("--samples", "40"), "cannot give 40 samples"),
        (("--steps", "0"), "at least 1"),
        (("--rate", "2"), "at most 1"),
        (("--buffer-bits", "3"), "--method buffer"),
        (("--drift", "rain:1"), "cast, dim, blur, noise"),
        (("--drift", "cast:9"), "severity"),
        (("--supply", "hamster"), "expected mains"),
        (("--data", "nowhere"), "no such file"),
        (("--arena", "100"), "the arena needs"),
        (("-o", "/nowhere/x.fbit"), "no such folder"),
        (("--bc", "model.h5"), "--compare"),
    ],
)
def test_bad_input_is_explained_and_ends_with_2(files: Path, capsys: pytest.CaptureFixture, more, says) -> None:
    assert main(arguments(files, *more)) == 2
    assert says in capsys.readouterr().err
    assert not (files / "net-tuned.fbit").exists()


def test_data_without_labels_is_refused(files: Path, capsys: pytest.CaptureFixture) -> None:
    np.savez(files / "data.npz", x=photos(30))
    assert main(arguments(files)) == 2
    assert "needs a label" in capsys.readouterr().err


# Changes of the camera


@pytest.mark.parametrize("name", DRIFTS)
def test_a_change_is_stronger_with_its_severity(name: str) -> None:
    x = np.random.default_rng(0).integers(0, 256, (20, 16, 16, 3), np.uint8)
    far = [np.abs(apply_drift(x, f"{name}:{s}").astype(int) - x).mean() for s in SEVERITIES]
    assert 0 < far[0] < far[1] < far[2]
    assert np.array_equal(apply_drift(x, f"{name}:2", seed=4), apply_drift(x, f"{name}:2", seed=4))


def test_changes_do_what_they_say() -> None:
    flat = np.full((1, 5, 5, 3), 100, np.uint8)
    assert apply_drift(flat, "cast:2")[0, 0, 0].tolist() == [135, 100, 55]
    assert np.unique(apply_drift(flat, "dim:1")) == [50]
    assert np.array_equal(apply_drift(flat, "blur:3"), flat)  # edges are repeated
    point = np.zeros((1, 5, 5, 1), np.uint8)
    point[0, 2, 2] = 160
    assert apply_drift(point, "blur:1")[0, 1:4, 1:4, 0].tolist() == [[10, 20, 10], [20, 40, 20], [10, 20, 10]]
    assert apply_drift(np.full((50, 20, 20, 3), 128, np.uint8), "noise:2").std() == pytest.approx(20, rel=0.02)
    assert np.unique(apply_drift(flat, "dim:1+dim:1")) == [25]
    with pytest.raises(ArgumentError, match="3 channels"):
        apply_drift(point, "cast:1")
