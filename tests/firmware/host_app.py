"""The firmware's application as a process on this machine, compiled with the address and undefined sanitizers.

Its board (host_board/) has a pipe for a UART and a file for flash; everything else is what a microcontroller runs.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

from flipbit.runtime.link.device import Device
from flipbit.runtime.link.line import Line, SocketLine
from flipbit.runtime.link.protocol import Frame, Reader, encode
from tests.checkout import ROOT
from tests.patience import PATIENCE

FIRMWARE = ROOT / "firmware"
BOARD = Path(__file__).parent / "host_board"
STORE_SIZE = 0x20000
POWER_LOST = 75


@functools.cache
def _folder() -> Path:
    folder = tempfile.mkdtemp(prefix="flipbit-app-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@functools.cache
def _core() -> list[str]:
    """Objects of the core, compiled once."""
    folder = _folder() / "core"
    folder.mkdir(exist_ok=True)
    sources = [str(path) for path in sorted((FIRMWARE / "core").rglob("*.c"))]
    done = subprocess.run([*_compiler(), "-c", *sources], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [str(path) for path in sorted(folder.glob("*.o"))]


def _compiler() -> list[str]:
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("needs a C compiler (cc)")
    flags = ["-std=gnu99", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    folders = [
        f"-I{folder}" for folder in (BOARD, FIRMWARE / "boards", FIRMWARE / "app", FIRMWARE / "core" / "include")
    ]
    return [compiler, *flags, *folders]


@functools.cache
def build_app(model: bytes | None = None, *options: str) -> Path:
    """The program, with ``model`` linked in; ``options`` go to the compiler."""
    number = len(list(_folder().glob("app*")))
    program = _folder() / f"app{number}"
    extra = []
    if model is not None:
        image = _folder() / f"app{number}.fbit"
        image.write_bytes(model)
        extra.append(f'-DHOST_MODEL="{image}"')
    sources = [str(path) for path in (*sorted((FIRMWARE / "app").glob("*.c")), BOARD / "board.c")]
    warnings = ["-Wall", "-Wextra", "-Wconversion", "-Wpedantic", "-Werror"]
    command = [*_compiler(), *warnings, *extra, *sources, *_core(), *options, "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


class HostApp:
    """A running program. ``store`` is kept from one run to the next, as flash is."""

    def __init__(self, program: Path, store: Path, cut: int | None = None):
        if not store.exists():
            store.write_bytes(b"\xff" * STORE_SIZE)
        ours, theirs = socket.socketpair()
        command = [str(program), str(store)] + ([str(cut)] if cut is not None else [])
        with theirs:
            self.process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE)
        self.line: Line = SocketLine(ours, "host app")
        self.device = Device(self.line, timeout=PATIENCE)
        self._reader = Reader()
        self._id = 0

    def __enter__(self) -> HostApp:
        return self

    def __exit__(self, *error: object) -> None:
        self.line.close()
        _, said = self.process.communicate(timeout=PATIENCE)
        if error[0] is None:
            assert self.process.returncode in (0, POWER_LOST), said.decode()
        elif said:
            pytest.fail(said.decode())

    def talk(self, data: bytes, command: int = 3, payload: bytes = b"still there?") -> tuple[Frame, list[Frame]]:
        """Send bytes, then a request: its reply, and the frames that came before it."""
        self._id = self._id % 0xFFFF + 1
        self.line.write(data + b"\0" + encode(Frame(self._id, command, 0, payload)))
        before: list[Frame] = []
        while True:
            received = self.line.read(PATIENCE)
            assert received, f"no answer for {PATIENCE} s after {data.hex()}"
            for frame in self._reader.feed(received):
                if frame.id == self._id and frame.command == command | 0x80:
                    return frame, before
                before.append(frame)
