"""Who takes part in a training: ``TF_CONFIG``, as clusters, Kubernetes' training operators and ``--workers`` set it.

::

    {"cluster": {"worker": ["10.0.0.1:5000", "10.0.0.2:5000"]}, "task": {"type": "worker", "index": 0}}

Worker 0 is the chief, who writes the files; a ``chief`` beside the workers comes before them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flipbit.runtime.errors import InputError

VARIABLE = "TF_CONFIG"
JOBS = ("chief", "worker")  # in this order
EXPECTED = '{"cluster": {"worker": ["host:port", …]}, "task": {"type": "worker", "index": 0}}'


@dataclass(frozen=True)
class Cluster:
    """The addresses of all workers, the chief's first, and which of them this process is."""

    addresses: tuple[str, ...]
    index: int

    @property
    def chief(self) -> bool:
        return self.index == 0

    def host_and_port(self, index: int) -> tuple[str, int]:
        host, _, port = self.addresses[index].rpartition(":")
        return host.strip("[]"), int(port)

    def named(self, index: int) -> str:
        """A worker as messages call it."""
        return f"{'the chief' if index == 0 else f'worker {index}'} ({self.addresses[index]})"

    @property
    def neighbours(self) -> int:
        """Workers on this worker's machine, itself included."""
        mine = self.host_and_port(self.index)[0]
        return sum(self.host_and_port(i)[0] == mine for i in range(len(self.addresses)))

    def tf_config(self) -> str:
        task = {"type": "worker", "index": self.index}
        return json.dumps({"cluster": {"worker": list(self.addresses)}, "task": task})


def from_environment(environment: Mapping[str, str] | None = None) -> Cluster | None:
    """The cluster that ``TF_CONFIG`` names; None for a worker alone."""
    text = (os.environ if environment is None else environment).get(VARIABLE, "").strip()
    if not text:
        return None
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{VARIABLE} is not JSON ({error}): expected {EXPECTED}") from None
    if not isinstance(config, dict):
        raise InputError(f"{VARIABLE} is not an object: expected {EXPECTED}")
    jobs = config.get("cluster") or {}
    if not jobs:
        return None
    task = config.get("task")
    if not isinstance(jobs, dict) or not isinstance(task, dict):
        raise InputError(f"{VARIABLE}: expected {EXPECTED}")
    others = sorted(set(jobs) - {*JOBS})
    if others:
        raise InputError(f"{VARIABLE}: flipbit trains with {' and '.join(JOBS)} tasks only, not {', '.join(others)}")
    addresses = [address for job in JOBS for address in _addresses(job, jobs.get(job, []))]
    if len(jobs.get("chief", [])) > 1:
        raise InputError(f"{VARIABLE}: {len(jobs['chief'])} chiefs; there is one")
    repeated = next((address for address in addresses if addresses.count(address) > 1), None)
    if repeated:
        raise InputError(f"{VARIABLE}: {repeated} is named twice; each worker has an address of its own")
    cluster = Cluster(tuple(addresses), _place(task, jobs))
    return cluster if len(addresses) > 1 else None


def _addresses(job: str, found: Any) -> list[str]:
    if not isinstance(found, list):
        raise InputError(f"{VARIABLE}: cluster.{job} is not a list of addresses: expected {EXPECTED}")
    for address in found:
        host, colon, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
        if not (host and colon and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise InputError(f"{VARIABLE}: cluster.{job}: {address!r} is not an address such as 10.0.0.1:5000")
    return found


def _place(task: dict[str, Any], jobs: dict[str, list[str]]) -> int:
    job, index = task.get("type"), task.get("index", 0)
    if isinstance(index, str) and index.isascii() and index.isdigit():  # as some operators write it
        index = int(index)
    if not isinstance(job, str) or job not in jobs:
        raise InputError(f"{VARIABLE}: task.type is {job!r}, and the cluster has {', '.join(sorted(jobs))}")
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(jobs[job]):
        raise InputError(f"{VARIABLE}: task.index is {index!r}; the cluster has {job} 0 to {len(jobs[job]) - 1}")
    return index + (len(jobs.get("chief", [])) if job == "worker" else 0)
