"""``--workers N``: a run on N processes of this machine, which goes on when one of them dies.

Each process is the same command with a ``TF_CONFIG`` of its own, on ports of 127.0.0.1 that are free. If one is killed,
all are ended and start again from the last checkpoint; a run that dies twice in the same epoch is given up. The chief
draws on the terminal; what the others print is shown only when one of them is the reason for an end.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from flipbit.runtime.errors import InputError
from flipbit.runtime.exits import REFUSED, tell
from flipbit.runtime.stopping import start_child
from flipbit.train.workers.cluster import VARIABLE, Cluster
from flipbit.train.workers.meeting import LOST

POLL = 0.1  # seconds
FAREWELL = 60.0  # seconds that others may take to end after the chief is done

Command = Callable[[], list[str]]


def launch(count: int, command: Command, folder: Path) -> int:
    """Run ``command`` on ``count`` processes until the chief is done; its exit status."""
    tried = -1  # epochs that were done when a worker died last
    while True:
        with _started(count, command()) as (workers, said):
            ended = _first_end(workers)
            status = workers[ended].returncode
            if status == 0 and ended == 0:
                _wait_for_all(workers[1:], FAREWELL)
                return 0
            if status >= 0:  # ended by itself, not killed: it said why
                return _told([i for i, worker in enumerate(workers) if worker.poll() == status], status, said)
        done = epochs_done(folder)
        reason = f"{'the chief' if ended == 0 else f'worker {ended}'} was killed ({_signal(-status)})"
        if done == tried:
            raise InputError(f"{reason}, twice in epoch {done + 1}: see whether there is memory for {count} workers")
        tried = done
        tell(f"{reason}: all workers start again after epoch {done}")


@contextlib.contextmanager
def _started(count: int, command: list[str]) -> Iterator[tuple[list[subprocess.Popen[bytes]], list[IO[bytes]]]]:
    """The workers, and what they print on stderr (the chief's stdout is ours). None is left at the end."""
    addresses = tuple(f"127.0.0.1:{port}" for port in free_ports(count))
    with contextlib.ExitStack() as kept:
        workers: list[subprocess.Popen[bytes]] = []
        said: list[IO[bytes]] = [kept.enter_context(tempfile.TemporaryFile()) for _ in range(count)]
        try:
            for index in range(count):
                environment = {**os.environ, VARIABLE: Cluster(addresses, index).tf_config()}
                workers.append(
                    start_child(
                        command,
                        stdin=subprocess.DEVNULL,
                        stdout=None if index == 0 else subprocess.DEVNULL,
                        stderr=said[index],
                        env=environment,
                    )
                )
            yield workers, said
        finally:
            # Without asking: files are replaced whole, and a worker that waits for another one hears nothing.
            for worker in workers:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(worker.pid, signal.SIGKILL)
                worker.wait()


def _first_end(workers: list[subprocess.Popen[bytes]]) -> int:
    """Which worker ends first, of several the one that was killed; others but the chief may be done before it."""
    while True:
        ended = [i for i, worker in enumerate(workers) if worker.poll() is not None]
        killed = [i for i in ended if workers[i].returncode < 0]
        if killed:
            return killed[0]
        # A worker that finds another one gone ends a moment later than that one, and by itself.
        failed = [i for i in ended if workers[i].returncode > 0]
        if failed:
            time.sleep(5 * POLL)
            return next((i for i in range(len(workers)) if (workers[i].poll() or 0) < 0), failed[0])
        if 0 in ended:
            return 0
        time.sleep(POLL)


def _wait_for_all(workers: list[subprocess.Popen[bytes]], seconds: float) -> None:
    end = time.monotonic() + seconds
    for worker in workers:
        with contextlib.suppress(subprocess.TimeoutExpired):
            worker.wait(max(0.0, end - time.monotonic()))


def _told(ended: list[int], status: int, said: list[IO[bytes]]) -> int:
    """Pass on what a worker said before it gave up; of several, one that does not only miss another."""
    texts = {}
    for index in ended:
        said[index].seek(0)
        texts[index] = said[index].read().decode(errors="replace")
    index = min(ended, key=lambda i: LOST in texts[i])
    lines = texts[index].splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    if status == REFUSED and errors:
        tell(errors[-1] if index == 0 else errors[-1].replace("error: ", f"error: worker {index}: ", 1))
    else:  # a defect, with its traceback
        tell("\n".join(lines))
    return status


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def epochs_done(folder: Path) -> int:
    """Epochs that the checkpoint of a run holds, or a little less: ``history.json`` is written after it."""
    try:
        return len(json.loads((folder / "history.json").read_text()))
    except (OSError, ValueError):
        return 0


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on now."""
    with contextlib.ExitStack() as held:
        doors = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [door.getsockname()[1] for door in doors]
