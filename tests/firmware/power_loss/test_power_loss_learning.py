"""Learning that survives any loss of power: the application's C, with sanitizers, on flash whose power fails.

A case that fails prints its id. ``FLIPBIT_REPLAY=id pytest tests/firmware/power_loss/test_power_loss_learning.py -k
replay -s`` runs it again and tells what happens. ``FLIPBIT_LONG=1`` samples 20,000 double losses instead of 300, cuts
the whole application at every operation, and resets the emulated board 60 times instead of 6.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from flipbit.runtime.board.profile import build, load_profile
from flipbit.runtime.core.learner import Learner, LearnerConfig
from flipbit.runtime.core.target import TargetLostPower
from flipbit.runtime.link.device import Device
from flipbit.runtime.link.emulator import Emulator
from flipbit.runtime.link.learn_device import DeviceTarget
from flipbit.runtime.link.line import LineError
from flipbit.runtime.link.protocol import Command, decode
from tests.firmware.host_app import FIRMWARE, POWER_LOST, HostApp, _compiler, _core, build_app
from tests.nets.tiny_net import tiny_image

HERE = Path(__file__).parent
SOURCE = HERE / "learning_power_loss.c"
LEARNING = FIRMWARE / "app" / "fb_app_learning.c"
LEDGER = FIRMWARE / "app" / "fb_ledger.c"
LONG = bool(os.environ.get("FLIPBIT_LONG"))
SCENARIOS = re.findall(r"^    SCENARIO\((\w+)\)", SOURCE.read_text(), re.MULTILINE)
GEOMETRIES = range(len(re.findall(r"^    \{\d+, \d+, \d+, \d+, (?:true|false)", SOURCE.read_text(), re.MULTILINE)))


def build_program(folder: Path, learning: Path = LEARNING) -> list[str]:
    program = folder / "learning_power_loss"
    warnings = ["-Wall", "-Wextra", "-Wconversion", "-Wpedantic", "-Werror", f"-I{FIRMWARE / 'sim'}"]
    sources = [str(path) for path in (learning, LEDGER, FIRMWARE / "sim" / "fb_flash_sim.c", SOURCE)]
    subprocess.run([*_compiler(), *warnings, *sources, *_core(), "-o", str(program)], check=True)
    images = []
    for seed in (0, 1):
        images.append(folder / f"{seed}.fbit")
        images[-1].write_bytes(tiny_image(seed))
    return [str(program), *map(str, images)]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return build_program(tmp_path_factory.mktemp("learning"))


def run(program: list[str], *arguments: object) -> str:
    done = subprocess.run([*program, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


# ---- the simulated flash ----


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(program: list[str], scenario: str) -> None:
    run(program, "scenarios", scenario)


def test_all_scenarios_and_geometries_are_run(program: list[str]) -> None:
    assert run(program, "scenarios").split() == SCENARIOS
    assert len(run(program, "geometries").splitlines()) == len(GEOMETRIES)


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_power_loss_at_every_flash_operation_ends_with_the_same_bits(program: list[str], geometry: int) -> None:
    """And finds, after each loss, exactly what was committed last. On some kinds of flash with one outcome at each
    operation, in turn; with FLIPBIT_LONG with all five on all."""
    all_outcomes = LONG or geometry in (0, 6)
    told = run(program, "every" if all_outcomes else "each", geometry)
    found = re.match(r"cut at (\d+) operations of (\d+) passes: (\d+) cases", told)
    assert found
    operations, passes, cases = map(int, found.groups())
    assert cases == (5 if all_outcomes else 1) * operations
    assert operations > 20 * passes > 100  # each pass was saved, and it took several passes per step


def test_two_power_losses_end_with_the_same_bits(program: list[str]) -> None:
    count = 20_000 if LONG else 300
    assert run(program, "sampled", count, 1) == f"{count} cases of 2 losses\n"


def test_replay_of_a_case_passes(program: list[str]) -> None:
    told = run(program, "replay", os.environ.get("FLIPBIT_REPLAY", "0.7-400.3-5.2"))
    print(told)
    assert told.count("power lost") >= 1
    assert told.endswith("passed\n")


def test_a_resume_that_forgets_the_state_is_caught_and_its_id_replays_the_failure(tmp_path: Path) -> None:
    right = LEARNING.read_text()
    wrong = right.replace("if (status == FB_OK && get32(state) == 0) status = FB_ERR_STATE;", "memset(state, 0, 4);")
    assert wrong != right
    (tmp_path / "fb_app_learning.c").write_text(wrong)
    program = build_program(tmp_path, tmp_path / "fb_app_learning.c")
    failed = subprocess.run([*program, "every", "6"], capture_output=True, text=True)
    line = re.search(r"^FAILED (\S+): .*", failed.stdout, re.MULTILINE)
    assert failed.returncode == 1
    assert line
    again = subprocess.run([*program, "replay", line[1]], capture_output=True, text=True)
    assert again.returncode == 1
    assert again.stdout.splitlines()[-1] == line[0]


# ---- the whole application ----

CONFIG = LearnerConfig(seed=5, bits=True, bias=True)
RATES = (0.2, 0.1, 0.05)
X = np.random.default_rng(0).integers(-128, 128, (3, 32)).astype(np.int8)
Y = (0, 1, 2)


def learned() -> tuple[bytes, bytes]:
    """Image and state of a host that was never interrupted."""
    learner = Learner(tiny_image(), CONFIG)
    for rate in RATES:
        learner.step(X, np.array(Y), rate, rate)
    return learner.image, learner.state


def learn(target: DeviceTarget) -> tuple[bytes, bytes]:
    """To the end, from wherever the target is."""
    while True:
        try:
            if target.steps == len(RATES):
                return target.image, target.state
            target.begin(len(X), RATES[target.steps], RATES[target.steps])
            more = True
            while more:
                for x, label in zip(X, Y):
                    target.sample(x, label)
                more = target.end_pass()
        except TargetLostPower:
            continue


def test_the_application_cut_off_while_saving_goes_on_after_its_start(tmp_path: Path) -> None:
    """Through the protocol, as a host sees it; the device goes on by itself before it is asked anything."""
    program, expected = build_app(tiny_image()), learned()
    cuts, losses = iter(range(10_000) if LONG else range(0, 10_000, 83)), 0
    for cut in cuts:
        flash = tmp_path / f"flash{cut}"
        with HostApp(program, flash, cut) as app:
            try:
                app.device.hello()
                assert learn(DeviceTarget(app.device, CONFIG, save="pass")) == expected
                break  # the run has fewer operations
            except LineError:
                assert app.process.wait(10) == POWER_LOST
                losses += 1
        with HostApp(program, flash) as app:
            app.device.hello()
            assert learn(DeviceTarget(app.device, CONFIG, save="pass")) == expected, f"cut at operation {cut}"
        flash.unlink()
    assert losses > 8


# ---- an emulated board with a real flash controller ----


@pytest.fixture(scope="module")
def microbit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    profile = load_profile("microbit")
    for tool in ("arm-none-eabi-gcc", "make", "qemu-system-arm"):
        if not shutil.which(tool):
            pytest.skip(f"needs {tool}")
    folder = tmp_path_factory.mktemp("microbit")
    (folder / "tiny.fbit").write_bytes(tiny_image())
    return build(profile, folder / "tiny.fbit", folder).elf


@pytest.fixture
def board(microbit: Path, tmp_path: Path) -> Iterator[tuple[Device, Callable[[], None]]]:
    """The board, and what resets it at once, whatever it is doing: its flash keeps what it holds."""
    monitor = tmp_path / "qmp"
    extra = ["-qmp", f"unix:{monitor},server=on,wait=off"]
    with Emulator("microbit", microbit, extra) as emulator, socket.socket(socket.AF_UNIX) as control:
        control.connect(str(monitor))
        control.recv(4096)

        def command(name: str) -> None:
            control.sendall(json.dumps({"execute": name}).encode())
            while b'"return"' not in control.recv(4096):
                pass

        command("qmp_capabilities")
        with Device(emulator.line(), timeout=5) as device:
            device.hello()
            yield device, lambda: command("system_reset")


class ResettingLine:
    """A line that resets the board a random while after some of the requests, most of them requests to save."""

    def __init__(self, device: Device, reset: Callable[[], None], seed: int, resets: int):
        self._line, self._reset, self._random, self.left = device.line, reset, random.Random(seed), resets
        self.name = device.line.name
        self.armed = False
        self.while_saving = 0

    def write(self, data: bytes) -> None:
        self._line.write(data)
        if not self.armed or not self.left:
            return
        saving = decode(data[1:-1]).command == Command.LEARN_SAVE
        if self._random.random() < (0.5 if saving else 0.02):
            time.sleep(self._random.random() * 0.02)
            self._reset()
            self.left -= 1
            self.while_saving += saving

    def read(self, timeout: float) -> bytes:
        return self._line.read(timeout)

    def close(self) -> None:
        self._line.close()


def test_an_emulated_board_that_is_reset_at_random_goes_on_from_its_flash(
    board: tuple[Device, Callable[[], None]],
) -> None:
    """The real driver of a modelled flash controller, on one board that is never erased in between."""
    device, reset = board
    line = ResettingLine(device, reset, seed=1, resets=60 if LONG else 6)
    device.line = line
    runs = 0
    while line.left:
        before = line.left
        target = DeviceTarget(device, CONFIG, fresh=True, save="pass")
        target.save()  # from here on what is in flash is of this run
        line.armed = True
        try:
            assert learn(target) == learned()
        finally:
            line.armed = False
        runs += 1
        assert line.left < before or runs < 20
    assert line.while_saving
