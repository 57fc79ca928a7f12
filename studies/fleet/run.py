"""A run of the fleet: rounds one after the other, each on disk before the next begins.

The folder holds `fleet.npz` (where to go on, and what simulated devices hold), `model.fbit` (the fleet's image),
`log.json` and, in a simulation, `shares.npz` (who has which samples). Every file is written whole: whatever stops the
run, the last round is there.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.runtime.core.learner_config import LearnerConfig
from flipbit.runtime.core.model import Model
from flipbit.runtime.errors import InputError
from flipbit.runtime.files import write_atomically, write_json
from flipbit.studies.fleet.device import FleetDevice
from flipbit.studies.fleet.lead import Ask, Lead, Plan, Round

Array = np.ndarray
CHECKPOINT, IMAGE, LOG, SHARES = "fleet.npz", "model.fbit", "log.json", "shares.npz"
DEVICE = "device"  # and its number: a simulated device's entry in the checkpoint


@dataclass(frozen=True)
class FleetJob:
    """All that a run follows from; a run that goes on must have the same."""

    image: bytes
    config: LearnerConfig
    plan: Plan
    arena: int = 0

    def settings(self) -> dict[str, Any]:
        return {"config": asdict(self.config), "plan": asdict(self.plan), "arena": self.arena}


class Run:
    """Rounds of a :class:`Lead`. ``test`` are inputs and labels that no device has; None where there are none."""

    def __init__(self, job: FleetJob, folder: Path, test: tuple[Array, Array] | None = None):
        self.job, self.folder, self.test = job, folder, test
        self.rows: list[Round] = []
        self.flash: dict[int, bytes] = {}  # of simulated devices, by number: image and state after the last round
        self.lead = Lead(job.image, job.config, job.plan, job.arena)
        self.before = self.accuracy()
        if (folder / CHECKPOINT).exists():
            self._go_on()

    def accuracy(self) -> float | None:
        if self.test is None:
            return None
        x, y = self.test
        return float((Model(self.lead.image).predict(x, raw=True).reshape(len(y), -1).argmax(1) == y).mean())

    def _go_on(self) -> None:
        path = self.folder / CHECKPOINT
        other = InputError(f"{path}: is of another run (other settings or image): choose another folder, or delete it")
        try:
            with np.load(path, allow_pickle=False) as saved:
                about = json.loads(saved["about"].tobytes())
                image, state, first = (saved[name].tobytes() for name in ("image", "state", "first"))
                versions = [saved[f"version{i}"].tobytes() for i in range(about["versions"])]
                flash = {int(name.removeprefix(DEVICE)): saved[name].tobytes() for name in _devices(saved)}
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise InputError(f"{path}: cannot be read ({error}): delete it to start anew") from None
        if first != self.job.image or about["settings"] != json.loads(json.dumps(self.job.settings())):
            raise other
        self.lead = Lead(image, self.job.config, self.job.plan, self.job.arena, state)
        self.lead.remember(first, *versions)
        self.lead.known = {int(device): crc for device, crc in about["known"].items()}
        self.rows = [Round(**row) for row in about["rows"]]
        self.flash.update(flash)

    @property
    def done(self) -> bool:
        return len(self.rows) >= self.job.plan.rounds

    def save(self) -> None:
        """The checkpoint last: what it says is done is in the other files."""
        lead = self.lead
        versions = [image for image in lead.versions.values() if image not in (lead.first, lead.image)]
        about = {
            "settings": self.job.settings(),
            "known": {str(device): crc for device, crc in lead.known.items()},
            "rows": [asdict(row) for row in self.rows],
            "versions": len(versions),
        }
        write_atomically(self.folder / IMAGE, lead.image)
        write_json(self.folder / LOG, self.log())
        arrays = {f"version{i}": np.frombuffer(image, np.uint8) for i, image in enumerate(versions)}
        for name, content in (("image", lead.image), ("state", lead.learner.state), ("first", lead.first)):
            arrays[name] = np.frombuffer(content, np.uint8)
        for number, content in self.flash.items():
            arrays[f"{DEVICE}{number}"] = np.frombuffer(content, np.uint8)
        arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
        _write_arrays(self.folder / CHECKPOINT, arrays)

    def log(self) -> dict[str, Any]:
        return {**self.job.settings(), "before": self.before, "rounds": [asdict(row) for row in self.rows]}

    def rounds(self, ask: Ask, devices: Callable[[], Sequence[int]], show: Callable[[Round], None]) -> None:
        """Go on to the last round."""
        while not self.done:
            row = self.lead.round(ask, devices(), len(self.rows))
            row.accuracy = self.accuracy()
            self.rows.append(row)
            self.save()
            show(row)


def _write_arrays(path: Path, arrays: dict[str, Array]) -> None:
    """An .npz file, made in memory: on a full disk NumPy's archive would fail once more as it is closed."""
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    write_atomically(path, content.getvalue())


# A run that another process leads

JOB, TEST = "job.npz", "test.npz"


def write_deployed(folder: Path, job: FleetJob, test: tuple[Array, Array] | None) -> None:
    """The job as a file, for the process that leads it."""
    texts = {"image": job.image, "config": job.config.pack(), "plan": json.dumps(asdict(job.plan)).encode()}
    arrays = {name: np.frombuffer(content, np.uint8) for name, content in texts.items()}
    _write_arrays(folder / JOB, {**arrays, "arena": np.array(job.arena)})
    if test is not None:
        _write_arrays(folder / TEST, {"x": test[0], "y": test[1]})


def read_deployed(folder: Path) -> Run:
    """The run that :func:`write_deployed` wrote; it goes on where it stopped."""
    with np.load(folder / JOB, allow_pickle=False) as saved:
        config = LearnerConfig.unpack(saved["config"].tobytes())
        job = FleetJob(
            saved["image"].tobytes(), config, Plan(**json.loads(saved["plan"].tobytes())), int(saved["arena"])
        )
    test = None
    if (folder / TEST).exists():
        with np.load(folder / TEST, allow_pickle=False) as saved:
            test = saved["x"], saved["y"]
    return Run(job, folder, test)


# Devices in this process


def _devices(saved: Any) -> list[str]:
    return [name for name in saved.files if name.startswith(DEVICE)]


def kept_device(folder: Path, number: int) -> bytes:
    """What a simulated device held after the last round; nothing if there was none."""
    try:
        with np.load(folder / CHECKPOINT, allow_pickle=False) as saved:
            return bytes(saved[f"{DEVICE}{number}"].tobytes())
    except (FileNotFoundError, KeyError):
        return b""


def write_shares(path: Path, shares: list[tuple[Array, Array]], liars: int) -> None:
    """Who has which samples; the last ``liars`` devices send garbage."""
    x, y = (np.concatenate(parts) for parts in zip(*shares))
    _write_arrays(path, {"x": x, "y": y, "lengths": np.array([len(y) for _, y in shares]), "liars": np.array(liars)})


def read_share(path: Path, number: int) -> tuple[Array, Array, bool]:
    """Inputs and labels of a device, and whether it lies."""
    try:
        with np.load(path, allow_pickle=False) as saved:
            lengths, x, y, liars = (saved[name] for name in ("lengths", "x", "y", "liars"))
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{path}: holds no devices' samples ({error}): flipbit fleet simulate writes them as shares.npz"
        ) from None
    if not 0 <= number < len(lengths):
        raise InputError(f"{path}: has devices 0 to {len(lengths) - 1}, no {number}")
    end = np.cumsum(lengths)
    mine = slice(int(end[number] - lengths[number]), int(end[number]))
    return x[mine], y[mine].astype(np.int64), number >= len(lengths) - int(liars)


def device_of(job: FleetJob, path: Path, number: int, folder: Path | None = None) -> FleetDevice:
    """A device of this process."""
    x, y, lies = read_share(path, number)
    kind = Liar if lies else FleetDevice
    return kind(job.image, job.config, x, y, seed_of(job.plan, number), arena=job.arena, folder=folder)


def seed_of(plan: Plan, number: int) -> int:
    """A device's own seed."""
    return 1000 * plan.seed + number + 1


class Liar(FleetDevice):
    """For tests: learns, then sends something else. Flips and sums are drawn at random, as many and as large as
    allowed, and it claims to have been right."""

    def answer(self, message: bytes) -> bytes:
        from flipbit.studies.fleet.garbage import garbage

        return garbage(self, message)


def in_process(devices: dict[int, FleetDevice], flash: dict[int, bytes] | None = None) -> Ask:
    """Messages that are handed over in this process. Devices go on with what ``flash`` holds of them, and keep there
    what they have after each message."""
    for number, content in (flash or {}).items():
        if number in devices:
            devices[number].load(content)

    def ask(requests: Mapping[int, bytes]) -> Mapping[int, bytes]:
        replies = {device: devices[device].answer(data) for device, data in requests.items()}
        if flash is not None:
            flash.update({device: devices[device].save() for device in requests})
        return replies

    return ask
