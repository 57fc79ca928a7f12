"""Requests to a device and their answers, over a line that may lose bytes.

A request is sent again when its answer is damaged or does not come: each does the same when it comes twice.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator

from flipbit.runtime.link.line import Line
from flipbit.runtime.link.protocol import REPLY, Command, Frame, Identity, Reader, Status, encode, parse_identity
from flipbit.runtime.link.refusals import DeviceError, NoAnswerError, RefusedError, RestartedError, command_name

QUIET = 0.05  # seconds without a byte after which a line is at rest


class Connection:
    """A line with a device at its end.

    ``timeout`` is how many seconds an answer may take, ``slow_timeout`` one for which the net runs or flash is erased.
    """

    def __init__(
        self,
        line: Line,
        timeout: float = 2.0,
        slow_timeout: float = 120.0,
        retries: int = 4,
        on_event: Callable[[str], None] | None = None,
        on_close: Callable[[], None] | None = None,
    ):
        self.line = line
        self.timeout = timeout
        self.slow_timeout = slow_timeout
        self.retries = retries
        self.retried = 0  # requests sent again so far
        self._on_event = on_event
        self._on_close = on_close
        self._reader = Reader()
        self._frames: list[Frame] = []
        self._id = 0

    def close(self) -> None:
        self.line.close()
        if self._on_close:
            self._on_close()

    def request(
        self, command: int, payload: bytes = b"", timeout: float | None = None, expect_restart: bool = False
    ) -> bytes:
        """Send a request and return the payload of its answer; RefusedError if that is an error."""
        self._id = self._id % 0xFFFF + 1
        data = b"\0" + encode(Frame(self._id, command, 0, payload))  # the 0 ends what noise there was before
        wait = self.timeout if timeout is None else timeout
        for attempt in range(self.retries + 1):
            self.retried += attempt > 0
            self.line.write(data)
            reply = self._await(self._id, command, time.monotonic() + wait, expect_restart)
            if reply is None:
                continue
            if reply.status != Status.OK:
                raise RefusedError(command, reply.status, reply.detail)
            return reply.payload
        raise NoAnswerError(
            f"{self.line.name}: no answer to {command_name(command)} after {self.retries + 1} tries of {wait:g} s "
            f"({self._reader.bad} damaged frames came); does the board run the flipbit firmware (flipbit flash), "
            "and is this its port, with the right baud rate?"
        )

    def _await(self, number: int, command: int, deadline: float, expect_restart: bool) -> Frame | None:
        """The reply to a request; None if it must be sent again."""
        while (frame := self._next(deadline)) is not None:
            if frame.is_event:
                self._tell(frame)
                if frame.text.startswith("ready") and not expect_restart:
                    raise RestartedError(
                        f"{self.line.name}: the device restarted during {command_name(command)} (a fault, a loss of "
                        "power, or its reset button); what was loaded is gone, start over"
                    )
            elif frame.id == number and frame.command == command | REPLY:
                return frame
            elif frame.is_complaint:
                # What it could not read may have been noise before our request, whose answer then still comes. To send
                # again while it sends would cost bytes on boards that buffer only one.
                deadline = min(deadline, time.monotonic() + QUIET)
        return None

    def _next(self, deadline: float) -> Frame | None:
        while not self._frames:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            bad = self._reader.bad
            self._frames += self._reader.feed(self.line.read(left))
            if self._reader.bad > bad:  # perhaps the answer, damaged: no use in waiting much longer
                deadline = min(deadline, time.monotonic() + self.timeout)
        return self._frames.pop(0)

    def _tell(self, frame: Frame) -> None:
        if self._on_event:
            self._on_event(frame.text)

    def hello(self, patience: float = 10.0) -> Identity:
        """Wait for a device that may still be starting, and return who it is."""
        deadline = time.monotonic() + patience
        retries, self.retries = self.retries, 0
        try:
            while True:
                try:
                    self.request(Command.ECHO, b"hello", min(0.5, self.timeout), expect_restart=True)
                    break
                except NoAnswerError:
                    if time.monotonic() > deadline:
                        raise
        finally:
            self.retries = retries
        return self.info()

    def info(self) -> Identity:
        """Board, core, model and memory."""
        payload = self.request(Command.IDENTIFY, timeout=max(self.timeout, 5.0))
        try:
            return parse_identity(payload)
        except ValueError as error:
            raise DeviceError(
                f"{self.line.name}: {error}; flash it anew, or install the flipbit it was flashed with"
            ) from None

    def counters(self) -> dict[str, int]:
        """Frames received: good ones, and noise."""
        good, bad, ticks = struct.unpack("<3I", self.request(Command.COUNTERS))
        return {"good": good, "bad": bad, "ticks": ticks}

    def echo(self, data: bytes) -> bytes:
        """The same bytes, from the device."""
        return self.request(Command.ECHO, data)

    def monitor(self, seconds: float | None = None) -> Iterator[str]:
        """What the device says unasked, a line at a time; other bytes on the line as text."""
        deadline = time.monotonic() + (seconds if seconds is not None else 1e9)
        while time.monotonic() < deadline:
            frame = self._next(min(deadline, time.monotonic() + 0.2))
            for noise in self._reader.noise:
                yield f"? {noise.decode('ascii', 'backslashreplace')}"
            self._reader.noise.clear()
            if frame is not None:
                yield frame.text if frame.is_event else f"{command_name(frame.command)}: {frame.payload.hex(' ')}"
