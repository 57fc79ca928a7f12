"""The audio front end of the C core, sample by sample, as a device runs it: firmware/core/include/fb_audio.h.

>>> front_end = FrontEnd()
>>> front_end.push(np.zeros(1000, np.int16)).shape  # 480 samples give the first row, 320 more the second
(2, 40)
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import POINTER, byref, c_int, c_size_t, c_uint8, c_uint16, c_void_p
from dataclasses import astuple

import numpy as np

from flipbit.runtime.audio.config import AudioConfig
from flipbit.runtime.audio.tables import mel_bands
from flipbit.runtime.core.library import aligned, check, library, status_name
from flipbit.runtime.errors import ArgumentError, CoreError

Array = np.ndarray


class _CAudioConfig(ctypes.Structure):
    """fb_audio_config"""

    _fields_ = (
        ("window", c_uint16), ("hop", c_uint16), ("fft", c_uint16), ("bands", c_uint16), ("low_hz", c_uint16),
        ("high_hz", c_uint16), ("floor", c_uint8), ("gain", c_uint8),
    )  # fmt: skip


class _CAudio(ctypes.Structure):
    """fb_audio"""

    _fields_ = (
        ("config", _CAudioConfig), ("filled", c_uint16), ("first_bin", c_uint16), ("spectrum", c_void_p),
        ("samples", c_void_p), ("hann", c_void_p), ("weights", c_void_p), ("starts", c_void_p),
    )  # fmt: skip


@functools.cache
def _core() -> ctypes.CDLL:
    core = library()
    config, audio = POINTER(_CAudioConfig), POINTER(_CAudio)
    signatures = {
        "fb_audio_check": (c_int, [config]),
        "fb_audio_size": (c_size_t, [config]),
        "fb_audio_open": (c_int, [audio, config, c_void_p, c_size_t]),
        "fb_audio_push": (c_int, [audio, c_void_p, c_size_t, POINTER(c_size_t), c_void_p]),
        "fb_audio_reset": (None, [audio]),
    }
    for name, (result, arguments) in signatures.items():
        try:
            function = getattr(core, name)
        except AttributeError:
            raise CoreError(f"the compiled C core has no {name}") from None
        function.restype, function.argtypes = result, arguments
    return core


def core_status(config: AudioConfig) -> str:
    """What the C core says of a configuration: ``FB_OK``, or the name of the reason why it refuses it."""
    return status_name(_core().fb_audio_check(byref(_CAudioConfig(*astuple(config)))))


class FrontEnd:
    """A stream of samples on its way to rows of features, in memory of its own."""

    def __init__(self, config: AudioConfig | None = None):
        self.config = config or AudioConfig()
        mel_bands(self.config)  # refuses what the core refuses, and says what to do
        packed = _CAudioConfig(*astuple(self.config))
        self.size = int(_core().fb_audio_size(byref(packed)))  # bytes of memory on a device
        self._memory, self._audio = aligned(self.size), _CAudio()
        status = _core().fb_audio_open(byref(self._audio), byref(packed), self._memory.ctypes.data, self.size)
        check(status, f"the C core refuses {self.config}")

    def push(self, samples: Array) -> Array:
        """The rows [rows, bands] that more int16 samples complete; none, one or many."""
        if samples.dtype != np.int16 or samples.ndim != 1:
            raise ArgumentError(f"samples are {samples.dtype} of shape {samples.shape}; expected int16, [samples]")
        samples = np.ascontiguousarray(samples)
        rows = self.config.rows(self._audio.filled + samples.size)
        found = np.empty((rows, self.config.bands), np.int8)
        rest = np.empty(self.config.bands, np.int8)  # where a row would go that never comes
        at, used = 0, c_size_t()
        for row in [*found, rest]:
            status = _core().fb_audio_push(
                byref(self._audio), samples[at:].ctypes.data, samples.size - at, byref(used), row.ctypes.data
            )
            if row is not rest:
                check(status, "the C core refuses samples")
            at += used.value
        return found

    def reset(self) -> None:
        """Forget the samples that wait for their row: the next ones are of another recording."""
        _core().fb_audio_reset(byref(self._audio))
