"""A learning configuration is one string of bytes, in C and in Python."""

from __future__ import annotations

import ctypes
from ctypes import byref
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipbit.runtime.core.learner import Learner, _CConfig, _core
from flipbit.runtime.core.learner_config import PACKED, SUM_BITS, LearnerConfig
from flipbit.runtime.core.library import Opened, status_name
from flipbit.runtime.errors import ArgumentError, StateError
from tests.nets.small_nets import small_image

U16, U32 = st.integers(0, 0xFFFF), st.integers(0, 0xFFFFFFFF)
EXAMPLE = LearnerConfig(0x12345678, 3, 2, True, True, 5, 0x102, 0, True, 1, 18, 250, 8)
BYTES = bytes.fromhex("78563412 00 03 02 17 0500 0201 01 12 FA00")
RULE, LEARNS, RECALIBRATE, AUGMENT = 4, 7, 12, 13  # offsets


@st.composite
def configs(draw: st.DrawFn) -> LearnerConfig:
    bits = draw(st.integers(0, 8))
    start = draw(st.integers(0, (1 << bits) - 1))
    bools = [draw(st.booleans()) for _ in range(3)]
    recalibrate = draw(st.integers(0, 255))
    return LearnerConfig(
        draw(U32), bits, start, bools[0], bools[1], draw(U16), draw(U16), 0, bools[2], recalibrate,
        draw(st.integers(0, 31)), draw(U16) if recalibrate else 0, draw(st.sampled_from(SUM_BITS)) if bools[0] else 32,
    )  # fmt: skip


def through_c(packed: bytes) -> bytes | str:
    """The bytes after C has read and written them, or why it would not."""
    config, again = _CConfig(), ctypes.create_string_buffer(PACKED.size)
    status = _core().fb_train_config_unpack(byref(config), packed)
    if status:
        return status_name(status)
    _core().fb_train_config_pack(byref(config), again)
    return again.raw


def changed(offset: int, value: int) -> bytes:
    return BYTES[:offset] + bytes([value]) + BYTES[offset + 1 :]


def test_the_bytes_are_those_of_the_document() -> None:
    assert EXAMPLE.pack() == BYTES
    assert LearnerConfig.unpack(BYTES) == EXAMPLE
    assert through_c(BYTES) == BYTES


@given(configs())
def test_what_is_packed_is_unpacked_in_python_and_in_c(config: LearnerConfig) -> None:
    assert LearnerConfig.unpack(config.pack()) == config
    assert through_c(config.pack()) == config.pack()


@given(st.binary(min_size=PACKED.size, max_size=PACKED.size))
def test_c_and_python_refuse_the_same_bytes(packed: bytes) -> None:
    try:
        here: bytes | str = LearnerConfig.unpack(packed).pack()
    except ArgumentError as error:
        here = error.status
    assert through_c(packed) == here
    assert here in (packed, "FB_ERR_ARGUMENT")


@pytest.mark.parametrize("packed", [
    *(changed(RULE, rule) for rule in (1, 2, 255)), changed(RULE + 1, 9), changed(RULE + 2, 8), changed(LEARNS, 24),
    changed(LEARNS, 8), changed(LEARNS, 18), changed(RECALIBRATE, 0), changed(AUGMENT, 32),
])  # fmt: skip
def test_bytes_of_no_configuration_are_refused(packed: bytes) -> None:
    assert through_c(packed) == "FB_ERR_ARGUMENT"
    with pytest.raises(ArgumentError):
        LearnerConfig.unpack(packed)


def test_a_configuration_of_another_length_is_refused() -> None:
    with pytest.raises(ArgumentError, match="12 bytes"):
        LearnerConfig.unpack(BYTES[:12])


@pytest.mark.parametrize("rule", [-1, 1, 255])
def test_there_is_one_rule_so_far(rule: int) -> None:
    with pytest.raises(ArgumentError, match="rule"):
        LearnerConfig(rule=rule)


def test_the_core_trains_with_no_other_rule() -> None:
    """Not even if the structure is filled without unpacking."""
    opened, config = Opened(small_image()), _CConfig()
    core = _core()
    assert core.fb_train_config_unpack(byref(config), LearnerConfig().pack()) == 0
    assert core.fb_train_check(opened.model, config) == 0
    (ctypes.c_uint8 * ctypes.sizeof(config)).from_buffer(config)[RULE] = 1
    assert status_name(core.fb_train_check(opened.model, config)) == "FB_ERR_ARGUMENT"
    assert core.fb_train_state_size(opened.model, config) == core.fb_train_arena_size(opened.model, config, True) == 0


@pytest.mark.parametrize("other", [
    {"seed": 2}, {"buffer_bits": 3}, {"start": 0}, {"bits": False}, {"bias": False}, {"first_op": 1}, {"last_op": 9},
    {"gain": True}, {"augment": 1}, {"sum_bits": 16},
])  # fmt: skip
def test_a_state_is_of_one_configuration(other: dict) -> None:
    config = LearnerConfig(1, 2, 1, True, True)
    state = Learner(small_image(), config).state
    assert Learner(small_image(), config, state=state).steps == 0
    assert replace(config, **other).pack() != config.pack()
    with pytest.raises(StateError):
        Learner(small_image(), replace(config, **other), state=state)
