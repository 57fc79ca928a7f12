"""DS-CNN and MobileNet, with one-bit and int8 pointwise weights, and a Larq net of signs: from Keras to an emulated
Cortex-M4, bit for bit."""

from __future__ import annotations

import shutil
import zlib
from pathlib import Path
from typing import Any

import counting
import pytest

from flipbit.export.write.fbit import fbit_bytes
from flipbit.runtime.image import reference
from flipbit.runtime.image.reader import read_image
from tests.nets.binary_nets import binary_net
from tests.nets.mobile_nets import ds_cnn, mobilenet
from tests.nets.random_nets import int8_graph, stir
from tests.nets.small_nets import in_memory

BOARD = "mps2-an386"


def same_bits_on_a_cortex_m4(model: Any, kinds: set[tuple[str, bool]], folder: Path) -> None:
    for program in ("make", "cc", "arm-none-eabi-gcc", "qemu-system-arm"):
        if not shutil.which(program):
            pytest.skip(f"needs {program}")
    _, integers = int8_graph(stir(model))
    path = folder / "net.fbit"
    path.write_bytes(fbit_bytes(integers))
    image = read_image(path)
    assert kinds <= {(op.kind, op.binary) for op in image.operations}
    source = image.tensors[image.input]
    tensors = reference.run(image, counting.bench_input(source.size).reshape(1, *source.shape))
    expected = [zlib.crc32(in_memory(tensors[op.output], image.tensors[op.output])) for op in image.operations]
    assert counting.host_crcs(path.read_bytes()) == expected
    run = counting.parse_run(counting.emulate(BOARD, counting.build(BOARD, folder, path)))
    assert [layer.crc for layer in run.layers] == expected


@pytest.mark.parametrize("binary", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_ds_cnn_computes_the_same_bits_on_a_cortex_m4(binary: bool, tmp_path: Path) -> None:
    same_bits_on_a_cortex_m4(ds_cnn(binary), {("depthwise", False), ("conv", binary)}, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("binary", [True, False])
def test_mobilenet_computes_the_same_bits_on_a_cortex_m4(binary: bool, tmp_path: Path) -> None:
    same_bits_on_a_cortex_m4(mobilenet(binary), {("depthwise", False), ("conv", binary)}, tmp_path)


def test_a_larq_net_of_signs_computes_the_same_bits_on_a_cortex_m4(tmp_path: Path) -> None:
    kinds = {("conv", True), ("binarize", False), ("max_pool_bits", False), ("conv_bits", True)}
    same_bits_on_a_cortex_m4(binary_net(16, 16), kinds, tmp_path)
