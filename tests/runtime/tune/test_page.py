"""The page that ``flipbit finetune --report NAME.html`` writes, for ``flipbit serve`` to link to."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from flipbit.runtime.commands.cli import main
from flipbit.runtime.commands.serve import REPORT_POLICY
from tests.runtime.tune.labelled import labelled


def tune(folder: Path, *more: str) -> int:
    return main(["finetune", str(folder / "net.fbit"), "--data", str(folder / "data.npz"), "--target",
                 "sim:nrf52840-dk", "--steps", "3", "--samples", "24", *more])  # fmt: skip


class Seen(HTMLParser):
    """Rows of tables, lines of charts, and whether every element is closed."""

    def __init__(self, page: str):
        super().__init__()
        self.open: list[str] = []
        self.names: list[str] = []
        self.rows: list[list[str]] = []
        self.lines = 0
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        if tag not in ("meta", "path"):
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        self.lines += tag == "polyline"

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.lines += tag == "polyline"

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "td":
            self.rows[-1].append(data)


def test_the_page_has_every_step_of_the_json(tmp_path: Path) -> None:
    labelled(tmp_path)
    assert tune(tmp_path, "--method", "sr", "--report", str(tmp_path / "r.json")) == 0
    assert tune(tmp_path, "--method", "sr", "--report", str(tmp_path / "r.html")) == 0
    facts = json.loads((tmp_path / "r.json").read_text())
    seen = Seen((tmp_path / "r.html").read_text(encoding="utf-8"))
    before, after = (f"{100 * facts[f'accuracy_{when}']:.1f} %" for when in ("before", "after"))
    assert seen.rows[1][:3] == ["sr", before, after]
    steps = [[str(row["step"]), f"{row['loss']:.3f}", str(row["flips"])] for row in facts["steps"]]
    assert [[row[0], row[1], row[-1]] for row in seen.rows[3:]] == steps
    assert seen.lines == 1


def test_methods_that_are_compared_are_on_one_page(tmp_path: Path) -> None:
    labelled(tmp_path)
    assert tune(tmp_path, "--compare", "--report", str(tmp_path / "all.html")) == 0
    seen = Seen((tmp_path / "all.html").read_text(encoding="utf-8"))
    assert [row[0] for row in seen.rows[1:4]] == ["bias", "sr", "buffer"]
    assert seen.lines == 3


def test_names_are_text_and_nothing_is_fetched(tmp_path: Path) -> None:
    folder = tmp_path / "<script>alert(1)<&script>"
    folder.mkdir()
    labelled(folder)
    assert tune(folder, "--report", str(tmp_path / "r.html")) == 0
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "&lt;script&gt;" in page
    assert {"script", "link", "img", "iframe"}.isdisjoint(Seen(page).names)
    assert not re.findall(r"(?:src|href)=", page)
    assert "style-src 'unsafe-inline'" in REPORT_POLICY  # what it needs of flipbit serve


def test_a_plan_has_no_page(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    labelled(tmp_path)
    assert tune(tmp_path, "--plan", "--report", str(tmp_path / "plan.html")) == 2
    assert "--plan: --report writes JSON here" in capsys.readouterr().err
