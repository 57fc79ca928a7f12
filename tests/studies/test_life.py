"""The study of a device's life: its guard is the board's, and the story is told from its beginning to its end."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from flipbit.runtime.core.learner import LearnerConfig
from flipbit.runtime.link.guard import Guard
from flipbit.runtime.simulate.power import load_device
from flipbit.runtime.simulate.simulator import SimulatedDevice
from flipbit.studies import learning, life
from tests.firmware.host_app import HostApp, build_app
from tests.nets.small_nets import photos, referenced_image

WINDOW = 12
STORY = life.Story(windows=14, window=WINDOW, changes=((2, "dim:3"), (9, "blur:1")), labels=(7,))


def test_the_studys_guard_decides_and_computes_as_the_boards(tmp_path: Path) -> None:
    pixels = photos(WINDOW, 5).astype(int) - 128
    bright, dim = ((pixels // by).astype(np.int8).transpose(0, 3, 1, 2) for by in (1, 3))
    config = LearnerConfig(bits=False, recalibrate=1, prior=30)
    here = life.Guarded(SimulatedDevice(load_device("nrf52840-dk"), referenced_image(), config), 0.3)
    changed = []
    with HostApp(build_app(referenced_image()), tmp_path / "flash") as app:
        app.device.hello()
        board = Guard(app.device, prior=30)
        board.start(WINDOW, threshold=0.3)
        for inputs in (bright, *[dim] * 9, bright, bright):
            for x in inputs:
                app.device.load(x)
                app.device.run()
            changed.append(here.window(inputs))
            assert here.device.image == board.target.image
            assert sum(changed) == board.state().passes
    assert not changed[0] and changed[1] and not all(changed[1:10]), "recalibrated once, and then content"


def test_devices_live_through_the_same_story() -> None:
    pixels, labels = photos(80, 3), np.arange(80) % 5
    said: list[str] = []
    results = life.live(referenced_image(), pixels, labels, 1, 15, STORY, said.append)
    assert [r["kind"] for r in results] == list(life.KINDS) and len(said) == 3
    alone, guarded, labelled = (r["rows"] for r in results)
    for rows in (alone, guarded, labelled):
        assert [row["images"] for row in rows] == [WINDOW * n for n in range(STORY.windows + 1)]
        joules = [row["joules"] for row in rows]
        assert joules[0] == 0 and all(b > a for a, b in itertools.pairwise(joules))
        assert all(0 <= row["accuracy"] <= 1 for row in rows)
    assert not any(row["event"] for row in alone)
    assert any(row["event"] == "recalibrated" for row in guarded)
    assert [n for n, row in enumerate(labelled) if row["event"] == "labels"] == [8]
    assert alone[-1]["joules"] <= guarded[-1]["joules"] < labelled[-1]["joules"]
    assert [row["accuracy"] for row in guarded[:8]] == [row["accuracy"] for row in labelled[:8]]
    again = life.live(referenced_image(), pixels, labels, 1, 15, STORY, said.append)
    assert again == results


def test_the_study_writes_its_results_and_draws_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(learning, "Story", lambda: STORY)
    (tmp_path / "net.fbit").write_bytes(referenced_image())
    np.savez(tmp_path / "data.npz", x=photos(80, 3), y=np.arange(80) % 5)
    command = ["life", str(tmp_path / "net.fbit"), str(tmp_path / "data.npz"), "--samples", "15", "--quick",
               "-o", str(tmp_path / "life.json"), "--plot", str(tmp_path / "life.png")]  # fmt: skip
    assert learning.main(command) == 0
    assert (tmp_path / "life.png").read_bytes().startswith(b"\x89PNG")
    first = capsys.readouterr().out
    assert all(kind in first for kind in life.KINDS) and "seed 1" in first
    assert learning.main(command) == 0  # nothing is left to do
    assert "seed 1" not in capsys.readouterr().out
