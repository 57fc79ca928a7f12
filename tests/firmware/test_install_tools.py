"""install-tools.sh on machines made of a few commands: what it finds missing, and what it says."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.checkout import ROOT

SCRIPT = ROOT / "firmware" / "install-tools.sh"
BOARDS = (
    "git gcc-arm-none-eabi libnewlib-arm-none-eabi gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf "
    "qemu-system-arm qemu-system-misc gdb-multiarch"
).split()


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder of commands that is all of PATH: a shell's, and no package manager."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name in ("bash", "env", "id", "sed", "grep", "uname"):
        found = shutil.which(name)
        assert found
        shutil.copy(found, commands / name)  # no link: what a test puts in its place must stay in this folder
    return commands


def add(machine: Path, name: str, text: str) -> None:
    (machine / name).unlink(missing_ok=True)
    (machine / name).write_text(f"#!{machine / 'bash'}\n{text}\n", encoding="utf-8")
    (machine / name).chmod(0o755)


def install(machine: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SCRIPT, *options], env={"PATH": str(machine)}, capture_output=True, text=True)


def test_without_a_package_manager_it_says_what_is_missing_in_one_line(machine: Path) -> None:
    done = install(machine)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"not installed: gcc libc6-dev {' '.join(BOARDS)} (Debian's names). Install them with this system's package "
        "manager."
    ]


def test_a_compiler_without_headers_is_not_enough(machine: Path) -> None:
    add(machine, "cc", "exit 1")
    assert "not installed: libc6-dev (" in install(machine, "--compiler").stderr
    add(machine, "cc", "exit 0")
    assert install(machine, "--compiler").returncode == 0


def test_only_what_is_missing_is_installed_and_quietly(machine: Path) -> None:
    add(machine, "cc", "exit 0")
    add(machine, "id", "echo 0")
    (machine / "log").write_text("", encoding="utf-8")
    add(machine, "apt-get", f'echo "$*" >>{machine / "log"}; echo chatter; echo chatter >&2')
    done = install(machine)
    assert (done.returncode, done.stderr) == (0, "")
    asked = (machine / "log").read_text(encoding="utf-8").splitlines()
    assert asked[-1] == f"install -qq -y --no-install-recommends {' '.join(BOARDS)}"


def test_versions_are_found_where_apt_cache_says_a_lot(machine: Path) -> None:
    """As more than a pipe holds: a reader that stops early would end apt-cache, and the script, without a word."""
    add(machine, "id", "echo 0")
    add(machine, "uname", "echo x86_64")
    (machine / "log").write_text("", encoding="utf-8")
    add(machine, "apt-get", f'echo "$*" >>{machine / "log"}')
    add(machine, "apt-cache", 'for i in {1..20000}; do echo "  Depends: $2-14"; done')
    done = install(machine, "--all")
    assert (done.returncode, done.stderr) == (0, "")
    asked = (machine / "log").read_text(encoding="utf-8").split()
    assert {"libclang-rt-14-dev", "lib32gcc-14-dev"} <= set(asked)


def test_a_failed_installation_shows_what_was_said(machine: Path) -> None:
    add(machine, "id", "echo 0")
    add(machine, "apt-get", 'if [ "$1" = install ]; then echo "E: no such package" >&2; exit 100; fi')
    done = install(machine, "--compiler")
    assert done.returncode == 1
    assert "E: no such package" in done.stderr


def test_an_unknown_option_is_refused(machine: Path) -> None:
    done = install(machine, "--everything")
    assert done.returncode == 2
    assert "--everything" in done.stderr
