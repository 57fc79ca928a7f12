"""Boards in a fleet: the image that host devices with the same samples make."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flipbit.runtime.commands.cli import main
from flipbit.runtime.core.learner import Learner, LearnerConfig
from flipbit.runtime.errors import InputError
from flipbit.runtime.link.protocol import Command
from flipbit.runtime.stopping import end_child, start_child
from flipbit.studies.fleet.board import FleetBoard, Port
from flipbit.studies.fleet.deploy import free_port
from flipbit.studies.fleet.device import FleetDevice, crc_of
from flipbit.studies.fleet.gateway import Gateway, ask
from flipbit.studies.fleet.lead import Plan
from flipbit.studies.fleet.messages import Answer, Reply, Request, Task
from flipbit.studies.fleet.run import SHARES, FleetJob, Run, device_of, in_process, write_shares
from tests.firmware.host_app import HostApp, build_app
from tests.firmware.test_learn_on_board import firmware_tools
from tests.nets.small_nets import referenced_image
from tests.nets.tiny_net import tiny_image
from tests.patience import PATIENCE
from tests.studies.fleet.test_command import DIGITS, fleet, needs, shares_of_digits

IMAGE = referenced_image(1)
NEW = (Command.LEARN_FLIP, Command.LEARN_FOLLOW, Command.LEARN_PLAN)
BOARDS = ("mps2-an385", "netduinoplus2", "mps2-an385", "mps2-an500")
JOBS: dict[str, tuple[LearnerConfig, dict[str, Any]]] = {
    "flips": (LearnerConfig(seed=1), {"rate": 0.01, "quorum": 1}),
    "sum": (LearnerConfig(seed=1), {"rate": 0.02}),
    "sum of 8 bits": (LearnerConfig(seed=1), {"rate": 0.02, "bits": 8}),
    "sum, biases too": (LearnerConfig(seed=1, bias=True), {"rate": 0.02, "rate_bias": 0.1}),
    "recalibrate": (LearnerConfig(seed=1, bits=False, recalibrate=1, prior=10), {"rounds": 1}),
}


def samples(folder: Path, devices: int) -> Path:
    size, random = Learner(IMAGE, LearnerConfig()).input_size, np.random.default_rng(4)
    counts = range(5, 5 + devices)
    shares = [(random.integers(-128, 128, (n, size), np.int8), random.integers(0, 5, n)) for n in counts]
    write_shares(folder / SHARES, shares, 0)
    return folder / SHARES


def learned(folder: Path, job: FleetJob, devices: dict[int, FleetDevice], after: Any = lambda row: None) -> bytes:
    """The image of a fleet in this process, in whose rounds all took part."""
    folder.mkdir()
    run = Run(job, folder)
    run.rounds(in_process(devices), lambda: sorted(devices), after)
    assert all(row.answered == len(devices) and not row.refused for row in run.rows), run.rows
    return run.lead.image


@pytest.mark.parametrize("name", JOBS)
def test_boards_make_the_image_that_host_devices_make(tmp_path: Path, name: str) -> None:
    """Two boards and a host's device, side by side. A board that loses power between two rounds changes nothing."""
    config, more = JOBS[name]
    job = FleetJob(IMAGE, config, Plan(**{"way": name.split(",")[0].split()[0], "rounds": 3, **more}))
    path = samples(tmp_path, 3)
    hosts = {number: device_of(job, path, number) for number in range(3)}
    expected = learned(tmp_path / "host", job, hosts)
    devices = {number: device_of(job, path, number) for number in range(3)}
    with contextlib.ExitStack() as stack:
        for number in range(2):
            app = stack.enter_context(HostApp(build_app(IMAGE), tmp_path / f"flash{number}"))
            app.device.hello()
            mine = devices[number]
            devices[number] = board = FleetBoard(IMAGE, config, mine.x, mine.y, mine.seed)
            board.connect(app.device, job.plan.way)

        def power_is_lost(row: Any) -> None:
            if row.number == 0 and job.plan.rounds > 1:
                app.device.request(Command.RESET, expect_restart=True)

        assert learned(tmp_path / "boards", job, devices, power_is_lost) == expected != IMAGE


@pytest.fixture
def app(tmp_path: Path) -> Iterator[HostApp]:
    with HostApp(build_app(IMAGE), tmp_path / "flash") as running:
        running.device.hello()
        yield running


def test_a_board_that_runs_another_net_is_told_before_it_joins(app: HostApp, tmp_path: Path) -> None:
    own, other = tmp_path / "own.fbit", tmp_path / "other.fbit"
    own.write_bytes(IMAGE)
    other.write_bytes(tiny_image())
    Port("here", own, tmp_path).check(app.device)
    with pytest.raises(InputError, match=r"runs another net than .*other\.fbit .*: flipbit device upload"):
        Port("here", other, tmp_path).check(app.device)


def test_firmware_without_the_commands_is_told_in_one_line(app: HostApp, monkeypatch: pytest.MonkeyPatch) -> None:
    """As firmware answers to numbers that it does not know: COMMAND (tests/firmware/test_app.py)."""
    request = app.device.request

    def older(command: int, payload: bytes = b"", *more: Any, **named: Any) -> bytes:
        return request(0x5F if command in NEW else command, payload, *more, **named)

    monkeypatch.setattr(app.device, "request", older)
    board = FleetBoard(IMAGE, LearnerConfig(), np.zeros((1, 3 * 12 * 12), np.int8), np.zeros(1, int))
    board.connect(app.device, "flips")
    asked = Request(Task.FLIPS, crc_of(IMAGE), rate=1000, limit=10).pack()
    said = Reply.unpack(board.answer(asked))
    assert said.status == Answer.FAILED
    assert b"cannot take part in a fleet: flash one of this version" in said.body


def test_a_gateway_answers_for_the_boards_it_has_and_says_how_many(tmp_path: Path) -> None:
    said: list[str] = []
    gateway = Gateway([], 0, tmp_path / "none.npz", tmp_path, said.append)
    job = FleetJob(IMAGE, LearnerConfig(), Plan())
    with gateway:
        assert ask(gateway.path, job, 0, b"") == bytes(4)
        reply = Reply.unpack(ask(gateway.path, job, 3, b"x"))
        assert (reply.status, reply.body) == (Answer.FAILED, b"this gateway has 0 boards, no 3")
    with pytest.raises(InputError, match="the gateway does not answer"):
        ask(gateway.path, job, 0, b"")


@pytest.mark.slow
def test_a_superlink_leads_emulated_boards_behind_three_supernodes(tmp_path: Path) -> None:
    """TLS and keys are on. The third gateway has two boards. The image is the one that host devices make."""
    needs("flwr")
    for board in BOARDS:
        firmware_tools(board)
    keys, port, path = tmp_path / "keys", str(free_port()), shares_of_digits(tmp_path, len(BOARDS))
    assert main(["fleet", "keys", "--devices", "3", "-o", str(keys)]) == 0
    config, plan = LearnerConfig(seed=1), Plan("flips", rounds=2, rate=0.01, quorum=1)
    job = FleetJob(Path(DIGITS).read_bytes(), config, plan)
    expected = learned(tmp_path / "host", job, {i: device_of(job, path, i) for i in range(len(BOARDS))})
    children = []

    def start(name: str, *words: str) -> None:
        log = open(tmp_path / f"{name}.txt", "ab")  # noqa: SIM115  the child's
        children.append(start_child(fleet(*words), stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    try:
        for number, boards in ((0, BOARDS[:1]), (1, BOARDS[1:2]), (2, BOARDS[2:])):
            start(
                f"join{number}", "join", DIGITS, "--number", str(number), "--keys", str(keys), "--server",
                f"127.0.0.1:{port}", "--samples", str(path), "--flash", str(tmp_path / f"flash{number}"),
                *(word for board in boards for word in ("--port", f"qemu:{board}")),
            )  # fmt: skip
        start(
            "serve", "serve", DIGITS, "--keys", str(keys), "--devices", "3", "--boards", "2", "--wait-for", "4",
            "--way", "flips", "--rounds", "2", "--rate", "0.01", "--quorum", "1", "--patience", str(4 * PATIENCE),
            "--port", port, "-o", str(tmp_path / "run"),
        )  # fmt: skip
        children[-1].wait(timeout=8 * PATIENCE)
        said = "\n".join(file.read_text() for file in sorted(tmp_path.glob("*.txt")))
        assert children[-1].returncode == 0, said
    finally:
        for child in children:
            end_child(child)
    log = json.loads((tmp_path / "run" / "log.json").read_text())
    assert [(row["asked"], row["answered"], row["refused"]) for row in log["rounds"]] == [(4, 4, 0)] * 2, said
    assert (tmp_path / "run" / "model.fbit").read_bytes() == expected != job.image
