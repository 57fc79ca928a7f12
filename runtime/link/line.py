"""Lines to a device: a serial port or a socket, bytes in and bytes out."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any, Protocol

from flipbit.runtime.errors import ArgumentError, FlipbitError


class LineError(FlipbitError):
    """The line to the device is gone, or could not be opened."""

    status = "FB_ERR_LINE"

    def __str__(self) -> str:
        return self.message


def connect_unix(path: Path, patience: float = 60.0) -> socket.socket:
    """A connection to the socket at ``path``; its server may still be starting. OSError after ``patience`` seconds.

    A server's file is there a moment before it listens, a long one on a busy machine; until then it refuses.
    """
    deadline = time.monotonic() + patience
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(str(path))
        except OSError as error:
            connection.close()
            if not isinstance(error, ConnectionRefusedError) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return connection


class Line(Protocol):
    """What :class:`flipbit.runtime.link.device.Device` needs of a connection."""

    name: str

    def read(self, timeout: float) -> bytes:
        """Bytes that have come, at least one; none if ``timeout`` seconds passed. LineError at the end."""

    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...


class SocketLine:
    """A stream socket: an emulator's UART, or a serial port served over a network."""

    def __init__(self, connection: socket.socket, name: str):
        self.name = name
        self._socket = connection

    def read(self, timeout: float) -> bytes:
        self._socket.settimeout(max(timeout, 1e-4))
        try:
            data = self._socket.recv(65536)
        except (TimeoutError, BlockingIOError):
            return b""
        except OSError as error:
            raise LineError(f"{self.name}: {error.strerror}; is the emulator or server still running?") from None
        if not data:
            raise LineError(f"{self.name}: the other side closed the line; is the emulator or server still running?")
        return data

    def write(self, data: bytes) -> None:
        self._socket.settimeout(10)
        try:
            self._socket.sendall(data)
        except OSError as error:
            reason = error.strerror or "it takes no bytes any more"
            raise LineError(f"{self.name}: {reason}; is the emulator or server still running?") from None

    def close(self) -> None:
        self._socket.close()


class SerialLine:
    """A serial port, with pyserial."""

    def __init__(self, port: str, baud: int):
        try:
            import serial
        except ImportError:
            raise LineError("serial ports need pyserial: pip install pyserial") from None
        self.name = port
        self._error: type[Exception] = serial.SerialException
        try:
            self._port: Any = serial.Serial(port, baud, timeout=0, exclusive=True)
        except (serial.SerialException, ValueError) as error:
            raise LineError(f"{port} cannot be opened: {error}{_hint(port)}") from None

    def read(self, timeout: float) -> bytes:
        try:
            self._port.timeout = timeout
            first = self._port.read(1)
            return bytes(first + self._port.read(self._port.in_waiting)) if first else b""
        except (self._error, OSError):
            raise LineError(f"{self.name} is gone: was the board unplugged? Plug it in and try again") from None

    def write(self, data: bytes) -> None:
        try:
            self._port.write(data)
        except (self._error, OSError):
            raise LineError(f"{self.name} is gone: was the board unplugged? Plug it in and try again") from None

    def close(self) -> None:
        self._port.close()


def serial_ports() -> list[str]:
    """Ports that boards show up as."""
    return sorted(str(path) for kind in ("ttyACM*", "ttyUSB*", "cu.usb*") for path in Path("/dev").glob(kind))


def _hint(port: str) -> str:
    """What to do about a port that cannot be opened."""
    path = Path(port)
    if not path.exists():
        found = serial_ports()
        return f". Ports found: {', '.join(found)}" if found else ". No serial port was found: is the board plugged in?"
    return ". Is another program using it, and may you? (On Debian, members of the group dialout may.)"


def open_line(port: str, baud: int = 115200) -> Line:
    """A line by name: ``/dev/ttyACM0``, ``COM3``, ``tcp:HOST:PORT`` or ``unix:PATH``."""
    kind, _, rest = port.partition(":")
    try:
        if kind == "tcp":
            host, _, number = rest.rpartition(":")
            if not host or not number.isdigit():
                raise ArgumentError(f"{port}: expected tcp:HOST:PORT")
            return SocketLine(socket.create_connection((host, int(number)), 10), port)
        if kind == "unix":
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connection.connect(rest)
            except OSError:
                connection.close()
                raise
            return SocketLine(connection, port)
    except OSError as error:
        reason = error.strerror or str(error)
        raise LineError(f"{port}: {reason}; is the emulator or server running?") from None
    return SerialLine(port, baud)
