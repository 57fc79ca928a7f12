"""An emulated board: QEMU with the board's UART on a socket, started from an .elf or flashed by GDB.

::

    with Emulator("microbit", "app.elf") as emulator:      # QEMU puts the program in place
        ...
    with Emulator("microbit") as emulator:                 # a board with empty flash, standing still
        emulator.flash("app.elf")                          # GDB: load, compare-sections, reset, run
        device = Device(emulator.line())

These begin with an empty storage and end with it. With a :class:`~flipbit.runtime.link.memory.BoardMemory` the storage
is what it was when that board was last switched off.
"""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from flipbit.runtime.board.profile import BoardError, Profile, load_profile
from flipbit.runtime.errors import ArgumentError
from flipbit.runtime.link.debug_port import DebugPort
from flipbit.runtime.link.line import LineError, SocketLine, connect_unix
from flipbit.runtime.link.memory import BoardMemory, storage_region
from flipbit.runtime.stopping import end_child, run_child, start_child

PACKAGES = {"qemu-system-arm": "qemu-system-arm", "qemu-system-riscv32": "qemu-system-misc"}
SOCKET_PATH_MAX = 90  # bytes the system takes for a socket's folder, on Linux and macOS
START = 60.0  # seconds for QEMU to open its sockets, on a busy machine
GDBS = ("gdb-multiarch", "arm-none-eabi-gdb", "gdb")


class EmulatorLine(SocketLine):
    """The UART of an emulated board; when it breaks, the error has QEMU's last words."""

    def __init__(self, connection: socket.socket, name: str, why: Callable[[], str]):
        super().__init__(connection, name)
        self._why = why

    def read(self, timeout: float) -> bytes:
        try:
            return super().read(timeout)
        except LineError as error:
            raise LineError(self._why() or error.message) from None

    def write(self, data: bytes) -> None:
        try:
            super().write(data)
        except LineError as error:
            raise LineError(self._why() or error.message) from None


class Emulator:
    """A running QEMU. Without ``firmware`` the flash is empty and the board stands still until :meth:`flash`.

    ``memory`` gives the storage what it had, and keeps it at the end.
    """

    def __init__(
        self,
        board: str | Profile,
        firmware: str | Path | None = None,
        extra: list[str] | None = None,
        memory: BoardMemory | None = None,
    ):
        self.profile = board if isinstance(board, Profile) else load_profile(board)
        self._process: subprocess.Popen[bytes] | None = None
        self._memory, self._remembers = memory, False
        folder = tempfile.gettempdir()
        self._folder = tempfile.TemporaryDirectory(
            prefix="flipbit-qemu-", dir=folder if len(os.fsencode(folder)) < SOCKET_PATH_MAX - 24 else "/tmp"
        )
        try:
            self._start(None if firmware is None else Path(firmware), extra or [])
            if memory is not None:
                self._remember(memory, run=firmware is not None)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Emulator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def uart(self) -> Path:
        """The socket the UART is on."""
        return Path(self._folder.name) / "uart"

    @property
    def gdb(self) -> Path:
        """The socket GDB can be attached to."""
        return Path(self._folder.name) / "gdb"

    def _start(self, firmware: Path | None, extra: list[str]) -> None:
        machine = self.profile.qemu
        if machine is None:
            raise ArgumentError(f"QEMU does not emulate the {self.profile.title}; connect a real one (--port PORT)")
        if not shutil.which(machine[0]):
            raise BoardError(f"{machine[0]} is not installed: apt install {PACKAGES.get(machine[0], machine[0])}")
        if firmware is not None and not firmware.is_file():
            raise ArgumentError(f"{firmware}: no such file; build it with make -C firmware BOARD={self.profile.name}")
        command = [
            *machine,
            *("-display", "none", "-monitor", "none"),
            *("-serial", "unix:uart,server=on,wait=off"),  # seen from the folder it starts in: no name needs quoting
            *("-gdb", "unix:gdb,server=on,wait=off"),
            *(("-kernel", str(firmware.resolve())) if firmware else ()),
            *(() if firmware and not self._memory else ("-S",)),
            *extra,
        ]
        self.command = command
        self._log = (Path(self._folder.name) / "log").open("w+b")
        # On one core: QEMU's two threads hand over every byte of the UART, several times slower between cores.
        self._process = start_child(
            ["taskset", "-c", str(min(os.sched_getaffinity(0))), *command] if shutil.which("taskset") else command,
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT, cwd=self._folder.name,
        )  # fmt: skip
        deadline = time.monotonic() + START
        while not (self.uart.exists() and self.gdb.exists()):
            if self._process.poll() is not None:
                raise BoardError(self._last_words())
            if time.monotonic() > deadline:
                raise BoardError(f"QEMU did not start in {START:g} s: {shlex.join(command)}")
            time.sleep(0.01)

    def _last_words(self) -> str:
        """What QEMU said, if it ended."""
        if self._process is None or self._process.poll() is None:
            return ""
        self._log.seek(0)
        said = self._log.read().decode(errors="replace").strip()[-500:]
        return f"QEMU ({self.profile.name}) ended with status {self._process.returncode}: {said or 'no message'}"

    def line(self) -> SocketLine:
        """The board's UART. One at a time."""
        try:
            connection = connect_unix(self.uart)
        except OSError as error:
            raise LineError(self._last_words() or f"{self.uart}: {error.strerror}") from None

        def why() -> str:
            if self._process is not None and self._process.poll() is None:
                time.sleep(0.1)  # the line breaks a moment before the process is gone
            return self._last_words()

        return EmulatorLine(connection, f"qemu:{self.profile.name}", why)

    def flash(self, firmware: str | Path) -> str:
        """Write a program into the flash with GDB, compare, reset and run; returns what GDB said."""
        if not Path(firmware).is_file():
            raise ArgumentError(f"{firmware}: no such file; build it with make -C firmware BOARD={self.profile.name}")
        done = run_child(gdb_command("./gdb", Path(firmware).resolve()), cwd=self._folder.name, timeout=600)
        said = done.stdout + done.stderr
        if done.returncode or "MIS-MATCHED" in said or "Start address" not in said:
            raise BoardError(f"flashing {self.profile.name} failed:\n{said.strip() or self._last_words()}")
        return said

    def _remember(self, memory: BoardMemory, run: bool) -> None:
        """Give the storage what it had; the board stands still."""
        kept = memory.storage
        with DebugPort(self.gdb) as port:
            if kept is not None:
                port.write(storage_region(self.profile)[0], kept)
            self._remembers = True
            if run:
                port.let_go()

    def _keep(self, memory: BoardMemory) -> None:
        """Note what is in the storage, unless QEMU is gone."""
        address, size = storage_region(self.profile)
        if not size or self._process is None or self._process.poll() is not None:
            return
        with DebugPort(self.gdb) as port:
            memory.keep_storage(port.read(address, size))

    def close(self) -> None:
        """Switch the board off: keep its storage if it has a memory, and end QEMU."""
        try:
            if self._memory is not None and self._remembers:
                self._keep(self._memory)
        finally:
            if self._process is not None:
                end_child(self._process)
                self._process = None
                self._log.close()
            self._folder.cleanup()


def gdb_command(target: Path | str, firmware: Path) -> list[str]:
    """GDB's command line that flashes through a debug server: QEMU's, OpenOCD's or pyOCD's."""
    gdb = next((name for name in GDBS if shutil.which(name)), None)
    if gdb is None:
        raise BoardError("flashing an emulated board needs GDB: apt install gdb-multiarch")
    steps = (
        "set pagination off",
        "set confirm off",
        f"target remote {target}",
        "load",
        "compare-sections",
        "monitor system_reset",
        "detach",
    )
    return [gdb, "-nx", "-batch", *(word for step in steps for word in ("-ex", step)), str(firmware)]
