"""``flipbit device listen``: a recording goes to a board as a stream, detections come back with times."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.runtime.core.model import Model
from flipbit.runtime.errors import ArgumentError
from flipbit.runtime.link.device import Device
from flipbit.runtime.link.listen_device import DeviceListener
from flipbit.runtime.recordings.front_ends import FrontEndInput
from flipbit.runtime.recordings.inputs import read_samples
from flipbit.runtime.recordings.listener import MARGIN, Detection, ListenConfig, Listener, front_end_of, window_end
from flipbit.runtime.shown import say, shown, shown_json

Array = np.ndarray
PIECE = 4000  # values between two looks at the progress


def add_listen_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("recording", type=Path, metavar="RECORDING", help=".wav; for nets of signals also .csv and .npy")
    p.add_argument(
        "--threshold", type=float, default=MARGIN, metavar="NATS",
        help=f"lead that the best class needs, log of the odds ({MARGIN:g})",
    )  # fmt: skip
    p.add_argument(
        "--average", type=int, metavar="N", help="windows whose scores are averaged (default: a third of a window)"
    )
    p.add_argument("--refractory", type=float, metavar="S", help="seconds of rest after a detection (one window)")
    p.add_argument("--stride", type=int, default=0, metavar="N", help="rows or samples between runs of the net")
    p.add_argument("--ignore", action="append", metavar="CLASS", help="never detect it (silence, unknown, noise …)")
    p.epilog = """--port sim listens with this machine's C core, as the board would (needs --model).

examples:
  flipbit device listen --port /dev/ttyACM0 kitchen.wav
  flipbit device listen --port qemu:netduinoplus2 --model kws.fbit kitchen.wav --threshold 3
  flipbit device listen --port sim --model kws.fbit kitchen.wav --json"""
    p.formatter_class = argparse.RawDescriptionHelpFormatter


def _config(given: argparse.Namespace, model: Model) -> ListenConfig:
    ignored = tuple(given.ignore) if given.ignore else None
    return ListenConfig.for_model(model, given.threshold, given.average, given.refractory, given.stride, ignored)


def listen_here(given: argparse.Namespace) -> int:
    if given.model is None:
        raise ArgumentError("--port sim needs the net: --model kws.fbit")
    model = Model(given.model)
    config = _config(given, model)
    samples = _samples(given, model, config)
    listener = Listener(model, config)
    begin = time.perf_counter()
    heard = list(_heard(listener, samples, given, model, None))
    facts = {"memory": listener.size, "windows": listener.windows, "crc": f"{listener.crc:08x}"}
    return _report(given, model, samples, heard, facts, time.perf_counter() - begin)


def listen_on_board(
    given: argparse.Namespace, device: Device, model: Model, progress: Callable[[int, int], None] | None
) -> int:
    config = _config(given, model)
    samples = _samples(given, model, config)
    channels = front_end_of(model).channels
    rate = front_end_of(model).rate

    def restarted(at: int) -> None:
        print(f"the board restarted: it listens anew from {at / channels / rate:.2f} s", file=sys.stderr, flush=True)

    listener = DeviceListener(device, config, restarted)
    begin = time.perf_counter()
    heard = list(_heard(listener, samples, given, model, progress))
    facts = {
        "board": device.info().board, "memory": listener.ram, "arena": listener.arena, "windows": listener.windows,
        "crc": f"{listener.crc:08x}", "ticks": listener.ticks, "restarts": listener.restarts,
    }  # fmt: skip
    return _report(given, model, samples, heard, facts, time.perf_counter() - begin)


def _samples(given: argparse.Namespace, model: Model, config: ListenConfig) -> Array:
    front_end = front_end_of(model)
    samples, notes = read_samples(given.recording, front_end)
    say([*notes, *_too_short(front_end, config, len(samples))])
    return samples


def _heard(
    listener: Listener | DeviceListener,
    samples: Array,
    given: argparse.Namespace,
    model: Model,
    progress: Callable[[int, int], None] | None,
) -> Iterable[Detection]:
    """Detections, each printed as it comes."""
    for at in range(0, len(samples), PIECE):
        for detection in listener.push(samples[at : at + PIECE]):
            if not given.json:
                print(_line(model, detection), flush=True)
            yield detection
        if progress:
            progress(min(at + PIECE, len(samples)), len(samples))


def _name(model: Model, detection: Detection) -> str:
    return model.labels[detection.label] if detection.label < len(model.labels) else str(detection.label)


def _line(model: Model, detection: Detection) -> str:
    margin = detection.margin * model.image.tensors[model.image.output].scale
    seconds = detection.samples / front_end_of(model).rate
    return f"{seconds:9.2f} s  {shown(_name(model, detection))}  (margin {margin:.1f})"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _too_short(front_end: FrontEndInput, config: ListenConfig, samples: int) -> list[str]:
    """A note on a recording that ends before anything can be detected."""
    least = window_end(front_end, config.stride or front_end.hop, config.average - 1)
    if samples >= least:
        return []
    return [
        f"the recording lasts {samples / front_end.rate:.2f} s; a detection takes {least / front_end.rate:.2f}: "
        f"{_counted(config.average, 'window')} (--average), of which each takes {front_end.window / front_end.rate:.2f}"
    ]


def _report(
    given: argparse.Namespace, model: Model, samples: Array, heard: list[Detection], facts: dict[str, Any], spent: float
) -> int:
    rate = front_end_of(model).rate
    scale = model.image.tensors[model.image.output].scale
    if given.json:
        found = [
            {
                "seconds": d.samples / rate, "class": _name(model, d), "label": d.label, "window": d.window,
                "margin": d.margin * scale,
            }
            for d in heard
        ]  # fmt: skip
        print(shown_json({**facts, "seconds": len(samples) / rate, "detections": found}))
        return 0
    where = facts.get("board", "this machine")
    print(
        f"{shown(given.recording)}: {_counted(len(heard), 'detection')} in {len(samples) / rate:.1f} s, "
        f"{_counted(facts['windows'], 'window')}, by {where} in {spent:.1f} s; {facts['memory']:,} bytes of RAM for "
        "listening"
    )
    return 0
