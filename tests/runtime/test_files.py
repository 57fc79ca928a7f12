"""Files that are whole or not there."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from flipbit.runtime.files import replacing, write_atomically, write_json


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_atomically(tmp_path / "f", b"old")

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="space"):
        write_atomically(tmp_path / "f", b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["f"] and (tmp_path / "f").read_bytes() == b"old"


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_a_new_file_gets_the_permissions_of_the_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        write_atomically(tmp_path / "f", b"new")
    finally:
        os.umask(before)
    assert mode(tmp_path / "f") == 0o666 & ~mask


@pytest.mark.parametrize("old", [0o600, 0o644, 0o664, 0o755, 0o444])
def test_a_replaced_file_keeps_its_permissions(tmp_path: Path, old: int) -> None:
    (tmp_path / "f").write_bytes(b"old")
    (tmp_path / "f").chmod(old)
    write_atomically(tmp_path / "f", b"new")
    assert (tmp_path / "f").read_bytes() == b"new" and mode(tmp_path / "f") == old


def test_a_link_stays_a_link_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/f").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real/f")
    (tmp_path / "dangling").symlink_to("real/g")
    for name in ("link", "dangling"):
        write_atomically(tmp_path / name, b"new")
        assert (tmp_path / name).is_symlink() and (tmp_path / name).read_bytes() == b"new"
    assert sorted(p.name for p in (tmp_path / "real").iterdir()) == ["f", "g"]


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    read, write = os.pipe()
    write_atomically(f"/dev/fd/{write}", b"through")
    os.close(write)
    assert os.read(read, 100) == b"through"
    os.close(read)


def test_folders_that_are_missing_or_in_the_way_are_named_as_the_user_did(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        write_atomically(tmp_path / "no" / "f.json", b"")
    assert missing.value.filename == str(tmp_path / "no" / "f.json")
    with pytest.raises(IsADirectoryError, match="expected a file"):
        write_atomically(tmp_path, b"")


def test_two_writers_at_a_time_do_not_meet(tmp_path: Path) -> None:
    with replacing(tmp_path / "f") as one, replacing(tmp_path / "f") as two:
        one.write_bytes(b"one")
        two.write_bytes(b"two")
    assert (tmp_path / "f").read_bytes() == b"one"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_a_long_name_is_written(tmp_path: Path) -> None:
    name = "ž" * 120 + ".fbit"
    write_atomically(tmp_path / name, b"new")
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_names_that_are_no_text_come_back_from_json(tmp_path: Path) -> None:
    import json

    write_json(tmp_path / "f", {"name": "a\udcff"})
    assert json.loads((tmp_path / "f").read_text()) == {"name": "a\udcff"}
