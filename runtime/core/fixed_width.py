"""Whole numbers on their way into C structures and frames: what does not fit is refused, not wrapped around.

ctypes stores 2^32 in a ``c_uint32`` as 0, and ``struct`` raises errors of its own without a name.
"""

from __future__ import annotations

import operator
from typing import Any

from flipbit.runtime.errors import ArgumentError


def within(name: str, value: Any, least: int, most: int) -> int:
    """``value`` as an int; :class:`ArgumentError` with the field's name unless it is one of ``least`` … ``most``."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentError(f"{name} is {value!r}; expected a whole number within {least} … {most}") from None
    if not least <= number <= most:
        raise ArgumentError(f"{name} is {number}; expected {least} … {most}")
    return number


def u8(name: str, value: Any) -> int:
    return within(name, value, 0, 0xFF)


def u16(name: str, value: Any) -> int:
    return within(name, value, 0, 0xFFFF)


def u32(name: str, value: Any) -> int:
    return within(name, value, 0, 0xFFFFFFFF)


def u64(name: str, value: Any) -> int:
    return within(name, value, 0, 0xFFFFFFFFFFFFFFFF)
