"""learn.sh, which the systemd unit runs: new pictures are learned from, whatever happens to the power."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.checkout import ROOT
from tests.patience import PATIENCE

UNIT = ROOT / "docker" / "raspberry-pi" / "flipbit-learn.service"
LEARN = UNIT.with_name("learn.sh")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A deployed net, and 30 labelled pictures."""
    shutil.copy(ROOT / "docker" / "digits.fbit", tmp_path / "net.fbit")
    random = np.random.default_rng(5)
    for i in range(30):
        path = tmp_path / "pictures" / str(i % 10) / f"{i}.pgm"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"P5\n8 8\n255\n" + random.integers(0, 256, 64, np.uint8).tobytes())
        os.utime(path, (1e9, 1e9))
    return tmp_path


def start(folder: Path) -> subprocess.Popen[str]:
    flipbit = folder / "flipbit"
    flipbit.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m flipbit.runtime "$@"\n')
    flipbit.chmod(0o755)
    environment = {**os.environ, "FLIPBIT": str(flipbit), "FLIPBIT_FIRMWARE": str(ROOT / "firmware")}
    return subprocess.Popen(
        [LEARN, folder],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def learn(folder: Path) -> str:
    out, errors = (process := start(folder)).communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    return out


def cut(process: subprocess.Popen[str]) -> bool:
    """The power goes, for the script and all it started. Was it still running?"""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    return process.returncode == -signal.SIGKILL


@pytest.fixture
def whole(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What comes out when nothing happens."""
    learn(again := shutil.copytree(folder, tmp_path_factory.mktemp("whole") / "again"))
    return (again / "tuned.fbit").read_bytes()


def test_cut_short_after_a_step_it_goes_on_and_ends_with_the_same_bits(folder: Path, whole: bytes) -> None:
    for wanted in (1, 8):  # lines of the table seen before the power goes
        process = start(folder)
        assert process.stdout
        rows = 0
        while rows < wanted and (line := process.stdout.readline()):
            rows += line[:5].strip().isdigit()
        assert cut(process)
        assert not (folder / "tuned.fbit").exists()
    assert "step" in learn(folder)
    assert (folder / "tuned.fbit").read_bytes() == whole
    assert whole != (folder / "net.fbit").read_bytes()


def test_cut_short_at_any_moment_nothing_is_lost(folder: Path, whole: bytes) -> None:
    """FLIPBIT_POWER_CUTS=100 for more than CI has time for."""
    net = (folder / "net.fbit").read_bytes()
    (folder / "tuned.fbit").write_bytes(old := b"the net of last time")
    random = np.random.default_rng(3)
    begin = time.monotonic()
    learn(shutil.copytree(folder, folder.with_name("timed")))
    takes = time.monotonic() - begin
    cuts = 0
    while cuts < int(os.environ.get("FLIPBIT_POWER_CUTS", "4")):
        process = start(folder)
        time.sleep(random.uniform(0, 1.2 * takes))
        if cut(process):
            cuts += 1
        else:  # it had finished: once more from the beginning
            assert (folder / "tuned.fbit").read_bytes() == whole
            shutil.rmtree(folder / "rounds")
            (folder / "tuned.fbit").write_bytes(old)
        assert (folder / "tuned.fbit").read_bytes() in (old, whole)
        assert (folder / "net.fbit").read_bytes() == net
    learn(folder)
    assert (folder / "tuned.fbit").read_bytes() == whole
    assert [path.name for path in folder.glob("tuned.fbit*")] == ["tuned.fbit"]


def test_the_pictures_of_the_page_are_read_right() -> None:
    pictures = LEARN.with_name("pictures")
    done = subprocess.run(
        [sys.executable, "-m", "flipbit.runtime", "run", ROOT / "docker" / "digits.fbit", pictures],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "30 of 30 right" in done.stdout


def test_it_learns_again_only_from_other_pictures(folder: Path) -> None:
    assert "wrote tuned.fbit" in learn(folder)
    assert learn(folder) == ""
    time.sleep(0.01)
    shutil.copy(folder / "pictures/3/3.pgm", folder / "pictures/3/another.pgm")
    assert "wrote tuned.fbit" in learn(folder)
    assert len(list((folder / "rounds").iterdir())) == 1


def test_the_unit_names_files_that_exist_and_systemd_accepts_it(tmp_path: Path) -> None:
    text = UNIT.read_text()
    assert "ExecStart=/opt/flipbit/docker/raspberry-pi/learn.sh /var/lib/flipbit" in text
    assert os.access(LEARN, os.X_OK)
    if not shutil.which("systemd-analyze"):
        pytest.skip("needs systemd-analyze")
    for name in ("flipbit-learn.service", "flipbit-learn.timer"):
        unit = UNIT.with_name(name).read_text().replace("/opt/flipbit/docker", str(ROOT / "docker"))
        (tmp_path / name).write_text(unit.replace("User=flipbit", "User=root"))
    done = subprocess.run(
        ["systemd-analyze", "verify", *tmp_path.glob("flipbit-learn.*")], capture_output=True, text=True
    )
    assert "flipbit-learn" not in done.stderr, done.stderr
