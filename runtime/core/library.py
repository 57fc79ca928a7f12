"""The C core (firmware/core/include/flipbit.h), loaded with ctypes. Private to the runtime: users want
:class:`flipbit.runtime.Model`.

ctypes lets go of Python's lock while C runs, so threads run nets at the same time, each with an arena of its own.
"""

from __future__ import annotations

import ctypes
import functools
import os
from ctypes import POINTER, byref, c_char_p, c_int, c_int8, c_size_t, c_uint, c_uint16, c_uint32, c_void_p
from pathlib import Path

import numpy as np

from flipbit.runtime.core.fixed_width import u32, within
from flipbit.runtime.errors import CoreError, error_of

ALIGN = 64  # of images and arenas: more than the core asks for, and what vector loads like
MEMORY_MOST = 2 ** (8 * ctypes.sizeof(c_size_t)) - 1
ENVIRONMENT = "FLIPBIT_CORE"  # another build of the core: with sanitizers, of another variant


class CModel(ctypes.Structure):
    """fb_model"""

    _fields_ = (
        ("image", c_void_p), ("size", c_uint32), ("crc", c_uint32), ("tensors", c_uint16), ("ops", c_uint16),
        ("input", c_uint16), ("output", c_uint16),
    )  # fmt: skip


class CLayerPlan(ctypes.Structure):
    """fb_layer_plan"""

    _fields_ = (("kernel", c_char_p), ("live", c_uint32), ("scratch", c_uint32))


BEFORE = ctypes.CFUNCTYPE(None, c_void_p, c_uint)
AFTER = ctypes.CFUNCTYPE(None, c_void_p, c_uint, c_uint, POINTER(c_int8), c_uint32)


class CHooks(ctypes.Structure):
    """fb_hooks"""

    _fields_ = (("context", c_void_p), ("before", BEFORE), ("after", AFTER))


@functools.cache
def library() -> ctypes.CDLL:
    """The compiled core, with the types of what is called in it."""
    try:
        core = ctypes.CDLL(os.environ.get(ENVIRONMENT) or str(Path(__file__).with_name("_core.so")))
    except OSError as error:
        raise CoreError(f"the compiled C core cannot be loaded ({error})") from None
    signatures = {
        "fb_status_name": (c_char_p, [c_int]),
        "fb_model_open": (c_int, [POINTER(CModel), c_void_p, c_size_t]),
        "fb_arena_size": (c_size_t, [POINTER(CModel)]),
        "fb_arena_least": (c_size_t, [POINTER(CModel)]),
        "fb_plan_layer": (c_int, [POINTER(CModel), c_size_t, c_uint, POINTER(CLayerPlan)]),
        "fb_invoke": (c_int, [POINTER(CModel), c_void_p, c_size_t, c_void_p, c_void_p, POINTER(CHooks)]),
        "fb_argmax": (c_uint, [c_void_p, c_uint]),
        "fb_crc32": (c_uint32, [c_uint32, c_void_p, c_size_t]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(core, name)
        function.restype, function.argtypes = result, arguments
    return core


def status_name(status: int) -> str:
    """``FB_ERR_CRC`` and so on."""
    return library().fb_status_name(status).decode()


def check(status: int, message: str) -> None:
    """Raise the exception of a status that is not FB_OK."""
    if status:
        raise error_of(status_name(status), message)


def aligned(size: int) -> np.ndarray:
    """``size`` bytes of memory that start at a multiple of ALIGN."""
    try:
        block: np.ndarray = np.empty(size + ALIGN, np.uint8)
    except ValueError:  # more than any machine can address
        raise MemoryError(f"an arena of {size:,} bytes") from None
    start = -block.ctypes.data % ALIGN
    return block[start : start + size]


class Opened:
    """An image that the C core has checked, in memory of its own; what the C functions say of it."""

    def __init__(self, data: bytes):
        self._memory = aligned(len(data))  # the C core executes the image where it lies: keep it
        self._memory[:] = np.frombuffer(data, np.uint8)
        self.model = CModel()
        status = library().fb_model_open(byref(self.model), self._memory.ctypes.data, len(data))
        check(status, "the C core refuses this image")

    @property
    def arena_size(self) -> int:
        return int(library().fb_arena_size(byref(self.model)))

    @property
    def arena_least(self) -> int:
        return int(library().fb_arena_least(byref(self.model)))

    def plan(self, arena_size: int, op: int) -> CLayerPlan:
        found = CLayerPlan()
        status = library().fb_plan_layer(
            byref(self.model), within("arena", arena_size, 0, MEMORY_MOST), u32("operation", op), byref(found)
        )
        check(status, f"operation {op} does not fit an arena of {arena_size:,} bytes")
        return found

    def invoke(self, arena: np.ndarray, x: np.ndarray, y: np.ndarray, hooks: CHooks | None = None) -> None:
        """Run the net once: int8 values ``x`` as they lie in memory to ``y``."""
        status = library().fb_invoke(
            byref(self.model),
            arena.ctypes.data,
            arena.size,
            x.ctypes.data,
            y.ctypes.data,
            None if hooks is None else byref(hooks),
        )
        check(status, f"cannot run in an arena of {arena.size:,} bytes")
