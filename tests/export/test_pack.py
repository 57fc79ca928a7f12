"""Packing ±1 into bits and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipbit.export.pack import layout_of, pack, unpack, words_per_filter

shapes = st.one_of(
    st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 40), st.integers(1, 9)),
    st.tuples(st.just(3), st.just(3), st.sampled_from([16, 32, 48]), st.integers(1, 9)),
    st.tuples(st.integers(1, 100), st.integers(1, 9)),
)


@given(shapes, st.integers(0, 99))
def test_packing_is_undone_exactly(shape: tuple[int, ...], seed: int) -> None:
    signs = np.random.default_rng(seed).choice([-1, 1], shape).astype(np.int8)
    layout = layout_of(shape)
    words = pack(signs, layout)
    assert words.dtype == np.uint16
    assert words.shape == (shape[-1], words_per_filter(shape))
    assert (unpack(words, shape, layout) == signs).all()
    assert (unpack(pack(signs, "taps"), shape, "taps") == signs).all()


@given(shapes)
def test_bits_beyond_the_last_weight_are_zero(shape: tuple[int, ...]) -> None:
    words = pack(np.ones(shape, np.int8), layout_of(shape))
    ones = [sum(bin(word).count("1") for word in row) for row in words.tolist()]
    assert ones == [int(np.prod(shape[:-1]))] * shape[-1]


def test_taps_puts_channel_c_of_tap_t_at_bit_t_times_channels_plus_c() -> None:
    signs = -np.ones((2, 2, 5, 1), np.int8)
    signs[1, 0, 3, 0] = 1  # tap 2, channel 3: bit 13
    assert pack(signs, "taps").tolist() == [[1 << 13, 0]]
    signs[1, 0, 3, 0], signs[1, 1, 4, 0] = -1, 1  # tap 3, channel 4: bit 19
    assert pack(signs, "taps").tolist() == [[0, 1 << 3]]


def test_chunks_puts_sixteen_channels_of_a_tap_into_a_word() -> None:
    signs = -np.ones((3, 3, 32, 2), np.int8)
    signs[1, 2, 16 + 7, 1] = 1  # chunk 1, tap 5: word 14, bit 7
    words = pack(signs, "chunks")
    assert words[0].tolist() == [0] * 18
    assert words[1].tolist() == [0] * 14 + [1 << 7] + [0] * 3


def test_three_by_three_with_full_words_is_chunked_and_the_rest_is_not() -> None:
    assert layout_of((3, 3, 32, 8)) == "chunks"
    assert layout_of((3, 3, 24, 8)) == "taps"
    assert layout_of((1, 1, 32, 8)) == "taps"
    assert layout_of((64, 10)) == "taps"


def test_other_values_and_layouts_are_refused() -> None:
    with pytest.raises(ValueError, match=r"must be \+1 or -1"):
        pack(np.zeros((3, 3, 1, 1)), "taps")
    with pytest.raises(ValueError, match="multiple of 16 channels, not 8"):
        pack(np.ones((3, 3, 8, 1)), "chunks")
    with pytest.raises(ValueError, match="layout must be one of"):
        pack(np.ones((3, 3, 8, 1)), "rows")
