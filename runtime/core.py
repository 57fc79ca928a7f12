"""The C core, loaded with ctypes. Private to the runtime: users want :class:`flipbit.runtime.Model`."""

from __future__ import annotations

import ctypes
import functools
from ctypes import POINTER, c_char_p, c_int8, c_size_t, c_uint16, c_uint32, c_void_p
from pathlib import Path

LIBRARY = Path(__file__).with_name("_core.so")


class CModel(ctypes.Structure):
    _fields_ = (
        ("image", c_void_p), ("size", c_uint32), ("crc", c_uint32), ("tensors", c_uint16), ("ops", c_uint16),
        ("input", c_uint16), ("output", c_uint16),
    )  # fmt: skip


class CLayerPlan(ctypes.Structure):
    _fields_ = (("kernel", c_char_p), ("live", c_uint32), ("scratch", c_uint32))


BEFORE = ctypes.CFUNCTYPE(None, c_void_p, ctypes.c_uint)
AFTER = ctypes.CFUNCTYPE(None, c_void_p, ctypes.c_uint, ctypes.c_uint, POINTER(c_int8), c_uint32)


class CHooks(ctypes.Structure):
    _fields_ = (("context", c_void_p), ("before", BEFORE), ("after", AFTER))


@functools.cache
def library() -> ctypes.CDLL:
    """The compiled core, with the types of what is called in it."""
    if not LIBRARY.is_file():
        raise ImportError(f"{LIBRARY} is missing: install flipbit (pip install -e .), which compiles the C core")
    core = ctypes.CDLL(str(LIBRARY))
    signatures = {
        "fb_status_name": (c_char_p, [ctypes.c_int]),
        "fb_model_open": (ctypes.c_int, [POINTER(CModel), c_void_p, c_size_t]),
        "fb_arena_size": (c_size_t, [POINTER(CModel)]),
        "fb_arena_least": (c_size_t, [POINTER(CModel)]),
        "fb_plan_layer": (ctypes.c_int, [POINTER(CModel), c_size_t, ctypes.c_uint, POINTER(CLayerPlan)]),
        "fb_invoke": (ctypes.c_int, [POINTER(CModel), c_void_p, c_size_t, c_void_p, c_void_p, POINTER(CHooks)]),
        "fb_crc32": (c_uint32, [c_uint32, c_void_p, c_size_t]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(core, name)
        function.restype, function.argtypes = result, arguments
    return core


def status_name(status: int) -> str:
    return library().fb_status_name(status).decode()
