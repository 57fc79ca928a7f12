"""How recordings become a net's input: what ``run.json`` and an image (docs/fbit-format.md) say of it.

| class | recordings | one input of the net |
|---|---|---|
| :class:`AudioInput` | sound at 16 kHz | ``length`` rows of ``audio.bands`` features, int8 |
| :class:`SignalInput` | samples of sensors, some channels | ``length`` samples of ``channels`` values, int8 |

The int8 values are those of the input tensor, unchanged. Training keeps them as pixels, value + 128.

>>> front_end_of_json(AudioInput().to_json()) == AudioInput()
True
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar

import numpy as np

from flipbit.runtime.audio.config import RATE, AudioConfig
from flipbit.runtime.core.fixed_width import within
from flipbit.runtime.errors import ArgumentError, InputError

Array = np.ndarray
SCALES_MOST = 6  # channels that can have a scale of their own
SHIFTS, FRACTIONS, MULTIPLIERS = (1, 30), (-16, 30), (1, 32767)
RATE_LEAST, RATE_MOST = 0.001, (2**32 - 1) / 1000  # Hz; an image holds millihertz


@dataclass(frozen=True)
class AudioInput:
    """``length`` rows of features; ``hop`` rows lie between one answer of the net and the next."""

    kind: ClassVar[str] = "audio"
    audio: AudioConfig = field(default_factory=AudioConfig)
    length: int = 49  # rows: one second with the default configuration
    hop: int = 5  # rows: 100 ms

    def __post_init__(self) -> None:
        for name in ("length", "hop"):
            object.__setattr__(self, name, within(f"front end {name}", getattr(self, name), 1, 0xFFFF))

    @property
    def rate(self) -> float:
        """Samples per second."""
        return RATE

    @property
    def channels(self) -> int:
        return 1

    @property
    def window(self) -> int:
        """Samples of one input."""
        return self.audio.window + (self.length - 1) * self.audio.hop

    @property
    def step(self) -> int:
        """Samples from one input to the next."""
        return self.hop * self.audio.hop

    def __str__(self) -> str:
        a = self.audio
        return (
            f"sound at {RATE // 1000} kHz: {self.length} rows of {a.bands} log mel bands within {a.low_hz} … "
            f"{a.high_hz} Hz, {1000 * a.window / RATE:g} ms every {1000 * a.hop / RATE:g} ms; an answer every "
            f"{self.step / RATE:g} s"
        )

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether a net that takes height × width × channels takes these inputs."""
        return tuple(shape) == (self.length, self.audio.bands, 1)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "length": self.length, "hop": self.hop, **_renamed(asdict(self.audio))}


@dataclass(frozen=True)
class SignalInput:
    """``length`` samples of ``channels`` values; ``hop`` samples lie between one answer of the net and the next.

    A measured value v becomes an int16 sample, round(v · 2^fraction), and this the net's int8,
    ``((sample · multiplier + 2^shift / 2) >> shift) + zero``, each saturated. One multiplier and zero serve all
    channels, or each channel has its own.
    """

    kind: ClassVar[str] = "signal"
    rate: float  # samples per second, in steps of 1/1000
    length: int
    hop: int
    channels: int
    fraction: int
    shift: int
    multipliers: tuple[int, ...]
    zeros: tuple[int, ...]

    def __post_init__(self) -> None:
        try:
            rate = round(float(self.rate) * 1000) / 1000
        except (TypeError, ValueError, OverflowError):
            rate = -1.0
        if not RATE_LEAST <= rate <= RATE_MOST:
            raise ArgumentError(f"front end rate is {self.rate!r}; expected {RATE_LEAST} … {RATE_MOST:.0f} Hz")
        set_field = object.__setattr__
        set_field(self, "rate", rate)
        limits = {"length": (1, 0xFFFF), "hop": (1, 0xFFFF), "channels": (1, 255), "fraction": FRACTIONS}
        for name, (least, most) in {**limits, "shift": SHIFTS}.items():
            set_field(self, name, within(f"front end {name}", getattr(self, name), least, most))
        for name, (least, most) in {"multipliers": MULTIPLIERS, "zeros": (-128, 127)}.items():
            given = tuple(within(f"front end {name}", value, least, most) for value in getattr(self, name))
            set_field(self, name, given)
        if len(self.multipliers) != len(self.zeros) or len(self.multipliers) not in (1, self.channels):
            raise ArgumentError(
                f"front end has {len(self.multipliers)} multipliers and {len(self.zeros)} zeros for {self.channels} "
                "channels; expected one of each, or one per channel"
            )
        if len(self.multipliers) > SCALES_MOST:
            raise ArgumentError(f"front end has {self.channels} channels; at most {SCALES_MOST} have their own scale")

    @classmethod
    def scaled(
        cls, rate: float, length: int, hop: int, lowest: Sequence[float], highest: Sequence[float], channels: int = 0
    ) -> SignalInput:
        """With scales that bring values of ``lowest`` … ``highest`` to −127 … 127.

        One number each for all channels (``channels`` says how many), or one per channel.
        """
        low, high = np.array(lowest, np.float64).reshape(-1), np.array(highest, np.float64).reshape(-1)
        if not (low.shape == high.shape and np.isfinite([low, high]).all() and (low < high).all()):
            raise ArgumentError(f"front end range is {lowest} … {highest}; expected finite numbers, lowest first")
        largest = float(np.abs([low, high]).max())
        fraction = int(np.clip(np.floor(np.log2(32767 / largest)), *FRACTIONS))
        gains = 254 / ((high - low) * 2.0**fraction)  # int8 steps per step of a sample
        shift = int(np.clip(np.floor(np.log2(MULTIPLIERS[1] / gains.max())), *SHIFTS))
        multipliers = np.clip(np.rint(gains * 2.0**shift), *MULTIPLIERS).astype(int)
        zeros = np.clip(np.rint(-(low + high) / 2 * 2.0**fraction * multipliers / 2.0**shift), -128, 127).astype(int)
        return cls(
            rate, length, hop, channels or len(low), fraction, shift, tuple(multipliers.tolist()), tuple(zeros.tolist())
        )

    @property
    def per_channel(self) -> bool:
        return len(self.multipliers) > 1

    @property
    def window(self) -> int:
        """Samples of one input."""
        return self.length

    @property
    def step(self) -> int:
        """Samples from one input to the next."""
        return self.hop

    def __str__(self) -> str:
        scales = "a scale each" if self.per_channel else "one scale"
        return (
            f"{self.channels} channels at {self.rate:g} Hz ({scales}): windows of {self.length} samples; an answer "
            f"every {self.hop / self.rate:g} s"
        )

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether a net that takes height × width × channels takes these inputs: as planes or sample by sample."""
        forms = ((self.length, 1, self.channels), (1, self.length, self.channels), (self.length, self.channels, 1))
        return tuple(shape) in forms

    def samples(self, values: Array) -> Array:
        """Measured values [time, channels] as int16 samples."""
        return np.clip(np.rint(np.asarray(values, np.float64) * 2.0**self.fraction), -32768, 32767).astype(np.int16)

    def int8(self, samples: Array) -> Array:
        """int16 samples [time, channels] as the net takes them."""
        return np.clip(self._wide(samples), -128, 127).astype(np.int8)

    def outside(self, samples: Array) -> float:
        """The share of int16 samples that the net gets as the end of its range, of the channel where it is largest."""
        wide = self._wide(samples)
        cut = (wide < -128) | (wide > 127) | (samples == -32768) | (samples == 32767)
        return float(cut.mean(0).max()) if len(cut) else 0.0

    def _wide(self, samples: Array) -> Array:
        product = samples.astype(np.int64) * np.array(self.multipliers, np.int64) + (1 << self.shift >> 1)
        return (product >> self.shift) + np.array(self.zeros, np.int64)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, **{k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}}


FrontEndInput = AudioInput | SignalInput

# run.json has one level, and `window` and `hop` of features would be mistaken for those of inputs.
_AUDIO_NAMES = {"window": "row_window", "hop": "row_hop"}


def _renamed(audio: dict[str, Any]) -> dict[str, Any]:
    return {_AUDIO_NAMES.get(name, name): value for name, value in audio.items()}


def front_end_of_json(found: Any) -> FrontEndInput:
    """What :meth:`AudioInput.to_json` or :meth:`SignalInput.to_json` wrote; :class:`InputError` for anything else."""
    if not isinstance(found, dict) or found.get("kind") not in (AudioInput.kind, SignalInput.kind):
        raise InputError("the front end has no kind; expected audio or signal")
    given = {name: value for name, value in found.items() if name != "kind"}
    audio = found["kind"] == AudioInput.kind
    config_names = {_AUDIO_NAMES.get(f.name, f.name): f.name for f in fields(AudioConfig)}
    known = {"length", "hop", *config_names} if audio else {f.name for f in fields(SignalInput)}
    if set(given) != known:
        odd = ", ".join(sorted(set(given) ^ known))
        raise InputError(f"the front end ({found['kind']}) lacks or does not know: {odd}")
    try:
        if audio:
            config = AudioConfig(**{field_name: given[name] for name, field_name in config_names.items()})
            return AudioInput(config, given["length"], given["hop"])
        return SignalInput(**{**given, "multipliers": tuple(given["multipliers"]), "zeros": tuple(given["zeros"])})
    except (ArgumentError, TypeError) as error:
        raise InputError(f"the front end ({found['kind']}): {error}") from None
