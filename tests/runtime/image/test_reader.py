"""Bad images: the C core and the Python reader refuse the same ones, for the same reason."""

from __future__ import annotations

import itertools
import struct
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from flipbit.export.write.fbit import fbit_bytes
from flipbit.runtime import Model
from flipbit.runtime.core import library as core
from flipbit.runtime.errors import CLASSES, CrcError, FlipbitError, ImageError, error_of
from flipbit.runtime.image import reference
from flipbit.runtime.image.reader import HEADER, OP, TENSOR, read_image
from tests.nets.small_nets import graph_with, newer_image, repaired, small_image

Field = tuple[int, int]  # where, how many bytes


def python_status(data: bytes) -> str:
    try:
        read_image(data)
    except ImageError as error:
        return error.status
    return "FB_OK"


def c_status(data: bytes) -> str:
    try:
        core.Opened(data)
    except FlipbitError as error:
        return error.status
    return "FB_OK"


def fields(image: bytes) -> list[Field]:
    """Every field of the header (but magic, version, length and CRC), of each tensor and of each operation."""
    tensors, ops = struct.unpack_from("<HH", image, 16)
    header = [(6, 2), (16, 2), (18, 2), (20, 2), (22, 2), (24, 4), (28, 4)]
    tensor = [(0, 2), (2, 2), (4, 2), (6, 1), (7, 1), (8, 4)]
    op = [(0, 1), (1, 1), (2, 2), (4, 2), (6, 2), *((i, 1) for i in range(8, 20)), (20, 4), (24, 4)]
    found = list(header)
    for i in range(tensors):
        found += [(HEADER.size + i * TENSOR.size + at, size) for at, size in tensor]
    for i in range(ops):
        found += [(HEADER.size + tensors * TENSOR.size + i * OP.size + at, size) for at, size in op]
    return found


def values(image: bytes, field: Field) -> list[int]:
    """Values for a field: around the right one, and where numbers of its size end."""
    at, size = field
    now = int.from_bytes(image[at : at + size], "little")
    bits = 8 * size
    around = [now + d for d in (-16, -4, -3, -2, -1, 1, 2, 3, 4, 16)] + [now * 2, now // 2, now ^ 1 << bits - 1]
    ends = [0, 1, 2, 3, 8, 9, 30, 31, 46, 47, 64, 1 << bits - 1, (1 << bits - 1) - 1, (1 << bits) - 1, (1 << bits) - 4]
    floats = [0x7F800000, 0x7FC00000, 0xBF800000, 1] if size == 4 else []
    limits = [1 << 22, (1 << 22) - 1, len(image), len(image) - 4] if size == 4 else []
    return sorted({v % (1 << bits) for v in (*around, *ends, *floats, *limits)} - {now})


def with_value(image: bytes | bytearray, field: Field, value: int) -> bytearray:
    at, size = field
    changed = bytearray(image)
    changed[at : at + size] = value.to_bytes(size, "little")
    return changed


def mutants() -> Iterator[bytes]:
    """Images with one wrong field each, with two, and with a damaged byte of weights or parameters."""
    yield from mutants_of(small_image(), 6000)
    yield from mutants_of(newer_image(), 2000)
    yield from mutants_of(fbit_bytes(graph_with("conv_bits")), 2000)


def mutants_of(image: bytes, twice: int) -> Iterator[bytes]:
    known = fields(image)
    for field in known:
        for value in values(image, field):
            yield repaired(with_value(image, field, value))
    random = np.random.default_rng(5)
    for _ in range(twice):
        changed = bytearray(image)
        for i in random.choice(len(known), 2, replace=False):
            changed = with_value(changed, known[i], int(random.choice(values(image, known[i]))))
        yield repaired(changed)
    start = max(at + size for at, size in known)
    end = HEADER.unpack_from(image)[-2]  # metadata
    for at in range(start, end):
        for value in (0, 0x7F, 0x80, 0xFF):
            yield repaired(with_value(image, (at, 1), value))


@pytest.fixture(scope="module")
def judged() -> list[tuple[bytes, str]]:
    """Mutants, each with what the Python reader says of it."""
    return [(mutant, python_status(mutant)) for mutant in mutants()]


def test_c_and_python_give_every_mutant_the_same_status(judged: list[tuple[bytes, str]]) -> None:
    seen: Counter[str] = Counter()
    for mutant, mine in judged:
        theirs = c_status(mutant)
        if mine == "FB_ERR_METADATA" and theirs == "FB_OK":
            continue  # metadata that is not JSON: the core has no use for it
        assert mine == theirs, f"Python {mine}, C {theirs}: {mutant.hex()}"
        seen[mine] += 1
    assert seen.total() > 20000
    image_errors = {status for status, kind in CLASSES.items() if issubclass(kind, ImageError)}
    # What a CRC or a length cannot be when both were repaired, and files are not read here.
    others = {"FB_ERR_TRUNCATED", "FB_ERR_MAGIC", "FB_ERR_VERSION", "FB_ERR_LENGTH", "FB_ERR_CRC", "FB_ERR_IO"}
    assert set(seen) == image_errors - others | {"FB_OK"}


def test_mutants_that_are_accepted_run_and_give_the_bits_of_the_reference(judged: list[tuple[bytes, str]]) -> None:
    accepted = [mutant for mutant, status in judged if status == "FB_OK"]
    assert len(accepted) > 1000
    for mutant in accepted[:: len(accepted) // 200]:
        model = Model(mutant)
        x = np.random.default_rng(1).integers(-128, 128, (2, *model.input_shape)).astype(np.int8)
        planes = np.moveaxis(x, -1, 1) if x.ndim == 4 else x
        expected = reference.run(model.image, planes)[model.image.output]
        expected = np.moveaxis(expected, 1, -1) if expected.ndim == 4 else expected
        assert (model.predict(x, raw=True) == expected).all()


def test_every_single_flipped_bit_is_refused_by_both_readers() -> None:
    image = small_image()
    for bit in range(8 * len(image)):
        broken = bytearray(image)
        broken[bit // 8] ^= 1 << bit % 8
        status = c_status(bytes(broken))
        assert status != "FB_OK"
        assert python_status(bytes(broken)) == status
        if bit >= 8 * 12:  # behind magic, version and length, which are looked at first
            assert status == CrcError.status


def test_every_length_but_the_right_one_is_refused_by_both_readers() -> None:
    image = small_image()
    for length in range(len(image)):
        assert c_status(image[:length]) == python_status(image[:length]) in ("FB_ERR_TRUNCATED", "FB_ERR_LENGTH")
    for more in range(1, 9):
        assert c_status(image + bytes(more)) == python_status(image + bytes(more)) == "FB_ERR_LENGTH"


def test_each_status_of_the_c_core_has_an_exception_of_its_own() -> None:
    names = list(itertools.takewhile(lambda name: name != "FB_ERR_UNKNOWN", map(core.status_name, range(1000))))
    assert names[0] == "FB_OK"
    errors = [name for name in names if name.startswith("FB_ERR_")]
    assert len(errors) > 20
    for name in errors:
        assert error_of(name, "found this").status == name
    assert len(set(CLASSES.values())) == len(CLASSES)


def test_an_error_says_what_was_found_what_to_do_and_its_status() -> None:
    broken = bytearray(small_image())
    broken[100] ^= 1
    with pytest.raises(
        CrcError, match=r"damaged: CRC [0-9a-f]{8}, should be [0-9a-f]{8}; copy or export it again \(FB_ERR_CRC\)"
    ):
        Model(bytes(broken))


def test_deeply_nested_metadata_is_refused_without_a_crash() -> None:
    image = bytearray(small_image())
    at, size = HEADER.unpack_from(image)[-2:]
    nested = b"[" * 100_000
    image = image[:at] + nested
    struct.pack_into("<I", image, 8, len(image))
    struct.pack_into("<I", image, 28, len(nested))
    assert size
    assert python_status(repaired(image)) == "FB_ERR_METADATA"
