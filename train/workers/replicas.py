"""The replicas of a net that train together: on the devices of this process, and in the processes of other workers.

TensorFlow's strategies run a step on every device and add up what the replicas have found. Each process keeps one copy
of the variables and applies the same update to it: random numbers of rounding depend on (seed, layer, step), so that
all copies hold the same bits and weights are never sent. At the start all get the chief's state, and before each
checkpoint digests of all copies are compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from flipbit.train.keras_larq import tf
from flipbit.train.settings import InputError
from flipbit.train.workers.cluster import VARIABLE, Cluster
from flipbit.train.workers.meeting import LOST, unreachable

DIGEST = 8  # 16-bit words of a digest that are compared
# What TensorFlow says when another process has gone, or an exchange with it failed.
ENDINGS = ("UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError")


class Replicas:
    """Of a strategy; ``cluster`` names the processes if there are several."""

    def __init__(self, strategy: Any, cluster: Cluster | None = None):
        self.strategy, self.cluster = strategy, cluster
        self.count = int(strategy.num_replicas_in_sync)
        self.processes = 1 if cluster is None else len(cluster.addresses)
        self.process = 0 if cluster is None else cluster.index
        self.chief = self.process == 0
        here = self.count // self.processes
        self.here = range(self.process * here, (self.process + 1) * here)

    @staticmethod
    def of(cluster: Cluster | None, devices: Sequence[str] | None = None) -> Replicas | None:
        """Those of a cluster, or of several GPUs here (or ``devices``); None where one device trains alone.

        Has to come before anything is computed: TensorFlow can join a cluster only as it starts.
        """
        if cluster is not None:
            chosen = tf.distribute.experimental.CommunicationImplementation.AUTO
            resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
                tf.train.ClusterSpec({"worker": list(cluster.addresses)}),
                task_type="worker",
                task_id=cluster.index,
                rpc_layer="grpc",
            )
            options = tf.distribute.experimental.CommunicationOptions(implementation=chosen)
            try:
                strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver, options)
            except tf.errors.OpError as error:
                raise InputError(f"{VARIABLE}: TensorFlow cannot join the cluster: {_first_line(error)}") from None
            return Replicas(strategy, cluster)
        found = devices or [name.replace("physical_device:", "") for name, _ in tf.config.list_physical_devices("GPU")]
        if len(found) < 2:
            return None
        # Added up in the order of the devices: the same bits in every run.
        return Replicas(tf.distribute.MirroredStrategy(list(found), tf.distribute.ReductionToOneDevice()))

    # Within a step, in each replica.

    def number(self) -> Any:
        return tf.distribute.get_replica_context().replica_id_in_sync_group

    def sums(self, x: Any) -> Any:
        """The sum of a tensor over all replicas, the same bits in each."""
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, x)

    def rows(self, x: Any) -> Any:
        """A vector of each replica, as rows of a matrix: by one sum, where TensorFlow's gather sends three messages."""
        return self.sums(tf.one_hot(self.number(), self.count)[:, None] * x[None])

    def run(self, step: Callable[[], Any]) -> Any:
        """Run a function in every replica of this process; what the first one returns."""
        return self.strategy.experimental_local_results(self.strategy.run(step))[0]

    # Between steps, in each process.

    def total(self, values: np.ndarray) -> np.ndarray:
        """The sum of an array (float32 or float64) over all processes."""
        if self.processes == 1:
            return values
        mine = tf.constant(values)

        def step() -> Any:
            first = tf.equal(self.number(), self.here[0])
            return self.sums(tf.where(first, mine, tf.zeros_like(mine)))

        return self.run(step).numpy()

    def from_chief(self, content: bytes) -> bytes:
        """The chief's bytes, in every process."""
        if self.processes == 1:
            return content
        size = int(self.total(np.array([len(content) if self.chief else 0.0], np.float64))[0])
        words = np.zeros((size + 1) // 2, np.float32)
        if self.chief:
            words[:] = np.frombuffer(content + b"\0" * (size % 2), "<u2")
        return self.total(words).astype("<u2").tobytes()[:size]

    def wait(self) -> None:
        """Return when all processes are here."""
        self.total(np.zeros(1, np.float32))

    def assert_same(self, weights: dict[str, list[np.ndarray]], when: str) -> None:
        """Compare named weights of all processes, by digests."""
        if self.processes == 1 or not weights:
            return
        words = np.zeros((self.processes, len(weights), DIGEST), np.float32)
        words[self.process] = [digest(arrays) for arrays in weights.values()]
        found = self.total(words)
        differ = np.argwhere((found != found[0]).any(2))
        if len(differ):
            worker, layer = differ[0]
            raise InputError(
                f"{when}, worker {worker} holds other weights than the chief (first in {list(weights)[layer]}): all "
                "workers need the same kind of CPU or GPU and the same TensorFlow; the checkpoint before this is kept"
            )

    @contextmanager
    def or_lost(self) -> Iterator[None]:
        """Within, the end of another worker is told as such."""
        try:
            yield
        except tf.errors.OpError as error:
            if self.cluster is None:
                raise
            gone = unreachable(self.cluster)
            if not gone and type(error).__name__ not in ENDINGS:
                raise
            who = " and ".join(gone) or "another worker"
            raise InputError(
                f"{who} {LOST} ({_first_line(error)}): finished epochs are kept; start all workers again, with --resume"
            ) from None


def digest(arrays: list[np.ndarray]) -> np.ndarray:
    """A digest of arrays, in words that are exact in float32."""
    sha = hashlib.sha256()
    for array in arrays:
        sha.update(np.ascontiguousarray(array).data)
    return np.frombuffer(sha.digest()[: 2 * DIGEST], "<u2").astype(np.float32)


def _first_line(error: Any) -> str:
    """What TensorFlow said, without the listing of places in code that it puts around."""
    lines = [line.strip() for line in str(error.message).splitlines() if line.strip()]
    told = [
        line for line in lines if not line.startswith(("Graph execution error", "Detected at", "File ", "Additional"))
    ]
    return (told or lines or [type(error).__name__])[0]
