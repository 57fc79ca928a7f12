"""A net that listens to a stream of samples: the C core's ``fb_listen`` on this machine, as a device runs it.

::

    listener = Listener(Model("kws.fbit"))
    for detection in listener.push(samples):
        print(detection.samples / 16000, detection.label)

docs/listening.md says how it decides. A board that is sent the same samples detects the same, bit for bit
(``flipbit device listen``).
"""

from __future__ import annotations

import ctypes
import functools
import zlib
from ctypes import POINTER, byref, c_bool, c_int, c_int16, c_size_t, c_uint16, c_uint32, c_void_p
from dataclasses import astuple, dataclass, fields

import numpy as np

from flipbit.runtime.audio.front_end import _CAudio
from flipbit.runtime.core.fixed_width import u32, within
from flipbit.runtime.core.library import CModel, aligned, check, library
from flipbit.runtime.core.model import Model
from flipbit.runtime.errors import ArgumentError, InputError
from flipbit.runtime.recordings.core_front_end import _CFrontEnd
from flipbit.runtime.recordings.front_ends import FrontEndInput

Array = np.ndarray
LIMITS = {"stride": (0, 0xFFFF), "threshold": (0, 255), "average": (1, 16), "refractory": (0, 0xFFFF)}
BACKGROUND = frozenset({"silence", "unknown", "noise", "background", "nothing", "other"})
IGNORABLE = 32  # classes that a configuration can ignore: the first ones
MARGIN = 2.5  # nats: 12 times as likely as the second best class


@dataclass(frozen=True)
class ListenConfig:
    """``fb_listen_config`` (firmware/core/include/fb_listen.h); the fields are explained there."""

    stride: int = 0  # rows or samples between runs of the net; 0: what the image says
    threshold: int = 16  # of the margin, in steps of the output
    average: int = 3  # windows
    refractory: int = 8  # windows
    ignored: int = 0  # bit i: class i is never detected

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "ignored":
                checked = u32("ignored classes", value)
            else:
                checked = within(f"listening {field.name}", value, *LIMITS[field.name])
            object.__setattr__(self, field.name, checked)

    @classmethod
    def for_model(
        cls,
        model: Model,
        margin: float = MARGIN,
        average: int | None = None,
        refractory: float | None = None,
        stride: int = 0,
        ignored: tuple[str, ...] | None = None,
    ) -> ListenConfig:
        """From what people know: a margin in nats, seconds, names of classes.

        By default scores of a third of a window are averaged, a detection is followed by a window of rest, and classes
        called silence, unknown and so on are ignored.
        """
        front_end = front_end_of(model)
        step = stride or front_end.hop
        span = front_end.length / step  # windows that overlap with one
        scale = model.image.tensors[model.image.output].scale
        if not 0 <= margin < 1e6:
            raise ArgumentError(f"--threshold {margin}: expected 0 or more, in nats (the default is {MARGIN:g})")
        if refractory is not None and not 0 <= refractory < 1e6:
            raise ArgumentError(f"--refractory {refractory}: expected seconds, 0 or more")
        seconds = step * (front_end.step / front_end.hop) / front_end.rate  # from one window to the next
        names = model.labels
        if ignored is None:
            chosen = [i for i, name in enumerate(names) if name.strip("_").lower() in BACKGROUND]
        else:
            chosen = [_class_number(name, names) for name in ignored]
        if any(i >= IGNORABLE for i in chosen):
            raise ArgumentError(f"only the first {IGNORABLE} classes can be ignored")
        return cls(
            stride,
            min(255, round(margin / scale)),
            average if average is not None else int(np.clip(round(span / 3), 1, 16)),
            round(refractory / seconds) if refractory is not None else min(0xFFFF, round(span)),
            sum(1 << i for i in set(chosen)),
        )


def _class_number(name: str, names: list[str]) -> int:
    if name not in names:
        raise ArgumentError(f"--ignore {name}: the net's classes are {', '.join(names) or 'not named'}")
    return names.index(name)


def front_end_of(model: Model) -> FrontEndInput:
    """How recordings become the input of a net; :class:`InputError` for a net whose image does not say."""
    found = model.image.front_end
    if found is None:
        raise InputError(
            f"{model.path or 'the net'} does not say how recordings become its input: it was trained on pictures or "
            "arrays; use a net trained on recordings (its run.json describes the front end)"
        )
    return found


@dataclass(frozen=True)
class Detection:
    """``fb_detection``, and the samples of the recording up to the end of its window."""

    window: int  # from 0
    label: int
    margin: int  # of the mean score over the second best, in steps of the output
    samples: int

    @classmethod
    def of(
        cls, front_end: FrontEndInput, stride: int, window: int, label: int, margin: int, start: int = 0
    ) -> Detection:
        """In a stream that began at the sample ``start``."""
        return cls(window, label, margin, start + window_end(front_end, stride, window))


def window_end(front_end: FrontEndInput, stride: int, window: int) -> int:
    """Samples up to the end of a window."""
    return front_end.window + window * (front_end.step // front_end.hop) * stride


class _CListenConfig(ctypes.Structure):
    """fb_listen_config"""

    _fields_ = (
        ("stride", c_uint16), ("threshold", c_uint16), ("average", c_uint16), ("refractory", c_uint16),
        ("ignored", c_uint32),
    )  # fmt: skip


class _CDetection(ctypes.Structure):
    """fb_detection"""

    _fields_ = (("window", c_uint32), ("label", c_uint16), ("margin", c_int16))


class _CListen(ctypes.Structure):
    """fb_listen"""

    _fields_ = (
        ("config", _CListenConfig), ("front_end", _CFrontEnd), ("audio", _CAudio), ("input", c_void_p),
        ("scores", c_void_p), ("row", c_void_p), ("classes", c_uint16), ("filled", c_uint16), ("channel", c_uint16),
        ("kept", c_uint16), ("next", c_uint16), ("quiet", c_uint16), ("skip", c_uint32), ("windows", c_uint32),
    )  # fmt: skip


@functools.cache
def _core() -> ctypes.CDLL:
    core = library()
    listen, config = POINTER(_CListen), POINTER(_CListenConfig)
    signatures = {
        "fb_listen_size": (c_size_t, [POINTER(CModel), config]),
        "fb_listen_open": (c_int, [listen, POINTER(CModel), config, c_void_p, c_void_p, c_size_t]),
        "fb_listen_push": (c_int, [listen, c_void_p, c_size_t, POINTER(c_size_t)]),
        "fb_listen_decide": (c_bool, [listen, c_void_p, POINTER(_CDetection)]),
        "fb_listen_reset": (None, [listen]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(core, name)
        function.restype, function.argtypes = result, arguments
    return core


class Listener:
    """A stream of values on its way to detections. ``crc`` is that of all outputs, as a board tells it."""

    def __init__(self, model: Model, config: ListenConfig | None = None):
        self.front_end = front_end_of(model)
        self.model, self.config = model, config or ListenConfig.for_model(model)
        self.stride = self.config.stride or self.front_end.hop
        packed = _CListenConfig(*astuple(self.config))
        opened = model._core.model
        self.size = int(_core().fb_listen_size(byref(opened), byref(packed)))  # bytes of memory on a device
        self._memory, self._listen = aligned(max(1, self.size)), _CListen()
        tensor = model.image.tensors[model.image.input]
        self._input, self._arena = aligned(tensor.size).view(np.int8), aligned(model.arena)
        status = _core().fb_listen_open(
            byref(self._listen), byref(opened), byref(packed), self._input.ctypes.data, self._memory.ctypes.data,
            self.size,
        )  # fmt: skip
        check(status, f"{model.path or 'this net'} cannot listen")
        self.crc = 0
        self.scores: list[Array] = []  # int8 outputs of all windows so far

    @property
    def windows(self) -> int:
        return int(self._listen.windows)

    def push(self, values: Array) -> list[Detection]:
        """What more int16 samples, [samples] or [samples, channels], bring."""
        if values.dtype != np.int16:
            raise ArgumentError(f"samples are {values.dtype}; expected int16")
        flat = np.ascontiguousarray(values).reshape(-1)
        found, at, used, detection = [], 0, c_size_t(), _CDetection()
        while at < flat.size:
            status = _core().fb_listen_push(byref(self._listen), flat[at:].ctypes.data, flat.size - at, byref(used))
            at += used.value
            if status:  # FB_MORE
                break
            output = np.empty(self.model.image.tensors[self.model.image.output].size, np.int8)
            self.model._core.invoke(self._arena, self._input, output)
            self.crc = zlib.crc32(output.tobytes(), self.crc)
            self.scores.append(output)
            if _core().fb_listen_decide(byref(self._listen), output.ctypes.data, byref(detection)):
                found.append(
                    Detection.of(self.front_end, self.stride, detection.window, detection.label, detection.margin)
                )
        return found

    def reset(self) -> None:
        """Another recording."""
        _core().fb_listen_reset(byref(self._listen))
        self.crc, self.scores = 0, []
