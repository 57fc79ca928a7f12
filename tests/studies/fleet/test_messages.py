"""What crosses the network: packed, unpacked, and refused where it is damaged."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipbit.runtime.core.exchange import Sums
from flipbit.studies.fleet.messages import (
    Answer,
    Change,
    MessageError,
    Reply,
    Request,
    Task,
    apply_difference,
    pack_difference,
    pack_places,
    pack_sums,
    unpack_places,
    unpack_sums,
)


@given(st.sets(st.integers(0, (1 << 32) - 1), max_size=200))
def test_a_list_of_flips_comes_back_in_order(places: set[int]) -> None:
    assert unpack_places(pack_places(np.array(sorted(places), np.uint32))).tolist() == sorted(places)


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_a_difference_leads_from_one_image_to_the_other(old: bytes, new: bytes) -> None:
    size = min(len(old), len(new))
    assert apply_difference(old[:size], pack_difference(old[:size], new[:size])) == new[:size]


@given(st.binary(max_size=80))
def test_whatever_arrives_is_unpacked_or_refused(data: bytes) -> None:
    like = Sums(np.zeros(20, np.uint32), 4, False)
    packed = zlib.compress(data)
    for read in (
        Request.unpack, Reply.unpack, unpack_places, lambda d: apply_difference(b"12345678", d),
        lambda d: unpack_sums(d, 8, like), lambda d: unpack_sums(d, 32, like),
    ):  # fmt: skip
        for each in (data, packed):
            try:
                read(each)
            except MessageError:
                continue


def test_requests_and_replies_come_back() -> None:
    asked = Request(Task.SUMS, 1, 2, Change.FLIPS, b"abc", 3, 4, 5, 6, 8, b"plan")
    assert Request.unpack(asked.pack()) == asked
    said = Reply(Answer.DONE, 7, 10, 9, 1.5, 0.25, 8, b"body")
    assert Reply.unpack(said.pack()) == said


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0])
def test_a_time_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(MessageError):
        Reply.unpack(Reply(Answer.DONE, 7, 10, 9, 1.5, seconds).pack())


def test_a_part_that_would_fill_the_memory_is_refused() -> None:
    with pytest.raises(MessageError):
        unpack_places(zlib.compress(bytes(1 << 27)))


def sums(values: np.ndarray) -> Sums:
    return Sums(np.concatenate([np.arange(4, dtype=np.uint32), values.astype(np.int32).view(np.uint32)]), 4, False)


def test_exact_sums_are_exact() -> None:
    values = np.random.default_rng(1).integers(-(1 << 31), 1 << 31, 1000)
    own = sums(values)
    assert (unpack_sums(pack_sums(own, 32, 0), 32, own) == own.words).all()


def test_sums_of_8_bits_are_right_on_average_and_keep_counts() -> None:
    """Stochastic rounding: each is within a step of its block, and their mean over many seeds is the sum."""
    values = (np.random.default_rng(1).normal(0, 1, 200) * np.repeat([10, 1000, 100_000, 3], 50)).astype(np.int64)
    own = sums(values)
    found = []
    for seed in range(400):
        words = unpack_sums(pack_sums(own, 8, seed), 8, own)
        assert (words[:4] == own.words[:4]).all()
        found.append(words[4:].view(np.int32).astype(np.int64))
    step = np.repeat([np.abs(values[i : i + 64]).max() for i in range(0, 200, 64)], 64)[:200] / 63
    assert (np.abs(np.array(found) - values) <= step + 1).all()
    assert (np.abs(np.mean(found, 0) - values) <= step * 0.2 + 0.01).all()
    assert len(pack_sums(own, 8, 1)) < len(pack_sums(own, 32, 1)) / 2
