"""Lines to devices: serial ports."""

from __future__ import annotations

import os
import socket
import sys
import threading
from pathlib import Path

import pytest

from flipbit.runtime.link.line import LineError, connect_unix, open_line


def test_a_serial_port_is_a_line_like_any_other() -> None:
    """A pseudo-terminal with something at its other end that sends everything back."""
    pytest.importorskip("serial", reason="needs pyserial")
    ours, theirs = os.openpty()
    line = open_line(os.ttyname(theirs))
    assert line.read(0.05) == b""
    line.write(b"\0hello\x11\x13\xff")  # nothing of this may be special to a terminal
    echo = os.read(ours, 100)
    os.write(ours, echo)
    assert line.read(2) == echo == b"\0hello\x11\x13\xff"
    os.close(ours)
    with pytest.raises(LineError, match="was the board unplugged"):
        line.read(2)
    line.close()
    os.close(theirs)


def test_a_missing_pyserial_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "serial", None)
    with pytest.raises(LineError, match="pip install pyserial"):
        open_line("/dev/ttyACM0")


def test_a_server_that_is_not_listening_yet_is_waited_for(tmp_path: Path) -> None:
    """Its file is there between bind and listen: connecting is refused."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(tmp_path / "uart"))
        with pytest.raises(ConnectionRefusedError):
            connect_unix(tmp_path / "uart", patience=0)
        soon = threading.Timer(0.2, server.listen)
        soon.start()
        with connect_unix(tmp_path / "uart") as connection:
            connection.sendall(b"hello")
            accepted, _ = server.accept()
            with accepted:
                assert accepted.recv(5) == b"hello"
        soon.join()


def test_a_server_that_is_not_there_is_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        connect_unix(tmp_path / "uart")
