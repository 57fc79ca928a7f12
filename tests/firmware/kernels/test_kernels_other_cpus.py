"""The kernels for x86-64 on CPUs with fewer instructions than this one: each runs only where its own are there.

QEMU emulates CPUs up to AVX2. What AVX-512 VNNI and AMX compute is checked where this machine has them.
"""

from __future__ import annotations

import platform
import re
import shutil
from pathlib import Path

import pytest

from tests.firmware.kernels.test_kernels_host import CORE, HOST_KERNELS, PROGRAM, TWINS, Target, compile_objects, run

SSE4 = {"fb_max_pool_sse4"}
AVX2 = {f"fb_{name}_avx2" for name in "conv_bin conv_bits dense_bin dense_int8 add".split()}
CPUS = {"Conroe": set(), "Nehalem": SSE4, "Haswell": SSE4 | AVX2}  # without SSE4.1, without AVX, without AVX-512
PLAIN = Target("gcc", ("-O2",))


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    if platform.machine() != "x86_64":
        pytest.skip(f"this machine is {platform.machine()}, not x86_64")
    twins = [CORE / "kernels/reference" / f"fb_{twin}.c" for twin in TWINS]
    return compile_objects(PLAIN, [PROGRAM, *twins, *HOST_KERNELS], tmp_path_factory.mktemp("kernels"))


def right(rows: dict[str, tuple[int, int]]) -> set[str]:
    return {kernel for kernel, (layers, different) in rows.items() if layers > 10 and not different}


@pytest.mark.parametrize("cpu", CPUS)
def test_a_cpu_uses_the_kernels_it_has_instructions_for(cpu: str, objects: list[Path], tmp_path: Path) -> None:
    if not shutil.which("qemu-x86_64"):
        pytest.skip("needs qemu-x86_64 (Debian: qemu-user)")
    emulator = tmp_path / "emulate"
    emulator.write_text(f'#!/bin/sh\nexec qemu-x86_64 -cpu {cpu} "$@"\n', encoding="utf-8")
    emulator.chmod(0o755)
    target = Target(PLAIN.compiler, PLAIN.flags, str(emulator))
    status, rows, text = run(target, objects, tmp_path / "kernels")
    assert status == 0, text
    assert right(rows) == CPUS[cpu], text


@pytest.mark.parametrize(
    ("flag", "kernels"),
    [
        ("avx512_vnni", {"fb_conv_bin_vnni", "fb_conv_int8_vnni"}),
        ("amx_int8", {"fb_conv_bin_amx"}),
    ],
)
def test_the_newest_kernels_run_where_this_cpu_has_their_instructions(
    flag: str, kernels: set[str], objects: list[Path], tmp_path: Path
) -> None:
    if flag not in re.findall(r"\S+", Path("/proc/cpuinfo").read_text(encoding="utf-8")):
        pytest.skip(f"this CPU has no {flag}")
    status, rows, text = run(PLAIN, objects, tmp_path / "kernels")
    assert status == 0, text
    if flag.startswith("amx") and not kernels & set(rows):
        pytest.skip("this system does not permit AMX")
    assert kernels <= right(rows), text
