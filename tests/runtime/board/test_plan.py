"""What `flipbit info --board` says of a board is what the board itself says: RAM, kernels, instructions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import read_profile
import report_sizes

from flipbit.runtime.board.plan import INFERENCE, PROGRAMS, board_plan, every_board
from flipbit.runtime.board.profile import board_names, build, load_profile
from flipbit.runtime.commands.cli import main
from flipbit.runtime.commands.device import main as device_main
from flipbit.runtime.core.model import Model
from flipbit.runtime.link.device import open_device
from tests.checkout import ROOT
from tests.nets.small_nets import newer_image, small_image
from tests.samples import BOARDS, sample

NAMES = board_names()
EMULATED = [name for name in NAMES if load_profile(name).qemu]
DIGITS = ROOT / "models" / "digits-vgg-small" / "model.fbit"
RESNET8 = ROOT / "models" / "cifar10-resnet8" / "model.fbit"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("build")


def needs(board: str) -> None:
    profile = load_profile(board)
    tools = (f"{profile.facts['build']['compiler']}gcc", "make", "cc", *(profile.qemu or [])[:1])
    for tool in tools:
        if not shutil.which(tool):
            pytest.skip(f"{board} needs {tool}")


@pytest.mark.parametrize("image", [DIGITS, RESNET8], ids=["digits", "resnet8"])
@pytest.mark.parametrize("board", sample(EMULATED, BOARDS))
def test_ram_and_kernels_are_those_the_board_reports(board: str, image: Path, folder: Path) -> None:
    needs(board)
    model = Model(image)
    plan = board_plan(model, board)
    if not plan.fits:
        assert board in ("microbit", "hifive1", "stm32vldiscovery") and image == RESNET8
        return
    with open_device(f"qemu:{board}", build(load_profile(board), image, folder).elf) as device:
        info = device.info()
        layers = device.bench(repeats=1)[0]
    ends = -(-info.input_size // 8) * 8 + -(-info.output_size // 8) * 8
    assert info.ram_free == plan.ram_free
    assert (info.arena_least + ends, info.arena_size + ends) == (plan.ram_needed, plan.ram_fastest)
    assert [(x.kernel, x.live, x.scratch) for x in layers] == [(x.kernel, x.live, x.scratch) for x in plan.layers]


def test_a_board_with_small_code_is_planned_with_the_kernels_it_has(folder: Path) -> None:
    """Depthwise layers: by reference kernels there, by faster ones on a larger board with the same core."""
    board = "stm32vldiscovery"
    needs(board)
    image = folder / "newer.fbit"
    image.write_bytes(newer_image())
    plan, other = (board_plan(Model(image), name) for name in (board, "lm3s6965evb"))
    with open_device(f"qemu:{board}", build(load_profile(board), image, folder).elf) as device:
        layers = device.bench(repeats=1)[0]
    assert load_profile(board).small_code and not load_profile("lm3s6965evb").small_code
    assert [(x.kernel, x.live, x.scratch) for x in layers] == [(x.kernel, x.live, x.scratch) for x in plan.layers]
    assert {x.kernel for x in other.layers} - {x.kernel for x in plan.layers} >= {"fb_depthwise_bin_pairs"}


@pytest.mark.parametrize("board", sample(NAMES, BOARDS))
def test_what_the_firmware_takes_is_what_a_build_measures(board: str, folder: Path) -> None:
    """RAM to the byte. Code depends on the compiler's version: a tenth more or less."""
    needs(board)
    profile = read_profile.read(board)
    found = report_sizes.program(profile, report_sizes.measure(profile, build(load_profile(board), None, folder).elf))
    stored = json.loads(PROGRAMS.read_text(encoding="utf-8"))["boards"][board]
    again = f"python firmware/boards/report_sizes.py --store {board}"
    assert found["ram_free"] == stored["ram_free"], again
    assert found["flash"] == pytest.approx(stored["flash"], rel=0.1), again


def test_a_net_that_does_not_fit_says_what_it_needs_and_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(RESNET8), "--board", "microbit"]) == 0
    text = capsys.readouterr().out
    plan = board_plan(Model(RESNET8), "microbit")
    assert f"does not fit: needs {plan.ram_needed:,} bytes of RAM, has {plan.ram_free:,}" in text
    assert not plan.layers and plan.seconds is None


def test_info_names_the_board_whose_numbers_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(DIGITS), "--board", "microbit"]) == 0
    text = capsys.readouterr().out
    assert "board    microbit: BBC micro:bit v1, cortex-m0 at 16 MHz; all numbers are its own" in text
    assert "modelled, not measured" in text and text.endswith("fits\n")
    assert main(["info", str(DIGITS)]) == 0
    text = capsys.readouterr().out
    assert "bytes on this machine" in text and "smallest that it fits: stm32vldiscovery" in text


def test_info_as_json_has_the_boards(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(RESNET8), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["boards"]
    assert found["smallest"] == "lm3s6965evb"
    assert {*found["fit"], *found["do_not_fit"]} == set(NAMES)
    assert main(["info", str(RESNET8), "--board", "netduinoplus2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (
        found["fits"] and found["counted"] and found["instructions"] == sum(x["instructions"] for x in found["layers"])
    )


def test_boards_come_smallest_first_and_a_large_net_fits_none(tmp_path: Path) -> None:
    plans = every_board(Model(small_image()))
    assert [plan.ram_free for plan in plans] == sorted(plan.ram_free for plan in plans)
    assert all(plan.fits for plan in plans)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--board", "toaster"], "there is no board toaster"), (["--board", "pico", "--arena", "9"], "leave out --arena")],
)
def test_a_wrong_board_gets_a_sentence(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(DIGITS), *arguments]) == 2
    assert said in capsys.readouterr().err


def test_the_counts_are_of_kernels_that_boards_have() -> None:
    rows = json.loads(INFERENCE.read_text(encoding="utf-8"))["layers"]
    assert {row["core"] for row in rows} >= {"M0", "M3", "M4", "M7", "M33", "M55", "RV32IMAC"}
    for name, image in (("mps2-an385", DIGITS), ("netduinoplus2", RESNET8), ("mps3-an547", RESNET8)):
        assert board_plan(Model(image), name).counted, name
    estimated = board_plan(Model(small_image()), "netduinoplus2")
    assert not estimated.counted and "estimated" in estimated.source


def test_an_emulated_board_never_reports_its_time_as_a_real_ones(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needs("microbit")
    elf = str(build(load_profile("microbit"), DIGITS, folder).elf)
    arguments = ["infer", "--port", "qemu:microbit", "--firmware", elf, str(ROOT / "docker/raspberry-pi/pictures")]
    arguments += ["--limit", "2"]
    assert device_main([*arguments, "--json"]) == 0
    (first, _) = json.loads(capsys.readouterr().out)
    modelled = board_plan(Model(DIGITS), "microbit").seconds
    assert first["seconds"] is None and first["emulator_seconds"] > 0 and first["modelled_seconds"] == modelled
    assert device_main(arguments) == 0
    text = capsys.readouterr().out
    assert "not the time of a real board" in text and "a real microbit takes about" in text
    assert "by the board's counter" not in text
