"""One reader of WAV files: whatever it holds becomes int16 samples at 16 kHz, one channel.

| in the file | what the front end hears |
|---|---|
| 16-bit PCM, one channel, 16 kHz | the samples, unchanged |
| 8, 24 or 32 bits per sample | the upper 16 bits, rounded; 8-bit samples are unsigned |
| 32- or 64-bit float, −1 … 1 | times 32768, rounded, clipped |
| several channels | their mean |
| another rate, 1 to 384 kHz | resampled (``resample.py``) |

Refused with :class:`WavError`: what is no WAV file, is compressed, holds no sample, or has a header that contradicts
itself. Noted in :attr:`Recording.notes`, as it is the user who knows whether it matters: a file that ends before its
header says (what is there is used), silence, clipping.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from flipbit.runtime.audio.config import RATE
from flipbit.runtime.audio.resample import resample
from flipbit.runtime.errors import InputError

Array = np.ndarray
PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
COMPRESSED = {2: "ADPCM", 6: "A-law", 7: "µ-law", 17: "IMA ADPCM", 49: "GSM", 80: "MPEG", 85: "MP3"}
RATES = (1_000, 384_000)
CHANNELS_MOST = 64
SAMPLES_MOST = 2**26  # in the file and at 16 kHz: 70 minutes
CLIPPED = 0.001  # of the samples at an end of the range


class WavError(InputError):
    """A file that is no readable WAV."""


@dataclass(frozen=True)
class Recording:
    """int16 samples at 16 kHz; ``rate`` and ``channels`` are the file's, ``notes`` what is odd about it."""

    samples: Array
    rate: int
    channels: int
    notes: list[str] = field(default_factory=list)


def read_wav(path: Path | str) -> Recording:
    """Read a file; :class:`WavError` names it and what is wrong."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise WavError(f"{path}: {error.strerror}") from None
    except ValueError as error:  # a name with a null character
        raise WavError(f"{path!r}: {error}") from None
    try:
        return parse_wav(data)
    except WavError as error:
        raise WavError(f"{path}: {error.message}") from None


def parse_wav(data: bytes) -> Recording:
    """The samples of a WAV file's bytes."""
    if len(data) < 12 or data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        found = "empty" if not data else f"starts with {data[:4]!r}"
        raise WavError(f"not a WAV file ({found}); convert it with: ffmpeg -i FILE -ar 16000 -ac 1 out.wav")
    notes: list[str] = []
    kind, body = _chunks(data, notes)
    code, channels, rate, bits = kind
    width = bits // 8 * channels
    if len(body) % width and not notes:
        notes.append(f"{len(body) % width} bytes at its end are no whole sample")
    values = _decode(body[: len(body) // width * width], code, bits).reshape(-1, channels)
    if not len(values):
        raise WavError("holds no sample")
    if not np.isfinite(values).all():
        raise WavError("holds samples that are no numbers (NaN or infinite)")
    if len(values) > SAMPLES_MOST * rate // RATE:
        raise WavError(
            f"lasts {len(values) // rate:,} s; expected at most {SAMPLES_MOST // RATE:,}: cut it into pieces"
        )
    mono = values[:, 0] if channels == 1 else values.mean(1)
    notes += _loudness(values, mono, bits)
    if rate != RATE:
        mono = resample(mono, rate, RATE)
    samples = np.clip(np.rint(mono), -32768, 32767).astype(np.int16)
    return Recording(samples, rate, channels, notes)


def _chunks(data: bytes, notes: list[str]) -> tuple[tuple[int, int, int, int], bytes]:
    """The format (code, channels, rate, bits) and the bytes of the samples."""
    kind, at = None, 12
    while at + 8 <= len(data):
        name, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        body = data[at + 8 : at + 8 + size]
        if name == b"fmt ":
            kind = _format(body)
        elif name == b"data":
            if kind is None:
                raise WavError("has samples before their format (no fmt chunk)")
            if len(body) < size and size != 0xFFFFFFFF:  # a program that wrote to a pipe does not know the size
                notes.append(f"cut short: {len(body):,} bytes of samples, {size:,} announced")
            return kind, body
        at += 8 + size + size % 2
    raise WavError("has no samples (no data chunk)" if kind else "has no format (no fmt chunk)")


def _format(body: bytes) -> tuple[int, int, int, int]:
    if len(body) < 16:
        raise WavError(f"has a format of {len(body)} bytes, expected 16 or more")
    code, channels, rate, _, align, bits = struct.unpack("<HHIIHH", body[:16])
    if code == EXTENSIBLE:
        if len(body) < 26:
            raise WavError(f"has an extensible format of {len(body)} bytes, expected 40")
        code = int.from_bytes(body[24:26], "little")
    supported = {PCM: (8, 16, 24, 32), FLOAT: (32, 64)}
    if code not in supported:
        raise WavError(
            f"is coded as {COMPRESSED.get(code, f'format {code}')}; expected PCM or float: convert it with "
            "ffmpeg -i FILE -ar 16000 -ac 1 out.wav"
        )
    if bits not in supported[code]:
        raise WavError(f"has {bits} bits per sample; expected {', '.join(map(str, supported[code]))}")
    if not 1 <= channels <= CHANNELS_MOST:
        raise WavError(f"has {channels} channels; expected 1 … {CHANNELS_MOST}")
    if not RATES[0] <= rate <= RATES[1]:
        raise WavError(f"has {rate:,} samples per second; expected {RATES[0]:,} … {RATES[1]:,}")
    if align != bits // 8 * channels:
        raise WavError(f"has {align} bytes per sample in all channels; expected {bits // 8 * channels}")
    return code, channels, rate, bits


def _decode(body: bytes, code: int, bits: int) -> Array:
    """Samples on the scale of int16, as float64."""
    if len(body) * 8 // bits > SAMPLES_MOST:
        raise WavError(f"has {len(body) * 8 // bits:,} samples; expected at most {SAMPLES_MOST:,}: cut it into pieces")
    if code == FLOAT:
        with np.errstate(invalid="ignore", over="ignore"):
            return np.frombuffer(body, f"<f{bits // 8}").astype(np.float64) * 32768
    if bits == 8:
        return (np.frombuffer(body, np.uint8).astype(np.float64) - 128) * 256
    if bits == 24:
        whole = np.zeros((len(body) // 3, 4), np.uint8)
        whole[:, 1:] = np.frombuffer(body, np.uint8).reshape(-1, 3)
        return whole.view("<i4")[:, 0].astype(np.float64) / 65536
    return np.frombuffer(body, f"<i{bits // 8}").astype(np.float64) / (1 << bits - 16)


def _loudness(values: Array, mono: Array, bits: int) -> list[str]:
    """What is odd about the samples [samples, channels] of so many bits, and about their mean."""
    if np.abs(mono).max() < 1:
        return ["silent"]
    if len(mono) > 1 and np.ptp(mono) < 1:
        return [f"silent: every sample is {round(mono[0])}"]
    highest = 32767 if bits > 8 else 127 * 256
    at_end = float(np.mean((values >= highest) | (values <= -32768), axis=0).max())  # of the worst channel
    return [f"clipped: {100 * at_end:.1f} % of the samples are at an end of the range"] if at_end > CLIPPED else []
