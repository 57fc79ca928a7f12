"""Tuning runs, on a simulated board and on a real or emulated one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from flipbit.runtime.core.target import TargetLostPower, run_steps
from flipbit.runtime.link.learn_device import DeviceTarget
from flipbit.runtime.simulate.power import load_device
from flipbit.runtime.simulate.simulator import SimulatedDevice
from flipbit.runtime.simulate.supply import SupplyEmptyError, parse_supply
from flipbit.runtime.tune.checkpoint import TuningCheckpoint, fingerprint
from flipbit.runtime.tune.job import Job
from flipbit.runtime.tune.result import Row, TuningResult
from flipbit.runtime.tune.samples import Samples, accuracy


def tune(
    image: bytes,
    samples: Samples,
    board: str,
    job: Job,
    on_row: Callable[[Row], None] | None = None,
    checkpoint: Path | None = None,
) -> TuningResult:
    """Tune on a simulated board."""
    job.check()
    profile = load_device(board)
    supply = parse_supply(job.supply, profile.volts, profile.figure("voltage", "brown_out"))
    device = SimulatedDevice(profile, image, job.config, job.arena, supply)
    result = TuningResult(job.method, accuracy(image, samples), [], image, device, len(samples.x))
    keeper = TuningCheckpoint(checkpoint, fingerprint(image, samples, board, job)) if checkpoint else None
    if keeper:
        keeper.load(result)
        for row in result.rows:
            if on_row:
                on_row(row)
    save = (lambda: keeper.save(result)) if keeper else None
    try:
        for said in run_steps(device, samples.x, samples.y, job.rates, save):
            held = accuracy(device.image, samples)
            row = Row(said.step, said.loss, said.accuracy, held, said.flips, device.meter.joules, supply.time)
            result.rows = [r for r in result.rows if r.step < row.step] + [row]
            if save:
                save()
            if on_row:
                on_row(row)
        device.close()
        result.image = device.image
    except SupplyEmptyError as error:
        result.ended = str(error)
        result.image = device.saved_image
    return result


def tune_on_board(
    target: DeviceTarget, samples: Samples, job: Job, on_row: Callable[[Row], None] | None = None
) -> tuple[list[Row], bytes]:
    """Tune on a real or emulated board: its bits are those of a simulated one. Also the image it ends with. Goes on
    wherever the board loses power, in the last read as well."""
    job.check()
    rows: list[Row] = []
    while True:
        try:
            for said in run_steps(target, samples.x, samples.y, job.rates):
                held = accuracy(target.image, samples)
                row = Row(said.step, said.loss, said.accuracy, held, said.flips, None, target.seconds or None)
                rows = [r for r in rows if r.step < row.step] + [row]
                if on_row:
                    on_row(row)
            target.close()
            return rows, target.image
        except TargetLostPower:  # in a read: it is where it saved last, and run_steps goes on there or ends at once
            continue
