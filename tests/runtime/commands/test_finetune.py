"""The fine-tune command: learns on a simulated board, and says what is wrong."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from flipbit.runtime.commands.cli import main
from flipbit.runtime.core.learner import Learner
from flipbit.runtime.core.model import Model
from flipbit.runtime.image.reader import read_image
from flipbit.runtime.tune.job import Job
from flipbit.runtime.tune.methods import COMPARED
from flipbit.runtime.tune.run import tune
from flipbit.runtime.tune.samples import HELD_BACK, load_samples
from tests.checkout import ROOT
from tests.nets.small_nets import photos, small_image
from tests.runtime.tune.labelled import labelled, some_samples


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return labelled(tmp_path)


def arguments(folder: Path, *more: str) -> list[str]:
    return ["finetune", str(folder / "net.fbit"), "--data", str(folder / "data.npz"), "--target", "sim:nrf52840-dk",
            "--steps", "3", "--samples", "24", *more]  # fmt: skip


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
    for word in ("held back", "flips", "device time", "points per joule", "samples per hour", "years", "estimate"):
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
    samples = load_samples(Model(files / "net.fbit"), str(files / "data.npz"), 24, HELD_BACK, 1)
    results = [tune(small_image(), samples, "nrf52840-dk", Job(method, 3)) for method in COMPARED]
    best = max(results, key=lambda result: result.after)
    assert output.read_bytes() == best.image
    assert f"wrote {output}: {best.method}, the best of these" in shown
    assert sorted(p.name for p in (files / "kept").iterdir()) == sorted(COMPARED)
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
    assert main(arguments(files, "--supply", "battery:0.003")) == 0
    assert "ended early" in capsys.readouterr().out
    read_image((files / "net-tuned.fbit").read_bytes())


def test_the_script_runs_by_its_path(files: Path) -> None:
    script = ROOT / "runtime" / "finetune.py"
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


# What is wrong


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--target", "sim:abacus"), "no device 'abacus'"),
        (("--target", "sim:stm32vldiscovery"), "bytes of RAM"),
        (("--samples", "40"), "has 40 images; at least 1 to learn from"),
        (("--steps", "0"), "at least 1"),
        (("--rate", "2"), "at most 1"),
        (("--rate", "0.1"), "--rate 0.1: --method bias does not use it; these do: sr, sr+bias, buffer"),
        (("--method", "sr", "--bias-rate", "0.1"), "--method sr does not use it"),
        (("--method", "bias", "--augment", "both"), "these do: adapt, gain+bias"),
        (("--method", "recalibrate", "--layers", "0-1"), "no layer that learns has references"),
        (
            ("--layers", "50-60"),
            "this net cannot be trained in operations 50 to 60: nothing in that range is trainable",
        ),
        (("--buffer-bits", "3"), "--method buffer"),
        (("--drift", "rain:1"), "cast, dim, blur, noise"),
        (("--drift", "cast:9"), "severity"),
        (("--supply", "hamster"), "expected mains"),
        (("--data", "nowhere"), "no such file"),
        (("--arena", "100"), "the arena needs"),
        (("-o", "/nowhere/x.fbit"), "/nowhere/x.fbit: No such file or directory"),
        (("--bc", "model.h5"), "--compare"),
        (("--remember",), "--remember is for emulated boards (qemu:BOARD), not for sim:nrf52840-dk"),
        (("--remember", "--target", "qemu:microbit"), "flipbit flash --board microbit --model"),
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
