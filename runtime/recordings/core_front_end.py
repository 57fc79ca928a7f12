"""The front end of an image as the C core reads it: firmware/core/include/fb_front_end.h."""

from __future__ import annotations

import ctypes
import functools
from ctypes import POINTER, byref, c_bool, c_int, c_int8, c_int16, c_uint, c_uint8, c_uint16, c_uint32

import numpy as np

from flipbit.runtime.audio.config import AudioConfig
from flipbit.runtime.audio.front_end import _CAudioConfig
from flipbit.runtime.core.library import CModel, Opened, check, library, status_name
from flipbit.runtime.recordings.front_ends import SCALES_MOST, AudioInput, FrontEndInput, SignalInput

Array = np.ndarray
AUDIO, SIGNAL = 1, 2


class _CSignalConfig(ctypes.Structure):
    """fb_signal_config"""

    _fields_ = (
        ("per_channel", c_bool), ("shift", c_uint8), ("fraction", c_int8), ("multiplier", c_uint16 * SCALES_MOST),
        ("zero", c_int8 * SCALES_MOST),
    )  # fmt: skip


class _CFrontEnd(ctypes.Structure):
    """fb_front_end"""

    _fields_ = (
        ("kind", c_uint8), ("channels", c_uint8), ("length", c_uint16), ("hop", c_uint16), ("planes", c_bool),
        ("rate", c_uint32), ("audio", _CAudioConfig), ("signal", _CSignalConfig),
    )  # fmt: skip


@functools.cache
def _core() -> ctypes.CDLL:
    core = library()
    core.fb_front_end_of.restype, core.fb_front_end_of.argtypes = c_int, [POINTER(CModel), POINTER(_CFrontEnd)]
    core.fb_signal_value.restype, core.fb_signal_value.argtypes = c_int8, [POINTER(_CSignalConfig), c_uint, c_int16]
    return core


def _read(opened: Opened) -> _CFrontEnd | None:
    found = _CFrontEnd()
    status = _core().fb_front_end_of(byref(opened.model), byref(found))
    if status_name(status) == "FB_ERR_EMPTY":
        return None
    check(status, "the C core refuses the front end of this image")
    return found


def core_front_end(opened: Opened) -> FrontEndInput | None:
    """What the C core reads from an opened image; None if the image says nothing."""
    found = _read(opened)
    if found is None:
        return None
    if found.kind == AUDIO:
        audio = found.audio
        config = AudioConfig(*(getattr(audio, name) for name, _ in audio._fields_))
        return AudioInput(config, found.length, found.hop)
    used = found.channels if found.signal.per_channel else 1
    return SignalInput(
        found.rate / 1000, found.length, found.hop, found.channels, found.signal.fraction, found.signal.shift,
        tuple(found.signal.multiplier[:used]), tuple(found.signal.zero[:used]),
    )  # fmt: skip


def core_values(opened: Opened, samples: Array) -> Array:
    """int16 samples [time, channels] of a signal as the C core gives them to the net."""
    found = _read(opened)
    assert found is not None and found.kind == SIGNAL
    scale = _core().fb_signal_value
    rows = [[scale(byref(found.signal), i, int(value)) for i, value in enumerate(row)] for row in samples]
    return np.array(rows, np.int8)
