"""A name says which thing is meant: no two public classes of the packages share one."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from tests.checkout import ROOT

PACKAGES = ("runtime", "train", "export", "studies")

# One thing in two forms: the exporter's writer and the runtime's reader know each other by the format alone, and a
# layer is a Keras class in train and a node of the deploy graph in export.
TWINS = {"Tensor", "PadShortcut"}


def public_classes(path: Path) -> list[str]:
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return [node.name for node in body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


def test_no_two_modules_define_a_public_class_of_the_same_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for name in public_classes(path):
                places[name].append(path.relative_to(ROOT).as_posix())
    assert len(places) > 100  # it did look
    shared = {name: where for name, where in places.items() if len(where) > 1}
    assert {name: where for name, where in shared.items() if name not in TWINS} == {}
