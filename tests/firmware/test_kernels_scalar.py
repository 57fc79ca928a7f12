"""Kernels for microcontrollers without vector units against their reference twins: on the host, and in QEMU."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

FIRMWARE = Path(__file__).parents[2] / "firmware"
TWINS = Path(__file__).with_name("kernel_twins.c")
WARNINGS = ["-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wpedantic", "-Werror"]
LAYERS_ON_HOST, LAYERS_IN_QEMU = 1200, 200


KERNELS = [
    str(FIRMWARE / "core" / "kernels" / f"fb_{name}.c")
    for name in (
        "add", "average_pool", "bin_tile", "conv_bin_3x3", "conv_bin_any", "conv_bin_few", "conv_bin_reference",
        "conv_int8", "dense_bin", "dense_int8", "max_pool",
    )
]  # fmt: skip


def compile_c(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_random_layers_equal_the_twins_without_undefined_behaviour_on_the_host(compiler: str, tmp_path: Path) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    program = tmp_path / "twins"
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    sources = [str(TWINS), *KERNELS]
    options = [*WARNINGS, "-O1", "-g", *sanitizers, "-DTWINS_HOSTED", f"-I{FIRMWARE / 'core'}"]
    compile_c([compiler, *options, "-o", str(program), *sources])
    result = subprocess.run([program, "0", str(LAYERS_ON_HOST)], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout == f"{LAYERS_ON_HOST} layers, 0 differences\n"


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
    "rv32imac": Core(
        "riscv64-unknown-elf-gcc",
        ("-march=rv32imac", "-mabi=ilp32", "-mcmodel=medany", "-msmall-data-limit=0"),
        ("qemu-system-riscv32", "-M", "virt", "-bios", "none"),
        0x8000_0000,
        0x8010_0000,
    ),
}


@pytest.mark.parametrize(
    ("name", "optimization"),
    [("cortex-m0", "-O3"), ("cortex-m0", "-Os"), ("cortex-m3", "-O2"), ("cortex-m4", "-O3"), ("cortex-m33", "-Os"),
     ("rv32imac", "-O3"), ("rv32imac", "-Os")],
)  # fmt: skip
def test_random_layers_equal_the_twins_on_an_emulated_core(name: str, optimization: str, tmp_path: Path) -> None:
    core = CORES[name]
    for tool in (core.compiler, core.qemu[0]):
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not installed")
    program = tmp_path / "twins.elf"
    start = FIRMWARE / "start"
    layers = [f"-DTWINS_FIRST={100_000}", f"-DTWINS_COUNT={LAYERS_IN_QEMU}", f"-DTWINS_STACK={core.ram + 0x20_0000:#x}"]
    places = [f"-Wl,--section-start=.vectors={core.code:#x}", f"-Wl,-Ttext={core.code + 0x100:#x}"]
    places += [f"-Wl,-Tbss={core.ram:#x}", f"-Wl,-e,{core.code:#x}", "-Wl,--build-id=none"]
    compile_c(
        [
            core.compiler, *core.flags, *WARNINGS, optimization, "-ffreestanding", "-fno-tree-loop-distribute-patterns",
            *layers, "-isystem", str(start), f"-I{FIRMWARE / 'core'}", str(TWINS), *KERNELS,
            str(start / "semihosting.c"), str(start / "string.c"), "-nostdlib", *places, "-lgcc", "-o", str(program),
        ]
    )  # fmt: skip
    options = ["-display", "none", "-monitor", "none", "-serial", "null", "-semihosting-config"]
    command = [*core.qemu, "-kernel", str(program), *options, "enable=on,target=native"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
