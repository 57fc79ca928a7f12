"""The cache of features: keyed by settings and files, whole or absent, never in the way."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from flipbit.runtime.recordings.cache import cache_folder, cached


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLIPBIT_CACHE", str(tmp_path / "cache"))


def test_what_was_made_is_found_again_until_settings_or_files_change(tmp_path: Path) -> None:
    file, made = tmp_path / "a.wav", []
    file.write_bytes(b"1")

    def get(settings: object) -> int:
        return int(cached("x", settings, [file], lambda: made.append(1) or {"n": np.array(len(made))})["n"])

    assert [get(1), get(1), get(2), get(1)] == [1, 1, 2, 1]
    os.utime(file, ns=(1, 1))
    assert get(1) == 3


def test_a_damaged_file_is_made_again(tmp_path: Path) -> None:
    cached("x", 0, [], lambda: {"n": np.arange(1000)})
    (kept,) = cache_folder().iterdir()
    kept.write_bytes(kept.read_bytes()[:500])
    assert len(cached("x", 0, [], lambda: {"n": np.arange(3)})["n"]) == 3
    assert len(cached("x", 0, [], lambda: {"n": np.arange(4)})["n"]) == 3


def test_a_folder_that_cannot_be_written_costs_a_note_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FLIPBIT_CACHE", str(tmp_path / "file"))
    assert len(cached("x", 0, [], lambda: {"n": np.arange(3)})["n"]) == 3
    assert "not kept" in capsys.readouterr().err
