"""WAV files of every kind become int16 at 16 kHz, or are refused in one line."""

from __future__ import annotations

import struct
import wave
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flipbit.runtime.audio.wav import FLOAT, PCM, WavError, parse_wav, read_wav
from flipbit.runtime.errors import FlipbitError


def wav(
    body: bytes, code: int = PCM, channels: int = 1, rate: int = 16_000, bits: int = 16, before: bytes = b""
) -> bytes:
    align = channels * bits // 8
    kind = struct.pack("<HHIIHH", code, channels, rate, rate * align, align, bits)
    chunks = b"fmt " + struct.pack("<I", len(kind)) + kind + before + b"data" + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


def tone(rate: int = 16_000, seconds: float = 0.1, hz: float = 440, amplitude: float = 9000) -> np.ndarray:
    return amplitude * np.sin(2 * np.pi * hz / rate * np.arange(int(rate * seconds)))


EXACT = np.rint(tone()).astype("<i2")


def test_sixteen_bits_at_16_khz_are_the_samples_themselves(tmp_path: Path) -> None:
    path = tmp_path / "a tone.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(EXACT.tobytes())
    found = read_wav(path)
    np.testing.assert_array_equal(found.samples, EXACT)
    assert (found.samples.dtype, found.rate, found.channels, found.notes) == (np.int16, 16_000, 1, [])


def test_the_extremes_stay_what_they_are() -> None:
    body = np.array([-32768, 32767, -1, 0, 1] * 400, "<i2")
    np.testing.assert_array_equal(parse_wav(wav(body.tobytes())).samples, body)


@pytest.mark.parametrize(
    ("body", "code", "bits", "off"),
    [
        ((np.rint(EXACT / 256) + 128).astype(np.uint8).tobytes(), PCM, 8, 128),
        (b"".join(int(v * 256 + 3).to_bytes(3, "little", signed=True) for v in EXACT), PCM, 24, 0),
        ((EXACT.astype("<i4") * 65536 + 77).tobytes(), PCM, 32, 0),
        ((EXACT / 32768).astype("<f4").tobytes(), FLOAT, 32, 0),
        ((EXACT / 32768).astype("<f8").tobytes(), FLOAT, 64, 0),
    ],
    ids=["8", "24", "32", "float32", "float64"],
)
def test_other_widths_are_brought_to_16_bits(body: bytes, code: int, bits: int, off: int) -> None:
    found = parse_wav(wav(body, code, bits=bits))
    assert np.abs(found.samples.astype(int) - EXACT).max() <= off


def test_channels_are_averaged_and_an_extensible_header_with_other_chunks_is_read() -> None:
    left, right = EXACT, (EXACT // 3).astype("<i2")
    stereo = np.stack([left, right], 1).tobytes()
    found = parse_wav(wav(stereo, channels=2, before=b"LIST\x03\x00\x00\x00abc\x00"))
    np.testing.assert_array_equal(found.samples, np.rint((left.astype(float) + right) / 2).astype(np.int16))
    kind = struct.pack("<HHIIHHHHI", 0xFFFE, 1, 16_000, 32_000, 2, 16, 22, 16, 4) + struct.pack("<H", PCM) + b"\0" * 14
    data = b"RIFF\0\0\0\0WAVEfmt " + struct.pack("<I", 40) + kind + b"data" + struct.pack("<I", 3200) + EXACT.tobytes()
    np.testing.assert_array_equal(parse_wav(data).samples, EXACT)


@pytest.mark.parametrize("rate", [8_000, 11_025, 22_050, 44_100, 48_000, 96_000])
def test_other_rates_are_resampled_to_the_same_sound(rate: int) -> None:
    found = parse_wav(wav(np.rint(tone(rate)).astype("<i2").tobytes(), rate=rate))
    middle = slice(300, 1300)
    assert abs(found.samples.size - 1600) <= 1 and found.rate == rate
    assert np.abs(found.samples[middle] - tone()[middle]).max() < 3


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"OggS" + bytes(40), "not a WAV file"),
        (wav(b""), "holds no sample"),
        (wav(b"\0"), "holds no sample"),
        (wav(EXACT.tobytes(), code=85), "MP3"),
        (wav(EXACT.tobytes(), code=777), "format 777"),
        (wav(EXACT.tobytes(), bits=12), "12 bits"),
        (wav(EXACT.tobytes(), channels=0), "0 channels"),
        (wav(EXACT.tobytes(), rate=0), "0 samples per second"),
        (wav(np.array([np.nan, 1], "<f4").tobytes(), FLOAT, bits=32), "no numbers"),
        (wav(np.array([1e300, np.inf], "<f8").tobytes(), FLOAT, bits=64), "no numbers"),
        (b"RIFF\0\0\0\0WAVE", "no fmt chunk"),
        (wav(EXACT.tobytes())[:36], "no data chunk"),
        (wav(EXACT.tobytes())[:12] + wav(EXACT.tobytes())[36:], "before their format"),
        (b"RIFF\0\0\0\0WAVEfmt \x04\0\0\0abcd", "4 bytes, expected 16"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_in_a_line_that_says_why(data: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.wav"
    path.write_bytes(data)
    with pytest.raises(WavError, match=words) as caught:
        read_wav(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_that_is_not_there_or_is_a_folder_is_refused(tmp_path: Path) -> None:
    for path, words in ((tmp_path / "none.wav", "No such file"), (tmp_path, "directory"), ("a\0b.wav", "null")):
        with pytest.raises(WavError, match=words):
            read_wav(path)


@pytest.mark.parametrize(
    ("data", "note"),
    [
        (wav(EXACT.tobytes())[:-100], "cut short: 3,100 bytes of samples, 3,200 announced"),
        (wav(EXACT.tobytes() + b"x"), "1 bytes at its end are no whole sample"),
        (wav(bytes(3200)), "silent"),
        (wav(np.full(1600, -700, "<i2").tobytes()), "silent: every sample is -700"),
        (wav(np.where(np.arange(1600) % 8 < 2, 32767, 0).astype("<i2").tobytes()), "clipped: 25.0 %"),
        (wav(np.where(np.arange(1600) % 8 < 2, 255, 128).astype(np.uint8).tobytes(), bits=8), "clipped: 25.0 %"),
        (wav(np.where(np.arange(1600) % 8 == 1, 32767, 0).astype("<i2").tobytes(), channels=2), "clipped: 25.0 %"),
    ],
)
def test_what_is_odd_is_noted(data: bytes, note: str) -> None:
    (found,) = parse_wav(data).notes
    assert found.startswith(note)


def test_float_samples_beyond_one_are_clipped_and_noted() -> None:
    found = parse_wav(wav(np.linspace(-4, 4, 1000).astype("<f4").tobytes(), FLOAT, bits=32))
    assert found.samples.min() == -32768 and found.samples.max() == 32767
    assert "clipped" in found.notes[0]


def test_a_stream_of_unknown_length_is_read_to_its_end_without_a_note() -> None:
    data = bytearray(wav(EXACT.tobytes()))
    data[40:44] = b"\xff\xff\xff\xff"
    assert parse_wav(bytes(data)).notes == []


BASES = [
    wav(EXACT[:40].tobytes()),
    wav(EXACT[:40].tobytes(), channels=2, rate=44_100, before=b"LIST\x03\x00\x00\x00abc\x00"),
    wav((EXACT[:40] / 32768).astype("<f4").tobytes(), FLOAT, bits=32),
    wav(bytes(range(120)), bits=24, rate=8_000),
]


def read_or_refused(data: bytes) -> str:
    """What is said of a file; anything but samples or a FlipbitError fails the test."""
    try:
        found = parse_wav(data)
    except FlipbitError as error:
        return str(error)
    return f"{found.samples.dtype}, {'some' if found.samples.size else 'none'}"


@given(
    st.sampled_from(BASES),
    st.lists(st.tuples(st.integers(0, 130), st.sampled_from([0, 1, 2, 3, 8, 16, 64, 127, 128, 254, 255])), max_size=4),
    st.integers(0, 250),
)
@settings(max_examples=500)
def test_a_broken_file_is_read_or_refused_but_never_a_traceback(
    base: bytes, changes: list[tuple[int, int]], length: int
) -> None:
    data = bytearray(base)
    for at, value in changes:
        data[at % len(data)] = value
    said = read_or_refused(bytes(data[:length]))
    assert "\n" not in said and said != "int16, none"


@given(st.binary(max_size=100))
def test_any_bytes_behind_a_right_start_are_read_or_refused(rest: bytes) -> None:
    assert "\n" not in read_or_refused(b"RIFF\x24\0\0\0WAVE" + rest)
