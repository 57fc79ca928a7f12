"""Before TensorFlow starts, workers meet: all are there, and all were told the same.

The chief listens at its own address of ``TF_CONFIG``. Each worker sends a line of JSON with its number and facts:
settings, digests of the data, versions. The chief compares them with its own and answers with a line for all.
TensorFlow itself would wait without a word for a worker that does not come, and would train on whatever settings
each of them has.
"""

from __future__ import annotations

import contextlib
import errno
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

from flipbit.runtime.errors import InputError
from flipbit.train.workers.cluster import VARIABLE, Cluster

WAIT = 300.0  # seconds for all workers to come; pods of a cluster start minutes apart
LINE = 1 << 20  # bytes at most: facts are some two thousand
PATIENCE = 10.0  # seconds for the line of somebody who has connected
PAUSE = 0.1
LOST = "cannot be reached any more"  # what is said of a worker that was there

Facts = dict[str, str]


def meet(cluster: Cluster, facts: Facts, wait: float = WAIT) -> None:
    """Return when all workers are there with the same facts; otherwise all of them get the same :class:`InputError`."""
    with _own_port(cluster) as door:
        if cluster.chief:
            _receive(cluster, facts, door, wait)
        else:
            _report(cluster, facts, wait)


@contextlib.contextmanager
def _own_port(cluster: Cluster) -> Iterator[socket.socket]:
    """This worker's port, held until TensorFlow takes it."""
    host, port = cluster.host_and_port(cluster.index)
    # Others may know this machine by a name or address that it does not have itself: only loopback is taken literally.
    near = host == "localhost" or host.startswith("127.")
    dual = not near and socket.has_dualstack_ipv6()
    try:
        if dual:
            door = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=128)
        else:
            door = socket.create_server(("127.0.0.1" if near else "", port), backlog=128)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            reason = f"port {port} is taken by another program"
        else:
            reason = f"port {port} cannot be opened ({error.strerror})"
        raise InputError(f"{VARIABLE}: {reason}; {cluster.named(cluster.index)} needs it") from None
    with door:
        yield door


def _receive(cluster: Cluster, facts: Facts, door: socket.socket, wait: float) -> None:
    """The chief's side."""
    end = time.monotonic() + wait
    came: dict[int, tuple[socket.socket, Facts]] = {}
    with contextlib.ExitStack() as open_lines:
        while len(came) < len(cluster.addresses) - 1:
            door.settimeout(max(PAUSE, end - time.monotonic()))
            try:
                line, _ = door.accept()
            except TimeoutError:
                missing = [cluster.named(i) for i in range(1, len(cluster.addresses)) if i not in came]
                verdict = f"{' and '.join(missing)} cannot be reached: nothing came within {wait:g} s"
                break
            open_lines.enter_context(line)
            said = _read(line, PATIENCE)
            if said is None:
                continue  # somebody else knocked
            number: Any = said.get("worker")
            theirs = said.get("facts")
            if not isinstance(theirs, dict):
                continue
            if said.get("workers") != len(cluster.addresses) or number not in range(1, len(cluster.addresses)):
                verdict = f"a worker came whose {VARIABLE} names another cluster"
            elif number in came:
                verdict = f"two workers call themselves worker {number}: give each its own task.index in {VARIABLE}"
            else:
                came[number] = line, theirs
                continue
            came[-1] = line, {}
            break
        else:
            verdict = next(filter(None, (difference(n, facts, theirs) for n, (_, theirs) in sorted(came.items()))), "")
        for line, _ in came.values():
            with contextlib.suppress(OSError):  # one that left meanwhile is missed by the others soon enough
                line.sendall(json.dumps({"verdict": verdict}).encode() + b"\n")
    if verdict:
        raise InputError(verdict)


def _report(cluster: Cluster, facts: Facts, wait: float) -> None:
    """The side of every other worker."""
    end = time.monotonic() + wait
    said = {"worker": cluster.index, "workers": len(cluster.addresses), "facts": facts}
    while True:
        try:
            line = socket.create_connection(cluster.host_and_port(0), timeout=max(PAUSE, end - time.monotonic()))
            break
        except OSError as error:
            if time.monotonic() >= end:
                reason = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
                raise InputError(f"{cluster.named(0)} cannot be reached within {wait:g} s: {reason}") from None
            time.sleep(PAUSE)
    with line:
        try:
            line.sendall(json.dumps(said).encode() + b"\n")
            answer = _read(line, max(PAUSE, end - time.monotonic()) + 2 * PATIENCE)
        except OSError:
            answer = None
    if answer is None:
        raise InputError(f"{cluster.named(0)} has left: see its own message")
    if answer.get("verdict"):
        raise InputError(str(answer["verdict"]))


def _read(line: socket.socket, patience: float) -> dict[str, Any] | None:
    """An object in a line of JSON, or None if something else comes, or nothing."""
    text, end = b"", time.monotonic() + patience
    try:
        while not text.endswith(b"\n") and len(text) < LINE:
            line.settimeout(max(PAUSE, end - time.monotonic()))
            more = line.recv(65536)
            if not more:
                return None
            text += more
        said = json.loads(text)
    except (OSError, ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def difference(number: int, chief: Facts, worker: Facts) -> str:
    """What to tell if a worker was told something else than the chief; nothing if they agree."""
    for name in [*chief, *worker]:
        mine, theirs = chief.get(name, "nothing"), worker.get(name, "nothing")
        if mine != theirs:
            return (
                f"worker {number} has {name} {theirs}, the chief {mine}: "
                "start all workers with the same settings, data and versions"
            )
    return ""


def unreachable(cluster: Cluster, patience: float = 2.0) -> list[str]:
    """The other workers at whose address nobody listens now."""
    gone = []
    for number in range(len(cluster.addresses)):
        if number == cluster.index:
            continue
        try:
            socket.create_connection(cluster.host_and_port(number), patience).close()
        except OSError:
            gone.append(cluster.named(number))
    return gone
