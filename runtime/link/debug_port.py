"""Memory of a board over GDB's remote serial protocol: as much of it as reading and writing takes.

A packet is ``$text#ss``, where ss is the sum of its bytes; each side acknowledges with ``+``, and asks with ``-`` for
what came damaged once more: QEMU does so if who was connected before left in the middle of a packet. Attaching stops
the board, letting go of it makes it run.
"""

from __future__ import annotations

from pathlib import Path

from flipbit.runtime.link.line import LineError, connect_unix

PIECE = 1024  # bytes in a packet: QEMU's buffer holds 2,048 as text


class DebugPort:
    """A debug server at a Unix socket."""

    def __init__(self, path: Path, timeout: float = 60.0):
        self._rest = b""
        try:
            self._socket = connect_unix(path, timeout)
        except OSError as error:
            raise LineError(f"{path}: no debug server answers there ({error})") from None
        self._socket.settimeout(timeout)
        try:
            self._ask("?")
        except LineError as error:
            self._socket.close()
            raise LineError(f"{path}: no debug server answers there ({error})") from None

    def __enter__(self) -> DebugPort:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def read(self, address: int, size: int) -> bytes:
        data = b""
        while len(data) < size:
            count = min(PIECE, size - len(data))
            reply = self._ask(f"m{address + len(data):x},{count:x}")
            piece = b"" if reply.startswith("E") else bytes.fromhex(reply)
            if len(piece) != count:
                raise LineError(f"memory at {address + len(data):#x} cannot be read ({reply or 'no answer'})")
            data += piece
        return data

    def write(self, address: int, data: bytes) -> None:
        for at in range(0, len(data), PIECE):
            piece = data[at : at + PIECE]
            if self._ask(f"M{address + at:x},{len(piece):x}:{piece.hex()}") != "OK":
                raise LineError(f"memory at {address + at:#x} cannot be written")

    def let_go(self) -> None:
        """Let the board run."""
        self._ask("D")

    def _ask(self, text: str) -> str:
        try:
            return self._exchange(text.encode())
        except OSError as error:
            raise LineError(f"the debug server does not answer ({error})") from None

    def _exchange(self, data: bytes) -> str:
        packet = b"$%s#%02x" % (data, sum(data) & 0xFF)
        self._socket.sendall(packet)
        while True:
            self._rest = self._rest.lstrip(b"+")
            if self._rest.startswith(b"-"):
                self._rest = self._rest[1:]
                self._socket.sendall(packet)
            start, end = self._rest.find(b"$"), self._rest.find(b"#")
            if 0 <= start < end and len(self._rest) >= end + 3:
                reply, self._rest = self._rest[start + 1 : end], self._rest[end + 3 :]
                self._socket.sendall(b"+")
                if reply[:1] in (b"T", b"S") and data != b"?":
                    continue  # that the board has stopped is also said unasked
                return reply.decode("ascii", "replace")
            more = self._socket.recv(65536)
            if not more:
                raise LineError("the debug server closed the line")
            self._rest += more
