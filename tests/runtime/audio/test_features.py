"""The NumPy front end: the integers of the C core for any configuration and sound, and close to float arithmetic."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import assume, event, example, given, settings
from hypothesis import strategies as st

from flipbit.runtime.audio.config import LIMITS, RATE, AudioConfig
from flipbit.runtime.audio.features import band_energies, features, powers, spectrum
from flipbit.runtime.audio.front_end import FrontEnd, core_status
from flipbit.runtime.audio.tables import LOG2, SINE, hann, log2, mel_bands
from flipbit.runtime.errors import ArgumentError
from tests.checkout import ROOT

KINDS = (
    "silence",
    "square",
    "impulse",
    "noise",
    "quiet noise",
    "lowest",
    "alternating",
    "sine",
    "one step",
    "bursts",
    "chirp",
)


@st.composite
def configs(draw: st.DrawFn) -> AudioConfig:
    fft = draw(st.sampled_from([64, 128, 256, 512, 1024]))
    window = draw(st.integers(32, fft))
    low = draw(st.integers(0, 1000) | st.integers(0, 7999))
    high = draw(st.integers(max(low + 1, 4000), 8000) | st.integers(low + 1, 8000))
    most = max(1, min(64, (high - low) * fft // 60_000))  # about as many as there are bins for; seldom more
    bands = draw(st.integers(1, most) | st.integers(1, most) | st.integers(1, 64))
    return AudioConfig(
        window, draw(st.integers(1, window)), fft, bands, low, high, draw(st.integers(0, 48)), draw(st.integers(1, 255))
    )


def sound(kind: str, size: int, seed: int) -> np.ndarray:
    random, n = np.random.default_rng(seed), np.arange(size)
    period = int(random.integers(2, 400))
    values = {
        "silence": np.zeros(size),
        "square": np.where(n // period % 2, 32767, -32768),
        "impulse": np.where(n % (period + 7) == period // 2, random.choice([-32768, 32767]), 0),
        "noise": random.integers(-32768, 32768, size),
        "quiet noise": random.integers(-period, period, size),
        "lowest": np.full(size, -32768),
        "alternating": np.where(n % 2, -32768, 32767),
        "sine": np.rint(random.uniform(0, 32767) * np.sin(n * random.uniform(0, np.pi))),
        "one step": np.where(n > period, -1, 0),
        "chirp": np.clip(random.uniform(8e3, 2e5) * np.sin(n * n * random.uniform(0, np.pi) / 1024), -32768, 32767),
        "bursts": random.integers(-32768, 32768, size) >> random.integers(0, 16),
    }
    return values[kind].astype(np.int16)


def accepted(config: AudioConfig) -> bool:
    try:
        mel_bands(config)
    except ArgumentError:
        return False
    return True


@given(configs(), st.sampled_from(KINDS), st.integers(0, 2**32 - 1), st.integers(0, 700))
@settings(max_examples=300)
@example(AudioConfig(), "square", 1, 320)
@example(AudioConfig(window=1024, fft=1024, bands=64, low_hz=0, high_hz=8000, floor=0, gain=255), "lowest", 1, 1)
@example(AudioConfig(window=33, hop=1, fft=64, bands=1, low_hz=3900, high_hz=4200), "alternating", 1, 3)
@example(AudioConfig(bands=64, fft=64, window=32, hop=32), "noise", 1, 0)
def test_c_and_numpy_agree_to_the_bit(config: AudioConfig, kind: str, seed: int, more: int) -> None:
    event("accepted" if accepted(config) else "refused")
    if not accepted(config):
        assert core_status(config) == "FB_ERR_SHAPE"
        return
    samples = sound(kind, config.window + min(more, 12 * config.hop), seed)
    expected = features(samples, config)
    assert expected.shape == (config.rows(samples.size), config.bands)
    np.testing.assert_array_equal(FrontEnd(config).push(samples), expected)


def test_sums_beyond_32_bits_agree_too() -> None:
    """A clipped chirp is as loud in every bin."""
    config = AudioConfig(window=1024, hop=1024, fft=1024, bands=1, low_hz=0, high_hz=8000, floor=0, gain=64)
    samples = np.stack([sound("chirp", 1024, seed) for seed in range(50)])
    energies, _ = band_energies(*spectrum(samples, config), config)
    assert energies.max() >= 2**32
    found = np.stack([FrontEnd(config).push(clip) for clip in samples])
    np.testing.assert_array_equal(found, features(samples, config))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_c_and_numpy_agree_on_many_more(seed: int) -> None:
    random = np.random.default_rng(seed)
    tried = 0
    while tried < 100:
        fft = int(2 ** random.integers(6, 11))
        window = int(random.integers(32, fft + 1))
        low = int(random.integers(0, 4000))
        config = AudioConfig(
            window, int(random.integers(1, window + 1)), fft, int(random.integers(1, 65)), low,
            int(random.integers(low + 100, 8001)), int(random.integers(0, 20)), int(random.integers(1, 256)),
        )  # fmt: skip
        if accepted(config):
            samples = sound(KINDS[tried % len(KINDS)], window + 8 * config.hop, seed * 1000 + tried)
            np.testing.assert_array_equal(FrontEnd(config).push(samples), features(samples, config), str(config))
            tried += 1


def test_many_clips_are_each_clip() -> None:
    clips = np.stack([sound(kind, 3000, i) for i, kind in enumerate(KINDS)])
    together = features(clips)
    assert together.shape == (len(KINDS), 8, 40)
    for clip, found in zip(clips, together):
        np.testing.assert_array_equal(features(clip), found)


def test_a_second_is_49_rows_of_40_and_less_than_a_window_is_none() -> None:
    assert features(np.zeros(RATE, np.int16)).shape == (49, 40)
    assert features(np.zeros(479, np.int16)).shape == (0, 40)


def test_silence_is_the_lowest_feature_and_the_loudest_sound_is_within_range() -> None:
    assert (features(np.zeros(RATE, np.int16)) == -128).all()
    loud = features(np.rint(32767 * np.sin(2 * np.pi * 1000 / RATE * np.arange(RATE))).astype(np.int16))
    strict = AudioConfig(floor=12)
    assert loud.max() == 127 and features(np.full(RATE, 1, np.int16)).max() < 127
    assert features(sound("sine", RATE, 1), strict).max() < 127


def test_a_tone_is_in_the_band_around_it() -> None:
    """Band b is centred where the mel scale puts it: log2(1 + f / 700) divided evenly."""
    config = AudioConfig()
    low, high = (np.log2(1 + hz / 700) for hz in (config.low_hz, config.high_hz))
    for band in (3, 10, 20, 39):
        hz = 700 * (2 ** (low + (high - low) * (band + 1) / (config.bands + 1)) - 1)
        tone = np.rint(8000 * np.sin(2 * np.pi * hz / RATE * np.arange(2000))).astype(np.int16)
        assert (features(tone, config).argmax(1) == band).all()


def test_ten_times_the_amplitude_is_eight_steps_per_doubling_of_energy() -> None:
    quiet = sound("quiet noise", RATE, 3)
    quiet = (quiet.astype(int) * 300 // max(1, int(np.abs(quiet).max()))).astype(np.int16)
    difference = features(quiet * 10).astype(int) - features(quiet)
    assert np.abs(difference - 8 * np.log2(100)).max() <= 1


def float_features(samples: np.ndarray, config: AudioConfig) -> np.ndarray:
    """The same in float64, without any rounding."""
    frames = np.lib.stride_tricks.sliding_window_view(samples.astype(float), config.window)[:: config.hop]
    window = np.sin(np.pi * np.arange(config.window) / config.window) ** 2
    power = np.abs(np.fft.rfft(frames * window, config.fft)) ** 2
    mel = np.log2(1 + np.fft.rfftfreq(config.fft, 1 / RATE) / 700)
    low, high = (np.log2(1 + hz / 700) for hz in (config.low_hz, config.high_hz))
    place = (mel - low) / (high - low) * (config.bands + 1)
    weights = np.maximum(0, 1 - np.abs(place[:, None] - np.arange(1, config.bands + 1)))
    energy = np.maximum(power @ weights, 1e-9)
    return np.clip((np.log2(energy) - config.floor) * config.gain / 16, 0, 255) - 128


def speech_like(seed: int, loudness: float) -> np.ndarray:
    """Harmonics of a voice under formants that move, with pauses, over a little noise."""
    random, t = np.random.default_rng(seed), np.arange(RATE) / RATE
    pitch = 2 * np.pi * np.cumsum(120 + 20 * np.sin(4 * t)) / RATE
    voice = np.zeros(RATE)
    for k in range(1, 40):
        near = sum(np.exp(-(((120 * k - f * (1 + 0.3 * np.sin(5 * t))) / 200) ** 2)) for f in (500, 1500, 2500))
        voice += (near + 0.001) * np.sin(k * pitch)
    voice *= np.clip(np.sin(7 * t), 0, 1)
    return np.rint(loudness * voice / np.abs(voice).max() + random.normal(0, loudness / 1000, RATE)).astype(np.int16)


@pytest.mark.parametrize("config", [AudioConfig(), AudioConfig(window=1024, fft=1024, bands=40)], ids=["512", "1024"])
@pytest.mark.parametrize("loudness", [30_000, 2_000, 100])
def test_features_are_those_of_float_arithmetic_but_for_a_step(config: AudioConfig, loudness: int) -> None:
    samples = speech_like(1, loudness)
    wrong = np.abs(features(samples, config) - np.rint(float_features(samples, config)))
    assert (wrong == 0).mean() > 0.9 and (wrong <= 1).mean() > 0.99, f"{(wrong == 0).mean()}, {(wrong <= 1).mean()}"


@pytest.mark.parametrize("loudness", [30_000, 100])
def test_the_fft_has_60_db_over_its_noise_at_any_loudness(loudness: int) -> None:
    config = AudioConfig()
    samples = speech_like(2, loudness)
    frames = np.lib.stride_tricks.sliding_window_view(samples, config.window)[:: config.hop]
    real, imaginary, exponent = spectrum(frames, config)
    found = powers(real, imaginary, np.ones(len(real), np.int32)) * 4.0 ** exponent[:, None]
    exact = np.abs(np.fft.rfft(frames * (hann(config.window) / 32768), config.fft)) ** 2
    noise = (np.sqrt(found[:, 1:]) - np.sqrt(exact[:, 1:-1])) ** 2
    heard = exact[:, 1:-1].sum(1) > 0
    assert heard.sum() > 20 and (10 * np.log10(exact[heard, 1:-1].sum(1) / noise[heard].sum(1)) > 60).all()


@given(st.integers(1, 2**45))
@example(2**53 - 1)
@example(2**31)
@example(2**32 - 1)
def test_the_logarithm_is_right_to_a_ten_thousandth(value: int) -> None:
    assert abs(int(log2(value)) / 32768 - np.log2(value)) < 1e-4


def test_the_tables_of_c_are_these() -> None:
    text = (ROOT / "firmware/core/audio/fb_audio_tables.c").read_text(encoding="utf-8")
    tables = [[int(n) for n in re.findall(r"\d+", body)] for body in re.findall(r"\] = \{([^}]*)\}", text)]
    assert tables == [SINE.tolist(), LOG2.tolist()]


@given(configs())
def test_weights_of_a_bin_add_up_and_every_band_has_one(config: AudioConfig) -> None:
    assume(accepted(config))
    first, segment, rising = mel_bands(config)
    assert first >= 1 and first + len(segment) <= config.fft // 2
    assert (np.diff(segment) >= 0).all() and (segment <= config.bands).all()
    assert ((rising >= 0) & (rising < 32768)).all()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"fft": 500}, "power of two"), ({"fft": 256}, "480 samples"), ({"hop": 481}, "hop"), ({"hop": 0}, "hop"),
        ({"bands": 65}, "1 … 64"), ({"low_hz": 7600}, "less than high_hz"), ({"high_hz": 8001}, "8000"),
        ({"window": 31}, "32"), ({"gain": 0}, "gain"), ({"floor": 49}, "floor"), ({"bands": 40.5}, "whole number"),
    ],
)  # fmt: skip
def test_what_is_out_of_its_limits_is_refused_by_name(wrong: dict, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        AudioConfig(**wrong)


def test_bands_narrower_than_a_bin_are_refused_with_what_to_do() -> None:
    with pytest.raises(ArgumentError, match="fewer bands, a wider range or a larger FFT"):
        features(np.zeros(1000, np.int16), AudioConfig(window=64, fft=64, hop=64, bands=64))


@pytest.mark.parametrize("bad", [np.zeros(10), np.zeros((2, 2, 2), np.int16), np.int16(3)])
def test_samples_of_another_type_or_shape_are_refused(bad: np.ndarray) -> None:
    with pytest.raises(ArgumentError, match="expected int16"):
        features(np.asarray(bad))


def test_limits_are_those_of_the_header() -> None:
    header = (ROOT / "firmware/core/include/fb_audio.h").read_text(encoding="utf-8")
    expected = {
        "WINDOW_LEAST": LIMITS["window"][0], "FFT_LEAST": LIMITS["fft"][0], "FFT_MOST": LIMITS["fft"][1],
        "BANDS_MOST": LIMITS["bands"][1], "FLOOR_MOST": LIMITS["floor"][1], "RATE": RATE,
    }  # fmt: skip
    for name, value in expected.items():
        assert f"#define FB_AUDIO_{name} {value}" in header
    keywords = AudioConfig()
    values = ", ".join(str(getattr(keywords, name)) for name in LIMITS)
    assert f"#define FB_AUDIO_KEYWORDS {{{values}}}" in header
