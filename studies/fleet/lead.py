"""The server's side: it holds the image, asks devices, adds up what they send, and makes the update.

``ask`` carries messages: requests by device in, replies by device out; devices that do not answer are not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from flipbit.runtime.core.exchange import SCALING_SAMPLES, Exchange
from flipbit.runtime.core.learner import RATE_ONE
from flipbit.runtime.core.learner_config import LearnerConfig
from flipbit.runtime.errors import ArgumentError, FlipbitError, InputError
from flipbit.studies.fleet.device import crc_of
from flipbit.studies.fleet.messages import (
    Answer,
    Array,
    Change,
    MessageError,
    Reply,
    Request,
    Task,
    pack_difference,
    pack_places,
    unpack_places,
    unpack_sums,
)  # fmt: skip
from flipbit.studies.fleet.vote import believable, bounded, plausible, winners

Ask = Callable[[Mapping[int, bytes]], Mapping[int, bytes]]
WAYS = ("flips", "sum", "recalibrate")
VERSIONS = 64  # images that devices may still have and get a difference from; others get the whole one
MOST_SAMPLES = 1000  # of a device in a round: what it may claim


@dataclass(frozen=True)
class Plan:
    """How the fleet learns. ``rate`` falls to 0 in a line over ``rounds``."""

    way: str = "flips"
    rounds: int = 20
    rate: float = 0.0002  # of bits; in `flips`: the share of bits that the server flips in the first round
    rate_bias: float = 0.0
    wish: float = 14.0  # in `flips`: a device may ask for so many times as many flips as will win
    quorum: int = 2  # votes that a flip needs
    bits: int = 32  # of a sum: 32 (exact) or 8
    share: float = 1.0  # of the devices that a round asks
    most: int = MOST_SAMPLES
    seed: int = 1

    def __post_init__(self) -> None:
        if self.way not in WAYS:
            raise ArgumentError(f"{self.way!r}: the fleet adds up by {', '.join(WAYS)}")


@dataclass
class Round:
    """What a round did, for the log."""

    number: int
    asked: int = 0
    answered: int = 0
    stale: int = 0
    refused: int = 0  # replies that were malformed, or implausible
    clipped: int = 0
    samples: int = 0
    right: int = 0
    loss: float = 0.0
    flips: int = 0
    down: int = 0  # bytes from the server
    up: int = 0  # bytes to the server
    seconds: float = 0.0  # of computing, on the devices
    accuracy: float | None = None  # of the server's image, on images that no device has
    notes: list[str] = field(default_factory=list)


class NoDevicesError(InputError):
    """Nobody answered."""


class Lead:
    """The leader of a fleet. ``first`` is the image that devices were installed with: they get flips from there on."""

    def __init__(self, image: bytes, config: LearnerConfig, plan: Plan, arena: int = 0, state: bytes | None = None):
        if plan.way == "flips" and (config.bias or config.gain or config.recalibrate or not config.bits):
            raise ArgumentError("flips alone carry bits: choose another method, or --way sum")
        self.plan, self.config, self.arena = plan, config, arena
        self.learner = Exchange(image, config, arena, state)
        self.first = image
        self.versions: dict[int, bytes] = {}
        self.known: dict[int, int] = {}  # the image that each device had, by its last word
        self.counts: dict[int, int] = {}  # samples of each device
        self.numbers: dict[int, int] = {}  # what devices call themselves: their order in a batch
        self._bits: dict[int, Array] = {}
        self._remember()

    @property
    def image(self) -> bytes:
        return self.learner.image

    def _remember(self) -> None:
        image = self.image
        self.versions.pop(crc_of(image), None)
        self.versions[crc_of(image)] = image
        for old in list(self.versions)[1:-VERSIONS]:  # the first stays: what devices come with
            del self.versions[old]
            self._bits.pop(old, None)

    def remember(self, first: bytes, *versions: bytes) -> None:
        """Images from before: devices may still have them."""
        now, self.first = self.image, first
        self.versions = {crc_of(image): image for image in (first, *versions, now)}

    # What a device lacks

    def request(self, device: int, task: Task, **more: object) -> bytes:
        """A request, with the way from this device's image to the server's."""
        now = crc_of(self.image)
        base = self.known.get(device, crc_of(self.first))
        change, payload = self._change(base, now)
        asked = Request(task, now, base, change, payload)
        return replace(asked, **more).pack()  # type: ignore[arg-type]

    def _change(self, base: int, now: int) -> tuple[Change, bytes]:
        if base == now:
            return Change.NONE, b""
        old = self.versions.get(base)
        if old is None:
            return Change.WHOLE, self.image
        if self.plan.way == "flips":
            return Change.FLIPS, pack_places(np.flatnonzero(self._bits_of(base) != self._bits_of(now)))
        return Change.BYTES, pack_difference(old, self.image)

    def _bits_of(self, crc: int) -> Array:
        if crc not in self._bits:
            self._bits[crc] = Exchange(self.versions[crc], self.config, self.arena).bits()
        return self._bits[crc]

    # Asking

    def _ask(self, ask: Ask, requests: dict[int, bytes], row: Round) -> dict[int, Reply]:
        """Replies that say DONE; of the others the row tells."""
        row.down += sum(map(len, requests.values()))
        row.asked = max(row.asked, len(requests))
        done: dict[int, Reply] = {}
        for device, data in sorted(ask(requests).items()):
            row.up += len(data)
            if device not in requests:
                continue
            try:
                reply = Reply.unpack(data)
            except MessageError as error:
                self._refuse(row, device, str(error))
                continue
            row.seconds += reply.seconds
            self.known[device] = reply.image
            if reply.status == Answer.DONE:
                if reply.samples > self.plan.most:
                    self._refuse(row, device, f"claims {reply.samples:,} samples; at most {self.plan.most:,} count")
                else:
                    done[device] = reply
            elif reply.status == Answer.STALE:
                row.stale += 1
            elif reply.status == Answer.NO_SAMPLES:
                self.counts[device] = 0
            else:
                said = reply.body.decode(errors="replace") or reply.status.name.lower().replace("_", " ")
                self._refuse(row, device, said[:200])
        return done

    @staticmethod
    def _refuse(row: Round, device: int, why: str) -> None:
        row.refused += 1
        row.notes.append(f"device {device}: {why}")

    def greet(self, ask: Ask, devices: Sequence[int], row: Round) -> None:
        """Ask devices that are not known yet for their samples. One with another image than expected is asked again."""
        for _ in range(2):
            new = [device for device in devices if device not in self.counts]
            if not new:
                return
            replies = self._ask(ask, {device: self.request(device, Task.HELLO) for device in new}, row)
            for device, reply in replies.items():
                self.counts[device] = reply.samples
                self.numbers[device] = int.from_bytes(reply.body[:4], "little")

    # Rounds

    def round(self, ask: Ask, devices: Sequence[int], number: int) -> Round:
        """One update from the devices that answer."""
        row = Round(number)
        self.greet(ask, sorted(devices), row)
        present = sorted(devices, key=lambda device: (self.numbers.get(device, 0), device))
        able = [device for device in present if self.counts.get(device)]
        if not able:
            said = f"; {row.notes[-1]}" if row.notes else ""
            raise NoDevicesError(f"none of {len(present)} devices can take part{said}")
        if self.plan.share < 1:
            chosen = max(1, round(self.plan.share * len(able)))
            places = np.random.default_rng((self.plan.seed, number)).choice(len(able), chosen, replace=False)
            able = [able[place] for place in sorted(places)]
        rest = 1 - number / self.plan.rounds
        if self.plan.way == "flips":
            self._flips(ask, able, row, self.plan.rate * rest)
        else:
            self._sums(ask, able, row, self.plan.rate * rest, self.plan.rate_bias * rest)
        self._remember()
        return row

    def _count(self, row: Round, replies: Mapping[int, Reply]) -> None:
        row.answered = len(replies)
        row.samples = sum(reply.samples for reply in replies.values())
        row.right = sum(reply.right for reply in replies.values())
        row.loss = sum(reply.loss for reply in replies.values())

    def _flips(self, ask: Ask, able: list[int], row: Round, rate: float) -> None:
        places = len(self.learner.bits())
        most = max(1, round(rate * places))
        limit = max(16, round(self.plan.wish * most))
        wish = min(round(self.plan.wish * rate * RATE_ONE), RATE_ONE)
        requests = {
            device: self.request(device, Task.FLIPS, rate=wish, limit=limit, seed=row.number) for device in able
        }
        replies = self._ask(ask, requests, row)
        lists = []
        for device, reply in list(replies.items()):
            try:
                wanted = unpack_places(reply.body)
                if len(wanted) > limit or (len(wanted) and wanted[-1] >= places):
                    raise MessageError(f"{len(wanted):,} flips up to place {wanted[-1]:,}; asked for {limit:,}")
            except MessageError as error:
                self._refuse(row, device, str(error))
                del replies[device]
            else:
                lists.append(wanted)
        self._count(row, replies)
        # Of those asked, not of those that answered: where few do, liars among them would need fewer votes.
        won = winners(lists, places, most, min(self.plan.quorum, len(able)), self.plan.seed + row.number)
        row.flips = self._flip(won)

    def _flip(self, places: Array) -> int:
        """Flip what is a weight: a place that stands for none is of a device that lies."""
        try:
            return self.learner.flip(places)
        except ArgumentError:
            flipped = 0
            for place in places:
                try:
                    flipped += self.learner.flip([place])
                except ArgumentError:
                    continue
            return flipped

    def _sums(self, ask: Ask, able: list[int], row: Round, rate: float, rate_bias: float) -> None:
        leader = self.learner
        counts = {device: self.counts[device] for device in able}
        firsts = dict(zip(able, np.cumsum([0, *counts.values()]).tolist()))
        total = sum(counts.values())
        if total > 0xFFFF:
            raise ArgumentError(f"{total:,} samples in a round; at most 65,535: ask for a --share of the devices")
        leader.begin(total, rate, rate_bias)
        while True:
            if leader.scales:
                self._scales(ask, able, firsts, row)
                leader.begin(total, rate, rate_bias)
                leader.gather(None, total)
            else:
                replies = self._pass(ask, able, firsts, row, total)
                self._count(row, replies)
            if not leader.end_pass():
                row.flips = leader.flips
                return

    def _scales(self, ask: Ask, able: list[int], firsts: dict[int, int], row: Round) -> None:
        """Devices take turns until the first samples of the batch have been seen."""
        leader, found = self.learner, False
        for device in able:
            if firsts[device] >= SCALING_SAMPLES and found:
                return
            first = firsts[device] if found else 0
            request = self.request(device, Task.SCALES, first=first, plan=leader.plan())
            reply = self._ask(ask, {device: request}, row).get(device)
            if reply is None:
                continue
            try:
                leader.follow(reply.body)
            except FlipbitError as error:
                self._refuse(row, device, str(error))
            else:
                found = True
        if not found:
            raise NoDevicesError("no device answered in the pass that finds the scales of gradients")

    def _pass(self, ask: Ask, able: list[int], firsts: dict[int, int], row: Round, total: int) -> dict[int, Reply]:
        leader, plan = self.learner, self.learner.plan()
        requests = {
            device: self.request(
                device, Task.SUMS, first=firsts[device], plan=plan, bits=self.plan.bits, seed=row.number << 16
            )
            for device in able
        }
        replies = self._ask(ask, requests, row)
        like = leader.sums()
        words: dict[int, Array] = {}
        for device, reply in replies.items():
            try:
                found = unpack_sums(reply.body, self.plan.bits, like)
                if reply.samples != self.counts[device] or not plausible(found, like, reply.samples):
                    raise MessageError("its sums cannot be those of its samples")
            except MessageError as error:
                self._refuse(row, device, str(error))
            else:
                words[device] = found
        names, samples = list(words), [replies[device].samples for device in words]
        if like.recalibrating:
            kept = believable(list(words.values()), like.counts, samples)
            for device in (name for name, keep in zip(names, kept) if not keep):
                self._refuse(row, device, "what it measured is far from what all others did")
                del words[device]
            if not words:
                raise NoDevicesError("no device answered in a pass that recalibrates")
            leader.begin(sum(replies[device].samples for device in words))
            added = list(words.values())
        else:
            added, row.clipped = bounded(list(words.values()), like.counts, samples)
        came = 0
        for device, sums in zip(words, added):
            leader.gather(sums, replies[device].samples)
            came += replies[device].samples
        if not like.recalibrating and came < total:
            leader.gather(None, total - came)
        return {device: replies[device] for device in words}
