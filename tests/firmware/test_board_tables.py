"""docs/boards.md says of boards what their profiles say."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import board_tables
import pytest
import read_profile

from tests.checkout import ROOT

NAMES = read_profile.names()


def test_the_document_has_the_tables_that_the_profiles_make() -> None:
    text = (ROOT / "docs" / "boards.md").read_text(encoding="utf-8")
    assert text == board_tables.written(text), "run python firmware/boards/board_tables.py --write"


@pytest.mark.parametrize("name", board_tables.TABLES)
def test_the_command_prints_what_is_in_the_document(name: str) -> None:
    command = [sys.executable, ROOT / "firmware" / "boards" / "board_tables.py", name]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed in (ROOT / "docs" / "boards.md").read_text(encoding="utf-8")
    assert "`microbit`" in printed


def test_a_changed_profile_changes_the_table(tmp_path: Path) -> None:
    text = (read_profile.BOARDS / "microbit" / "board.toml").read_text(encoding="utf-8")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "board.toml").write_text(text.replace("nRF51822", "nRF51824"), encoding="utf-8")
    assert "| `mine` | BBC micro:bit v1 | nRF51824, M0 | 256 KB | 16 KB |" in board_tables.markdown("boards", tmp_path)


def test_an_unknown_table_is_refused_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert board_tables.main(["chairs"]) == 2
    assert "board_tables.py storage" in capsys.readouterr().err


@pytest.mark.parametrize("name", NAMES)
def test_the_application_divides_the_storage_as_the_table_says(name: str, tmp_path: Path) -> None:
    if not shutil.which("cc"):
        pytest.skip("needs cc")
    profile = read_profile.read(name)
    read_profile.generate(profile, tmp_path)
    division = profile.storage
    (tmp_path / "slots.c").write_text(
        '#include "fb_ledger_flash.c"\n#include "fb_slots.h"\n'
        f'_Static_assert(FB_SLOT_COUNT == {division.images} && FB_SLOT_SIZE == {division.image_size}, "images");\n'
        f'_Static_assert(SLOTS == {division.ledger_slots} && SIZE == {division.ledger}, "ledger");\n',
        encoding="ascii",
    )
    folders = (tmp_path, *(ROOT / "firmware" / part for part in ("app", "boards", "core/include")))
    command = ["cc", "-std=gnu11", "-fsyntax-only", *(f"-I{folder}" for folder in folders), str(tmp_path / "slots.c")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
