"""Frames between host and device: Python's side. tests/firmware/test_app.py holds the C side against it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipbit.runtime.link.protocol import (
    FRAME_MAX,
    LINE_MAX,
    PAYLOAD_MAX,
    Command,
    Frame,
    FrameError,
    Reader,
    cobs_decode,
    cobs_encode,
    decode,
    encode,
    parse_identity,
)
from tests.checkout import ROOT

SPECIFICATION = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
frames = st.builds(
    Frame, st.integers(0, 0xFFFF), st.integers(0, 255), st.integers(0, 255), st.binary(max_size=PAYLOAD_MAX)
)


@given(st.binary(max_size=1200))
def test_cobs_takes_out_all_zeros_and_gives_them_back(data: bytes) -> None:
    line = cobs_encode(data)
    assert 0 not in line
    assert len(line) <= len(data) + 1 + len(data) // 254
    assert cobs_decode(line) == data


@pytest.mark.parametrize("length", [0, 1, 253, 254, 255, 507, 508, 509, 600])
@pytest.mark.parametrize("ends", [b"", b"\0", b"\0\0", b"\1"])
def test_cobs_around_its_longest_groups(length: int, ends: bytes) -> None:
    for data in (b"x" * length + ends, ends + b"x" * length):
        assert cobs_decode(cobs_encode(data)) == data


@pytest.mark.parametrize(
    ("data", "line"),
    [("", "01"), ("00", "0101"), ("0000", "010101"), ("00 11 00", "01021101"), ("11 22 00 33", "03112202 33")],
)
def test_cobs_of_published_examples(data: str, line: str) -> None:
    assert cobs_encode(bytes.fromhex(data)) == bytes.fromhex(line)


@given(frames)
def test_frames_come_back(frame: Frame) -> None:
    line = encode(frame)
    assert line.endswith(b"\0") and 0 not in line[:-1]
    assert len(line) <= LINE_MAX + 1 == FRAME_MAX + 2
    assert decode(line[:-1]) == frame


def test_the_example_in_the_specification_is_right() -> None:
    example = re.search(r"^on the line +(02 [0-9a-f ]+)$", SPECIFICATION, re.MULTILINE)
    assert example
    assert encode(Frame(1, Command.ECHO, 0, b"\0A")) == bytes.fromhex(example[1])


@given(st.binary(max_size=600))
def test_noise_is_a_frame_error_or_a_frame_and_nothing_else(noise: bytes) -> None:
    lines = noise.split(b"\0")
    refused = 0
    for line in lines:
        try:
            decode(line)
        except FrameError:
            refused += 1
    reader = Reader()
    found = reader.feed(noise + b"\0")
    assert reader.bad + len(found) == sum(map(bool, lines))
    assert refused == reader.bad + lines.count(b"")


@given(frames, st.data())
def test_a_flipped_bit_is_noticed(frame: Frame, data: st.DataObject) -> None:
    line = bytearray(encode(frame)[:-1])
    bit = data.draw(st.integers(0, 8 * len(line) - 1))
    line[bit // 8] ^= 1 << bit % 8
    reader = Reader()
    assert reader.feed(bytes(line) + b"\0") == []
    assert reader.bad >= 1


@given(st.lists(frames, max_size=5), st.data())
def test_frames_are_found_in_pieces_of_any_size(sent: list[Frame], data: st.DataObject) -> None:
    stream = b"".join(encode(frame) for frame in sent)
    reader, received = Reader(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        received += reader.feed(stream[:size])
        stream = stream[size:]
    assert received == sent
    assert reader.bad == 0


def test_endless_noise_does_not_fill_the_memory() -> None:
    reader = Reader()
    for _ in range(50):
        reader.feed(b"x" * 10_000)
    assert reader.feed(b"\0" + encode(Frame(1, 2))) == [Frame(1, 2)]
    assert reader.bad == 1
    assert sum(map(len, reader.noise)) <= 4096


def test_too_much_payload_is_refused_before_it_is_sent() -> None:
    with pytest.raises(ValueError, match="245 bytes; a frame takes 244"):
        encode(Frame(1, Command.ECHO, 0, bytes(PAYLOAD_MAX + 1)))


OTHER_VERSIONS = [b"\1" + bytes(80), b"\3" + bytes(80)]


@pytest.mark.parametrize("payload", [b"", b"\2", bytes(80), *OTHER_VERSIONS, b"\2" + bytes(59) + b"a\0b\0c"])
def test_identities_of_other_versions_and_broken_ones_are_refused(payload: bytes) -> None:
    with pytest.raises(ValueError, match=r"version|names"):
        parse_identity(payload)
