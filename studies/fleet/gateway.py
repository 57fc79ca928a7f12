"""A gateway: it serves one board or several to the SuperNode beside it.

The boards' lines stay open here as long as the gateway runs. Flower starts a process for every message; that process
asks here, over a socket that nobody else may open: which board as JSON, then the message; the reply comes back.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Client, Listener
from pathlib import Path

from flipbit.runtime.core.learner_config import LearnerConfig
from flipbit.runtime.errors import FlipbitError, InputError
from flipbit.runtime.link.device import Device
from flipbit.studies.fleet.board import FleetBoard, Port
from flipbit.studies.fleet.device import crc_of
from flipbit.studies.fleet.lead import Plan
from flipbit.studies.fleet.messages import Answer, Reply
from flipbit.studies.fleet.run import FleetJob, read_share, seed_of

log = logging.getLogger(__name__)
SOCKET = "gateway"


def job_text(job: FleetJob) -> str:
    """What the fleet learns, for the gateway: the image is its own."""
    plan = {"way": job.plan.way, "seed": job.plan.seed}
    return json.dumps({"config": job.config.pack().hex(), "arena": job.arena, **plan})


@dataclass
class Served:
    """A board, from the first message on a :class:`FleetBoard`."""

    port: Port
    number: int
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    lock: threading.Lock = field(default_factory=threading.Lock)
    device: Device | None = None
    board: FleetBoard | None = None
    job: str = ""

    def open(self) -> Device:
        if self.device is None:
            self.device = self.stack.enter_context(self.port.opened())
        return self.device

    def close(self) -> None:
        self.device = self.board = None
        self.stack.close()


class Gateway:
    """Boards at ``ports`` with the samples of devices ``number``, ``number`` + 1, …; ends with the block."""

    def __init__(self, ports: list[Port], number: int, samples: Path, work: Path, tell: Callable[[str], None]):
        self.samples, self.tell, self.path = samples, tell, work / SOCKET
        self.boards = [Served(port, number + i) for i, port in enumerate(ports)]
        self._listener: Listener | None = None

    def __enter__(self) -> Gateway:
        try:
            for served in self.boards:
                info = served.open().info()
                self.tell(f"device {served.number}: {info.board} at {served.port.name}")
            self._listener = Listener(str(self.path), "AF_UNIX")
        except BaseException:
            self.__exit__()
            raise
        threading.Thread(target=self._serve, args=(self._listener,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._listener is not None:
            self._listener.close()
        for served in self.boards:
            with contextlib.suppress(FlipbitError):
                served.close()

    def _serve(self, listener: Listener) -> None:
        while True:
            try:
                asked = listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._asked, args=(asked,), daemon=True).start()

    def _asked(self, asked: object) -> None:
        with contextlib.suppress(OSError, EOFError), asked as connection:  # type: ignore[attr-defined]
            head, message = json.loads(connection.recv_bytes()), connection.recv_bytes()
            if not message:
                connection.send_bytes(len(self.boards).to_bytes(4, "little"))
                return
            connection.send_bytes(self.answer(int(head["board"]), str(head["job"]), message))

    def answer(self, board: int, job: str, message: bytes) -> bytes:
        """A board's reply. One that is away is looked for again."""
        if not 0 <= board < len(self.boards):
            return Reply(
                Answer.FAILED, 0, body=f"this gateway has {len(self.boards)} boards, no {board}".encode()
            ).pack()
        served = self.boards[board]
        with served.lock:
            image = 0
            try:
                if served.board is None or served.job != job:
                    served.board, served.job = self._board(served, job), job
                image = crc_of(served.board.image)
                reply = served.board.answer(message)
                failed = Reply.unpack(reply).status == Answer.FAILED
            except FlipbitError as error:
                self.tell(f"device {served.number}: {error}")
                reply = Reply(Answer.FAILED, image, body=str(error).encode()[:500]).pack()
                failed = True
            if failed:  # the next message finds it as it comes out of its flash
                with contextlib.suppress(FlipbitError):
                    served.close()
            return reply

    def _board(self, served: Served, text: str) -> FleetBoard:
        job = json.loads(text)
        x, y, lies = read_share(self.samples, served.number)
        if lies:
            raise InputError("boards do not lie")
        plan = Plan(way=job["way"], seed=int(job["seed"]))
        image = served.port.image.read_bytes()
        config = LearnerConfig.unpack(bytes.fromhex(job["config"]))
        board = FleetBoard(image, config, x, y, seed_of(plan, served.number), int(job["arena"]))
        board.connect(served.open(), plan.way)
        return board


def ask(path: Path, job: FleetJob, board: int, message: bytes) -> bytes:
    """The reply of a gateway's board; an empty message asks how many there are (4 bytes, little-endian)."""
    try:
        with Client(str(path), "AF_UNIX") as connection:
            connection.send_bytes(json.dumps({"board": board, "job": job_text(job)}).encode())
            connection.send_bytes(message)
            return connection.recv_bytes()
    except (OSError, EOFError) as error:
        raise InputError(f"the gateway does not answer ({error or 'it is gone'})") from None
