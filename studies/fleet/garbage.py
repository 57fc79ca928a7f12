"""What a device sends that lies: well formed, and wrong. To show what it costs the fleet (docs/results/fleet.md)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flipbit.runtime.core.exchange import Sums
from flipbit.studies.fleet.device import FleetDevice
from flipbit.studies.fleet.messages import Answer, Reply, Request, Task, pack_places, pack_sums, unpack_sums


def garbage(device: FleetDevice, message: bytes) -> bytes:
    """The reply to a request, with random flips, or with sums of random signs a hundred times as large."""
    request = Request.unpack(message)
    if request.task == Task.SCALES:
        return FleetDevice.answer(device, message)  # it cannot know who will be asked
    honest = Reply.unpack(FleetDevice.answer(device, message))
    if honest.status != Answer.DONE or request.task == Task.HELLO:
        return honest.pack()
    random = np.random.default_rng((device.seed, request.seed))
    if request.task == Task.FLIPS:
        weights = len(device._learner().bits())
        body = pack_places(random.choice(weights, min(request.limit, weights), replace=False))
    else:
        body = _sums(device, request, honest, random)
    return replace(honest, body=body, right=honest.samples, loss=0.0).pack()


def _sums(device: FleetDevice, request: Request, honest: Reply, random: np.random.Generator) -> bytes:
    assert device._follower is not None
    own = device._follower.sums()
    words = unpack_sums(honest.body, request.bits, own).copy()
    if own.recalibrating:
        moments = words[: own.counts].view(np.int64)
        moments[::2] = random.integers(-(1 << 20), 1 << 20, len(moments) // 2)
        return pack_sums(Sums(words, own.counts, True), 32, 0)
    values = words[own.counts :].view(np.int32)
    size = int(np.abs(values.astype(np.int64)).max(initial=1))
    values[:] = random.integers(-min(100 * size, 1 << 29), min(100 * size, 1 << 29) + 1, len(values))
    return pack_sums(Sums(words, own.counts, False), request.bits, request.seed)
