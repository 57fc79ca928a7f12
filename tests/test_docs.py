"""Links and commands in the documentation lead somewhere."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path

import pytest

from tests.checkout import ROOT

PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "models" / "README.md", *(ROOT / "docs").rglob("*.md")]
)
FENCE = re.compile(r"^( *)```.*?^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^()\s]+)\)")


@cache
def prose(page: Path) -> str:
    """A page without its blocks and spans of code, in which brackets are no links."""
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text(encoding="utf-8")))


@cache
def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        anchor = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        again = sum(1 for other in found if re.fullmatch(re.escape(anchor) + r"(-\d+)?", other))
        found.add(f"{anchor}-{again}" if again else anchor)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_to_a_file_and_a_heading(page: Path) -> None:
    dead = []
    for link in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or not target.is_relative_to(ROOT):
            dead.append(link)
        elif anchor and anchor not in anchors(target):
            dead.append(f"{link}: no such heading")
    assert dead == []


def test_links_and_anchors_that_lead_nowhere_are_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One `word`, two\n\n[a](b.md) and `[c](d.md)`\n\n```\n[e](f.md)\n# no heading\n```\n")
    assert LINK.findall(prose(page)) == ["b.md"]
    assert anchors(page) == {"one-word-two"}


def commands() -> list[list[str]]:
    """What README.md says to type: every line of its blocks of code, and commands named in its text."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = [block.group(0).split("\n")[1:-1] for block in FENCE.finditer(text) if block.group(0).startswith("```\n")]
    lines = [line for block in blocks for line in block]
    lines += re.findall(r"`((?:python|make) [^`\n]+)`", text)
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def test_scripts_that_the_readme_runs_exist() -> None:
    scripts = [words[1] for words in commands() if words[0] == "python" and words[1].endswith(".py")]
    assert "train/run.py" in scripts
    assert [script for script in scripts if not (ROOT / script).is_file()] == []


def test_make_targets_that_the_readme_names_exist() -> None:
    unknown, seen = [], set()
    for words in commands():
        if "make" not in words:
            continue
        rest = words[words.index("make") + 1 :]
        folder = rest[rest.index("-C") + 1] if "-C" in rest else "."
        rules = (ROOT / folder / "Makefile").read_text(encoding="utf-8")
        targets = [word for word in rest if word not in ("-C", folder) and "=" not in word]
        seen.update(targets)
        unknown += [t for t in targets if not re.search(rf"^{re.escape(t)}( [\w -]+)?:", rules, re.MULTILINE)]
    assert {"demo", "test"} <= seen
    assert unknown == []


def test_files_of_the_checkout_that_the_readme_hands_to_commands_exist() -> None:
    folders = {path.name for path in ROOT.iterdir() if path.is_dir()} - {"runs"}
    named = [word for words in commands() for word in words[1:] if "/" in word and word.split("/")[0] in folders]
    assert [word for word in named if not (ROOT / word).exists()] == []
