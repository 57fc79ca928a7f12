"""The kernels for x86-64 and NEON give the bits of their reference twins, and touch no memory that is not theirs.

The program kernels_host.c draws layers and compares. It runs here, with sanitizers, and cross-compiled for 64-bit and
32-bit Arm under QEMU.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.checkout import ROOT
from tests.patience import PATIENCE

CORE = ROOT / "firmware/core"
PROGRAM = Path(__file__).with_name("kernels_host.c")
LAYERS = 1000
TWINS = "add average_pool conv_bin_reference conv_bits_reference conv_int8 dense_bin dense_int8 max_pool".split()
HOST_KERNELS = sorted(path for family in ("x86", "neon") for path in (CORE / "kernels" / family).glob("*.c"))
WARNINGS = "-std=c99 -Wall -Wextra -Wconversion -Wpedantic -Werror".split()
NEON = {f"fb_{name}_neon" for name in "conv_bin conv_bits dense_bin dense_int8 max_pool average_pool add".split()}


@dataclass(frozen=True)
class Target:
    compiler: str
    flags: tuple[str, ...]
    emulator: str | None = None

    @property
    def missing(self) -> str | None:
        """What this machine lacks for it."""
        if not shutil.which(self.compiler):
            return f"{self.compiler} (Debian: gcc-{self.compiler.removesuffix('-gcc')})"
        if self.emulator and not shutil.which(self.emulator):
            return f"{self.emulator} (Debian: qemu-user)"
        return None


TARGETS = {
    "x86-64": Target("gcc", ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")),
    "aarch64": Target("aarch64-linux-gnu-gcc", ("-O2", "-static"), "qemu-aarch64"),
    "armv7": Target("arm-linux-gnueabihf-gcc", ("-O2", "-static", "-march=armv7-a", "-mfpu=neon"), "qemu-arm"),
}


def expected_kernels(name: str) -> set[str]:
    """The kernels that must have computed something: on x86-64, those this CPU has the instructions for."""
    if name != "x86-64":
        return NEON
    flags = set(re.findall(r"\S+", Path("/proc/cpuinfo").read_text(encoding="utf-8")))
    kernels = {"sse4_1": "max_pool_sse4", "avx2": "conv_bin_avx2 conv_bits_avx2 dense_bin_avx2 dense_int8_avx2"
               " add_avx2",
               "avx512_vnni": "conv_bin_vnni conv_int8_vnni"}  # fmt: skip
    return {f"fb_{kernel}" for flag, names in kernels.items() if flag in flags for kernel in names.split()}


def compile_objects(target: Target, sources: list[Path], folder: Path) -> list[Path]:
    """Object files of the sources, two at a time."""

    def compile_one(source: Path) -> Path:
        made = folder / f"{source.stem}.o"
        command = [target.compiler, *WARNINGS, *target.flags, f"-I{CORE}", "-c", source]
        done = subprocess.run([*map(str, command), "-o", str(made)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return made

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(compile_one, sources))


def run(target: Target, objects: list[Path], program: Path) -> tuple[int, dict[str, tuple[int, int]], str]:
    """Status; (layers, different ones) of each kernel; all it said."""
    subprocess.run([target.compiler, *target.flags, *map(str, objects), "-o", str(program)], check=True)
    command = [*([target.emulator] if target.emulator else []), str(program), "0", str(LAYERS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    rows = re.findall(r"^(\w+) (\d+) (\d+)$", done.stdout, re.M)
    return done.returncode, {name: (int(n), int(bad)) for name, n, bad in rows}, done.stdout + done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels_host")


def objects_for(name: str, folder: Path) -> list[Path]:
    """The program and all kernels, compiled once for each target."""
    target = TARGETS[name]
    if name == "x86-64" and platform.machine() != "x86_64":
        pytest.skip(f"this machine is {platform.machine()}, not x86_64")
    if target.missing:
        pytest.skip(f"needs {target.missing}")
    place = folder / name
    if place.is_dir():
        return sorted(place.glob("*.o"))
    place.mkdir()
    twins = [CORE / "kernels/reference" / f"fb_{twin}.c" for twin in TWINS]
    return compile_objects(target, [PROGRAM, *twins, *HOST_KERNELS], place)


@pytest.mark.parametrize("name", TARGETS)
def test_every_kernel_gives_the_bits_of_its_twin(name: str, folder: Path) -> None:
    status, rows, text = run(TARGETS[name], objects_for(name, folder), folder / f"kernels-{name}")
    assert status == 0, text
    found = {kernel for kernel, (layers, different) in rows.items() if layers > 10 and not different}
    assert found - {"fb_conv_bin_amx"} == expected_kernels(name), text  # AMX is the system's to permit


def test_a_kernel_that_is_wrong_at_one_limit_is_noticed(folder: Path) -> None:
    source = (CORE / "kernels/x86/fb_add_x86.c").read_text(encoding="utf-8")
    wrong = folder / "fb_add_x86.c"
    wrong.write_text(
        source.replace("_mm_max_epi8(bytes, least)", "bytes").replace('"../', '"kernels/'), encoding="utf-8"
    )
    assert wrong.read_text(encoding="utf-8").count("least") == 1  # it is still set, and no longer used
    target = TARGETS["x86-64"]
    objects = [path for path in objects_for("x86-64", folder) if path.name != "fb_add_x86.o"]
    lenient = Target(target.compiler, (*target.flags, "-Wno-unused-variable"))
    status, rows, text = run(target, [*objects, *compile_objects(lenient, [wrong], folder)], folder / "wrong")
    if "fb_add_avx2" not in expected_kernels("x86-64"):
        pytest.skip("this CPU has no AVX2")
    assert status == 1, text
    assert {kernel for kernel, (_, different) in rows.items() if different} == {"fb_add_avx2"}


@pytest.mark.parametrize(
    ("compiler", "flags"),
    [
        ("arm-none-eabi-gcc", ("-mcpu=cortex-m4", "-mthumb")),
        ("arm-none-eabi-gcc", ("-mcpu=cortex-m55", "-mthumb")),
        ("riscv64-unknown-elf-gcc", ("-march=rv32imac", "-mabi=ilp32", "--specs=picolibc.specs")),
    ],
)
def test_microcontrollers_get_none_of_them(compiler: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"needs {compiler}")
    size = compiler.replace("gcc", "size")
    objects = compile_objects(Target(compiler, ("-O2", *flags)), HOST_KERNELS, tmp_path)
    lines = subprocess.run([size, *map(str, objects)], check=True, capture_output=True, text=True).stdout.splitlines()
    assert len(lines) == 1 + len(HOST_KERNELS)
    assert all(line.split()[:3] == ["0", "0", "0"] for line in lines[1:]), lines
