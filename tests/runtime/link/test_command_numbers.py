"""Commands and statuses have the same numbers in the firmware, on the host and in docs/protocol.md."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from flipbit.runtime.link import protocol
from flipbit.runtime.link.protocol import Command, Status
from tests.checkout import ROOT

APP = ROOT / "firmware" / "app"
PREFIXES = {"fb_command_number": "FB_COMMAND_", "fb_reply": "FB_REPLY_"}
CONSTANTS = {
    "FB_PROTOCOL_VERSION": protocol.PROTOCOL_VERSION,
    "FB_PAYLOAD_MAX": protocol.PAYLOAD_MAX,
    "FB_PIECE_MAX": protocol.PIECE_MAX,
    "FB_LINE_MAX": protocol.LINE_MAX,
    "FB_IS_REPLY": protocol.REPLY,
    "FB_EVENT": protocol.EVENT,
    "FB_SLOT_BUILT_IN": protocol.BUILT_IN,
    "FB_SLOT_NONE": protocol.NO_SLOT,
    "FB_KEY_MOST": protocol.KEY_MOST,
}


def values(names: list[str], folder: Path) -> dict[str, int]:
    """What a compiler makes of names in the application's headers."""
    prints = "".join(f'printf("%d\\n", (int)({name}));\n' for name in names)
    source = folder / "values.c"
    source.write_text(f'#include <stdio.h>\n#include "fb_consent.h"\nint main(void) {{\n{prints}return 0;\n}}\n')
    places = (APP, ROOT / "firmware/boards", ROOT / "firmware/core/include", ROOT / "tests/firmware/host_board")
    folders = [f"-I{place}" for place in places]
    subprocess.run(["cc", "-std=gnu99", *folders, str(source), "-o", str(folder / "values")], check=True)
    said = subprocess.run([folder / "values"], check=True, capture_output=True, text=True).stdout
    return dict(zip(names, map(int, said.split())))


def enumerated(enum: str) -> list[str]:
    """Names in an enum of fb_frame.h."""
    found = re.search(rf"typedef enum {enum} {{(.*?)}} {enum};", (APP / "fb_frame.h").read_text("utf-8"), re.DOTALL)
    assert found, f"fb_frame.h has no {enum}"
    return re.findall(rf"\b{PREFIXES[enum]}\w+", re.sub(r"/\*.*?\*/", "", found[1], flags=re.DOTALL))


def test_commands_have_the_firmwares_numbers(tmp_path: Path) -> None:
    expected = {f"FB_COMMAND_{command.name}": command.value for command in Command}
    assert values(enumerated("fb_command_number"), tmp_path) == expected


def test_statuses_of_replies_have_the_firmwares_numbers(tmp_path: Path) -> None:
    expected = {f"FB_REPLY_{status.name}": status.value for status in Status}
    assert values(enumerated("fb_reply"), tmp_path) == expected


def test_lengths_and_marks_of_frames_are_the_firmwares(tmp_path: Path) -> None:
    assert values(list(CONSTANTS), tmp_path) == CONSTANTS


def test_every_command_is_handled_once_and_called_by_its_name() -> None:
    lists = "".join(
        body
        for path in sorted(APP.glob("fb_co*.c"))
        for body in re.findall(r"const fb_command fb_\w+\[\] = {(.*?)};", path.read_text("utf-8"), re.DOTALL)
    )
    handled = re.findall(r"{(\w+), \w+, \w+, \w+}", lists)
    assert sorted(name for name in handled if name != "0") == sorted(
        f"FB_COMMAND_{command.name}" for command in Command
    )


def test_the_document_has_every_command_and_status() -> None:
    text = (ROOT / "docs" / "protocol.md").read_text("utf-8")
    commands = {name: int(number, 16) for number, name in re.findall(r"^\| (0x\w\w) ([A-Z_]+) \|", text, re.MULTILINE)}
    assert commands == {command.name: command.value for command in Command}
    statuses = {name: int(number, 0) for number, name in re.findall(r"^\| (\w+) \| ([A-Z_]+) \|", text, re.MULTILINE)}
    assert statuses == {status.name: status.value for status in Status}
