"""How every command ends: with a status, and with one line on stderr where it could not do what was asked.

::

    def main(argv: list[str] | None = None) -> int:
        return guarded(lambda: _main(argv))

======  =================================================================================================
 0      done
 1      done, and the answer is no: files disagree, a model does not fit
 2      not done: bad usage, bad input, a full disk, too little memory; ``error: …`` says why
 130    stopped by Ctrl-C; 143 by SIGTERM, 129 by SIGHUP
======  =================================================================================================

A traceback is a defect of flipbit's, never something a user did.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable
from typing import IO, Any, NoReturn

from flipbit.runtime.errors import FlipbitError
from flipbit.runtime.shown import print_safely, shown
from flipbit.runtime.stopping import asked_to_stop, exit_status, stops_cleanly

REFUSED = 2
# What TensorFlow calls the errors of the system, by class: looked up by name, as it is not imported for this.
TENSORFLOW_SAYS = {
    "ResourceExhaustedError": "not enough memory",
    "PermissionDeniedError": "no permission",
    "NotFoundError": "not found",
    "FailedPreconditionError": "cannot be done here",
}


class CommandParser(argparse.ArgumentParser):
    """Says what is wrong with a command line in one line, as everything else is said."""

    def error(self, message: str) -> NoReturn:
        self.exit(REFUSED, f"error: {shown(message)}; see: {self.prog} --help\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        # argparse's own says nothing of a full disk.
        stream = file or sys.stderr
        if message and stream is not None:
            stream.write(message)


def typed(prog: str) -> str:
    """What a person types to run a command: scripts are run by Python."""
    return f"python {prog}" if prog.endswith(".py") else prog


def guarded(
    command: Callable[[], int | None],
    also: tuple[type[Exception], ...] = (),
    stopped: str = "stopped",
    extras: str = "",
) -> int:
    """The exit status of ``command``. ``also``: errors of its own that are the user's; ``stopped``: said on Ctrl-C;
    ``extras``: what to install with flipbit so that the modules are there which it imports."""
    print_safely()
    try:
        with stops_cleanly():
            try:
                status = command() or 0
            except SystemExit as stop:  # --help, bad usage
                if isinstance(stop.__context__, BrokenPipeError):  # rich's answer to a reader that has gone
                    raise stop.__context__ from None
                _flush(sys.stdout)
                raise
            _flush(sys.stdout)  # here, so that a closed pipe or a full disk shows here
        return status
    except BrokenPipeError:  # | head
        _throw_away(sys.stdout)
        return 0
    except KeyboardInterrupt as error:
        _keep_quiet(sys.stdout)
        tell(f"\n{stopped}")
        return exit_status(error)
    except Exception as error:
        if asked := asked_to_stop():  # Ctrl-C inside a library, which made another error of it
            tell(f"\n{stopped}")
            return exit_status(asked)
        _keep_quiet(sys.stdout)
        reason = _missing(error, extras) or _reason(error, also)
        if reason is None:
            raise
        return _refused(reason)


def _missing(error: Exception, extras: str) -> str | None:
    """What to install if a package is missing that only some commands need."""
    if not extras or not isinstance(error, ModuleNotFoundError) or not error.name:
        return None
    package = error.name.partition(".")[0]
    return None if package == "flipbit" else f"{package} is not installed here: pip install 'flipbit[{extras}]'"


def _reason(error: Exception, also: tuple[type[Exception], ...]) -> str | None:
    """What to tell the user, or None for a defect."""
    if isinstance(error, FlipbitError):
        return str(error)
    if isinstance(error, also):
        return " ".join(str(error).split())  # what a compiler said
    if isinstance(error, OSError):
        return f"{os.fsdecode(error.filename or 'output')}: {error.strerror or error}"
    if isinstance(error, MemoryError):
        return f"not enough memory{f': {error}' if str(error) else ''}"
    if isinstance(error, RecursionError):
        return "the input is nested too deeply"
    if isinstance(error, UnicodeEncodeError):
        return f"{error.object!r}: cannot be written as {error.encoding}"
    name = type(error).__name__
    if name in TENSORFLOW_SAYS and type(error).__module__.startswith("tensorflow."):
        return f"{TENSORFLOW_SAYS[name]}: {str(getattr(error, 'message', error)).splitlines()[0]}"
    return None


def _refused(reason: str) -> int:
    tell(f"error: {shown(reason)}")
    return REFUSED


def tell(text: str) -> None:
    """A line on stderr, if it can be written there."""
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError):  # nobody listens: the status still tells
        _throw_away(sys.stderr)


def _flush(stream: IO[str] | None) -> None:
    if stream is not None and not stream.closed:
        stream.flush()


def _keep_quiet(stream: IO[str] | None) -> None:
    """What cannot be written any more is thrown away, or Python would complain of it again as it ends."""
    try:
        _flush(stream)
    except OSError:
        _throw_away(stream)


def _throw_away(stream: IO[str] | None) -> None:
    with contextlib.suppress(OSError, ValueError):
        if stream is None:
            return
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
