"""export/verify.py and export/show.py on files of every format."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from flipbit.export.check.compare import Tally, difference
from flipbit.export.commands import convert as command
from flipbit.export.commands import show, verify
from flipbit.export.commands.describe import Node
from flipbit.export.commands.picture import places
from flipbit.train import run

FORMATS = ("fbit", "onnx", "tflite")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained net and its files: int8 in three formats, real numbers in two."""
    folder = tmp_path_factory.mktemp("exported")
    arguments = [
        "--method",
        "bc",
        "--epochs",
        "8",
        "--net",
        "resnet8",
        "--width",
        "0.5",
        "--no-plot",
        "--no-tensorboard",
    ]
    assert run.main([*arguments, "-o", str(folder)]) == 0
    for kind in FORMATS:
        assert command.main(kind, [str(folder / "model.h5")]) == 0
    for kind in FORMATS[1:]:
        arguments = [str(folder / "model.h5"), "--activations", "float", "-o", str(folder / f"float.{kind}")]
        assert command.main(kind, arguments) == 0
    return folder


def test_every_format_agrees_with_the_oracle(exported: Path, capsys: pytest.CaptureFixture) -> None:
    names = [f"model.{kind}" for kind in FORMATS] + [f"float.{kind}" for kind in FORMATS[1:]]
    report = exported / "report.json"
    files = [str(exported / name) for name in names]
    assert verify.main([str(exported / "model.h5"), *files, "--json", str(report)]) == 0
    runs = json.loads(report.read_text())["runs"]
    assert set(runs) == {"Keras", "oracle, real", "oracle, int8", "model.fbit, C core", *names}
    for name in ("model.fbit", "model.fbit, C core"):
        assert runs[name]["largest"] == 0
        assert runs[name]["agreement"] == 1
        assert len(runs[name]["layers"]) == 15
        assert not any(row["share"] for row in runs[name]["layers"])
    for name in ("Keras", "float.onnx", "float.tflite"):
        assert runs[name]["largest"] < 1e-4
        assert runs[name]["agreement"] == 1
    # TFLite's reference kernels round twice: a step here and there, which the layers behind carry on.
    for name, agreement, steps in (("model.onnx", 0.99, 2), ("model.tflite", 0.97, 6)):
        assert runs[name]["agreement"] >= agreement
        assert all(row["largest"] <= steps for row in runs[name]["layers"])
        assert len(runs[name]["layers"]) >= 10
    printed = capsys.readouterr().out
    assert "first layer that differs" in printed


def test_a_file_of_another_model_shows(exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    arguments = ["--method", "bc", "--epochs", "1", "--net", "resnet8", "--width", "0.5", "--seed", "5"]
    assert run.main([*arguments, "-o", str(tmp_path), "--no-plot", "--no-tensorboard"]) == 0
    assert command.main("fbit", [str(tmp_path / "model.h5")]) == 0
    report = tmp_path / "report.json"
    assert verify.main([str(exported / "model.h5"), str(tmp_path / "model.fbit"), "--json", str(report)]) == 1
    assert "disagree: model.fbit: its integers are not the oracle's, from conv1 on" in capsys.readouterr().err
    found = json.loads(report.read_text())["runs"]["model.fbit"]
    assert found["agreement"] < 0.9
    assert found["layers"][1]["share"] > 0


def test_verify_refuses_what_it_cannot_read(exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    model = str(exported / "model.h5")
    assert verify.main([model, str(tmp_path / "none.fbit")]) == 2
    assert "no such file" in capsys.readouterr().err
    (tmp_path / "bad.fbit").write_bytes(b"FBIT")
    assert verify.main([model, str(tmp_path / "bad.fbit")]) == 2
    assert "FB_ERR_TRUNCATED" in capsys.readouterr().err
    shutil.copy(model, tmp_path / "model.h5")
    assert verify.main([str(tmp_path / "model.h5"), str(exported / "model.fbit")]) == 2
    assert "int8 needs sample images" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["model.fbit", "model.onnx", "model.tflite", "float.onnx", "model.h5"])
def test_show_prints_a_table_and_draws_a_picture(exported: Path, name: str, capsys: pytest.CaptureFixture) -> None:
    picture, table = exported / "picture.png", exported / "table.json"
    assert show.main([str(exported / name), "--picture", str(picture), "--json", str(table)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert f"{(exported / name).stat().st_size:,} bytes" in " ".join(printed.split())
    nodes = json.loads(table.read_text())["nodes"]
    assert len(nodes) >= 14
    assert sum(node["bytes"] for node in nodes) > 2000


def test_show_refuses_other_files(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    for name, content in (
        ("a.onnx", b"\xff\xff"),
        ("a.tflite", b"not one"),
        ("a.h5", b"x"),
        ("a.fbit", b"x"),
        ("a.txt", b""),
    ):
        (tmp_path / name).write_bytes(content)
        assert show.main([str(tmp_path / name)]) == 2
        errors = capsys.readouterr().err
        assert errors.startswith(f"error: {tmp_path / name}")
        assert len(errors.strip().splitlines()) == 1


def test_branches_stand_beside_the_path() -> None:
    nodes = [Node("a", "", ("in",), ("1",)), Node("b", "", ("1",), ("2",)), Node("c", "", ("1",), ("3",)),
             Node("d", "", ("2", "3"), ("4",))]  # fmt: skip
    assert places(nodes) == {"a": (0, 0), "b": (0, 1), "c": (1, 1), "d": (0, 2)}


def test_differences_are_in_steps_for_integers_and_relative_for_reals() -> None:
    a = np.array([[1, -128, 127]], np.int8)
    b = np.array([[1, 127, 126]], np.int8)
    found = difference("x", a, b)
    assert (found.largest, found.differs, found.largest_text) == (255, True, "255 LSB")
    assert found.share == pytest.approx(2 / 3)
    reals = difference("x", np.array([1.0, 2.0]), np.array([1.0, 2.0002]))
    assert reals.largest == pytest.approx(1e-4, rel=1e-3)


def test_a_tally_counts_right_and_agreeing_answers(exported: Path) -> None:
    from flipbit.export import convert

    tally = Tally(convert(exported / "model.h5"))
    tally.add(np.eye(4), np.eye(4)[[0, 1, 2, 0]], np.array([0, 1, 1, 1]))
    assert (tally.accuracy, tally.agreement) == (0.5, 0.75)
