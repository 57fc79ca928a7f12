"""Numbers that do not fit their field are refused with its name; nothing wraps around."""

from __future__ import annotations

import numpy as np
import pytest

from flipbit.runtime.core.fixed_width import u8, u16, u32, u64
from flipbit.runtime.core.learner import Learner, LearnerConfig
from flipbit.runtime.core.library import Opened
from flipbit.runtime.core.store import CHECKPOINT, SimulatedFlash, Store
from flipbit.runtime.errors import ArgumentError
from flipbit.runtime.link.protocol import Frame, encode
from tests.nets.small_nets import photos, small_image


@pytest.mark.parametrize(("field", "bits"), [(u8, 8), (u16, 16), (u32, 32), (u64, 64)])
def test_a_field_takes_what_fits_and_nothing_else(field, bits: int) -> None:  # type: ignore[no-untyped-def]
    for good in (0, 1, np.uint8(7), True, 2**bits - 1):
        assert field("count", good) == int(good)
    for bad in (-1, 2**bits, 2**bits + 1, 10**30):
        with pytest.raises(ArgumentError, match=rf"^count is {bad}; expected 0 … {2**bits - 1}"):
            field("count", bad)
    for bad in (1.0, "1", None):
        with pytest.raises(ArgumentError, match=r"count is .*whole number"):
            field("count", bad)


@pytest.mark.parametrize(
    "wrong",
    [
        {"seed": 2**32},
        {"seed": -1},
        {"buffer_bits": 256},
        {"buffer_bits": 9},
        {"start": 256},
        {"start": 1},  # no buffer, no levels
        {"first_op": 65536},
        {"last_op": -1},
    ],
    ids=str,
)
def test_a_configuration_that_does_not_fit_names_the_field(wrong: dict[str, int]) -> None:
    (name, value), *_ = wrong.items()
    with pytest.raises(ArgumentError, match=rf"^{name} is {value}; expected 0 … "):
        LearnerConfig(**wrong)


def test_labels_and_batches_do_not_wrap_around() -> None:
    learner = Learner(small_image(), LearnerConfig(bits=True))
    x = photos(1)[0].astype(np.int8)
    for samples in (0, -1, 65536, 2**32 + 1):
        with pytest.raises(ArgumentError, match=f"samples of a batch is {samples}; expected 1 … 65535"):
            learner.begin(samples)
    learner.begin(1)
    for label in (-1, 5, 2**32):
        with pytest.raises(ArgumentError, match=f"label is {label}; expected 0 … 4"):
            learner.sample(x, label)
    learner.sample(x, np.int64(4))


def test_records_and_flash_do_not_wrap_around() -> None:
    flash = SimulatedFlash(8192, 1024)
    store = Store(flash)
    for kind, owner in ((2**32, 0), (CHECKPOINT, 2**32), (-1, 0)):
        with pytest.raises(ArgumentError, match="expected 0 … 4294967295"):
            store.save(b"x", kind, owner)
        with pytest.raises(ArgumentError):
            store.check(kind, owner)
        with pytest.raises(ArgumentError):
            store.begin(1, kind, owner)
    with pytest.raises(ArgumentError, match="length is 4294967296"):
        store.begin(2**32, CHECKPOINT, 0)
    assert store.current is None
    with pytest.raises(ArgumentError, match="bits is 256"):
        flash.rot(0, 256)
    with pytest.raises(ArgumentError, match="page is -1"):
        flash.wear_out(-1)
    with pytest.raises(ArgumentError, match="seed is -1"):
        SimulatedFlash(8192, 1024, seed=-1)


@pytest.mark.parametrize("frame", [Frame(65536, 1), Frame(-1, 1), Frame(1, 256), Frame(1, 1, 256)], ids=str)
def test_frames_do_not_wrap_around(frame: Frame) -> None:
    with pytest.raises(ArgumentError, match="expected 0 … "):
        encode(frame)


def test_plans_of_operations_that_cannot_be_are_refused() -> None:
    opened = Opened(small_image())
    with pytest.raises(ArgumentError, match="operation is 4294967296"):
        opened.plan(100_000, 2**32)
    with pytest.raises(ArgumentError, match="arena is -1"):
        opened.plan(-1, 0)
