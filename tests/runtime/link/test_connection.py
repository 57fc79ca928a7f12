"""Requests over a line that loses and damages answers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flipbit.runtime.link.connection import Connection
from flipbit.runtime.link.protocol import EVENT, REPLY, Command, Frame, Reader, Status, encode
from flipbit.runtime.link.refusals import DeviceError, NoAnswerError, RefusedError, RestartedError

Answer = Callable[[Frame], bytes]


class Scripted:
    """A line whose device gives one answer after the other, the last for ever."""

    name = "scripted"

    def __init__(self, *answers: Answer):
        self.answers, self.waiting, self.requests = list(answers), b"", []
        self._reader = Reader()

    def write(self, data: bytes) -> None:
        for frame in self._reader.feed(data):
            self.requests.append(frame)
            self.waiting += (self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])(frame)

    def read(self, seconds: float) -> bytes:
        data, self.waiting = self.waiting, b""
        return data

    def close(self) -> None:
        pass


def echoed(frame: Frame) -> bytes:
    return encode(Frame(frame.id, frame.command | REPLY, 0, frame.payload))


def silence(_: Frame) -> bytes:
    return b""


def damaged(frame: Frame) -> bytes:
    return echoed(frame).replace(b"hi", b"ho")


def complaint(_: Frame) -> bytes:
    return encode(Frame(0, REPLY, Status.CRC, bytes(4)))


def late(frame: Frame) -> bytes:
    """The answer to an earlier request, then this one's."""
    return echoed(Frame(frame.id - 1 or 0xFFFF, frame.command, 0, b"old")) + echoed(frame)


def connected(*answers: Answer) -> tuple[Connection, Scripted]:
    line = Scripted(*answers)
    return Connection(line, timeout=0.02, retries=2), line


@pytest.mark.parametrize("first", [silence, damaged, complaint])
def test_a_request_without_a_good_answer_is_sent_again_as_it_was(first: Answer) -> None:
    connection, line = connected(first, echoed)
    assert connection.echo(b"hi") == b"hi"
    assert connection.retried == 1
    assert line.requests[0] == line.requests[1]


def test_an_answer_to_another_request_is_passed_over() -> None:
    connection, _ = connected(late)
    assert connection.echo(b"hi") == b"hi"
    assert connection.retried == 0


def test_a_device_that_does_not_answer_is_given_up_after_the_last_try() -> None:
    connection, line = connected(silence)
    with pytest.raises(NoAnswerError, match="no answer to ECHO after 3 tries"):
        connection.echo(b"hi")
    assert len(line.requests) == 3


def test_an_error_is_raised_with_its_number() -> None:
    connection, _ = connected(lambda f: encode(Frame(f.id, f.command | REPLY, Status.RANGE, b"\7\0\0\0")))
    with pytest.raises(RefusedError, match="the limit is 7") as error:
        connection.request(Command.LOOK, b"\11")
    assert (error.value.code, error.value.detail) == (Status.RANGE, 7)


def test_a_restart_is_told_unless_it_was_expected() -> None:
    ready = encode(Frame(0, EVENT, 0, b"ready: flipbit 0 on a board"))
    connection, _ = connected(lambda frame: ready + echoed(frame))
    with pytest.raises(RestartedError, match="restarted during ECHO"):
        connection.echo(b"hi")
    assert connection.request(Command.ECHO, b"hi", expect_restart=True) == b"hi"


def test_a_device_of_another_protocol_version_is_refused_with_a_way_out() -> None:
    connection, _ = connected(lambda frame: encode(Frame(frame.id, frame.command | REPLY, 0, b"\1" + bytes(80))))
    with pytest.raises(DeviceError, match=r"version 1, this host 2; flash it anew, or install"):
        connection.info()
