"""Kernels for microcontrollers without vector units against their reference twins: on the host, and in QEMU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.firmware.kernels.twins import CORES, check_on_core, check_on_host, kernel_sources

LAYERS_ON_HOST, LAYERS_IN_QEMU = 1200, 200
SOURCES = [
    str(Path(__file__).with_name("kernel_twins.c")),
    *kernel_sources(
        "add", "average_pool", "band_tile", "bin_tile", "conv_bin_3x3", "conv_bin_3x3_full", "conv_bin_any",
        "conv_bin_few", "conv_bin_reference", "conv_bits_3x3", "conv_bits_any", "conv_bits_reference", "conv_int8",
        "conv_int8_rows", "dense_bin", "dense_int8", "depthwise_bin", "depthwise_bin_pairs", "depthwise_int8",
        "depthwise_int8_3x3", "half_table", "look_up", "max_pool",
    ),
]  # fmt: skip


@pytest.mark.parametrize("compiler", ["gcc", pytest.param("clang", marks=pytest.mark.slow)])
def test_random_layers_equal_the_twins_without_undefined_behaviour_on_the_host(compiler: str, tmp_path: Path) -> None:
    check_on_host(compiler, SOURCES, LAYERS_ON_HOST, tmp_path)


@pytest.mark.parametrize(
    ("name", "optimization"),
    [("cortex-m0", "-O3"), ("cortex-m0", "-Os"), ("cortex-m3", "-O2"), ("cortex-m4", "-O3"), ("cortex-m33", "-Os"),
     ("rv32imac", "-O3"), ("rv32imac", "-Os")],
)  # fmt: skip
def test_random_layers_equal_the_twins_on_an_emulated_core(name: str, optimization: str, tmp_path: Path) -> None:
    check_on_core(CORES[name], optimization, SOURCES, LAYERS_IN_QEMU, tmp_path)
