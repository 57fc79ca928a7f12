"""The few functions of libc that the firmware brings: any length, alignment and overlap."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest

STRING = Path(__file__).parents[2] / "firmware" / "start" / "string.c"
NAMES = ("memcpy", "memmove", "memset", "memcmp", "strlen")


@pytest.fixture(scope="module")
def string(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = tmp_path_factory.mktemp("string") / "string.so"
    renamed = [f"-D{name}=own_{name}" for name in NAMES]
    command = ["cc", "-O2", "-fno-builtin", "-fno-tree-loop-distribute-patterns", "-shared", "-fPIC", *renamed]
    subprocess.run([*command, "-o", str(library), str(STRING)], check=True)
    return ctypes.CDLL(str(library))


@pytest.mark.parametrize("name", ["memcpy", "memmove"])
def test_copies_of_any_length_and_alignment_are_exact_and_touch_nothing_else(string: ctypes.CDLL, name: str) -> None:
    copy = getattr(string, f"own_{name}")
    start = np.arange(160, dtype=np.uint8)
    for size in (0, 1, 3, 4, 5, 15, 16, 17, 31, 48, 50):
        for source in range(0, 100, 1):
            for to in (3, 4, 40, 47, 48, 50, 56, 64, 65, 99):
                if name == "memcpy" and abs(source - to) < size:
                    continue
                memory, expected = start.copy(), start.copy()
                expected[to : to + size] = start[source : source + size]
                base = memory.ctypes.data
                copy(ctypes.c_void_p(base + to), ctypes.c_void_p(base + source), ctypes.c_size_t(size))
                assert np.array_equal(memory, expected), (size, source, to)


def test_memory_is_set_from_the_first_byte_to_the_last(string: ctypes.CDLL) -> None:
    for size in (0, 1, 3, 4, 16, 17, 50):
        for to in range(8):
            memory, expected = np.zeros(80, np.uint8), np.zeros(80, np.uint8)
            expected[to : to + size] = 0xA5
            string.own_memset(ctypes.c_void_p(memory.ctypes.data + to), 0x1A5, ctypes.c_size_t(size))
            assert np.array_equal(memory, expected), (size, to)
