"""The Helium kernels, on an emulated Cortex-M55: every result is the bits of the reference twin.

``kernels_mve.c`` draws random layers (odd sizes, every padding, extreme values and filters, ties), computes each with
the kernel and with its twin, and says how many it compared. Inputs lie at the ends of a memory, so that reading one
byte too far is a fault.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.checkout import ROOT
from tests.patience import PATIENCE

CORE = ROOT / "firmware" / "core"
HELIUM = CORE / "kernels" / "helium"
COMPILER, EMULATOR = "arm-none-eabi-gcc", "qemu-system-arm"
FLAGS = "-mcpu=cortex-m55 -mfloat-abi=hard -mthumb -std=c99 -Wall -Wextra -Wconversion -Wpedantic -Werror".split()
LINK = "-nostartfiles -Wl,--section-start=.vectors=0 -Wl,-Ttext=0x400 -Wl,-Tbss=0x21000000 -Wl,-e,vectors".split()
BOARD = "-M mps3-an547 -display none -monitor none -serial null -semihosting-config enable=on,target=native".split()
TWINS = (
    "conv_bin_reference",
    "conv_bits_reference",
    "dense_bin",
    "conv_int8",
    "dense_int8",
    "depthwise_int8",
    "max_pool",
    "average_pool",
    "add",
)

pytestmark = pytest.mark.skipif(
    not (shutil.which(COMPILER) and shutil.which(EMULATOR)),
    reason=f"needs {COMPILER} and {EMULATOR} (Debian: gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm)",
)


def kernels() -> list[str]:
    return sorted(re.findall(r"^FB_KERNEL\((\w+)\)", (CORE / "kernels/fb_kernels_mve.h").read_text(), re.MULTILINE))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the board says after comparing all kernels with their twins."""
    program = tmp_path_factory.mktemp("mve") / "kernels.elf"
    sources = [*sorted(HELIUM.glob("fb_*_mve.c")), *(CORE / "kernels/reference" / f"fb_{twin}.c" for twin in TWINS)]
    harness = Path(__file__).with_name("kernels_mve.c")
    subprocess.run([COMPILER, "-O2", *FLAGS, f"-I{CORE}", *sources, harness, *LINK, "-o", program], check=True)
    run = subprocess.run([EMULATOR, *BOARD, "-kernel", program], capture_output=True, text=True, timeout=PATIENCE)
    assert run.returncode == 0, run.stderr
    return run.stderr


def test_every_kernel_gives_the_bits_of_its_twin_on_random_layers(report: str) -> None:
    equal = {name: int(count) for name, count in re.findall(r"^(fb_\w+) equal (\d+)", report, re.MULTILINE)}
    assert sorted(equal) == kernels()
    assert min(equal.values()) >= 100


def test_the_convolution_leaves_few_layers_to_slower_kernels(report: str) -> None:
    match = re.search(r"^fb_conv_bin_mve equal (\d+) left (\d+)", report, re.MULTILINE)
    assert match and int(match[2]) < int(match[1]) / 2, report


@pytest.mark.parametrize("level", ["-Os", "-O3"])
def test_kernels_with_assembly_compile_at_other_levels_of_optimization(level: str, tmp_path: Path) -> None:
    """It must leave the compiler registers enough, and take the ones it gets, whatever is inlined."""
    sources = [path for path in HELIUM.glob("fb_*_mve.c") if "__asm__" in path.read_text()]
    assert sources
    subprocess.run([COMPILER, level, *FLAGS, "-c", *sources], check=True, cwd=tmp_path)
