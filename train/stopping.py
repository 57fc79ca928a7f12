"""Ctrl-C and a service manager's SIGTERM end a training run, wherever it happens to be.

Python raises ``KeyboardInterrupt`` between two instructions, which may lie in a callback of TensorFlow: there it turns
into an error of another class, or is printed and forgotten. So the request is also written down.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_asked = False


@contextmanager
def heard() -> Iterator[None]:
    """Within, both signals raise ``KeyboardInterrupt``, and so does every error that comes after one."""
    global _asked
    _asked = False
    before = {number: signal.signal(number, _note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except Exception:
        if _asked:
            raise KeyboardInterrupt from None
        raise
    finally:
        _asked = False
        for number, handler in before.items():
            signal.signal(number, handler)


def check() -> None:
    """Raises ``KeyboardInterrupt`` if it was asked for and lost on the way."""
    if _asked:
        raise KeyboardInterrupt


def _note(*_: Any) -> None:
    global _asked
    _asked = True
    raise KeyboardInterrupt
