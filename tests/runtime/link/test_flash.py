"""Flashing real boards: what is run, and what is said when something is missing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from flipbit.runtime.board.profile import BoardError, board_names, load_profile
from flipbit.runtime.commands.flash import main as flash_main
from flipbit.runtime.errors import ArgumentError
from flipbit.runtime.link.emulator import Emulator
from flipbit.runtime.link.flash import FlashTarget, NoProbeError, find_target, flash, flash_command

REAL = [name for name in board_names() if load_profile(name).flash]


@pytest.mark.parametrize("board", REAL)
def test_a_dry_run_shows_the_commands_and_runs_none(board: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert flash_main(["--board", board, "--dry-run", "--json"]) == 0
    made, flashed = json.loads(capsys.readouterr().out)["commands"]
    assert made[0] == "make" and f"BOARD={board}" in made
    assert not any("{" in word for word in flashed)
    assert any("flipbit." in word for word in flashed)


def _no_probe(board: str) -> NoProbeError:
    try:
        target = find_target(load_profile(board))
    except NoProbeError as error:
        return error
    pytest.skip(f"there is a probe for the {board} here: {target}")


@pytest.mark.parametrize("board", REAL)
def test_without_a_probe_it_says_what_was_looked_for(board: str) -> None:
    error, profile = _no_probe(board), load_profile(board)
    assert error.looked
    assert f"for the {profile.title}. Looked for:\n  - " in str(error)
    assert ("--qemu" in str(error)) == bool(profile.qemu)


def test_a_missing_tool_is_named_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NoProbeError, match=r"the program pyocd: not installed \(pip install pyocd\)"):
        find_target(load_profile("microbit"))
    with pytest.raises(BoardError, match="qemu-system-arm is not installed: apt install qemu-system-arm"):
        Emulator("microbit")


def test_a_board_that_shows_a_drive_gets_its_file_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drive = tmp_path / "RPI-RP2"
    drive.mkdir()
    (tmp_path / "flipbit.uf2").write_bytes(b"UF2 file")
    monkeypatch.setattr("flipbit.runtime.link.flash.MOUNTS", (str(tmp_path / "{}"),))
    said: list[str] = []
    assert flash(load_profile("pico"), tmp_path / "flipbit.elf", report=said.append) == FlashTarget(None, drive)
    assert (drive / "flipbit.uf2").read_bytes() == b"UF2 file"
    assert said == [f"cp {tmp_path}/flipbit.uf2 {drive}"]
    (tmp_path / "flipbit.uf2").unlink()
    with pytest.raises(BoardError, match="flashing the Raspberry Pi Pico failed"):
        flash(load_profile("pico"), tmp_path / "flipbit.elf")


def test_boards_without_a_flash_tool_are_flashed_in_the_emulator(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ArgumentError, match="try --qemu"):
        flash_command(load_profile("mps2-an385"), Path("x.elf"), FlashTarget())
    assert flash_main(["--board", "mps2-an385", "--dry-run"]) == (0 if shutil.which("gdb-multiarch") else 2)
    text = capsys.readouterr().out
    assert not text or ("compare-sections" in text and "system_reset" in text)


def test_flash_lists_the_boards(capsys: pytest.CaptureFixture[str]) -> None:
    assert flash_main(["--list"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in board_names())
    assert flash_main([]) == 2
    assert "--board NAME is missing; boards are" in capsys.readouterr().err
