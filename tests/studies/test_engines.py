"""flipbit bench: the same net in other tools, timed in turns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flipbit.runtime.commands.cli import main
from tests.nets.small_nets import small_graph, small_image


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "net.fbit").write_bytes(small_image())
    return tmp_path


def test_other_files_of_the_net_beside_the_image_are_timed_too(files: Path, capsys: pytest.CaptureFixture) -> None:
    pytest.importorskip("ai_edge_litert")
    pytest.importorskip("onnxruntime")
    for suffix in ("tflite", "onnx"):
        small_graph().save(files / f"net.{suffix}")
    assert main(["bench", str(files / "net.fbit"), "--rounds", "3", "--json", str(files / "times.json")]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("flipbit", "LiteRT", "onnxruntime"))
    found = json.loads((files / "times.json").read_text())
    timings = found["timings"]
    assert len(timings) == 3 and all(t["seconds"] >= t["best"] > 0 for t in timings)


def test_an_image_with_nothing_beside_it_is_told_what_to_do(files: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["bench", str(files / "net.fbit")]) == 2
    assert "export/to_tflite.py" in capsys.readouterr().err


def test_files_that_are_not_the_same_net_or_no_net_are_refused(files: Path, capsys: pytest.CaptureFixture) -> None:
    (files / "other.tflite").write_bytes(b"not a model")
    assert main(["bench", str(files / "net.fbit"), "--against", str(files / "other.tflite"), "--rounds", "2"]) == 2
    assert main(["bench", str(files / "missing.fbit")]) == 2
    assert main(["bench", str(files / "net.fbit"), "--against", str(files / "missing.onnx")]) == 2
    assert capsys.readouterr().err.count("error:") == 3
