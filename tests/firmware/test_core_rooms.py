"""The rooms of the C core: who may include whom, and public headers that need nothing else."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

CORE = Path(__file__).parents[2] / "firmware" / "core"
FILES = sorted(CORE.rglob("*.[ch]"))
MAY_INCLUDE = {
    "include": {"include"},
    "run": {"include", "run", "kernels"},
    "kernels": {"include", "run", "kernels"},
    "learn": {"include", "run", "kernels", "learn"},
    "store": {"include", "store"},
    "listen": {"include"},
    "audio": {"include", "run", "audio"},
}
FAMILIES = {"reference", "mcu", "helium", "neon", "x86", "gradient"}


def included(path: Path) -> list[Path]:
    names = re.findall(r'^#include "(.+)"', path.read_text(encoding="utf-8"), re.MULTILINE)
    return [(path.parent / name).resolve() for name in names]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CORE)))
def test_a_file_includes_by_relative_path_and_only_from_rooms_it_may_know(path: Path) -> None:
    room = path.relative_to(CORE).parts[0]
    for other in included(path):
        assert other.is_file(), f"{path} includes {other}"
        assert other.relative_to(CORE).parts[0] in MAY_INCLUDE[room], f"{path} includes {other}"


def test_every_room_is_one_of_those_and_kernels_lie_in_their_family() -> None:
    assert {path.relative_to(CORE).parts[0] for path in FILES} == set(MAY_INCLUDE)
    assert {path.parent.name for path in FILES if path.parent.parent.name == "kernels"} == FAMILIES


def test_a_family_includes_no_other_and_running_needs_no_kernel_of_learning() -> None:
    for path in FILES:
        families = {other.parent.name for other in included(path)} & FAMILIES
        own = {"gradient"} if path.relative_to(CORE).parts[0] == "learn" else {path.parent.name}
        assert families <= own, f"{path} includes {families}"


@pytest.mark.parametrize("header", sorted((CORE / "include").iterdir()), ids=lambda path: path.name)
@pytest.mark.parametrize("language", ["c", "c++"])
def test_a_public_header_compiles_alone(header: Path, language: str, tmp_path: Path) -> None:
    compiler = shutil.which("g++" if language == "c++" else "gcc")
    if not compiler:
        pytest.skip("needs gcc and g++ (Debian: build-essential)")
    source = tmp_path / "program.c"
    source.write_text(f'#include "{header.name}"\n#include "{header.name}"\n', encoding="utf-8")
    flags = ["-x", language, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", f"-I{CORE / 'include'}"]
    done = subprocess.run([compiler, *flags, str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
