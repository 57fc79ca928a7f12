"""The debug server of an emulated board, after somebody else has talked to it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from flipbit.runtime.link.debug_port import DebugPort
from flipbit.runtime.link.emulator import Emulator
from flipbit.runtime.link.line import connect_unix

RAM = 0x20000000


@pytest.fixture(scope="module")
def board() -> Iterator[Emulator]:
    if not shutil.which("qemu-system-arm"):
        pytest.skip("needs qemu-system-arm")
    with Emulator("microbit") as emulator:
        yield emulator


@pytest.mark.parametrize("left", [b"$", b"$M20000000,4:00", b"$?#", b"$?#3", b"$?#3f", b"+", b"$?#00"])
def test_who_left_in_the_middle_of_a_packet_does_not_block_the_next(board: Emulator, left: bytes) -> None:
    with connect_unix(board.gdb) as before:
        before.sendall(left)
    with DebugPort(board.gdb) as port:
        port.write(RAM, b"seen")
        assert port.read(RAM, 4) == b"seen"
