"""The demo: help, a folder that is there already, Ctrl-C, and the whole of it: emulated, and where nothing can be."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.checkout import ROOT
from tests.patience import PATIENCE

DEMO = [sys.executable, str(ROOT / "firmware" / "demo.py")]


def test_help_shows_help_and_runs_nothing(tmp_path: Path) -> None:
    done = subprocess.run([*DEMO, "--help"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "usage:" in done.stdout and "==" not in done.stdout


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    done = subprocess.run([*DEMO, "-o", str(tmp_path)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"error: .*: exists already; name another folder\n", done.stderr)


def children_of(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8")
    return [int(word) for word in text.split()]


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="this system has no /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_ends_the_demo_and_its_command(number: signal.Signals, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*DEMO, "-o", str(tmp_path / "run")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    while not process.stdout.readline().startswith("$ python train/run.py"):
        assert process.poll() is None
    while not children_of(process.pid):
        time.sleep(0.01)
    (child,) = children_of(process.pid)
    while not (tmp_path / "run").is_dir():  # training is past its imports, and hears signals
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + number
    assert "Traceback" not in said
    assert not Path(f"/proc/{child}").exists()


@pytest.mark.slow
def test_without_an_emulator_the_board_is_simulated_and_the_demo_ends_with_a_picture_and_a_page(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": "/nowhere"}
    folder = tmp_path / "a folder"
    done = subprocess.run([*DEMO, "-o", str(folder)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not installed: make, arm-none-eabi-gcc" in done.stdout
    assert "sim:netduinoplus2" in done.stdout
    assert (folder / "demo.png").read_bytes().startswith(b"\x89PNG")
    page = (folder / "demo.html").read_text(encoding="utf-8")
    assert not re.search(r"https?://|<script|<link", page)
    numbers = re.search(
        r"Accuracy ([\d.]+) %; with the light dimmed ([\d.]+) %; after learning .* ([\d.]+) %", done.stdout
    )
    assert numbers is not None
    bright, dim, learned = map(float, numbers.groups())
    assert bright > 95 and dim < 50 and learned > dim + 20
    assert all(f"{value} %" in page for value in numbers.groups())


@pytest.mark.slow
def test_the_emulated_board_comes_back_with_what_it_has_learned(tmp_path: Path) -> None:
    for tool in ("make", "arm-none-eabi-gcc", "qemu-system-arm", "gdb-multiarch"):
        if not shutil.which(tool):
            pytest.skip(f"needs {tool}")
    folder, elsewhere = tmp_path / "a folder", tmp_path / "elsewhere"
    environment = {**os.environ, "FLIPBIT_STATE": str(elsewhere)}
    done = subprocess.run([*DEMO, "-o", str(folder)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the board   has saved what it learned" in done.stdout
    assert "Switched off and on again, the board still had what it learned." in done.stdout
    images = [(folder / f"{name}.fbit").read_bytes() for name in ("model", "tuned", "returned")]
    assert images[0] != images[1] == images[2]
    assert "the board still had every one of them" in (folder / "demo.html").read_text(encoding="utf-8")
    assert not elsewhere.exists(), "a board of the user's was touched"
