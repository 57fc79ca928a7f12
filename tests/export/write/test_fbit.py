"""The .fbit image: what is written is what is read, and nothing else is accepted."""

from __future__ import annotations

import struct
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipbit.export import oracle
from flipbit.export.graph import ExportError, Graph
from flipbit.export.read.from_keras import from_keras
from flipbit.export.write.fbit import HEADER, OP, TENSOR, fbit_bytes, write_fbit
from flipbit.runtime import Model
from flipbit.runtime.image import reference
from flipbit.runtime.image.reader import ImageError, read_image
from flipbit.train.keras_larq import keras
from flipbit.train.nets.networks import NETWORKS
from tests.nets.random_nets import images, int8_graph, random_model


def planar(x: np.ndarray) -> np.ndarray:
    return x.transpose(0, 3, 1, 2) if x.ndim == 4 else x


def same_bits(graph: Graph, x: np.ndarray) -> None:
    """The image, read by the runtime's reference, gives every tensor of the exporter's oracle, bit for bit."""
    expected = oracle.run(graph, x)
    found = reference.run(read_image(fbit_bytes(graph)), planar(expected[graph.input]))
    for (name, _), tensor in zip(graph.tensors.items(), found):
        mine = expected[name]
        if mine.ndim == 2 and tensor.shape == mine.shape and name in FLATTENED:
            continue
        assert (planar(mine) == tensor).all(), name


FLATTENED = ("flatten",)  # in another order on the device: what follows it shows that its weights are, too


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_every_net_gives_the_same_bits_from_its_image(name: str) -> None:
    model = random_model(name)
    same_bits(int8_graph(model)[1], images(model, 3))


@pytest.mark.parametrize("layers", [{"quantize": "all"}, {"quantize": "none"}], ids=str)
def test_binary_and_int8_dense_layers_after_a_flatten(layers: dict[str, Any]) -> None:
    for shape in ((16, 12, 3), (9, 17, 1)):
        model = random_model("vgg9", shape, **layers)
        same_bits(int8_graph(model)[1], images(model, 3))


def test_a_lone_relu_between_pool_and_flatten() -> None:
    L = keras.layers
    model = keras.Sequential(
        [
            L.Input((6, 5, 2)),
            L.Conv2D(3, 3),
            L.MaxPooling2D(2),
            L.ReLU(),
            L.Flatten(name="flatten"),
            L.ReLU(),
            L.Dense(4),
        ]
    )
    graph = int8_graph(model)[1]
    x = images(model)
    found = reference.run(read_image(fbit_bytes(graph)), planar(oracle.run(graph, x)[graph.input]))
    assert (found[-1] == oracle.run(graph, x)[graph.output]).all()


@lru_cache
def small_image() -> bytes:
    return fbit_bytes(int8_graph(random_model("resnet8", (8, 8, 3), width=0.25))[1], "(pixel - 128) / 128")


@pytest.fixture
def small() -> bytes:
    return small_image()


def test_the_same_net_gives_the_same_bytes(small: bytes) -> None:
    assert fbit_bytes(int8_graph(random_model("resnet8", (8, 8, 3), width=0.25))[1], "(pixel - 128) / 128") == small


def test_metadata_says_labels_names_and_input() -> None:
    graph = int8_graph(random_model("vgg-small"))[1]
    graph.labels = ["čat", "dog"]
    image = read_image(fbit_bytes(graph, "pixel - 128"))
    assert image.labels == ["čat", "dog"]
    assert [op.name for op in image.operations] == [op.name for op in graph]
    assert image.metadata["input"] == "pixel - 128"


def test_resnet8_takes_little_more_than_its_bits() -> None:
    graph = int8_graph(random_model("resnet8", (32, 32, 3), width=1))[1]
    binary = [op for op in graph.weighted() if op.binary]
    (dense,) = [op for op in graph.weighted() if not op.binary]
    floor = sum(op.weights.size / 8 + 4 * op.channels for op in binary) + dense.weights.size + 4 * dense.channels
    assert len(fbit_bytes(graph)) <= 1.15 * floor


def test_a_graph_in_real_numbers_is_refused() -> None:
    with pytest.raises(ExportError, match="calibrate and quantize the graph first"):
        fbit_bytes(from_keras(random_model("vgg-small")))


def test_a_kernel_too_large_for_the_format_is_refused(tmp_path: Path) -> None:
    model = keras.Sequential(
        [keras.layers.Input((300, 4, 1)), keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(2)]
    )
    graph = int8_graph(model)[1]
    with pytest.raises(ExportError, match=r"kernel: 300 is more than a \.fbit image can say"):
        write_fbit(graph, tmp_path / "m.fbit")
    assert not list(tmp_path.iterdir())


def test_every_single_flipped_bit_is_refused(small: bytes) -> None:
    for bit in range(8 * len(small)):
        broken = bytearray(small)
        broken[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ImageError):
            read_image(bytes(broken))


def test_every_truncation_is_refused(small: bytes) -> None:
    for length in [*range(0, len(small), 7), len(small) - 1]:
        with pytest.raises(ImageError):
            read_image(small[:length])
    with pytest.raises(ImageError, match="FB_ERR_LENGTH"):
        read_image(small + bytes(4))


def repaired(image: bytearray) -> bytes:
    """With a CRC that is right again, so that only the deep checks are left."""
    image[12:16] = bytes(4)
    image[12:16] = struct.pack("<I", zlib.crc32(image))
    return bytes(image)


@pytest.mark.parametrize(
    ("at", "value", "status"),
    [
        (0, b"FBIX", "FB_ERR_MAGIC"),
        (4, b"\x00\x00", "FB_ERR_VERSION"),
        (4, b"\x03\x00", "FB_ERR_VERSION"),
        (6, b"\x01", "FB_ERR_RESERVED"),
        (16, b"\xff\xff", "FB_ERR_TABLE"),
        (18, b"\x00\x00", "FB_ERR_TABLE"),
        (20, b"\xff\xff", "FB_ERR_INDEX"),
        (24, b"\x01\x00\x00\x00", "FB_ERR_ALIGN"),
        (28, b"\xff\xff\xff\xff", "FB_ERR_OFFSET"),
        (HEADER.size, b"\x00\x00", "FB_ERR_SHAPE"),
        (HEADER.size + 7, b"\x02", "FB_ERR_SHAPE"),
        (HEADER.size + 8, b"\x00\x00\xc0\x7f", "FB_ERR_SCALE"),
    ],
)
def test_a_lying_header_is_refused_by_name(small: bytes, at: int, value: bytes, status: str) -> None:
    broken = bytearray(small)
    broken[at : at + len(value)] = value
    with pytest.raises(ImageError) as error:
        read_image(repaired(broken))
    assert error.value.status == status
    assert status in str(error.value)


@pytest.mark.parametrize(
    ("field", "value", "status"),
    [
        (0, b"\x09", "FB_ERR_KIND"),
        (1, b"\xf0", "FB_ERR_FLAGS"),
        (1, b"\x07", "FB_ERR_FLAGS"),
        (2, b"\x05\x00", "FB_ERR_INDEX"),
        (4, b"\x00\x00", "FB_ERR_INDEX"),
        (6, b"\x00\x00", "FB_ERR_INDEX"),
        (8, b"\x00", "FB_ERR_WINDOW"),
        (9, b"\x05", "FB_ERR_SHAPE"),
        (10, b"\x02", "FB_ERR_SHAPE"),
        (12, b"\x09", "FB_ERR_WINDOW"),
        (16, b"\x1f", "FB_ERR_SHIFT"),
        (17, b"\x01", "FB_ERR_RESERVED"),
        (20, b"\x04\x00\x00\x00", "FB_ERR_OFFSET"),
        (20, b"\xfc\xff\xff\xff", "FB_ERR_OFFSET"),
        (24, b"\xfe\xff\xff\xff", "FB_ERR_ALIGN"),
    ],
)
def test_a_lying_operation_is_refused_by_name(small: bytes, field: int, value: bytes, status: str) -> None:
    tensors = struct.unpack_from("<H", small, 16)[0]
    at = HEADER.size + tensors * TENSOR.size + field  # the first operation: a binary 3×3 convolution of 3 channels
    broken = bytearray(small)
    broken[at : at + len(value)] = value
    with pytest.raises(ImageError) as error:
        read_image(repaired(broken))
    assert error.value.status == status


def test_a_multiplier_that_could_overflow_is_refused(small: bytes) -> None:
    tensors = struct.unpack_from("<H", small, 16)[0]
    record = OP.unpack_from(small, HEADER.size + tensors * TENSOR.size)
    params, filters = record[-1], 4
    broken = bytearray(small)
    struct.pack_into("<i", broken, params, 2**31 - 1)  # a bias
    with pytest.raises(ImageError, match="FB_ERR_OVERFLOW"):
        read_image(repaired(broken))
    broken = bytearray(small)
    struct.pack_into("<h", broken, params + 4 * filters, 0)  # a multiplier
    with pytest.raises(ImageError, match="FB_ERR_MULTIPLIER"):
        read_image(repaired(broken))


@given(st.data())
def test_a_damaged_image_with_a_right_crc_is_refused_or_runs(data: Any) -> None:
    small = small_image()
    broken = bytearray(small)
    for _ in range(data.draw(st.integers(1, 3))):
        broken[data.draw(st.integers(4, len(small) - 1))] = data.draw(st.integers(0, 255))
    try:
        image = read_image(repaired(broken))
    except ImageError:
        return
    source = image.tensors[image.input]
    reference.run(image, np.full((1, *source.shape), -128, np.int8))


def test_a_net_that_needs_nothing_of_version_2_is_written_as_version_1_and_opens_as_either(small: bytes) -> None:
    assert HEADER.unpack_from(small)[1] == 1
    newer = bytearray(small)
    newer[4] = 2
    assert read_image(repaired(newer)).tensors == read_image(small).tensors
    assert Model(repaired(newer)).layers == Model(small).layers
