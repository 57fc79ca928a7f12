"""Finding the profiles of boards: of the firmware's source, or those that came with the package."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from flipbit.runtime.board import profile
from flipbit.runtime.board.profile import BoardError, board_names, boards_folder, load_profile
from flipbit.runtime.commands.cli import main
from tests.checkout import ROOT

BOARDS = ROOT / "firmware" / "boards"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package as a wheel leaves it: no checkout around it, profiles inside; you stand somewhere else."""
    package = tmp_path / "site" / "flipbit" / "runtime" / "board"
    for name in ("microbit", "mps2-an386"):
        (package / "profiles" / name).mkdir(parents=True)
        shutil.copy(BOARDS / name / "board.toml", package / "profiles" / name)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv(profile.ENVIRONMENT, raising=False)
    monkeypatch.setattr(profile, "__file__", str(package / "profile.py"))
    monkeypatch.setattr(profile, "SHIPPED", package / "profiles")
    return package


def test_a_checkout_has_its_own_profiles() -> None:
    assert boards_folder() == BOARDS


def test_without_the_firmware_the_profiles_of_the_package_are_taken(installed: Path) -> None:
    assert board_names() == ["microbit", "mps2-an386"]
    assert load_profile("microbit").folder == installed / "profiles" / "microbit"


def test_a_folder_named_firmware_without_profiles_is_somebody_elses(installed: Path) -> None:
    Path("firmware/boards/arduino").mkdir(parents=True)
    assert boards_folder() == installed / "profiles"
    shutil.copytree(BOARDS / "pico", "firmware/boards/pico")
    assert board_names() == ["pico"]


def test_a_wrong_variable_is_said_and_not_passed_over(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(profile.ENVIRONMENT, "elsewhere")
    with pytest.raises(BoardError, match="no firmware source in elsewhere"):
        load_profile("microbit")


def test_a_wrong_profile_is_one_line(installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = installed / "profiles" / "microbit" / "board.toml"
    path.write_text(path.read_text(encoding="utf-8").replace("stack = 1536", "stack = 1537"), encoding="utf-8")
    assert main(["info", str(ROOT / "models" / "digits-vgg-small" / "model.fbit"), "--board", "microbit"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "memory.stack is 1537" in said
    assert f"error: {path}" in said


def test_a_board_that_cannot_be_simulated_is_one_line(installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = str(ROOT / "models" / "digits-vgg-small" / "model.fbit")
    assert main(["finetune", image, "--data", "digits", "--target", "sim:mps2-an386", "-o", "t.fbit"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "[power.voltage] (supply, brown_out)" in said
