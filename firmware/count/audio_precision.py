"""Compare the audio front end with float arithmetic on recordings, at several loudnesses, and time it.

  python firmware/count/audio_precision.py speech_commands/yes/*.wav
  python firmware/count/audio_precision.py FILE.wav --clips 300

Prints the signal-to-noise ratio of the integer FFT over all windows, how many features are those of float64, and how
many clips of a second NumPy and the C core turn into features per second of CPU time.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from flipbit.runtime.audio.config import RATE, AudioConfig
from flipbit.runtime.audio.features import features, spectrum
from flipbit.runtime.audio.front_end import FrontEnd
from flipbit.runtime.audio.tables import mel_bands
from flipbit.runtime.audio.wav import read_wav
from flipbit.runtime.errors import InputError
from flipbit.runtime.exits import CommandParser, guarded

Array = np.ndarray
CONFIGS = (AudioConfig(), AudioConfig(window=1024, fft=1024))
LOUDNESS = (1, 16, 128)  # divisors


def frames_of(clips: Array, config: AudioConfig) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(clips, config.window, -1)[:, :: config.hop]
    return windows.reshape(-1, config.window)


def windowed(frames: Array, config: AudioConfig) -> Array:
    window = np.sin(np.pi * np.arange(config.window) / config.window) ** 2
    return np.pad(frames * window, ((0, 0), (0, config.fft - config.window)))


def float_features(frames: Array, config: AudioConfig) -> Array:
    """In float64, with the weights of the bands as they are."""
    first, segment, rising = mel_bands(config)
    power = np.abs(np.fft.rfft(windowed(frames, config))[:, first : first + len(segment)]) ** 2
    weights = np.zeros((len(segment), config.bands + 2))
    bins = np.arange(len(segment))
    weights[bins, segment + 1] = rising / 32768
    weights[bins, segment] += 1 - rising / 32768
    level = np.log2(np.maximum(power @ weights[:, 1:-1], 1e-9))
    return np.clip(np.rint((level - config.floor) * config.gain / 16), 0, 255) - 128


def noise_ratio(frames: Array, config: AudioConfig) -> Array:
    """dB of each window that is not silent."""
    y = windowed(frames, config)
    exact = np.fft.fft(y[:, ::2] + 1j * y[:, 1::2])
    real, imaginary, exponent = spectrum(frames, config)
    wrong = exact - (real + 1j * imaginary) * 2.0 ** exponent[:, None]
    signal, noise = (np.sum(np.abs(v) ** 2, 1) for v in (exact, wrong))
    heard = signal > 0
    return 10 * np.log10(signal[heard] / np.maximum(noise[heard], 1e-12))


def report(clips: Array) -> str:
    lines = ["  fft  loudness  SNR, median  worst 1 %  features equal  within a step  largest difference"]
    for config in CONFIGS:
        for divisor in LOUDNESS:
            quiet = np.rint(clips / divisor).astype(np.int16)
            frames = frames_of(quiet, config)
            ratio = noise_ratio(frames, config)
            wrong = np.abs(features(quiet, config).reshape(-1, config.bands) - float_features(frames, config))
            lines.append(
                f"{config.fft:5}  {f'1/{divisor}':>8}  {np.median(ratio):8.1f} dB  {np.percentile(ratio, 1):6.1f} dB"
                f"  {(wrong == 0).mean():14.2%}  {(wrong <= 1).mean():13.3%}  {wrong.max():18.0f}"
            )
    start = time.process_time()
    features(clips)
    numpy_time, start = time.process_time() - start, time.process_time()
    stream = FrontEnd()
    for clip in clips:
        stream.reset()
        stream.push(clip)
    core_time = time.process_time() - start
    return "\n".join([
        *lines, f"{len(clips)} clips: {len(clips) / numpy_time:.0f} per second by NumPy, "
        f"{len(clips) / core_time:.0f} by the C core",
    ])  # fmt: skip


def parser() -> argparse.ArgumentParser:
    found = CommandParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("files", nargs="+", type=Path, metavar="FILE", help="recordings (.wav), cut into seconds")
    found.add_argument("--clips", type=int, default=300, metavar="N", help="seconds to use at most (300)")
    return found


def _main(given: argparse.Namespace) -> None:
    if given.clips < 1:
        raise InputError(f"--clips is {given.clips}; expected 1 or more")
    seconds: list[Array] = []
    for path in given.files:
        samples = read_wav(path).samples
        seconds += list(samples[: samples.size // RATE * RATE].reshape(-1, RATE))
        if len(seconds) >= given.clips:
            break
    if not seconds:
        raise InputError("no file lasts a second")
    sys.stdout.write(report(np.stack(seconds[: given.clips])) + "\n")


def main(argv: list[str] | None = None) -> int:
    return guarded(lambda: _main(parser().parse_args(argv)))


if __name__ == "__main__":
    sys.exit(main())
