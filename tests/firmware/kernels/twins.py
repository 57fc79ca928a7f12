"""Compile programs that compare kernels with their twins (twins.h), for this machine and for cores in QEMU."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.checkout import ROOT
from tests.patience import PATIENCE

FIRMWARE = ROOT / "firmware"
WARNINGS = ["-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wpedantic", "-Werror"]


@dataclass(frozen=True)
class Core:
    """A core, the compiler for it and a machine of QEMU that runs its code."""

    compiler: str
    flags: tuple[str, ...]
    qemu: tuple[str, ...]
    code: int
    ram: int


CORTEX = "arm-none-eabi-gcc"
CORES = {
    # there is no M0 with this much memory; an M3 runs its code
    "cortex-m0": Core(CORTEX, ("-mcpu=cortex-m0",), ("qemu-system-arm", "-M", "mps2-an385"), 0, 0x2000_0000),
    "cortex-m3": Core(CORTEX, ("-mcpu=cortex-m3",), ("qemu-system-arm", "-M", "mps2-an385"), 0, 0x2000_0000),
    "cortex-m4": Core(CORTEX, ("-mcpu=cortex-m4",), ("qemu-system-arm", "-M", "mps2-an386"), 0, 0x2000_0000),
    "cortex-m33": Core(
        CORTEX, ("-mcpu=cortex-m33",), ("qemu-system-arm", "-M", "mps2-an505"), 0x1000_0000, 0x3800_0000
    ),
    "cortex-m55": Core(
        CORTEX,
        ("-mcpu=cortex-m55", "-mfloat-abi=hard", "-mthumb"),
        ("qemu-system-arm", "-M", "mps3-an547"),
        0,
        0x2100_0000,
    ),
    "rv32imac": Core(
        "riscv64-unknown-elf-gcc",
        ("-march=rv32imac", "-mabi=ilp32", "-mcmodel=medany", "-msmall-data-limit=0"),
        ("qemu-system-riscv32", "-M", "virt", "-bios", "none"),
        0x8000_0000,
        0x8010_0000,
    ),
}


def kernel_sources(*names: str) -> list[str]:
    """Paths of kernels, whatever family they are of."""
    return [str(path) for name in names for path in (FIRMWARE / "core" / "kernels").rglob(f"fb_{name}.c")]


def compile_c(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert result.returncode == 0, result.stderr


def check_on_host(compiler: str, sources: list[str], layers: int, folder: Path) -> None:
    """All layers equal, with the sanitizers watching."""
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    program = folder / "twins"
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    options = [*WARNINGS, "-O1", "-g", *sanitizers, "-DTWINS_HOSTED", f"-I{FIRMWARE / 'core'}"]
    compile_c([compiler, *options, "-o", str(program), *sources])
    result = subprocess.run([program, "0", str(layers)], capture_output=True, text=True, timeout=PATIENCE)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout == f"{layers} layers, 0 differences\n"


def check_on_core(core: Core, optimization: str, sources: list[str], layers: int, folder: Path) -> None:
    """All layers equal, on bare metal in QEMU."""
    for tool in (core.compiler, core.qemu[0]):
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not installed")
    program = folder / "twins.elf"
    start = FIRMWARE / "start"
    chosen = [f"-DTWINS_FIRST={100_000}", f"-DTWINS_COUNT={layers}", f"-DTWINS_STACK={core.ram + 0x20_0000:#x}"]
    places = [f"-Wl,--section-start=.vectors={core.code:#x}", f"-Wl,-Ttext={core.code + 0x100:#x}"]
    places += [f"-Wl,-Tbss={core.ram:#x}", f"-Wl,-e,{core.code:#x}", "-Wl,--build-id=none"]
    compile_c(
        [
            core.compiler, *core.flags, *WARNINGS, optimization, "-ffreestanding", "-fno-tree-loop-distribute-patterns",
            *chosen, "-isystem", str(start), f"-I{FIRMWARE / 'core'}", *sources, str(start / "semihosting.c"),
            str(start / "string.c"), "-nostdlib", *places, "-lgcc", "-o", str(program),
        ]
    )  # fmt: skip
    options = ["-display", "none", "-monitor", "none", "-serial", "null", "-semihosting-config"]
    command = [*core.qemu, "-kernel", str(program), *options, "enable=on,target=native"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
