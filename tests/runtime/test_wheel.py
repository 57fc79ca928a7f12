"""The wheel: the compiled core and the boards inside, NumPy the only thing it needs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from flipbit.runtime import Model
from flipbit.runtime.board.plan import board_plan
from tests.checkout import ROOT
from tests.nets.small_nets import photos, small_image

SOURCES = (
    "pyproject.toml",
    "setup.py",
    "MANIFEST.in",
    "README.md",
    "LICENSE",
    "train",
    "export",
    "runtime",
    "studies",
    "firmware",
    "docs/try",
)


def run(*command: object, **options: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def plain(**more: str) -> dict[str, str]:
    """An environment in which nothing of this checkout is found by chance."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("FLIPBIT", "PYTHON"))}
    return {**kept, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **more}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files a wheel is built from, without the library that is compiled in this checkout."""
    folder = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.so", "build"))
        else:
            shutil.copy(path, folder / name)
    return folder


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, source, env=plain())
    (found,) = folder.iterdir()
    return found


@pytest.mark.slow
def test_the_wheel_is_for_any_python_3_and_holds_the_compiled_core(wheel: Path) -> None:
    assert wheel.name.startswith("flipbit-")
    assert "-py3-none-linux_" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        libraries = [name for name in archive.namelist() if name.endswith(".so")]
        (metadata,) = (archive.read(n).decode() for n in archive.namelist() if n.endswith("METADATA"))
    assert sorted(libraries) == ["flipbit/runtime/core/_core.so", "flipbit/runtime/core/_plan.so"]
    needs = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:") and "extra ==" not in line]
    assert needs == ["Requires-Dist: numpy>=1.24", 'Requires-Dist: tomli; python_version < "3.11"']


@pytest.mark.slow
def test_the_wheel_and_the_source_archive_hold_the_profile_of_every_board(
    wheel: Path, source: Path, tmp_path: Path
) -> None:
    profiles = {path.parent.name: path.read_bytes() for path in (ROOT / "firmware" / "boards").glob("*/board.toml")}
    with zipfile.ZipFile(wheel) as archive:
        shipped = {Path(n).parent.name: archive.read(n) for n in archive.namelist() if n.endswith("board.toml")}
    assert shipped == profiles
    run(sys.executable, "-m", "build", "-s", "-o", tmp_path, source, env=plain())
    (packed,) = tmp_path.iterdir()
    with tarfile.open(packed) as tar:
        assert {Path(n).parent.name for n in tar.getnames() if n.endswith("board.toml")} == set(profiles)
        tar.extractall(tmp_path, filter="data")
    (unpacked,) = (path for path in tmp_path.iterdir() if path.is_dir())
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path / "again", unpacked, env=plain())
    (again,) = (tmp_path / "again").iterdir()
    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(again) as second:
        assert sorted(second.namelist()) == sorted(first.namelist())


@pytest.mark.slow
def test_the_wheel_holds_the_page_and_serves_it(wheel: Path, tmp_path: Path) -> None:
    page = ROOT / "docs" / "try"
    files = {path.relative_to(page).as_posix(): path.read_bytes() for path in page.rglob("*") if path.is_file()}
    with zipfile.ZipFile(wheel) as archive:
        inside = "flipbit/runtime/page/"
        shipped = {n.removeprefix(inside): archive.read(n) for n in archive.namelist() if n.startswith(inside)}
        archive.extractall(tmp_path)
    assert shipped == files
    code = (
        "from flipbit.runtime.commands.serve import PageServer, page_folder; print(page_folder(), PageServer().address)"
    )
    numpy = str(Path(np.__file__).parents[1])  # NumPy, and what is installed beside it
    command = [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {numpy!r}]; {code}"]
    folder, address = run(*command, cwd=tmp_path, env=plain()).stdout.split()
    assert Path(folder) == tmp_path / "flipbit" / "runtime" / "page"
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", address)


@pytest.mark.slow
def test_it_runs_where_only_numpy_is_installed(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    binaries = tmp_path / "venv/bin"
    run(binaries / "pip", "install", "-q", wheel, env=plain())
    listed = json.loads(run(binaries / "pip", "list", "--format=json", env=plain()).stdout)
    assert {p["name"] for p in listed} <= {"flipbit", "numpy", "pip", "setuptools"}
    (tmp_path / "m.fbit").write_bytes(small_image())
    np.save(tmp_path / "x.npy", photos(9))
    here = {"cwd": tmp_path, "env": plain()}
    facts = json.loads(run(binaries / "flipbit", "info", "m.fbit", "--json", **here).stdout)
    assert facts["metadata"]["labels"][1] == "bee"
    (result,) = json.loads(run(binaries / "flipbit", "run", "m.fbit", "x.npy", "--json", **here).stdout)
    assert [one["classes"][0]["class"] for one in result["each"]] == Model(small_image()).classify(photos(9))
    there = run(binaries / "flipbit", "info", "m.fbit", "--board", "microbit", "--json", **here).stdout
    plan = {key: json.loads(there)[key] for key in ("board", "title", "fits", "layers")}
    assert plan == {key: board_plan(Model(small_image()), "microbit").facts()[key] for key in plan}
    np.savez(tmp_path / "samples.npz", x=photos(9), y=np.arange(9) % 5)
    learn = ["finetune", "m.fbit", "--data", "samples.npz", "--target", "sim:microbit", "--steps", "1", "-o", "t.fbit"]
    assert "BBC micro:bit v1" in run(binaries / "flipbit", *learn, **here).stdout
    assert "flipbit train --method" in run(binaries / "flipbit", **here).stdout  # verbs of other packages are known
    refused = subprocess.run([binaries / "flipbit", "train", "--method", "bc"], capture_output=True, text=True, **here)  # type: ignore[call-overload]
    assert refused.returncode == 2
    assert re.fullmatch(r"error: \w+ is not installed here: pip install 'flipbit\[train\]'\n", refused.stderr)
    modules = "import sys, flipbit.runtime.commands.cli; print(*sys.modules)"
    loaded = run(binaries / "python", "-c", modules, **here).stdout.split()
    assert not {"tensorflow", "keras", "larq", "PIL", "flipbit.train", "flipbit.export"} & set(loaded)


@pytest.mark.slow
def test_without_a_compiler_the_build_says_what_to_install(source: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", str(tmp_path), str(source)]
    done = subprocess.run(command, env=plain(CC="no-such-compiler"), capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "there is no C compiler here (looked for 'no-such-compiler'): install one" in said
    assert "Traceback" not in said
    assert not list(tmp_path.iterdir())
