"""Talking to devices: emulated boards for real, and what is said when something is missing."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from flipbit.runtime import Model
from flipbit.runtime.board.profile import build, load_profile
from flipbit.runtime.commands.device import main as device_main
from flipbit.runtime.commands.flash import main as flash_main
from flipbit.runtime.data.load import load_data
from flipbit.runtime.link.device import BUILT_IN, Device, DeviceError, RefusedError, open_device
from flipbit.runtime.link.emulator import Emulator
from flipbit.runtime.link.line import LineError
from flipbit.runtime.link.protocol import Status
from tests.checkout import ROOT
from tests.nets.small_nets import photos, small_image

EMULATED = ("netduinoplus2", "microbit", "mps2-an385", "hifive1")
OTHER = small_image(1)
Elf = Callable[[str], Path]


@pytest.fixture(scope="session")
def digits_image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained digits net."""
    for module in ("tensorflow", "sklearn"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"exporting the digits net needs {module}")
    path = tmp_path_factory.mktemp("digits") / "digits.fbit"
    command = [sys.executable, "export/to_fbit.py", "models/digits-vgg-small/model.h5", "-o", str(path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return path


@pytest.fixture(scope="session")
def elf(digits_image: Path, tmp_path_factory: pytest.TempPathFactory) -> Elf:
    """The firmware for a board, with the digits net."""
    folder = tmp_path_factory.mktemp("build")
    built: dict[str, Path] = {}

    def get(board: str) -> Path:
        profile = load_profile(board)
        for tool in (f"{profile.facts['build']['compiler']}gcc", "make", *(profile.qemu or [])[:1]):
            if not shutil.which(tool):
                pytest.skip(f"{board} needs {tool}")
        if board not in built:
            built[board] = build(profile, digits_image, folder).elf
        return built[board]

    return get


@pytest.fixture
def digits(digits_image: Path) -> tuple[Model, np.ndarray]:
    model = Model(digits_image)
    return model, load_data("digits", model.input_shape, model.labels).x


# ---- emulated boards ----


@pytest.mark.parametrize("board", EMULATED)
def test_an_emulated_board_gives_the_bits_of_the_host(board: str, elf: Elf, digits: tuple[Model, np.ndarray]) -> None:
    model, x = digits
    with open_device(f"qemu:{board}", elf(board)) as device:
        info = device.info()
        assert (info.board, info.slot, info.layers) == (board, BUILT_IN, len(model.layers))
        assert device.read_image() == model.image.data
        expected = model.predict(x[:20], raw=True)
        for i in range(20):
            result = device.infer(x[i])
            assert (result.values == expected[i]).all()
            assert result.index == expected[i].argmax()
        assert device.verify(x[20:23], model) is None
        for data in (b"", bytes(240), bytes(range(1, 245))):
            assert device.echo(data) == data
        device.line.write(b"noise\0\xff\xff\xff" + bytes(range(256)))
        assert (device.infer(x[0]).values == expected[0]).all()
        assert device.counters()["bad"] >= 2
        assert device.reset() == info


@pytest.mark.parametrize("board", ["microbit", "mps2-an385"])
def test_an_image_in_a_slot_of_an_emulated_board_survives_a_reset(board: str, elf: Elf) -> None:
    """microbit: QEMU models the flash controller. mps2: RAM stands in for flash."""
    x, model = photos(2), Model(OTHER)
    with open_device(f"qemu:{board}", elf(board)) as device:
        slot = device.upload(OTHER)
        assert device.info().slot == BUILT_IN
        device.select(slot)
        assert device.reset().slot == slot
        assert device.read_image() == OTHER
        assert (device.infer(x[0]).values == model.predict(x[0], raw=True)).all()
        assert device.verify(x, model) is None
        device.upload(OTHER)  # into the other slot: flash that was written before is erased and written again
        device.upload(OTHER)
        assert device.select(BUILT_IN).slot == BUILT_IN
        assert device.reset().slot == BUILT_IN


@pytest.mark.parametrize("board", ["netduinoplus2", "hifive1"])
def test_flash_that_an_emulator_does_not_write_is_noticed(board: str, elf: Elf) -> None:
    with open_device(f"qemu:{board}", elf(board)) as device:
        with pytest.raises(RefusedError, match="does not hold what was written") as error:
            device.upload(OTHER)
        assert error.value.code == Status.STORE
        assert device.info().slot == BUILT_IN


@pytest.mark.parametrize("board", EMULATED)
def test_an_emulated_board_is_flashed_by_gdb(
    board: str, elf: Elf, digits: tuple[Model, np.ndarray], capsys: pytest.CaptureFixture[str]
) -> None:
    if not shutil.which("gdb-multiarch"):
        pytest.skip("needs gdb-multiarch")
    assert flash_main(["--board", board, "--qemu", "--firmware", str(elf(board)), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["board"] == board
    assert found["sections"] >= 1
    assert int(found["model_crc"], 16) == int.from_bytes(digits[0].image.data[12:16], "little")


def test_a_program_that_is_not_in_the_flash_does_not_answer(elf: Elf) -> None:
    elf("microbit")
    with (
        Emulator("microbit") as emulator,
        Device(emulator.line(), timeout=0.1, retries=1) as device,
        pytest.raises(DeviceError, match="does the board run the flipbit firmware"),
    ):
        device.hello(0.2)


def test_a_dead_emulator_is_named_with_its_last_words(elf: Elf) -> None:
    program = elf("microbit")
    with Emulator("microbit", program) as emulator:
        device = Device(emulator.line())
        device.hello()
        assert emulator._process is not None
        emulator._process.kill()
        emulator._process.wait()
        with pytest.raises(LineError, match=r"QEMU \(microbit\) ended with status -9"):
            device.echo(b"hello")
        device.close()


def test_another_model_than_the_one_on_the_board_is_refused(elf: Elf) -> None:
    with (
        open_device("qemu:microbit", elf("microbit")) as device,
        pytest.raises(DeviceError, match="upload the image"),
    ):
        device.use(Model(OTHER))


# ---- the commands ----


@pytest.fixture(scope="module")
def port(elf: Elf) -> Iterator[str]:
    """A micro:bit that keeps running."""
    with Emulator("microbit", elf("microbit")) as emulator:
        yield f"unix:{emulator.uart}"


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    assert device_main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_commands_talk_to_a_board(
    port: str, digits_image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    info = run_json(capsys, "info", "--port", port)
    assert (info["board"], info["core"], info["slot"]) == ("microbit", "cortex-m0", "built-in")
    assert [image["slot"] for image in info["images"]] == ["built-in", "0", "1"]

    results = run_json(capsys, "infer", "--port", port, "digits", "--limit", "5")
    data = load_data("digits", (8, 8, 1), [])
    expected = Model(digits_image).predict(data.x[:5], raw=True)
    assert [r["values"] for r in results] == expected.tolist()
    assert [r["expected"] for r in results] == data.y[:5].tolist()

    found = run_json(capsys, "verify", "--port", port, "--model", str(digits_image), "digits", "--limit", "2")
    assert found == {"board": "microbit", "inputs": 2, "layers": 10, "equal": True, "difference": None}

    bench = run_json(capsys, "bench", "--port", port, "--repeats", "2")
    assert len(bench["layers"]) == 10 and len(bench["runs"]) == 2
    assert all(layer["ticks"] > 0 for layer in bench["layers"])

    image = tmp_path / "other.fbit"
    image.write_bytes(OTHER)
    assert run_json(capsys, "upload", "--port", port, str(image), "--select")["in_use"] == "0"
    assert run_json(capsys, "reset", "--port", port)["slot"] == "0"
    saved = tmp_path / "saved.fbit"
    assert run_json(capsys, "download", "--port", port, str(saved))["bytes"] == len(OTHER)
    assert saved.read_bytes() == OTHER
    assert run_json(capsys, "select", "--port", port, "built-in")["slot"] == "built-in"


def test_the_commands_print_text_for_people(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    cases = {
        ("info",): r"board    microbit: nRF51822, cortex-m0 at 16 MHz",
        ("infer", "digits", "--limit", "3"): r"of 3 right",
        ("bench", "--repeats", "1"): r"conv1 .* fb_conv",
        ("verify", "--limit", "1"): r"all 10 layers equal this machine's, bit for bit, for 1 inputs",
    }
    for (verb, *rest), expected in cases.items():
        assert device_main([verb, "--port", port, *rest]) == 0
        text = capsys.readouterr().out
        assert re.search(expected, text), text


def test_the_monitor_shows_what_a_board_says(elf: Elf) -> None:
    with Emulator("microbit", elf("microbit")) as emulator:
        device = Device(emulator.line())
        device.hello()
        timer = threading.Timer(0.2, lambda: device.line.write(b"\0gibberish\0\x02\x01\x02\x04\x01\x05"))
        timer.start()
        said = list(device.monitor(1.0))
        timer.join()
        device.close()
    assert any("00" in text for text in said)  # the complaint about what it could not read


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["info", "--port", "/dev/ttyNONE7"], "/dev/ttyNONE7|pyserial"),
        (["info", "--port", "unix:/nowhere"], "is the emulator or server running"),
        (["info", "--port", "tcp:localhost"], "expected tcp:HOST:PORT"),
        (["info", "--port", "qemu:toaster"], "there is no board toaster; boards are"),
        (["info", "--port", "qemu:../../etc"], "there is no board"),
        (["info", "--port", "qemu:microbit", "--firmware", "/nowhere.elf"], "/nowhere.elf: no such file"),
        (["info", "--port", "qemu:pico", "--firmware", "/nowhere.elf"], "QEMU does not emulate the Raspberry Pi Pico"),
        (["select", "--port", "unix:/nowhere", "third"], "expected a number, or built-in"),
        (["bench", "--port", "unix:/nowhere", "--repeats", "0"], "at least 1"),
    ],
)
def test_mistakes_get_a_sentence_and_status_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert device_main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and "Traceback" not in error
    assert re.search(message, error), error
