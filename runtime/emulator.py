"""An emulated board: QEMU with the board's UART on a socket, started from an .elf or flashed by GDB.

::

    with Emulator("microbit", "app.elf") as emulator:      # QEMU puts the program in place
        ...
    with Emulator("microbit") as emulator:                 # a board with empty flash, standing still
        emulator.flash("app.elf")                          # GDB: load, compare-sections, reset, run
        device = Device(emulator.line())
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from flipbit.runtime.boards import BoardError, Profile, load_profile
from flipbit.runtime.errors import ArgumentError
from flipbit.runtime.line import LineError, SocketLine

PACKAGES = {"qemu-system-arm": "qemu-system-arm", "qemu-system-riscv32": "qemu-system-misc"}
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
    """A running QEMU. Without ``firmware`` the flash is empty and the board stands still until :meth:`flash`."""

    def __init__(self, board: str | Profile, firmware: str | Path | None = None, extra: list[str] | None = None):
        self.profile = board if isinstance(board, Profile) else load_profile(board)
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="flipbit-qemu-")
        try:
            self._start(None if firmware is None else Path(firmware), extra or [])
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
            raise ArgumentError(f"QEMU does not have the {self.profile.title}; connect a real one (--port /dev/tty…)")
        if not shutil.which(machine[0]):
            raise BoardError(f"{machine[0]} is not installed: apt install {PACKAGES.get(machine[0], machine[0])}")
        if firmware is not None and not firmware.is_file():
            raise ArgumentError(f"{firmware}: no such file; build it with make -C firmware BOARD={self.profile.name}")
        command = [
            *machine,
            *("-display", "none", "-monitor", "none"),
            *("-serial", f"unix:{self.uart},server=on,wait=off"),
            *("-gdb", f"unix:{self.gdb},server=on,wait=off"),
            *(("-kernel", str(firmware)) if firmware else ("-S",)),
            *extra,
        ]
        self.command = command
        self._log = (Path(self._folder.name) / "log").open("w+b")
        # On one core: QEMU's two threads hand over every byte of the UART, several times slower between cores.
        self._process = subprocess.Popen(
            ["taskset", "-c", str(min(os.sched_getaffinity(0))), *command] if shutil.which("taskset") else command,
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        deadline = time.monotonic() + 10
        while not (self.uart.exists() and self.gdb.exists()):
            if self._process.poll() is not None:
                raise BoardError(self._last_words())
            if time.monotonic() > deadline:
                raise BoardError(f"QEMU did not start in 10 s: {' '.join(command)}")
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
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(str(self.uart))
        except OSError as error:
            connection.close()
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
        command = gdb_command(self.gdb, Path(firmware))
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        said = done.stdout + done.stderr
        if done.returncode or "MIS-MATCHED" in said or "Start address" not in said:
            raise BoardError(f"flashing {self.profile.name} failed:\n{said.strip() or self._last_words()}")
        return said

    def close(self) -> None:
        """End QEMU."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
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
