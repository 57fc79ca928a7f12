"""Folders and files may be called anything: spaces, quotes, dollars and letters beyond ASCII."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flipbit.runtime.board.profile import firmware_folder, load_profile
from flipbit.runtime.errors import ArgumentError
from flipbit.runtime.link.flash import FlashTarget, flash_command
from tests.nets.small_nets import small_image

ODD = "it's a $HOME, «größe» (1) #2; 100%"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an odd name that has a copy of the firmware, a model and a folder for temporary files."""
    for tool in ("make", "cc", "arm-none-eabi-gcc", "qemu-system-arm", "gdb-multiarch"):
        if not shutil.which(tool):
            pytest.skip(f"needs {tool}")
    found = tmp_path_factory.mktemp("odd") / ODD
    shutil.copytree(firmware_folder(), found / "firmware", ignore=shutil.ignore_patterns("build", "corpus"))
    (found / "tmp").mkdir()
    (found / f"{ODD}.fbit").write_bytes(small_image())
    return found


def flipbit(place: Path, *arguments: object) -> str:
    environment = {
        **os.environ, "FLIPBIT_FIRMWARE": str(place / "firmware"), "TMPDIR": str(place / "tmp"),
        "FLIPBIT_STATE": str(place / "state"),
    }  # fmt: skip
    command = [sys.executable, "-m", "flipbit.runtime", *map(str, arguments)]
    done = subprocess.run(command, cwd=place, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_an_emulated_board_is_flashed_from_there(place: Path) -> None:
    model = place / f"{ODD}.fbit"
    assert "all equal" in flipbit(place, "flash", "--board", "microbit", "--model", model, "--qemu")
    assert json.loads(flipbit(place, "device", "info", "--port", "qemu:microbit", "--json"))["board"] == "microbit"
    assert list((place / "tmp").iterdir()) == []


@pytest.mark.slow
def test_a_device_is_built_with_a_model_from_there(place: Path) -> None:
    found = flipbit(place, "device", "verify", "--port", "qemu:microbit", "--model", f"{ODD}.fbit", "--limit", "1")
    assert "bit for bit" in found


def test_what_was_built_is_kept_there(place: Path) -> None:
    flipbit(place, "flash", "--board", "pico", "--model", f"{ODD}.fbit", "-o", f"{ODD}.uf2")
    assert (place / f"{ODD}.uf2").read_bytes()[:4] == b"UF2\n"
    flipbit(place, "flash", "--board", "pico", "-o", f"{ODD} folder")
    assert {path.name for path in (place / f"{ODD} folder").iterdir()} == {"flipbit.elf", "flipbit.bin", "flipbit.uf2"}


@pytest.mark.slow
def test_make_by_hand_takes_a_model_from_there(place: Path, tmp_path: Path) -> None:
    command = [
        "make",
        "-C",
        str(place / "firmware"),
        "BOARD=microbit",
        f"MODEL={place}/{ODD}.fbit",
        f"PYTHON={sys.executable}",
    ]
    subprocess.run([*command, f"BUILD={tmp_path / 'build'}"], check=True, capture_output=True)
    assert small_image() in (tmp_path / "build" / "microbit" / "flipbit.bin").read_bytes()
    done = subprocess.run([*command, f"BUILD={place / 'build'}"], check=False, capture_output=True, text=True)
    assert done.returncode and "cannot have spaces" in done.stderr


def test_make_never_runs_a_models_name(place: Path, tmp_path: Path) -> None:
    trap = tmp_path / f"$(shell touch {tmp_path.name}).fbit"
    trap.write_bytes(small_image())
    command = ["make", "-C", str(firmware_folder()), "BOARD=microbit", f"MODEL={trap}", f"BUILD={tmp_path / 'build'}"]
    subprocess.run([*command, f"PYTHON={sys.executable}"], check=True, capture_output=True)
    assert not (firmware_folder() / tmp_path.name).exists()


@pytest.mark.parametrize(("folder", "given"), [("plain", "plain"), ("my fw", "{my fw"), ("$HOME", "{$HOME")])
def test_openocds_script_takes_any_file_name(folder: str, given: str) -> None:
    (script,) = [
        word
        for word in flash_command(load_profile("netduinoplus2"), Path(folder) / "net.elf", FlashTarget(None))
        if "program" in word
    ]
    closed = "}" if given.startswith("{") else ""
    assert script == f"program {given}/net.elf{closed} verify reset exit"


def test_a_name_that_openocd_cannot_take_is_refused() -> None:
    with pytest.raises(ArgumentError, match="without braces"):
        flash_command(load_profile("netduinoplus2"), Path("a}b") / "net.elf", FlashTarget(None))
