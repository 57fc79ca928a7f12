"""firmware/boards/run_images.py: real images on emulated boards give the host's scores, and errors say what to do."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import run_images

from tests.checkout import ROOT
from tests.nets.small_nets import photos, small_image

BOARD = "microbit"


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("builds")


@pytest.fixture(autouse=True)
def shared(builds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The core is compiled once, and tests that follow may use every processor."""
    one = SimpleNamespace(TemporaryDirectory=lambda: contextlib.nullcontext(str(builds)))
    monkeypatch.setattr(run_images, "tempfile", one)
    monkeypatch.setattr(run_images, "one_cpu", lambda: None)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.fbit"
    path.write_bytes(small_image())
    return path


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    path = tmp_path / "pictures.npz"
    np.savez(path, x=photos(3), y=np.zeros(3, int))
    return path


def needs_board() -> None:
    for tool in ("make", "cc", "arm-none-eabi-gcc", "qemu-system-arm"):
        if not shutil.which(tool):
            pytest.skip(f"needs {tool}")


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """What is said of arguments that cannot be: one error, status 2, and no table."""
    assert run_images.main([str(argument) for argument in arguments]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    return told.err


def test_digits_on_a_board_give_the_scores_of_the_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needs_board()
    for module in ("tensorflow", "tf_keras", "sklearn"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"needs {module}")
    image, report = tmp_path / "digits.fbit", tmp_path / "report.json"
    command = [sys.executable, "export/to_fbit.py", "models/digits-vgg-small/model.h5", "-o", str(image)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    arguments = [image, "--data", "digits", "--images", 6, "--layers", 1, "--boards", BOARD, "--json", report]
    assert run_images.main([str(argument) for argument in arguments]) == 0
    (told,) = json.loads(report.read_text())
    assert (told["board"], told["images"], told["differing"], told["first_difference"]) == (BOARD, 6, 0, "")
    assert told["layer_inputs"] == 1
    assert told["right"] >= 5  # the net knows 99 of 100
    assert told["needs"] <= told["room"]
    assert BOARD in capsys.readouterr().out


def test_a_board_that_computes_something_else_is_noticed(
    small: Path, pictures: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host expects other scores than it computes: every image of the board then differs, and the status is 1."""
    needs_board()
    right = run_images.Model.predict
    monkeypatch.setattr(run_images.Model, "predict", lambda *given, raw=False: right(*given, raw=raw) + 1)
    assert run_images.main([str(small), "--data", str(pictures), "--layers", "0", "--boards", BOARD]) == 1
    row = capsys.readouterr().out.splitlines()[-1].split()
    assert row[0] == BOARD and int(row[2]) > 0


def test_a_board_that_does_not_exist_is_named_with_those_that_do(
    small: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        run_images.main([str(small), "--data", str(pictures), "--boards", "nosuch"])
    assert stopped.value.code == 2
    told = capsys.readouterr().err
    assert "nosuch" in told and BOARD in told


@pytest.mark.parametrize("number", ["-3", "x", "1.5"])
def test_a_number_of_images_that_is_none_is_refused(
    small: Path, pictures: Path, capsys: pytest.CaptureFixture[str], number: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        run_images.main([str(small), "--data", str(pictures), f"--images={number}"])
    assert stopped.value.code == 2
    assert "not a whole number" in capsys.readouterr().err


def test_files_that_make_no_sense_are_refused_before_anything_is_built(
    small: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_images, "build", lambda *given: pytest.fail("built"))
    other = tmp_path / "other.npz"
    np.savez(other, x=np.zeros((2, 5, 5, 1), np.uint8))
    broken = tmp_path / "broken.fbit"
    broken.write_bytes(small.read_bytes()[:-4])
    assert "No such file" in refused(capsys, tmp_path / "none.fbit", "--data", pictures)
    assert "FB_ERR_LENGTH" in refused(capsys, broken, "--data", pictures)
    assert "no such file" in refused(capsys, small, "--data", tmp_path / "none")
    assert "9×8×3" in refused(capsys, small, "--data", other)
    assert "no images" in refused(capsys, small, "--data", pictures, "--images", 0)
    assert "no folder" in refused(capsys, small, "--data", pictures, "--json", tmp_path / "none" / "out.json")


def test_an_emulator_that_is_missing_is_named(
    small: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_board()
    found = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, *rest: None if "qemu" in name else found(name, *rest))
    told = refused(capsys, small, "--data", pictures, "--boards", BOARD)
    assert "qemu-system-arm" in told and "apt install" in told


def test_that_no_board_has_run_is_an_error(
    small: Path, pictures: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*given: object) -> None:
        raise run_images.BoardError("needs a compiler")

    monkeypatch.setattr(run_images, "run_board", missing)
    told = refused(capsys, small, "--data", pictures)
    assert f"{BOARD}: left out: needs a compiler" in told
    assert told.endswith("error: no board has run; why is said above\n")
