"""Which image a device uses, what its slots hold and what it has learned survive any loss of power, together.

The application's C on a simulated flash, cut at every operation of uploads, selections, saves and forgetting. A case
that fails prints its id; ``slots_power_loss IMAGE OTHER replay ID`` runs it again.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.firmware.host_app import BOARD, FIRMWARE
from tests.nets.tiny_net import tiny_image

HERE = Path(__file__).parent
LONG = bool(os.environ.get("FLIPBIT_LONG"))
FLASH = {  # size, page, unit, whether a unit may be programmed again
    "reprogram": (4096, 512, 4, 1),
    "once": (8192, 1024, 8, 0),
    "once, unit of 2": (4096, 512, 2, 0),
    "pages for one image": (12288, 2048, 32, 0),
}
USUAL = ["reprogram", "once"]


def build(folder: Path, flash: str, slots_c: Path = FIRMWARE / "app" / "fb_slots.c") -> list[str]:
    size, page, unit, reprogram = FLASH[flash]
    program = folder / "slots_power_loss"
    facts = {"SIZE": f"{size}u", "PAGE": f"{page}u", "UNIT": f"{unit}u", "REPROGRAM": reprogram}
    flags = ["-std=gnu99", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    flags += ["-Wall", "-Wextra", "-Wconversion", "-Wpedantic", "-Werror"]
    flags += [f"-DBOARD_STORE_{name}={value}" for name, value in facts.items()]
    flags += [
        f"-I{place}" for place in (BOARD, *(FIRMWARE / name for name in ("boards", "app", "core/include", "sim")))
    ]
    names = (
        "store/fb_store",
        "run/fb_crc32",
        "run/fb_status",
        "run/fb_open",
        "run/fb_layer",
        "run/fb_kinds",
        "run/fb_front_end",
    )
    core = [FIRMWARE / "core" / f"{name}.c" for name in names]
    sources = [HERE / "slots_power_loss.c", slots_c, FIRMWARE / "app" / "fb_ledger.c"]
    sources += [FIRMWARE / "sim" / "fb_flash_sim.c", *core]
    subprocess.run([os.environ.get("CC", "cc"), *flags, *map(str, sources), "-o", str(program)], check=True)
    images = []
    for seed in (0, 1):
        images.append(folder / f"{seed}.fbit")
        images[-1].write_bytes(tiny_image(seed))
    return [str(program), *map(str, images)]


def run(program: list[str], *arguments: object) -> str:
    done = subprocess.run([*program, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("flash", FLASH if LONG else USUAL)
def test_power_loss_at_every_flash_operation_keeps_the_last_selection(tmp_path: Path, flash: str) -> None:
    program = build(tmp_path, flash)
    assert int(run(program, "every").split()[-2]) > 2000
    assert run(program, "sampled", 20_000 if LONG else 500, 1).endswith("cases of 2 losses\n")


def test_slots_that_are_erased_before_the_ledger_says_so_are_caught(tmp_path: Path) -> None:
    """The tests are worth something: an upload that leaves the old note in place until its end."""
    right = (FIRMWARE / "app" / "fb_slots.c").read_text()
    wrong = right.replace("reply = note_image(ledger, slot, 0, 0, detail);", "reply = FB_REPLY_OK;")
    assert wrong != right
    (tmp_path / "fb_slots.c").write_text(wrong)
    failed = subprocess.run(
        [*build(tmp_path, "once", tmp_path / "fb_slots.c"), "every"], capture_output=True, text=True
    )
    assert failed.returncode == 1
    assert "FAILED" in failed.stdout
