"""A file that lets a tuning run go on after it was stopped.

::

    "FBTUNE03" | length u32 | JSON: what it belongs to, rows, meter, place in the step | record of the device
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.runtime.errors import FlipbitError, InputError
from flipbit.runtime.files import write_atomically
from flipbit.runtime.image.inputs import Array
from flipbit.runtime.simulate.simulator import Meter
from flipbit.runtime.tune.job import Job
from flipbit.runtime.tune.result import Row, TuningResult
from flipbit.runtime.tune.samples import Samples

MAGIC, KIND = b"FBTUNE03", b"FBTUNE"


def fingerprint(image: bytes, samples: Samples, board: str, job: Job) -> dict[str, Any]:
    """What a checkpoint belongs to: every byte that decides the run, in its order."""
    return {
        "image": hashlib.sha256(image).hexdigest(),
        "samples": _digest(samples.x, samples.y),
        "held-back images": _digest(samples.held_x, samples.held_y),
        "board": board,
        **asdict(job),
        "layers": list(job.layers),  # as JSON gives them back
    }


def _digest(*arrays: Array) -> str:
    """SHA-256 of arrays: their types, shapes and values."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype.str} {array.shape};".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


class TuningCheckpoint:
    """A file that lets a run on a host go on after it was stopped: what the device would keep, and what was printed."""

    def __init__(self, folder: Path, belongs: dict[str, Any]):
        self.path = folder / "tuning.ckpt"
        self.belongs = belongs

    def load(self, result: TuningResult) -> None:
        if not self.path.is_file():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return
        data = self.path.read_bytes()
        if data[: len(KIND)] == KIND and data[: len(MAGIC)] != MAGIC:
            raise InputError(
                f"{self.path}: a checkpoint of another version of flipbit, in another form; "
                "remove it and start anew, or go on with the version that wrote it"
            )
        try:
            if data[: len(MAGIC)] != MAGIC:
                raise ValueError("another kind of file")
            size = int.from_bytes(data[8:12], "little")
            head = json.loads(data[12 : 12 + size])
            rows, meter = [Row(**row) for row in head["rows"]], Meter(**head["meter"])
            belongs, level, seconds = dict(head["belongs"]), head["level"], float(head["time"])
            sweep, done = (int(number) for number in head["place"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(f"{self.path}: not a checkpoint of this version ({error}); remove it") from None
        different = [key for key, value in self.belongs.items() if belongs.get(key) != value]
        if different:
            raise InputError(
                f"{self.path} is of another run ({', '.join(different)} differ): give its options, or another folder"
            )
        try:
            result.device.restore(data[12 + size :], (sweep, done))
        except FlipbitError as error:
            raise error.about(self.path) from None
        result.device.meter = meter
        result.device.supply.time = seconds
        if math.isfinite(result.device.supply.capacity):
            result.device.supply.level = level
        result.rows = rows

    def save(self, result: TuningResult) -> None:
        device = result.device
        head = {
            "belongs": self.belongs,
            "rows": [asdict(row) for row in result.rows],
            "meter": asdict(device.meter),
            "place": device.place,
            "time": device.supply.time,
            "level": device.supply.level if math.isfinite(device.supply.level) else None,
        }
        text = json.dumps(head).encode()
        write_atomically(self.path, MAGIC + len(text).to_bytes(4, "little") + text + device.record)
