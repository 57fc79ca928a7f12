"""Lines to devices: serial ports."""

from __future__ import annotations

import os
import sys

import pytest

from flipbit.runtime.link.line import LineError, open_line


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
