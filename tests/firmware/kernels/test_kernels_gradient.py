"""Kernels of learning against what they are defined to be: on the host, and in QEMU on every kind of core."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.firmware.kernels.twins import CORES, FIRMWARE, check_on_core, check_on_host

LAYERS_ON_HOST, LAYERS_IN_QEMU = 1600, 240
CORE = FIRMWARE / "core"
KERNELS = list((CORE / "kernels").rglob("*.c"))
MICROCONTROLLERS = [path for path in KERNELS if path.parent.name not in ("x86", "neon")]
OTHERS = [CORE / "run" / f"fb_{name}.c" for name in ("plan", "blocks", "layer", "kinds")]  # they choose forward kernels
TWINS = Path(__file__).with_name("gradient_twins.c")


def sources(kernels: list[Path]) -> list[str]:
    return [str(path) for path in (TWINS, *OTHERS, *sorted(kernels))]


@pytest.mark.parametrize("compiler", ["gcc", pytest.param("clang", marks=pytest.mark.slow)])
def test_gradients_in_any_scratch_are_those_of_the_definition_on_the_host(compiler: str, tmp_path: Path) -> None:
    check_on_host(compiler, sources(KERNELS), LAYERS_ON_HOST, tmp_path)


@pytest.mark.parametrize(
    ("name", "optimization"),
    [("cortex-m0", "-O2"), ("cortex-m0", "-Os"), ("cortex-m3", "-O2"), ("cortex-m4", "-O2"), ("cortex-m33", "-Os"),
     ("cortex-m55", "-O2"), ("cortex-m55", "-O0"), ("rv32imac", "-O2")],
)  # fmt: skip
def test_gradients_in_any_scratch_are_those_of_the_definition_on_an_emulated_core(
    name: str, optimization: str, tmp_path: Path
) -> None:
    check_on_core(CORES[name], optimization, sources(MICROCONTROLLERS), LAYERS_IN_QEMU, tmp_path)
