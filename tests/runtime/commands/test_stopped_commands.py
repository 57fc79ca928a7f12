"""Commands that are stopped by a signal leave no emulator running and nothing in the temporary folder."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from flipbit.runtime.board.profile import build, load_profile
from tests.checkout import ROOT
from tests.nets.small_nets import small_image

BOARD = "microbit"
PATIENCE = 300.0


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("image") / "small.fbit"
    path.write_bytes(small_image())
    return path


@pytest.fixture(scope="module")
def firmware(image: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    for tool in ("make", "cc", "arm-none-eabi-gcc", "qemu-system-arm", "gdb-multiarch"):
        if not shutil.which(tool):
            pytest.skip(f"needs {tool}")
    return build(load_profile(BOARD), image, tmp_path_factory.mktemp("build")).elf


@pytest.fixture
def temporary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to be made. Its name is short: an emulator whose sockets would have longer names goes to /tmp."""
    return tmp_path_factory.mktemp("t") / "t"


def processes(mark: Path) -> list[str]:
    """Command lines of running processes that were started in, or name, a folder; /proc is Linux's."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            here = os.readlink(entry / "cwd")
        except OSError:
            continue
        if line and int(entry.name) != os.getpid() and (str(mark) in line or here.startswith(str(mark))):
            found.append(line)
    return found


def eventually(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def start(command: Sequence[object], temporary: Path, state: Path) -> subprocess.Popen[bytes]:
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary), "FLIPBIT_STATE": str(state)}
    words = [sys.executable, *(str(word) for word in command)]
    return subprocess.Popen(words, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def commands(image: Path, firmware: Path) -> dict[str, list[object]]:
    flipbit = ["-m", "flipbit.runtime"]
    return {
        "flash": [*flipbit, "flash", "--board", BOARD, "--firmware", firmware, "--qemu", "--run"],
        "device": [*flipbit, "device", "monitor", "--port", f"qemu:{BOARD}", "--firmware", firmware],
        "run_images": ["firmware/boards/run_images.py", image, "--data", image.with_name("x.npy"), "--boards", BOARD],
        "finetune": [*flipbit, "finetune", image, "--data", image.with_name("xy.npz"), "--target", f"qemu:{BOARD}",
                     "--samples", "200", "--steps", "10000"],
    }  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def inputs(image: Path) -> None:
    """Enough of them that no command is done before it is stopped."""
    import numpy as np

    from tests.nets.small_nets import photos

    few = photos(8)
    many = np.concatenate([few] * 5000)
    np.save(image.with_name("x.npy"), many)
    np.savez(image.with_name("xy.npz"), x=many[:400], y=np.arange(400) % 2)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
@pytest.mark.parametrize(
    ("name", "number"),
    [
        *((name, signal.SIGTERM) for name in ("flash", "device", "run_images", "finetune")),
        *(("flash", number) for number in (signal.SIGHUP, signal.SIGINT)),
    ],
)
def test_a_stopped_command_ends_its_emulator_and_removes_its_files(
    name: str, number: signal.Signals, image: Path, firmware: Path, tmp_path: Path, temporary: Path
) -> None:
    child = start(commands(image, firmware)[name], temporary, tmp_path / "state")
    try:
        eventually(lambda: any("qemu-system-arm" in p for p in processes(temporary)), "QEMU did not start")
        child.send_signal(number)
        status = child.wait(PATIENCE)
    finally:
        child.kill()
    assert status == 128 + number
    assert processes(temporary) == []
    assert list(temporary.iterdir()) == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux ends children of a killed process")
def test_an_emulator_ends_with_a_command_that_is_killed(
    image: Path, firmware: Path, tmp_path: Path, temporary: Path
) -> None:
    child = start(commands(image, firmware)["device"], temporary, tmp_path / "state")
    eventually(lambda: any("qemu-system-arm" in p for p in processes(temporary)), "QEMU did not start")
    child.kill()
    child.wait(PATIENCE)
    eventually(lambda: processes(temporary) == [], "QEMU goes on without the command that started it")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_a_build_that_is_stopped_ends_its_compilers(
    image: Path, firmware: Path, tmp_path: Path, temporary: Path
) -> None:
    command = ["-m", "flipbit.runtime", "flash", "--board", "netduinoplus2", "--model", image, "-o", tmp_path / "out"]
    child = start(command, temporary, tmp_path / "state")
    try:
        eventually(lambda: any("gcc" in p for p in processes(temporary)), "the build did not start")
        child.terminate()
        assert child.wait(PATIENCE) == 143
    finally:
        child.kill()
    assert processes(temporary) == []
    assert list(temporary.iterdir()) == []
    assert not (tmp_path / "out").exists()
