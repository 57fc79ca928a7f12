"""A device of the fleet: the C core, an image, and samples that never leave it."""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from flipbit.runtime.core.exchange import Exchange
from flipbit.runtime.core.learner import RATE_ONE
from flipbit.runtime.core.learner_config import LearnerConfig
from flipbit.runtime.errors import ArgumentError, FlipbitError
from flipbit.runtime.files import write_atomically
from flipbit.studies.fleet.messages import (
    Answer,
    Array,
    Change,
    MessageError,
    Reply,
    Request,
    Task,
    apply_difference,
    pack_places,
    pack_sums,
    unpack_places,
)  # fmt: skip

SAVED = struct.Struct("<4sII")  # magic, bytes of the image, CRC of all that follows
MAGIC = b"FBDV"


def crc_of(image: bytes) -> int:
    """By which images are told apart: not the one inside, which everything that is whole has right."""
    return zlib.crc32(image)


@dataclass
class FleetDevice:
    """``config`` says what learns, as for all; ``seed`` is this device's own, by which it draws its flips.
    ``folder`` is its flash: it goes on from there after a restart."""

    image: bytes
    config: LearnerConfig
    x: Array  # int8, as the core takes them
    y: Array
    seed: int = 1
    arena: int = 0
    folder: Path | None = None

    def __post_init__(self) -> None:
        self._own: Exchange | None = None  # learns by itself; keeps its scales and means between rounds
        self._follower: Exchange | None = None
        self._state: bytes | None = None
        if self.folder is not None and (self.folder / "device").is_file():
            self.load((self.folder / "device").read_bytes())

    # Flash

    def save(self) -> bytes:
        if self._own is not None:
            self._state = self._own.state
        body = self.image + (self._state or b"")
        return SAVED.pack(MAGIC, len(self.image), zlib.crc32(body)) + body

    def keep(self) -> None:
        """Write the flash, if there is one."""
        if self.folder is not None:
            write_atomically(self.folder / "device", self.save())

    def load(self, saved: bytes) -> None:
        """What is damaged is left alone: the device goes on with the image it was installed with."""
        if len(saved) < SAVED.size:
            return
        magic, length, crc = SAVED.unpack_from(saved)
        body = saved[SAVED.size :]
        if magic != MAGIC or length > len(body) or crc != zlib.crc32(body):
            return
        self.image, self._state = body[:length], body[length:] or None
        self._own = self._follower = None

    # Messages

    def answer(self, message: bytes) -> bytes:
        """The reply to a request. Never raises for what the server sent."""
        began = time.process_time()
        try:
            reply = self._answer(Request.unpack(message))
        except (FlipbitError, MessageError) as error:
            reply = Reply(Answer.FAILED, crc_of(self.image), body=str(error).encode()[:500])
        if reply.status == Answer.DONE:
            self.keep()
        return replace(reply, seconds=time.process_time() - began).pack()

    def _answer(self, request: Request) -> Reply:
        if not self._update(request):
            return Reply(Answer.STALE, crc_of(self.image), len(self.y))
        if not len(self.y):
            return Reply(Answer.NO_SAMPLES, request.image)
        tasks: dict[Task, Callable[[Request], Reply]] = {
            Task.HELLO: self._hello,
            Task.FLIPS: self._flips,
            Task.SUMS: self._sums,
            Task.SCALES: self._scales,
        }
        return tasks[request.task](request)

    def _update(self, request: Request) -> bool:
        """Come to the server's image; False if the change starts from another than this device's."""
        if crc_of(self.image) == request.image:
            return True
        if request.change == Change.WHOLE:
            return self._replace(request.payload, request.image)
        if request.change == Change.NONE or crc_of(self.image) != request.base:
            return False
        if request.change == Change.BYTES:
            return self._replace(apply_difference(self.image, request.payload), request.image)
        own = self._learner()
        places = unpack_places(request.payload)
        own.flip(places)
        if crc_of(own.image) != request.image:
            own.flip(places)
            return False
        self.image = own.image
        return True

    def _replace(self, image: bytes, crc: int) -> bool:
        """Another image of the same net. The learner's state would not know its bits: it starts anew."""
        if crc_of(image) != crc:
            raise MessageError("the image that was sent is damaged")
        if len(image) != len(self.image):
            raise ArgumentError(f"the server's image has {len(image):,} bytes, this device's net {len(self.image):,}")
        Exchange(image, self.config)  # refused if the core cannot train it
        self.image, self._own, self._follower, self._state = image, None, None, None
        return True

    @property
    def own_config(self) -> LearnerConfig:
        """Of a device that learns by itself."""
        return replace(self.config, seed=self.seed)

    def _learner(self) -> Exchange:
        if self._own is None:
            self._own = Exchange(self.image, self.own_config, self.arena, self._state)
        return self._own

    # What is asked

    def _hello(self, request: Request) -> Reply:
        return Reply(Answer.DONE, request.image, len(self.y), body=self.seed.to_bytes(4, "little"))

    def _flips(self, request: Request) -> Reply:
        own = self._learner()
        before = own.bits()
        step = own.step(self.x, self.y, request.rate / RATE_ONE)
        places = np.flatnonzero(before != own.bits())
        own.flip(places)  # back: the fleet decides
        if own.image != self.image:
            raise ArgumentError("this configuration changes more than bits: flips alone do not say what it learned")
        if len(places) > request.limit:
            places = np.random.default_rng((self.seed, request.seed)).choice(places, request.limit, replace=False)
        n = len(self.y)
        right, loss = round(step.accuracy * n), step.loss * n
        return Reply(Answer.DONE, request.image, n, right, loss, body=pack_places(places))

    def _follow(self, request: Request) -> Exchange:
        if self._follower is None or self._follower.image != self.image:
            self._follower = Exchange(self.image, self.config, self.arena)
        self._follower.follow(request.plan, request.first)
        return self._follower

    def _sums(self, request: Request) -> Reply:
        follower = self._follow(request)
        results = [follower.sample(x, int(y)) for x, y in zip(self.x, self.y)]
        right = sum(found == y for (found, _), y in zip(results, self.y))
        loss = sum(loss for _, loss in results)
        body = pack_sums(follower.sums(), request.bits, request.seed + self.seed)
        return Reply(Answer.DONE, request.image, len(self.y), int(right), loss, bits=request.bits, body=body)

    def _scales(self, request: Request) -> Reply:
        follower = self._follow(request)
        for x, y in zip(self.x, self.y):
            follower.sample(x, int(y))
        return Reply(Answer.DONE, request.image, len(self.y), body=follower.plan())
