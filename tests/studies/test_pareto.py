"""Accuracy against cost: measured as elsewhere, and drawn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flipbit.runtime.board.plan import board_plan
from flipbit.runtime.commands.cli import main
from flipbit.runtime.core.model import Model
from flipbit.studies.pareto import Point, front, given
from tests.checkout import ROOT

DIGITS = ROOT / "models" / "digits-vgg-small" / "model.fbit"


def test_the_front_holds_what_nothing_else_beats() -> None:
    cheap, good, dear, equal = (
        Point("cheap", 80, 10, 10), Point("good", 90, 20, 20), Point("dear", 89, 30, 20), Point("equal", 90, 20, 20),
    )  # fmt: skip
    assert front([dear, good, cheap]) == [cheap, good]
    assert front([good, equal]) == [good, equal]
    small = Point("small", 70, 50, 5)  # the least flash
    assert small in front([cheap, good, small])


def test_a_point_is_what_the_core_answers_and_the_plan_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = tmp_path / "a figure"
    other = "other: runtime:81.5:1000000:90000"
    assert main(["pareto", "digits", str(DIGITS), "--other", other, "-o", str(base), "--json"]) == 0
    ours, theirs = json.loads(capsys.readouterr().out)
    assert main(["run", str(DIGITS), "digits", "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)
    assert ours["accuracy"] == pytest.approx(100 * run["accuracy"])
    plan = board_plan(Model(DIGITS), "mps2-an386")
    assert (ours["name"], ours["weights"], ours["flash"]) == ("digits-vgg-small", "1 bit", DIGITS.stat().st_size)
    assert (ours["instructions"], ours["counted"]) == (plan.instructions, plan.counted)
    assert (theirs["name"], theirs["accuracy"], theirs["flash"]) == ("other: runtime", 81.5, 90000)
    assert json.loads((tmp_path / "a figure.json").read_text()) == [ours, theirs]
    assert (tmp_path / "a figure.png").read_bytes().startswith(b"\x89PNG")


def test_a_point_given_by_hand_is_read_from_the_right() -> None:
    assert given("a:b:50:2:3") == Point("a:b", 50.0, 2, 3)
