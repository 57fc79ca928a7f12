"""A fleet of processes and machines: Flower's SuperLink with the lead, a SuperNode per gateway or board.

`serve` starts the SuperLink, registers the devices' keys, and hands it the app of `app.py`, which leads the rounds in a
process of the SuperLink's. `join` starts a SuperNode, whose app is the device. TLS and the devices' keys are always on.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from flipbit.runtime.errors import ArgumentError, InputError
from flipbit.runtime.files import write_text
from flipbit.runtime.stopping import end_child, run_child, start_child
from flipbit.studies.fleet import keys
from flipbit.studies.fleet.run import FleetJob

APP = """[project]
name = "flipbit-fleet"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "flipbit"

[tool.flwr.app.components]
serverapp = "fleet_app:server"
clientapp = "fleet_app:client"

[tool.flwr.app.config]
config = "{config}"
seed = {seed}
way = "{way}"
arena = {arena}
folder = "{folder}"
said = "{said}"
devices = {devices}
boards = {boards}
patience = {patience}
"""
CODE = "from flipbit.studies.fleet import app\n\nclient = app.client\nserver = app.server\n"
START = 120.0  # seconds for a SuperLink to answer
LOOK = 0.5


def programs() -> dict[str, str]:
    """Flower's commands, beside this Python or on the path."""
    found = {}
    for name in ("flower-superlink", "flower-supernode", "flwr"):
        beside = Path(sys.executable).parent / name
        path = str(beside) if beside.exists() else shutil.which(name)
        if path is None:
            raise InputError(f"{name} is not installed here: pip install 'flipbit[fleet]'")
        found[name] = path
    return found


def address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ArgumentError(f"{text!r}: expected HOST:PORT, such as 127.0.0.1:9092")
    return host, int(port)


def check_port(host: str, port: int) -> None:
    """Flower's own message on a port that is taken is a page long."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise InputError(f"{host}:{port}: cannot listen there ({error.strerror}): choose another --port") from None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(home: Path) -> dict[str, str]:
    """Flower's files go to ``home``; nothing is sent to its makers."""
    folder = str(Path(sys.executable).parent)
    return {
        **os.environ, "FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0",
        "PATH": folder + os.pathsep + os.environ.get("PATH", ""), "NO_COLOR": "1",
    }  # fmt: skip


def tail(path: Path) -> str:
    """The last line of a log that says something."""
    try:
        lines = [line.strip() for line in path.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return "nothing"
    telling = [line for line in lines if "ERROR" in line or "rror:" in line] or lines
    return telling[-1][-300:] if telling else "nothing"


class Server:
    """A SuperLink and the run on it; ends with the block."""

    def __init__(self, work: Path, keys_folder: Path, host: str, port: int):
        self.work, self.keys, self.host, self.port = work, keys_folder, host, port
        self.programs, self.log = programs(), work / "superlink.log"
        self.home = work / "flower"
        self.child: subprocess.Popen[bytes] | None = None
        self._out: IO[bytes] | None = None

    def __enter__(self) -> Server:
        keys.there(self.keys, keys.CA, keys.SERVER, keys.SERVER_KEY)
        check_port(self.host, self.port)
        self.home.mkdir(parents=True, exist_ok=True)
        reach = "127.0.0.1" if self.host in ("0.0.0.0", "::") else self.host
        write_text(
            self.home / "config.toml",
            f'[superlink]\ndefault = "fleet"\n\n[superlink.fleet]\naddress = "{reach}:{self.port}"\n'
            f"root-certificates = {json.dumps(str((self.keys / keys.CA).resolve()))}\n",
        )
        self._out = open(self.log, "wb")
        self.child = start_child(
            [
                self.programs["flower-superlink"], "--host", self.host, "--port", str(self.port),
                "--ssl-certfile", str(self.keys / keys.SERVER), "--ssl-keyfile", str(self.keys / keys.SERVER_KEY),
                "--ssl-ca-certfile", str(self.keys / keys.CA), "--enable-supernode-auth",
                "--disable-runtime-dependency-installation",
            ],
            stdin=subprocess.DEVNULL, stdout=self._out, stderr=subprocess.STDOUT, env=environment(self.home),
            cwd=self.work,
        )  # fmt: skip
        try:
            self._wait(reach)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self.child is not None:
            end_child(self.child)
        if self._out is not None:
            self._out.close()

    def _wait(self, reach: str) -> None:
        end = time.monotonic() + START
        while True:
            self.alive()
            try:
                socket.create_connection((reach, self.port), 1).close()
                return
            except OSError:
                if time.monotonic() > end:
                    raise InputError(
                        f"the SuperLink does not answer on {reach}:{self.port}: {tail(self.log)}"
                    ) from None
                time.sleep(LOOK)

    def alive(self) -> None:
        if self.child is not None and self.child.poll() is not None:
            raise InputError(f"the SuperLink ended: {tail(self.log)}")

    def flwr(self, *arguments: str) -> dict[str, Any]:
        """A command of Flower's, and its answer."""
        env = environment(self.home)
        before = {name: os.environ.get(name) for name in env}
        os.environ.update(env)  # run_child passes this process's on
        try:
            done = run_child([self.programs["flwr"], *arguments, "--format", "json"], cwd=self.work, timeout=START)
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
        at = done.stdout.find("{")
        try:
            answer: dict[str, Any] = json.loads(done.stdout[at:]) if at >= 0 else {}
        except ValueError:
            answer = {}
        if done.returncode or answer.get("success") is False:
            said = answer.get("error-message") or (done.stderr + done.stdout).strip().splitlines()[-1:]
            raise InputError(f"flwr {' '.join(arguments[:2])}: {said if isinstance(said, str) else ' '.join(said)}")
        return answer

    def register(self, numbers: range) -> None:
        """Let these devices in: no others."""
        for number in numbers:
            self.flwr("supernode", "register", str((self.keys / keys.public_name(number)).resolve()), "fleet")

    def start(self, job: FleetJob, folder: Path, devices: int, patience: float, boards: int = 1) -> None:
        """Hand the SuperLink the run in ``folder``."""
        app = self.work / "app"
        app.mkdir(exist_ok=True)
        write_text(
            app / "pyproject.toml",
            APP.format(
                config=job.config.pack().hex(), seed=job.plan.seed, way=job.plan.way, arena=job.arena,
                folder=folder.resolve(), said=self.work / "said", devices=devices, boards=boards, patience=patience,
            ),
        )  # fmt: skip
        write_text(app / "fleet_app.py", CODE)
        self.flwr("run", str(app), "fleet")

    def follow(self, done: Callable[[], bool]) -> None:
        """Wait for the run's end; raise what the lead said if it failed."""
        said = self.work / "said"
        while True:
            finished = done()
            if said.exists():
                text = said.read_text(errors="replace").strip()
                if text and text != "done":
                    raise InputError(text)
                if text:
                    done()
                    return
            if finished:
                return
            self.alive()
            time.sleep(LOOK)


def supernode(
    number: int,
    keys_folder: Path,
    server: str,
    image: Path,
    samples: Path,
    folder: Path,
    home: Path,
    gateway: Path | None = None,
) -> tuple[list[str], dict[str, str]]:
    """Command and environment of a device's SuperNode."""
    keys.there(keys_folder, keys.CA, keys.private_name(number))
    config = {"number": number, "image": str(image.resolve()), "samples": str(samples.resolve()),
              "flash": str(folder.resolve())}  # fmt: skip
    if gateway is not None:
        config["gateway"] = str(gateway)
    listed = " ".join(f"{name}={json.dumps(value)}" for name, value in config.items())
    command = [
        programs()["flower-supernode"], "--superlink", server, "--root-certificates", str(keys_folder / keys.CA),
        "--auth-supernode-private-key", str(keys_folder / keys.private_name(number)), "--node-config", listed,
        "--port", str(free_port()),
    ]  # fmt: skip
    return command, environment(home)


WRONG_SERVER = "CERTIFICATE_VERIFY_FAILED"  # what a SuperNode says
NOT_LET_IN = "Failed to activate SuperNode"
AGAIN = 3.0  # seconds between two attempts to reach the server
ATTEMPTS = 10  # to be let in: a server that has just started knows no keys yet


def reached(server: str) -> bool:
    host, port = address(server)
    try:
        socket.create_connection((host, port), 5).close()
    except OSError:
        return False
    return True


def join(
    command: list[str],
    env: dict[str, str],
    server: str,
    log: Path,
    tell: Callable[[str], None],
    attempts: int = ATTEMPTS,
) -> None:
    """Keep a SuperNode running: it ends when the server is away, and is started when the server is back. Ends only by a
    signal, or with an error that will not go away by itself."""
    waiting, refused = False, 0
    while True:
        if not reached(server):
            if not waiting:
                tell(f"{server} does not answer; waiting for it")
            waiting = True
            time.sleep(AGAIN)
            continue
        waiting = False
        with open(log, "wb") as out:
            child = start_child(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=env)
            try:
                child.wait()
            finally:
                end_child(child)
        said = log.read_text(errors="replace")
        if WRONG_SERVER in said:
            raise InputError(f"{server}: its certificate is not signed by this fleet's {keys.CA}, or is another host's")
        refused = refused + 1 if NOT_LET_IN in said else 0
        if refused >= attempts:
            raise InputError(f"{server}: does not know this device's key: give the server its .pub file")
        tell("not let in: the server does not know this device's key, or not yet" if refused else f"left {server}")
        time.sleep(AGAIN)
