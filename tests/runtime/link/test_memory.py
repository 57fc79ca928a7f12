"""Emulated boards remember between commands what real ones keep without power, and one process at a time runs them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from flipbit.runtime.board.profile import BoardError, build, load_profile
from flipbit.runtime.commands.cli import main as flipbit
from flipbit.runtime.commands.device import main as device
from flipbit.runtime.commands.flash import main as flash
from flipbit.runtime.link.memory import BoardMemory, state_folder
from tests.nets.small_nets import small_image
from tests.runtime.tune.labelled import labelled
from tests.samples import BOARDS, sample

FLASHED, UPLOADED = small_image(0), small_image(1)


def crc(image: bytes) -> str:
    return f"{int.from_bytes(image[12:16], 'little'):08x}"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLIPBIT_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("build")
    (found / "flashed.fbit").write_bytes(FLASHED)
    (found / "uploaded.fbit").write_bytes(UPLOADED)
    return found


def firmware(board: str, folder: Path) -> Path:
    """The firmware with a model linked in."""
    profile = load_profile(board)
    compiler = f"{profile.facts['build']['compiler']}gcc"
    for tool in ("make", "cc", compiler, "gdb-multiarch", (profile.qemu or [""])[0]):
        if not shutil.which(tool):
            pytest.skip(f"needs {tool}")
    return build(profile, folder / "flashed.fbit", folder).elf


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict:
    assert device([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def flashed(board: str, folder: Path, *more: str) -> None:
    assert flash(["--board", board, "--qemu", "--firmware", str(firmware(board, folder)), "--json", *more]) == 0


@pytest.mark.parametrize("board", sample(["microbit", "mps2-an385", "rv32-virt"], BOARDS))
def test_a_board_keeps_its_program_and_its_images(
    board: str, folder: Path, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """microbit: QEMU models the flash controller. The others: RAM stands in for flash."""
    port = ("--port", f"qemu:{board}")
    flashed(board, folder)
    capsys.readouterr()
    assert told(capsys, "info", *port)["model_crc"] == crc(FLASHED)
    assert told(capsys, "upload", folder / "uploaded.fbit", *port, "--select")["in_use"] == "0"
    found = told(capsys, "info", *port)  # switched off and on since
    assert (found["slot"], found["model_crc"]) == ("0", crc(UPLOADED))
    assert told(capsys, "reset", *port)["slot"] == "0"  # a reset does not bring back what was there at the start
    told(capsys, "select", "built-in", *port)
    assert told(capsys, "info", *port)["model_crc"] == crc(FLASHED)
    flashed(board, folder)  # as on a real board, flashing leaves the storage alone
    capsys.readouterr()
    images = {image["slot"]: image["crc"] for image in told(capsys, "info", *port)["images"]}
    assert images == {"built-in": crc(FLASHED), "0": crc(UPLOADED), "1": None}
    assert {path.name for path in (state / "boards" / board).iterdir()} == {"lock", "program.elf", "storage.bin"}
    flashed(board, folder, "--fresh")
    capsys.readouterr()
    assert {image["crc"] for image in told(capsys, "info", *port)["images"]} == {crc(FLASHED), None}


def test_a_board_keeps_what_it_learned(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On the micro:bit, through QEMU's model of its flash controller."""
    flashed("microbit", folder, "--fresh")
    files, came_back, port = labelled(tmp_path), tmp_path / "back.fbit", "qemu:microbit"
    (files / "net.fbit").write_bytes(FLASHED)
    learning = ("finetune", files / "net.fbit", "--data", files / "data.npz", "--target", port, "--method", "sr+bias")
    few = ("--rate", "0.05", "--steps", "2", "--samples", "6", "--remember", "-o", files / "tuned.fbit", "--json")
    capsys.readouterr()
    assert flipbit([str(word) for word in (*learning, *few)]) == 0
    assert json.loads(capsys.readouterr().out)["saved"] is True
    told(capsys, "download", came_back, "--port", port)  # switched off and on since
    assert came_back.read_bytes() == (files / "tuned.fbit").read_bytes() != FLASHED


def test_a_board_whose_flash_no_emulator_writes_keeps_its_program(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flashed("netduinoplus2", folder)
    capsys.readouterr()
    assert told(capsys, "info", "--port", "qemu:netduinoplus2")["model_crc"] == crc(FLASHED)


def test_a_board_for_one_command_leaves_the_remembered_one_alone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elf = firmware("microbit", folder)
    other = ("--port", "qemu:microbit", "--firmware", elf)
    told(capsys, "upload", folder / "uploaded.fbit", *other, "--select")
    assert told(capsys, "info", *other)["slot"] == "built-in"
    assert not state_folder().exists()


def test_two_processes_do_not_run_one_board(capsys: pytest.CaptureFixture[str]) -> None:
    with BoardMemory(load_profile("microbit")) as memory:
        with pytest.raises(BoardError, match=r"qemu:microbit is already running \(process \d+\); end that first"):
            BoardMemory(load_profile("microbit"))
        memory.tell("unix:/there")
        assert device(["info", "--port", "qemu:microbit"]) == 2
        assert "which serves it at --port unix:/there" in capsys.readouterr().err
        BoardMemory(load_profile("mps2-an385")).close()
    BoardMemory(load_profile("microbit")).close()


def test_fresh_is_refused_for_real_boards(capsys: pytest.CaptureFixture[str]) -> None:
    assert device(["info", "--port", "/dev/ttyACM7", "--fresh"]) == 2
    assert "--fresh is for emulated boards (qemu:BOARD), not for /dev/ttyACM7" in capsys.readouterr().err
    assert flash(["--board", "microbit", "--fresh"]) == 2
    assert "add --qemu" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FLIPBIT_STATE", str(tmp_path / "file"))
    with pytest.raises(BoardError, match="set FLIPBIT_STATE to a folder that can be written"):
        BoardMemory(load_profile("microbit"))


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"FLIPBIT_STATE": "/a", "XDG_STATE_HOME": "/b", "HOME": "/c"}, "/a/boards"),
        ({"FLIPBIT_STATE": "", "XDG_STATE_HOME": "/b", "HOME": "/c"}, "/b/flipbit/boards"),
        ({"FLIPBIT_STATE": "", "XDG_STATE_HOME": "not/absolute", "HOME": "/c"}, "/c/.local/state/flipbit/boards"),
        ({"FLIPBIT_STATE": "", "XDG_STATE_HOME": "", "HOME": "/c"}, "/c/.local/state/flipbit/boards"),
    ],
)
def test_where_boards_are_kept(variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert state_folder() == Path(expected)
