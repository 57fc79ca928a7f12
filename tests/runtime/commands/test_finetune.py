"""The fine-tune command: learns on a simulated board, goes on after an interruption, and says what is wrong."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from flipbit.runtime.commands import finetune
from flipbit.runtime.commands.cli import main
from flipbit.runtime.commands.finetune import METHODS, Job, Samples, load_samples, tune, tune_on_board
from flipbit.runtime.core.learner import Learner
from flipbit.runtime.core.model import Model
from flipbit.runtime.core.target import PowerLost
from flipbit.runtime.data.drift import DRIFTS, SEVERITIES, apply_drift
from flipbit.runtime.errors import ArgumentError, FlipbitError
from flipbit.runtime.image.reader import read_image
from tests.nets.small_nets import photos, small_image


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
    report = files / "compared.json"
    assert main(arguments(files, "--compare", "--report", str(report))) == 0
    assert [run["method"] for run in json.loads(report.read_text())] == ["bias", "sr", "buffer"]
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:6]] == ["none", "bias", "sr", "buffer"]
    assert "BC offline" in lines[-1] and "--bc" in lines[-1]  # what is left out, and why
    assert not (files / "net-tuned.fbit").exists()


def test_compare_writes_the_best_image_and_draws_every_method(files: Path, capsys: pytest.CaptureFixture) -> None:
    pytest.importorskip("matplotlib")
    output, drawn = files / "best.fbit", files / "all.png"
    more = ("-o", str(output), "--plot", str(drawn), "--checkpoint", str(files / "kept"))
    assert main(arguments(files, "--compare", *more)) == 0
    shown = capsys.readouterr().out
    assert drawn.read_bytes().startswith(b"\x89PNG") and f"wrote {drawn}" in shown
    samples = load_samples(Model(files / "net.fbit"), str(files / "data.npz"), 24, finetune.HELD_BACK, 1)
    results = [tune(small_image(), samples, "nrf52840-dk", Job(method, 3)) for method in finetune.COMPARED]
    best = max(results, key=lambda result: result.after)
    assert output.read_bytes() == best.image
    assert f"wrote {output}: {best.method}, the best of these" in shown
    assert sorted(p.name for p in (files / "kept").iterdir()) == sorted(finetune.COMPARED)
    assert main(arguments(files, "--compare", "--json", "--timeline", *more)) == 0  # goes on from what was kept
    facts = json.loads(capsys.readouterr().out)
    assert [fact["output"] for fact in facts].count(str(output)) == 1
    assert all(fact["steps"] for fact in facts)


def test_a_plot_that_cannot_be_written_is_one_line(files: Path, capsys: pytest.CaptureFixture) -> None:
    pytest.importorskip("matplotlib")
    assert main(arguments(files, "--plot", str(files / "no" / "p.png"))) == 2
    assert main(arguments(files, "--plot", str(files / "p.what"), "--steps", "1")) == 2
    assert capsys.readouterr().err.count("\n") == 2


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


def test_a_checkpoint_knows_its_data_by_every_byte_in_order(files: Path) -> None:
    samples, folder, job = some_samples(files), files / "c", Job(steps=1)
    tune(small_image(), samples, "nrf52840-dk", job, checkpoint=folder)
    tune(small_image(), samples, "nrf52840-dk", job, checkpoint=folder)
    swapped = samples.x.copy()
    swapped[[0, 1]] = swapped[[1, 0]]  # the same sum
    moved = samples.x.copy()
    moved.flat[:2] += np.array([1, -1], np.int8)  # the same sum
    others = [
        (replace(samples, x=swapped), "samples differ"),
        (replace(samples, x=moved), "samples differ"),
        (replace(samples, y=np.roll(samples.y, 1)), "samples differ"),
        (replace(samples, held_x=samples.held_x[::-1]), "held-back images differ"),
    ]
    for other, says in others:
        with pytest.raises(ArgumentError, match=says):
            tune(small_image(), other, "nrf52840-dk", job, checkpoint=folder)
    with pytest.raises(ArgumentError, match="image differ"):
        tune(small_image(1), samples, "nrf52840-dk", job, checkpoint=folder)


def test_a_checkpoint_of_an_older_version_is_refused_by_name(files: Path) -> None:
    samples, folder = some_samples(files), files / "c"
    tune(small_image(), samples, "nrf52840-dk", Job(steps=1), checkpoint=folder)
    kept = folder / "tuning.ckpt"
    kept.write_bytes(b"FBTUNE01" + kept.read_bytes()[8:])
    with pytest.raises(ArgumentError, match=r"of another version of flipbit.*; remove it and start anew"):
        tune(small_image(), samples, "nrf52840-dk", Job(steps=1), checkpoint=folder)


@pytest.mark.parametrize("length", [0, 7, 8, 11, 12, 40, -1, -40])
def test_a_checkpoint_cut_short_is_refused(files: Path, length: int) -> None:
    samples, folder = some_samples(files), files / "c"
    tune(small_image(), samples, "nrf52840-dk", Job(steps=1), checkpoint=folder)
    kept = folder / "tuning.ckpt"
    kept.write_bytes(kept.read_bytes()[:length])
    with pytest.raises(FlipbitError, match=r"tuning\.ckpt"):
        tune(small_image(), samples, "nrf52840-dk", Job(steps=1), checkpoint=folder)


def test_a_checkpoint_of_another_run_is_refused(files: Path) -> None:
    samples, folder = some_samples(files), files / "c"
    tune(small_image(), samples, "nrf52840-dk", Job(steps=1), checkpoint=folder)
    with pytest.raises(ArgumentError, match="seed differ"):
        tune(small_image(), samples, "nrf52840-dk", Job(steps=1, seed=3), checkpoint=folder)
    (folder / "tuning.ckpt").write_bytes(b"something else")
    with pytest.raises(ArgumentError, match="not a checkpoint"):
        tune(small_image(), samples, "nrf52840-dk", Job(steps=1), checkpoint=folder)


# What is wrong


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--target", "sim:abacus"), "no device 'abacus'"),
        (("--target", "sim:stm32vldiscovery"), "bytes of RAM"),
        (("--samples", "40"), "has 40 images; at least 1 to learn from"),
        (("--steps", "0"), "at least 1"),
        (("--rate", "2"), "at most 1"),
        (("--buffer-bits", "3"), "--method buffer"),
        (("--drift", "rain:1"), "cast, dim, blur, noise"),
        (("--drift", "cast:9"), "severity"),
        (("--supply", "hamster"), "expected mains"),
        (("--data", "nowhere"), "no such file"),
        (("--arena", "100"), "the arena needs"),
        (("-o", "/nowhere/x.fbit"), "/nowhere/x.fbit: No such file or directory"),
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


def photo_folder(folder: Path, names: list[str], count: int = 4) -> Path:
    """Photos of several sizes, in folders named after classes."""
    Image = pytest.importorskip("PIL.Image")
    draw = np.random.default_rng(5)
    for number, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            size = (30 + 7 * i, 50 - 9 * i, 3)
            Image.fromarray(draw.integers(0, 256, size, np.uint8)).save(folder / name / f"{number}{i}.jpg")
    return folder


def test_a_net_learns_from_photos_of_any_size(files: Path, capsys: pytest.CaptureFixture) -> None:
    folder = photo_folder(files / "photos", ["ant", "bee", "earwig"])
    (folder / "bee" / "cut.jpg").write_bytes(b"\xff\xd8\xff")
    tuned = {}
    for how in ([], ["--resize"], ["--resize", "crop"], ["--resize", "letterbox"], ["--resize", "stretch"]):
        output = files / "o.fbit"
        assert main(arguments(files, "--data", str(folder), "--samples", "8", "-o", str(output), *how)) == 0
        printed = capsys.readouterr()
        assert "1 of 13 pictures left out: " in printed.err and "cut.jpg" in printed.err
        assert "12 of 12 pictures were not 9×8" in printed.err
        tuned[" ".join(how)] = output.read_bytes()
    assert tuned[""] == tuned["--resize"] == tuned["--resize crop"]
    assert len(set(tuned.values())) == 3


def test_photos_in_a_folder_that_is_no_class_are_refused_by_name(files: Path, capsys: pytest.CaptureFixture) -> None:
    folder = photo_folder(files / "photos", ["ant", "Bee"])
    assert main(arguments(files, "--data", str(folder), "--samples", "4")) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "4 of 8 have none" in said and "(ant, bee, čmelák, dragonfly, earwig)" in said


def test_samples_of_one_class_are_said_aloud(files: Path, capsys: pytest.CaptureFixture) -> None:
    folder = photo_folder(files / "photos", ["bee"])
    assert main(arguments(files, "--data", str(folder), "--samples", "2", "--steps", "1")) == 0
    assert "all samples are of one class, bee" in capsys.readouterr().err


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
