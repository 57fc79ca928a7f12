"""Names from files on a terminal: nothing in them is obeyed, and nothing ends the command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipbit.runtime.commands.cli import main
from flipbit.runtime.image.reader import HEADER
from flipbit.runtime.shown import shown, shown_json
from flipbit.runtime.text_table import text_table
from tests.nets.small_nets import photos, repaired, small_image

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp\r\nerror: none\udcff"


def commands_a_terminal(text: str) -> bool:
    return bool(re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text))


def test_what_a_terminal_might_obey_is_written_out() -> None:
    assert shown("\x1b[2Jcat\n") == "\\x1b[2Jcat\\x0a"
    assert shown("a\udcffb\ud800") == "a\\xffb\\ud800"
    assert shown("\u202egnp.exe") == "\\u202egnp.exe"
    assert shown("čmelák 猫 👩‍🔬") == "čmelák 猫 👩‍🔬"


@given(st.text(st.characters()))
def test_shown_text_is_one_line_that_can_be_printed(text: str) -> None:
    out = shown(text)
    assert not commands_a_terminal(out) and len(f"{out}x".splitlines()) == 1
    out.encode()


@given(st.dictionaries(st.text(st.characters()), st.lists(st.text(st.characters()))))
def test_json_keeps_every_value_and_commands_nothing(content: dict) -> None:
    text = shown_json(content)
    assert json.loads(text) == content
    assert not commands_a_terminal(text)
    text.encode()


def test_tables_show_names_as_they_can_be_shown() -> None:
    assert text_table(("a",), [(HOSTILE,)]).count("\n") == 2


def forged() -> bytes:
    """An image whose class names, layer names and formula hold escape codes."""
    data = small_image()
    head = list(HEADER.unpack_from(data))
    metadata = json.loads(data[head[-2] : head[-2] + head[-1]])
    metadata["labels"][:2] = [HOSTILE, "\x1b[31mred"]
    metadata["names"] = [HOSTILE] * 13
    metadata["input"] = HOSTILE
    text = json.dumps(metadata).encode()
    body = bytearray(data[: head[-2]]) + text + bytes(-len(text) % 4)
    head[3], head[-1] = len(body), len(text)
    body[: HEADER.size] = HEADER.pack(*head)
    return repaired(body)


def test_a_forged_image_cannot_write_to_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.fbit").write_bytes(forged())
    (tmp_path / "good.fbit").write_bytes(small_image())
    np.save(tmp_path / "x.npy", (photos(20).astype(np.float32) - 128) / 128)
    image, good, data = (str(tmp_path / name) for name in ("m.fbit", "good.fbit", "x.npy"))
    for command in (["info", image], ["run", image, data], ["run", image, data, "--each"], ["compare", good, image],
                    ["profile", image, "--runs", "1"]):  # fmt: skip
        for more in ([], ["--json"]):
            if command[-1] == "--each" and more:
                continue
            assert main([*command, *more]) == 0
            printed = capsys.readouterr()
            assert not commands_a_terminal(printed.out + printed.err)
            printed.out.encode()
    from flipbit.export.commands.show import main as show

    assert show([image]) == 0
    assert not commands_a_terminal(capsys.readouterr().out)
    assert main(["info", image]) == 0
    assert "\\x1b[31mred" in capsys.readouterr().out


def test_pictures_with_hostile_names_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.fbit").write_bytes(small_image())
    folder = tmp_path / "photos" / "bee"
    folder.mkdir(parents=True)
    for name in (b"\x1b[2J.ppm", b"\xff\xfe.ppm"):
        Path(os.fsdecode(os.path.join(os.fsencode(folder), name))).write_bytes(b"P6 8 9 255\n" + photos(1).tobytes())
    Path(os.fsdecode(os.path.join(os.fsencode(folder), b"bad\xff\x1b.png"))).write_bytes(b"none")
    assert main(["run", str(tmp_path / "m.fbit"), str(tmp_path / "photos")]) == 0
    printed = capsys.readouterr()
    assert "\\x1b[2J.ppm" in printed.out and "\\xff\\xfe.ppm" in printed.out
    assert "1 of 3 pictures left out" in printed.err and "bad\\xff\\x1b.png" in printed.err
    assert not commands_a_terminal(printed.out + printed.err)
    assert main(["run", str(tmp_path / "m.fbit"), str(tmp_path / "photos"), "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert {Path(each["name"]).name for each in result["each"]} == {"\x1b[2J.ppm", "\udcff\udcfe.ppm"}
    assert main(["run", str(tmp_path / "m.fbit"), "no\x1b[2J\udcff\nsuch.png"]) == 2
    assert capsys.readouterr().err.startswith("error: no\\x1b[2J\\xff\\x0asuch.png: no such file")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_no_encoding_of_the_terminal_ends_a_command(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "m.fbit").write_bytes(small_image())
    for more in ([], ["--json"]):
        done = subprocess.run(
            [sys.executable, "-m", "flipbit.runtime", "info", str(tmp_path / "m.fbit"), *more], capture_output=True,
            env={**os.environ, "PYTHONIOENCODING": encoding},
        )  # fmt: skip
        assert done.returncode == 0 and not done.stderr
    assert json.loads(done.stdout)["metadata"]["labels"][2] == "čmelák"
