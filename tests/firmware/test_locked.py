"""Firmware built with LOCKED=1 answers info and infer only, until the board or whoever has its key consents."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from flipbit.runtime import Model
from flipbit.runtime.core.learner import LearnerConfig
from flipbit.runtime.link.device import BUILT_IN, Device, DeviceError, RefusedError, open_device
from flipbit.runtime.link.protocol import Command, Status
from tests.firmware.host_app import FIRMWARE, HostApp, build_app
from tests.nets.small_nets import photos, small_image

IMAGE, OTHER = small_image(0), small_image(1)
KEY = bytes(range(1, 33))
OPEN = {
    Command.IDENTIFY, Command.COUNTERS, Command.ECHO, Command.UNLOCK, Command.LOAD, Command.INFER, Command.READ_OUTPUT,
    Command.LOOK, Command.LISTEN_OPEN, Command.LISTEN_PUSH,
}  # fmt: skip
BY_BOARD, BY_KEY = 1, 2


def _codes(device: Device) -> dict[Command, tuple[int, int]]:
    """What each command answers to an empty request; a wrong length is as far as an open one gets."""
    found = {}
    for command in Command:
        if command == Command.RESET:
            continue
        try:
            device.request(command)
            found[command] = (int(Status.OK), 0)
        except RefusedError as error:
            found[command] = (error.code, error.detail)
    return found


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    (tmp_path / "key").write_bytes(KEY)
    return tmp_path / "key"


@pytest.fixture
def with_key(tmp_path: Path, key_file: Path) -> Iterator[HostApp]:
    program = build_app(IMAGE, "-DFB_LOCKED=1", f'-DHOST_KEY="{key_file}"')
    with HostApp(program, tmp_path / "flash") as running:
        running.device.hello()
        yield running


@pytest.fixture
def with_jumper(tmp_path: Path) -> Iterator[HostApp]:
    with HostApp(build_app(IMAGE, "-DFB_LOCKED=1"), tmp_path / "flash") as running:
        running.device.hello()
        yield running


def _refused_as_locked(device: Device, command: Command, payload: bytes, detail: int) -> None:
    with pytest.raises(RefusedError, match="the board is locked") as error:
        device.request(command, payload)
    assert (error.value.code, error.value.detail) == (Status.LOCKED, detail)


def test_only_info_and_infer_are_answered(with_key: HostApp) -> None:
    device = with_key.device
    for command, (code, detail) in _codes(device).items():
        assert (code == Status.LOCKED) == (command not in OPEN), command.name
        assert code != Status.LOCKED or detail == BY_KEY
    _refused_as_locked(device, Command.RESET, b"", BY_KEY)
    info = device.info()
    assert info.locked and info.lock == 5
    assert device.slots()[0].in_use
    model = device.use(Model(IMAGE))
    for x in photos(2):
        assert (device.infer(x).values == model.predict(x, raw=True)).all()


def test_an_image_does_not_get_in_by_any_order_of_requests(with_key: HostApp, tmp_path: Path) -> None:
    device = with_key.device
    before = (tmp_path / "flash").read_bytes()
    for command, payload in (
        (Command.BEGIN, bytes([0, 0, 0, 0]) + len(OTHER).to_bytes(4, "little") + OTHER[12:16]),
        (Command.PIECE, bytes(4) + OTHER[:200]),
        (Command.FINISH, b""),
        (Command.SELECT, bytes([BUILT_IN])),
        (Command.LEARN_OPEN, LearnerConfig(bias=True).pack() + bytes(4)),
        (Command.LEARN_FORGET, b""),
    ):
        _refused_as_locked(device, command, payload, BY_KEY)
    assert (tmp_path / "flash").read_bytes() == before


def test_the_key_opens_it_until_it_is_locked_again_or_starts_anew(with_key: HostApp) -> None:
    device = with_key.device
    info = device.unlock(KEY)
    assert not info.locked and info.lock == 7
    slot = device.upload(OTHER)
    assert device.select(slot).slot == slot
    assert device.unlock(b"").locked
    with pytest.raises(RefusedError, match=r"BEGIN: the board is locked: present its key \(--key FILE\)"):
        device.upload(OTHER)
    device.unlock(KEY)
    assert device.reset().locked
    assert device.info().slot == slot


@pytest.mark.parametrize("wrong", [KEY[:-1], KEY + b"\0", KEY[1:] + KEY[:1], bytes(32), b"\1", KEY[:16], bytes(64)])
def test_another_key_opens_nothing_and_locks_what_was_open(with_key: HostApp, wrong: bytes) -> None:
    device = with_key.device
    device.unlock(KEY)
    with pytest.raises(DeviceError, match="stays locked: this is not its key"):
        device.unlock(wrong)
    assert device.info().locked
    _refused_as_locked(device, Command.READ_IMAGE, bytes(12), BY_KEY)


def test_every_flipped_bit_of_the_key_is_another_key(with_key: HostApp) -> None:
    for bit in range(8 * len(KEY)):
        wrong = bytearray(KEY)
        wrong[bit // 8] ^= 1 << bit % 8
        with pytest.raises(RefusedError):
            with_key.device.request(Command.UNLOCK, bytes(wrong))


def test_the_boards_own_consent_counts_as_long_as_it_lasts(with_jumper: HostApp, tmp_path: Path) -> None:
    device, jumper = with_jumper.device, tmp_path / "flash.jumper"
    _refused_as_locked(device, Command.SELECT, bytes([BUILT_IN]), BY_BOARD)
    with pytest.raises(DeviceError, match="built without a key"):
        device.unlock(KEY)
    assert device.info().lock == 1
    jumper.touch()
    assert device.info().lock == 3
    slot = device.upload(OTHER)
    jumper.unlink()
    assert device.info().locked
    _refused_as_locked(device, Command.SELECT, bytes([slot]), BY_BOARD)


def test_an_unlocked_build_answers_everything(tmp_path: Path) -> None:
    with HostApp(build_app(IMAGE), tmp_path / "flash") as running:
        assert running.device.hello().lock == 0
        assert running.device.unlock(KEY).lock == 0
        assert all(code != Status.LOCKED for code, _ in _codes(running.device).values())


# ---- an emulated board ----

BOARD = "mps2-an386"


def _make(folder: Path, *variables: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "-C", str(FIRMWARE), f"BOARD={BOARD}", f"BUILD={folder}", f"PYTHON={sys.executable}", *variables]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def locked_elf(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    for tool in ("arm-none-eabi-gcc", "qemu-system-arm"):
        if not shutil.which(tool):
            pytest.skip(f"needs {tool}")
    folder = tmp_path_factory.mktemp("locked")
    (folder / "key").write_bytes(KEY)
    (folder / "net.fbit").write_bytes(IMAGE)
    made = _make(folder / "build", f"MODEL={folder / 'net.fbit'}", "LOCKED=1", f"KEY_FILE={folder / 'key'}")
    assert made.returncode == 0, made.stderr[-3000:]
    return folder / "build" / BOARD / "flipbit.elf", folder / "key"


def test_a_locked_emulated_board_infers_and_takes_images_with_its_key_only(locked_elf: tuple[Path, Path]) -> None:
    elf, _ = locked_elf
    with open_device(f"qemu:{BOARD}", elf) as device:
        assert device.info().locked
        device.use(Model(IMAGE))
        for x in photos(2):
            assert (device.infer(x).values == Model(IMAGE).predict(x, raw=True)).all()
        with pytest.raises(RefusedError, match="BEGIN: the board is locked: present its key"):
            device.upload(OTHER)
        with pytest.raises(RefusedError, match="LEARN_SAVE: the board is locked"):
            device.request(Command.LEARN_SAVE)
        with pytest.raises(DeviceError, match="not its key"):
            device.unlock(KEY[::-1])
        assert device.info().slot == BUILT_IN
        device.unlock(KEY)
        assert device.select(device.upload(OTHER)).model_crc == int.from_bytes(OTHER[12:16], "little")
        assert device.reset().locked
        assert device.info().model_crc == int.from_bytes(OTHER[12:16], "little")


def _flipbit(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flipbit.runtime", "device", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ})


def test_the_command_says_that_a_board_is_locked_and_takes_a_key(locked_elf: tuple[Path, Path], tmp_path: Path) -> None:
    elf, key = locked_elf
    board = ["--port", f"qemu:{BOARD}", "--firmware", elf]
    (tmp_path / "other.fbit").write_bytes(OTHER)
    said = _flipbit("info", *board)
    assert said.returncode == 0, said.stderr
    assert "lock     locked: answers info and infer only; all else needs its key (--key FILE)" in said.stdout
    refused = _flipbit("upload", *board, tmp_path / "other.fbit")
    assert refused.returncode == 2
    assert refused.stderr.strip().endswith("error: BEGIN: the board is locked: present its key (--key FILE)")
    done = _flipbit("upload", *board, "--key", key, tmp_path / "other.fbit", "--select")
    assert done.returncode == 0, done.stderr
    assert "in use: 0" in done.stdout
    missing = _flipbit("info", *board, "--key", tmp_path / "none")
    assert missing.returncode == 2 and "Traceback" not in missing.stderr
    np.save(tmp_path / "x.npy", photos(1))
    (tmp_path / "net.fbit").write_bytes(IMAGE)
    inferred = _flipbit("infer", *board, "--model", tmp_path / "net.fbit", tmp_path / "x.npy")
    assert inferred.returncode == 0, inferred.stderr


@pytest.mark.parametrize("size", [0, 15, 65])
def test_a_key_of_a_wrong_size_or_for_an_unlocked_build_is_refused(tmp_path: Path, size: int) -> None:
    (tmp_path / "key").write_bytes(bytes(size))
    made = _make(tmp_path / "build", "LOCKED=1", f"KEY_FILE={tmp_path / 'key'}")
    assert made.returncode != 0 and "16 to 64 bytes" in made.stderr
    made = _make(tmp_path / "build", f"KEY_FILE={tmp_path / 'key'}")
    assert made.returncode != 0 and "without LOCKED=1" in made.stderr
