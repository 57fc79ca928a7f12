"""Commands that are stopped leave nothing running and nothing in the temporary folder.

::

    with stops_cleanly():                      # Ctrl-C, SIGTERM and SIGHUP end the block as Ctrl-C does:
        with Emulator("microbit") as board:    # what was opened is closed, temporary folders are removed
            run_child(["make", ...])           # a child and its children end with us

On Linux children also end when this process is killed without a chance to clean up (SIGKILL).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
GRACE = 20.0  # seconds a child gets to clean up
PR_SET_PDEATHSIG = 1


class Stopped(KeyboardInterrupt):
    """A signal asked this process to end. ``status`` is what it should exit with."""

    def __init__(self, number: int):
        super().__init__()
        self.status = 128 + number


def exit_status(error: KeyboardInterrupt) -> int:
    """What a stopped command exits with, as a shell reports it: 130 for Ctrl-C, 143 for SIGTERM."""
    return error.status if isinstance(error, Stopped) else 130


# What asked this process to end since the outermost stops_cleanly() began, and how many blocks now wait to hear of it.
_asked: KeyboardInterrupt | None = None
_waiting = 0


def asked_to_stop() -> KeyboardInterrupt | None:
    """What Ctrl-C or a signal raised since the outermost :func:`stops_cleanly` began: it may have been lost on its way.

    Python raises it between two instructions. In a destructor or a callback it is printed and forgotten, and a library
    may make another error of it: whatever goes on for long asks here, too.
    """
    return _asked


def _raise(error: KeyboardInterrupt) -> None:
    global _asked
    _asked = error
    if not _waiting:
        raise error


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    _raise(KeyboardInterrupt())


def _stop(number: int, _frame: FrameType | None) -> None:
    for each in SIGNALS:  # once is enough: what is being cleaned up is not interrupted
        signal.signal(each, signal.SIG_IGN)
    _raise(Stopped(number))


def wait_for_stop() -> None:
    """Until Ctrl-C or a signal, which is raised."""
    while not _asked:
        time.sleep(1)
    raise _asked


@contextlib.contextmanager
def stops_cleanly() -> Iterator[None]:
    """Within, the signals that end a process raise :class:`Stopped`. In other threads than the main one: nothing."""
    global _asked
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    control_c = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if control_c:
        signal.signal(signal.SIGINT, _interrupt)
    # One that is ignored stays so: nohup means it.
    mine = [number for number in SIGNALS if signal.getsignal(number) == signal.SIG_DFL]
    for number in mine:
        signal.signal(number, _stop)
    if control_c or mine:
        _asked = None
    try:
        yield
    finally:
        for number in mine:
            signal.signal(number, signal.SIG_DFL)
        if control_c:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _ends_with_parent() -> Callable[[], None] | None:
    """For ``preexec_fn``: the kernel kills the child when the thread that started it is gone. Linux, main thread."""
    if not sys.platform.startswith("linux") or threading.current_thread() is not threading.main_thread():
        return None
    parent, prctl = os.getpid(), ctypes.CDLL(None).prctl

    def before_exec() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it was gone before
            os._exit(1)

    return before_exec


def start_child(command: Sequence[str], **options: object) -> subprocess.Popen[bytes]:
    """A process in a group of its own, so that :func:`end_child` reaches its children, too.

    Ctrl-C waits meanwhile: raised in the middle of a fork it would be lost, or leave a child that nobody knows of.
    """
    global _waiting
    waits = threading.current_thread() is threading.main_thread()
    before, child = _asked, None
    _waiting += waits
    try:
        child = subprocess.Popen(  # type: ignore[call-overload]
            list(command), start_new_session=True, preexec_fn=_ends_with_parent(), **options
        )
    finally:
        _waiting -= waits
        if waits and _asked is not None and _asked is not before:
            if child is not None:
                end_child(child)
            raise _asked
    return child


def end_child(child: subprocess.Popen[bytes], grace: float = GRACE) -> None:
    """End a process and its children: SIGTERM first, SIGKILL for what is left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGTERM)
    try:
        child.wait(grace)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def run_child(
    command: Sequence[str], cwd: str | Path | None = None, capture: bool = True, timeout: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; if this process is stopped meanwhile, the command and its children end first."""
    pipe = subprocess.PIPE if capture else None
    child = start_child(command, stdin=subprocess.DEVNULL if capture else None, stdout=pipe, stderr=pipe, cwd=cwd)
    try:
        out, err = child.communicate(timeout=timeout)
    except BaseException:
        end_child(child)
        for stream in (child.stdout, child.stderr):
            if stream:
                stream.close()
        raise
    return subprocess.CompletedProcess(
        list(command), child.returncode, (out or b"").decode(errors="replace"), (err or b"").decode(errors="replace")
    )
