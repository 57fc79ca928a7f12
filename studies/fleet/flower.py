"""Messages carried by Flower: its ServerApp and ClientApp, simulated on Ray.

A Flower message holds one record, ``flipbit``, with the bytes of a request or a reply; numbers for people go beside it.
What a device keeps between messages is in its context, or in its folder.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")  # nothing leaves the machine unasked
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # where TensorFlow is installed, Flower's simulation loads it

from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from flipbit.runtime.errors import InputError
from flipbit.studies.fleet import gateway
from flipbit.studies.fleet.lead import Ask
from flipbit.studies.fleet.messages import Reply
from flipbit.studies.fleet.run import FleetJob, Run, device_of, kept_device

RECORD = "flipbit"
PULL = 0.05  # seconds between two looks for replies
TRAIN = "train"


class Halted(Exception):
    """Ctrl-C reached the thread that leads."""


# Devices


def answered(
    message: Message, context: Context, job: FleetJob, shares: Path, number: int, folder: Path | None
) -> Message:
    """The reply of a device to a Flower message. A simulated one (without a folder) begins with what the run's
    checkpoint holds of it, and hands what it has to the server for the next checkpoint."""
    device = device_of(job, shares, number, folder)
    kept = context.state.get(RECORD)
    if folder is None:
        device.load(kept_device(shares.parent, number) if kept is None else _bytes(kept["device"]))
    asked = _bytes(message.content[RECORD]["message"])
    if not asked:  # how many boards are there?
        return Message(RecordDict({RECORD: ConfigRecord({"message": (1).to_bytes(4, "little")})}), reply_to=message)
    body = device.answer(asked)
    said = ConfigRecord({"message": body})
    if folder is None:
        context.state[RECORD] = ConfigRecord({"device": device.save()})
        said["number"], said["device"] = number, device.save()
    reply = Reply.unpack(body)
    numbers = MetricRecord({"samples": reply.samples, "right": reply.right, "loss": float(reply.loss)})
    return Message(RecordDict({RECORD: said, "numbers": numbers}), reply_to=message)


def _bytes(value: Any) -> bytes:
    """A value of a record, which may hold other kinds, too."""
    if not isinstance(value, bytes):
        raise ValueError(f"a message of Flower holds {type(value).__name__} where bytes belong")
    return value


def served(message: Message, path: Path, job: FleetJob) -> Message:
    """The reply of a board behind a gateway."""
    asked = message.content[RECORD]
    body, board = _bytes(asked["message"]), asked.get("board", 0)
    said = gateway.ask(path, job, board if isinstance(board, int) else 0, body)
    record = RecordDict({RECORD: ConfigRecord({"message": said})})
    if body:
        reply = Reply.unpack(said)
        record["numbers"] = MetricRecord({"samples": reply.samples, "right": reply.right, "loss": float(reply.loss)})
    return Message(record, reply_to=message)


def simulated_client(job: FleetJob, shares: Path) -> ClientApp:
    """A device whose number is its partition's."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        number = int(context.node_config["partition-id"])
        return answered(message, context, job, shares, number, None)

    return app


# The server. A device is a node of Flower's; boards behind one are devices, too: board b of a node is node + b · BOARD.

BOARD = 1 << 64


def asking(grid: Grid, patience: float, stop: threading.Event, flash: dict[int, bytes] | None = None) -> Ask:
    """Messages over a grid. Who has not answered after ``patience`` seconds is not waited for. What simulated devices
    hold is put into ``flash``."""

    def ask(requests: Mapping[int, bytes]) -> Mapping[int, bytes]:
        messages = [
            Message(
                RecordDict({RECORD: ConfigRecord({"message": data, "board": device // BOARD})}),
                device % BOARD, TRAIN, ttl=patience,
            )
            for device, data in requests.items()
        ]  # fmt: skip
        asked = dict(zip(grid.push_messages(messages), requests))
        waiting = set(asked)
        replies: dict[int, bytes] = {}
        end = time.monotonic() + patience
        while waiting and time.monotonic() < end:
            if stop.is_set():
                raise Halted
            for reply in grid.pull_messages(waiting):
                waiting.discard(reply.metadata.reply_to_message_id)
                if reply.has_error():  # vanished, or failed before it could say why
                    continue
                found = reply.content.get(RECORD)
                body = found.get("message") if isinstance(found, ConfigRecord) else None
                device = asked.get(reply.metadata.reply_to_message_id)
                if device is not None and device % BOARD == reply.metadata.src_node_id:
                    replies[device] = body if isinstance(body, bytes) else b""
                    if flash is not None and isinstance(found, ConfigRecord):
                        flash[int(str(found["number"]))] = _bytes(found["device"])
            time.sleep(PULL)
        return replies

    return ask


class Boards:
    """How many boards each node serves: it is asked once. ``most`` count; a node without a gateway is one device."""

    def __init__(self, ask: Ask, most: int):
        self.ask, self.most = ask, most
        self.known: dict[int, int] = {}

    def of(self, nodes: Sequence[int]) -> Sequence[int]:
        """The devices behind these nodes."""
        new = [node for node in nodes if node not in self.known]
        if self.most > 1 and new:
            for node, said in self.ask(dict.fromkeys(new, b"")).items():
                count = int.from_bytes(said, "little") if len(said) == 4 else 1
                self.known[node] = min(max(count, 1), self.most)
        return sorted(node + board * BOARD for node in nodes for board in range(self.known.get(node, 1)))


def nodes(
    grid: Grid, least: int, patience: float, stop: threading.Event, boards: Boards | None = None
) -> Sequence[int]:
    """Devices that are connected; waits for the ``least``."""
    end = time.monotonic() + patience
    while True:
        found = sorted(grid.get_node_ids())
        if boards is not None:
            found = list(boards.of(found))
        if len(found) >= least:
            return found
        if stop.is_set():
            raise Halted
        if time.monotonic() > end:
            raise InputError(f"{len(found)} devices are connected, after {patience:g} s; the fleet needs {least}")
        time.sleep(PULL)


def simulate(
    run: Run, shares: Path, devices: int, patience: float, show: Callable[[Any], None], cores: int = 1
) -> None:
    """Run the fleet's rounds with simulated devices on Ray, each with its own process's C core."""
    try:
        import ray  # noqa: F401
        from flwr.simulation import run_simulation
    except ModuleNotFoundError as error:
        raise InputError(f"{error.name} is not installed here: pip install 'flipbit[fleet]', or add --local") from None
    stop, failed = threading.Event(), []
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        try:
            run.rounds(asking(grid, patience, stop, run.flash), lambda: nodes(grid, devices, patience, stop), show)
        except BaseException as error:
            failed.append(error)

    logging.getLogger("flwr").setLevel(logging.ERROR)
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        run_simulation(
            server, simulated_client(run.job, shares), devices,
            backend_config={
                "init_args": {
                    "num_cpus": cores, "include_dashboard": False, "log_to_driver": False, "logging_level": 40,
                },
                "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            },
        )  # fmt: skip
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if stop.is_set():
        raise KeyboardInterrupt
    if failed:
        raise failed[0]
