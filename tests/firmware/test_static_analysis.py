"""Compilers, cppcheck and clang's analyzer have nothing to say about the C core: docs/trust.md.

A finding is fixed, or stands in JUSTIFIED with the reason why it is none.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.checkout import ROOT

CORE = ROOT / "firmware/core"
SOURCES = sorted(CORE.rglob("*.c"))
WARNINGS = "-std=c99 -O2 -Wall -Wextra -Wconversion -Wpedantic -Werror".split()
COMPILERS = {
    "gcc": "gcc",
    "clang": "clang",
    "cortex-m0": "arm-none-eabi-gcc -mthumb -mcpu=cortex-m0",
    "cortex-m4": "arm-none-eabi-gcc -mthumb -mcpu=cortex-m4",
    "cortex-m55": "arm-none-eabi-gcc -mthumb -mcpu=cortex-m55 -mfloat-abi=hard",
    "rv32": "riscv64-unknown-elf-gcc -march=rv32imac -mabi=ilp32 --specs=picolibc.specs",
    "arm64": "aarch64-linux-gnu-gcc",
}
# Of whole classes of findings.
EVERYWHERE = {
    "shiftTooManyBitsSigned": "rounding needs the arithmetic shift of negative numbers; docs/numerics.md says so, and "
    "every supported compiler has it",
}
# Of single files: (file, finding) and why it is none.
JUSTIFIED = {
    ("fb_conv_bin_mve.c", "legacyUninitvar"): "declared with its value, after another variable: cppcheck loses it",
    ("fb_backward.c", "core.NullDereference"): "`dry` is `peak != NULL`; the analyzer lets it change on the way",
    ("fb_train.c", "core.DivideZero"): "a layer that trains has weights; a tensor has a channel",
    ("fb_train_plan.c", "core.DivideZero"): "a layer that trains has weights or a bias",
    ("fb_grad_input.c", "core.UndefinedBinaryOperatorResult"): "no arena has the 2^32 − 1 bytes of room it takes",
}


def needs(tool: str, package: str) -> None:
    if not shutil.which(tool):
        pytest.skip(f"needs {tool} (Debian: {package})")


def run(command: list[str], folder: Path) -> str:
    """What a tool says."""
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return result.stdout + result.stderr if result.returncode or result.stderr else ""


def in_parallel(commands: list[list[str]], folder: Path) -> str:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return "".join(pool.map(lambda command: run(command, folder), commands))


def unjustified(findings: set[tuple[str, str]], tool: str) -> list[str]:
    return [f"{tool}: {name}: {what}" for name, what in sorted(findings) if (name, what) not in JUSTIFIED]


@pytest.mark.parametrize("core", COMPILERS)
def test_the_core_compiles_without_a_warning(core: str, tmp_path: Path) -> None:
    compiler = COMPILERS[core].split()
    needs(compiler[0], "gcc-" + compiler[0].removesuffix("-gcc"))
    shares = [SOURCES[i :: os.cpu_count() or 1] for i in range(os.cpu_count() or 1)]
    said = in_parallel([[*compiler, *WARNINGS, "-c", *map(str, share)] for share in shares], tmp_path)
    assert not said, said[:4000]


def test_cppcheck_finds_nothing(tmp_path: Path) -> None:
    needs("cppcheck", "cppcheck")
    command = [
        "cppcheck", "--quiet", "--std=c99", "--enable=warning,performance,portability", "--inline-suppr",
        f"-j{os.cpu_count()}", "--template={file}|{id}|{line}: {message}", f"-I{CORE}",
        *(f"--suppress={name}" for name in EVERYWHERE), *map(str, SOURCES),
    ]  # fmt: skip
    said = run(command, tmp_path)
    findings = {(Path(path).name, name) for path, name in re.findall(r"^([^|\n]+)\|(\w+)\|", said, re.M)}
    assert not unjustified(findings, "cppcheck"), said[:4000]


def test_the_analyzer_of_clang_finds_nothing(tmp_path: Path) -> None:
    needs("clang", "clang")
    options = ["--analyze", "-std=c99", "--analyzer-output", "text", "-Xclang", "-analyzer-config", "-Xclang"]
    commands = [["clang", *options, "max-nodes=50000", str(path)] for path in SOURCES]
    said = in_parallel(commands, tmp_path)
    found = re.findall(r"^([^:\n]+):\d+:\d+: (?:warning|error): .*\[([\w.-]+)\]$", said, re.M)
    findings = {(Path(path).name, name) for path, name in found}
    assert not unjustified(findings, "clang --analyze"), said[:4000]
