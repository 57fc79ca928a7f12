"""What the audio front end computes: the settings of ``fb_audio_config`` (firmware/core/include/fb_audio.h)."""

from __future__ import annotations

from dataclasses import dataclass, fields

from flipbit.runtime.core.fixed_width import within
from flipbit.runtime.errors import ArgumentError

RATE = 16_000  # samples per second
LIMITS = {
    "window": (32, 1024), "hop": (1, 1024), "fft": (64, 1024), "bands": (1, 64), "low_hz": (0, 7999),
    "high_hz": (1, 8000), "floor": (0, 48), "gain": (1, 255),
}  # fmt: skip


@dataclass(frozen=True)
class AudioConfig:
    """A row of ``bands`` features for every ``hop`` samples; :class:`ArgumentError` names what is out of its limits.

    The defaults are for spoken keywords: 49 rows of 40 features per second-long clip.
    """

    window: int = 480  # samples under the Hann window: 30 ms
    hop: int = 320  # samples from one row to the next: 20 ms
    fft: int = 512  # points; a power of two, at least ``window``
    bands: int = 40
    low_hz: int = 20
    high_hz: int = 7600
    floor: int = 8  # log2 of the band energy that becomes the lowest feature, -128
    gain: int = 128  # features per doubling of energy, in sixteenths: 8

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(
                self, field.name, within(f"audio {field.name}", getattr(self, field.name), *LIMITS[field.name])
            )
        if self.fft & (self.fft - 1) or self.fft < self.window:
            raise ArgumentError(
                f"audio fft is {self.fft}; expected a power of two of at least the window's {self.window} samples"
            )
        if self.hop > self.window:
            raise ArgumentError(f"audio hop is {self.hop}; expected at most the window's {self.window} samples")
        if self.low_hz >= self.high_hz:
            raise ArgumentError(f"audio low_hz is {self.low_hz}; expected less than high_hz, {self.high_hz}")

    def rows(self, samples: int) -> int:
        """Rows that a recording of so many samples gives."""
        return 0 if samples < self.window else 1 + (samples - self.window) // self.hop
