"""Ctrl-C and a service manager's SIGTERM end a training run, wherever it happens to be.

Python raises ``KeyboardInterrupt`` between two instructions, which may lie in a callback of TensorFlow: there it turns
into an error of another class, or is printed and forgotten. So the request is also written down: who calls ``check``
now and then, and looks at ``asked`` before reporting an error, misses none.
"""

from __future__ import annotations

import signal
from typing import Any

_asked = False


def listen() -> None:
    """From now on both signals are noted, and raise ``KeyboardInterrupt``."""
    global _asked
    _asked = False
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _note)


def _note(*_: Any) -> None:
    global _asked
    _asked = True
    raise KeyboardInterrupt


def asked() -> bool:
    return _asked


def check() -> None:
    """Raises ``KeyboardInterrupt`` if it was asked for and lost on the way."""
    if _asked:
        raise KeyboardInterrupt
