"""What a device keeps in flash, and a simulated flash to keep it in: the C of firmware/core/store/ on a host.

>>> flash = SimulatedFlash(size=256 * 1024, page=4096)
>>> store = Store(flash)
>>> store.save(b"weights", CHECKPOINT, owner=0x1234)
>>> flash.cut(3)  # power fails in the fourth operation from now
>>> store.save(b"better weights", CHECKPOINT, owner=0x1234)
Traceback (most recent call last):
...
flipbit.runtime.core.store.FlashLostPower: power failed while saving 14 bytes
>>> flash.power_on()
>>> Store(flash).read()
b'weights'

The design and the bytes are in docs/store.md.
"""

from __future__ import annotations

import ctypes
import enum
import functools
from collections.abc import Callable
from ctypes import POINTER, byref, c_bool, c_char_p, c_int, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass

from flipbit.runtime.core.fixed_width import u8, u32, u64
from flipbit.runtime.core.library import check, library
from flipbit.runtime.errors import ArgumentError, CoreError

IMAGE = 1  # a .fbit image, whole; its owner is its own CRC
CHECKPOINT = 2  # state of learning; its owner is the CRC of the image it started from
DEVICE = 3  # all that a device keeps; its owner is that of the checkpoint in it


class FlashLostPower(Exception):
    """The simulated power failed: what was in RAM is gone, flash works again after ``power_on``."""


class Cut(enum.IntEnum):
    """How the operation in which power fails is left (``fb_cut``)."""

    NOTHING = 0  # as if it had not begun
    DONE = 1  # complete, but nobody was told
    SOME = 2  # some bits changed, others not
    WEAK = 3  # cells in between, which may read differently each time
    UNREADABLE = 4  # reading fails until erased: flash with ECC


class Worn(enum.IntEnum):
    """How a worn page behaves (``fb_worn``)."""

    NOT = 0
    ERASE = 1  # a bit stays 0 when erased
    PROGRAM = 2  # bits stay 1 when programmed
    SAYS_SO = 3  # operations report failure


class _CCounts(ctypes.Structure):
    """fb_flash_counts"""

    _fields_ = (
        ("operations", c_uint64), ("programmed", c_uint64), ("erased", c_uint64), ("read", c_uint64),
        ("reads", c_uint64),
        ("violations", c_uint32), ("worst_erase", c_uint32), ("off", c_uint32),
    )  # fmt: skip


class _CRecord(ctypes.Structure):
    """fb_record"""

    _fields_ = (
        ("sequence", c_uint32), ("length", c_uint32), ("kind", c_uint32), ("owner", c_uint32), ("data", c_uint32),
    )  # fmt: skip


class _CStore(ctypes.Structure):
    """fb_store"""

    _fields_ = (
        ("flash", c_void_p), ("slot_size", c_uint32), ("capacity", c_uint32), ("current", _CRecord),
        ("damaged", c_uint32), ("step", c_uint32), ("last", c_uint32), ("head", c_uint32), ("next", _CRecord),
        ("filled", c_uint32), ("crc", c_uint32), ("piece", c_uint8 * 32),
    )  # fmt: skip


class _CFlash(ctypes.Structure):
    """fb_flash, down to what is read here"""

    _fields_ = (
        ("context", c_void_p), ("size", c_uint32), ("page", c_uint32), ("unit", c_uint16), ("slots", c_uint8),
        ("reprogram", c_uint8),
    )  # fmt: skip


_WATCH = ctypes.CFUNCTYPE(c_bool, c_void_p, c_bool, c_uint32)


@functools.cache
def _core() -> ctypes.CDLL:
    core = library()
    store, sim = POINTER(_CStore), c_void_p
    signatures = {
        "fb_store_open": (c_int, [store, POINTER(_CFlash)]),
        "fb_store_check": (c_int, [store, c_uint32, c_uint32]),
        "fb_store_read": (c_int, [store, c_uint32, c_void_p, c_uint32]),
        "fb_store_begin": (c_int, [store, c_uint32, c_uint32, c_uint32]),
        "fb_store_write": (c_int, [store, c_char_p, c_uint32]),
        "fb_store_commit": (c_int, [store]),
        "fb_store_abort": (None, [store]),
        "fb_store_save": (c_int, [store, c_char_p, c_uint32, c_uint32, c_uint32]),
        "fb_store_wear": (c_uint32, [store, c_uint32]),
        "fb_flash_sim_new": (c_void_p, [c_uint32, c_uint32, c_uint32, c_uint32, c_bool, c_uint64]),
        "fb_flash_sim_free": (None, [sim]),
        "fb_flash_sim_port": (POINTER(_CFlash), [sim]),
        "fb_flash_sim_cut": (None, [sim, c_uint64, c_int]),
        "fb_flash_sim_watch": (None, [sim, _WATCH, c_void_p, c_int]),
        "fb_flash_sim_on": (None, [sim]),
        "fb_flash_sim_wear": (None, [sim, c_uint32, c_int]),
        "fb_flash_sim_endurance": (None, [sim, c_uint32, c_int]),
        "fb_flash_sim_rot": (None, [sim, c_uint32, c_uint8]),
        "fb_flash_sim_memory": (c_void_p, [sim]),
        "fb_flash_sim_erases": (c_uint32, [sim, c_uint32]),
        "fb_flash_sim_counts": (None, [sim, POINTER(_CCounts)]),
        "fb_flash_sim_violation": (c_char_p, [sim]),
    }
    for name, (result, arguments) in signatures.items():
        try:
            function = getattr(core, name)
        except AttributeError:
            raise CoreError(f"the compiled C core has no {name}") from None
        function.restype, function.argtypes = result, arguments
    return core


@dataclass(frozen=True)
class FlashCounts:
    """What a simulated flash has been through."""

    operations: int  # units programmed and pages erased
    programmed: int  # units
    erased: int  # pages
    read: int  # bytes
    worst_erase: int  # erases of the page erased most


class SimulatedFlash:
    """Flash as real flash is, and worse: firmware/sim/fb_flash_sim.h.

    Erasing sets a page of ``page`` bytes to ones, programming clears bits, ``unit`` bytes at a time; power may fail in
    any of these operations. ``slots``, ``reprogram`` are the store's: see ``fb_flash`` in fb_store.h. The first content
    is random, drawn from ``seed`` as is what half-done operations leave.
    """

    def __init__(self, size: int, page: int, unit: int = 4, slots: int = 2, reprogram: bool = True, seed: int = 1):
        self.size, self.page, self.unit, self.slots = size, page, unit, slots
        limits = 0 < unit <= 32 and 0 < page < 2**32 and 0 < size < 2**32 and 2 <= slots <= 32
        drawn = u64("seed", seed)
        self._sim = _core().fb_flash_sim_new(size, page, unit, slots, reprogram, drawn) if limits else None
        if not self._sim:
            raise ArgumentError(
                f"no flash of {size} bytes in pages of {page}, units of {unit} and {slots} slots: expected a size of"
                " whole pages, pages of whole units, units of 1 to 32 bytes and 2 to 32 slots"
            )
        self.port = _core().fb_flash_sim_port(self._sim)
        self._watch = _WATCH()  # the C side keeps a pointer to it: so must we

    def __del__(self) -> None:
        if getattr(self, "_sim", None):
            _core().fb_flash_sim_free(self._sim)

    def cut(self, after: int, outcome: Cut = Cut.SOME) -> None:
        """Let power fail in the operation after ``after`` more of them."""
        _core().fb_flash_sim_cut(self._sim, u64("operations before the cut", after), Cut(outcome))

    def watch(self, fails: Callable[[bool, int], bool] | None, outcome: Cut = Cut.SOME) -> None:
        """Ask ``fails(erase, offset)`` before each operation (an erase, or else a unit programmed) whether power fails
        in it; None: ask nobody. A budget of energy is spent so."""
        self._watch = _WATCH(lambda _, erase, offset: bool(fails(erase, offset))) if fails else _WATCH()
        _core().fb_flash_sim_watch(self._sim, self._watch, None, outcome)

    def power_on(self) -> None:
        """Power returns; a cut that was ordered and has not come is forgotten."""
        _core().fb_flash_sim_on(self._sim)

    def wear_out(self, page: int, how: Worn = Worn.ERASE) -> None:
        """Let a page be worn from now on."""
        _core().fb_flash_sim_wear(self._sim, u32("page", page), Worn(how))

    def endure(self, erases: int, how: Worn = Worn.ERASE) -> None:
        """Let each page be worn after so many erases."""
        _core().fb_flash_sim_endurance(self._sim, u32("erases", erases), Worn(how))

    def rot(self, offset: int, bits: int) -> None:
        """Turn bits of a byte."""
        _core().fb_flash_sim_rot(self._sim, u32("offset", offset), u8("bits", bits))

    def _counts(self) -> _CCounts:
        counts = _CCounts()
        _core().fb_flash_sim_counts(self._sim, byref(counts))
        return counts

    @property
    def counts(self) -> FlashCounts:
        c = self._counts()
        return FlashCounts(c.operations, c.programmed, c.erased, c.read, c.worst_erase)

    @property
    def off(self) -> bool:
        """Has power failed?"""
        return bool(self._counts().off)

    @property
    def violation(self) -> str:
        """The first use that real flash forbids (programming a unit twice, ...); empty if there was none."""
        return _core().fb_flash_sim_violation(self._sim).decode()

    @property
    def erases(self) -> list[int]:
        """Of each page."""
        return [_core().fb_flash_sim_erases(self._sim, page) for page in range(self.size // self.page)]

    @property
    def memory(self) -> bytes:
        """All of the content."""
        return ctypes.string_at(_core().fb_flash_sim_memory(self._sim), self.size)


@dataclass(frozen=True)
class Record:
    """What a store holds: ``fb_record``."""

    sequence: int
    length: int
    kind: int
    owner: int


class Store:
    """One record in flash, replaced atomically: firmware/core/include/fb_store.h.

    Opening finds the record committed last (``current``, None if there is none). Errors are those of
    :mod:`flipbit.runtime.errors`: FullError, FlashError, EmptyError, OwnerError, OrderError; when the flash's power
    fails, :class:`FlashLostPower`: then ``flash.power_on()`` and make a new Store.
    """

    def __init__(self, flash: SimulatedFlash):
        self.flash = flash
        self._store = _CStore()
        self._check(_core().fb_store_open(byref(self._store), flash.port), "opening the store")

    def _check(self, status: int, doing: str) -> None:
        if self.flash.off:
            raise FlashLostPower(f"power failed while {doing}")
        check(status, f"{doing} failed")

    @property
    def current(self) -> Record | None:
        c = self._store.current
        return Record(c.sequence, c.length, c.kind, c.owner) if c.sequence else None

    @property
    def capacity(self) -> int:
        """Bytes of the longest record."""
        return self._store.capacity

    @property
    def damaged(self) -> int:
        """Records committed after the current one that were found unreadable."""
        return self._store.damaged

    @property
    def wear(self) -> list[int]:
        """Erases of each slot, as counted in flash."""
        return [_core().fb_store_wear(byref(self._store), slot) for slot in range(self.flash.slots)]

    def check(self, kind: int, owner: int) -> None:
        """Raise EmptyError or OwnerError unless the current record is of this kind and model."""
        c = self._store.current
        found = f"it holds kind {c.kind} of model {c.owner:#010x}" if c.sequence else "it holds nothing"
        status = _core().fb_store_check(byref(self._store), u32("kind", kind), u32("owner", owner))
        self._check(status, f"looking for kind {kind} of model {owner:#010x} ({found})")

    def read(self, offset: int = 0, size: int | None = None) -> bytes:
        """Bytes of the current record, all if not told otherwise."""
        size = max(0, self._store.current.length - offset) if size is None else size
        if offset < 0 or size < 0 or offset + size > self._store.current.length > 0:
            raise ArgumentError(f"no {size} bytes at {offset} in a record of {self._store.current.length}")
        data = ctypes.create_string_buffer(max(1, size))
        self._check(_core().fb_store_read(byref(self._store), offset, data, size), f"reading {size} bytes")
        return data.raw[:size]

    def save(self, data: bytes, kind: int, owner: int) -> None:
        """Begin, write and commit, again if a place proves worn."""
        size = u32("length", len(data))
        status = _core().fb_store_save(byref(self._store), data, size, u32("kind", kind), u32("owner", owner))
        self._check(status, f"saving {len(data)} bytes")

    def begin(self, length: int, kind: int, owner: int) -> None:
        """Begin a record of so many bytes, to be given to ``write`` in pieces."""
        record = (u32("length", length), u32("kind", kind), u32("owner", owner))
        self._check(_core().fb_store_begin(byref(self._store), *record), f"beginning {length} bytes")

    def write(self, data: bytes) -> None:
        size = u32("length", len(data))
        self._check(_core().fb_store_write(byref(self._store), data, size), f"writing {size} bytes")

    def commit(self) -> None:
        """Make it the current record."""
        self._check(_core().fb_store_commit(byref(self._store)), "committing")

    def abort(self) -> None:
        """Forget the record being written, if there is one."""
        _core().fb_store_abort(byref(self._store))
