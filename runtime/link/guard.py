"""The running guard of a board: it watches the stream that it classifies, and recalibrates without labels.

::

    with open_device("/dev/ttyACM0") as device:
        guard = Guard(device)
        guard.start(window=200, threshold=0.25)
        for x in stream:
            device.infer(x)  # answers as ever
        print(guard.state().drift)
        guard.undo()

The board decides by itself: firmware/app/fb_commands_guard.c. The commands are in docs/protocol.md.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from flipbit.runtime.core.fixed_width import within
from flipbit.runtime.core.learner import LearnerConfig
from flipbit.runtime.errors import ArgumentError
from flipbit.runtime.link.device import Device
from flipbit.runtime.link.learn_device import DeviceTarget
from flipbit.runtime.link.protocol import Command

ONE = 1 << 16  # 16 fractional bits
HIGHEST = 0xFFFFFFFF  # a threshold that no drift exceeds
WINDOW, THRESHOLD, PRIOR = 200, 0.25, 250
STATE = struct.Struct("<7I")


@dataclass(frozen=True)
class GuardState:
    """What the guard has seen and done since it was started."""

    on: bool
    drift: float  # of the last window; 0 is as on training images
    settled: float  # what the last recalibration left of it
    seen: int  # samples in the window that is open
    windows: int  # done
    passes: int  # windows that recalibrated
    steps: int  # recalibrations done, also before it was started


class Guard:
    """A board's guard. What it recalibrates is saved in the board's flash, where there is any."""

    def __init__(self, device: Device, prior: int = PRIOR, fresh: bool = False):
        config = LearnerConfig(bits=False, recalibrate=1, prior=prior)
        self.target = DeviceTarget(device, config, fresh=fresh, save="close")
        self.device = device

    def start(self, window: int = WINDOW, threshold: float | None = THRESHOLD) -> None:
        """Watch windows of so many samples. A threshold of 0 recalibrates by the next ones, None never."""
        window = within("samples of a window", window, 1, 0xFFFF)
        if threshold is not None and not 0 <= threshold < 8:
            raise ArgumentError(f"threshold {threshold:g}: 0 to 8")
        limit = HIGHEST if threshold is None else round(threshold * ONE)
        self.device.request(Command.LEARN_GUARD, struct.pack("<2I", window, limit), self.device.slow_timeout)

    def stop(self) -> None:
        """Watch no more; the net stays as it is."""
        self.device.request(Command.LEARN_GUARD, bytes(8))

    def state(self) -> GuardState:
        on, drift, settled, *counts = STATE.unpack(self.device.request(Command.LEARN_DRIFT)[: STATE.size])
        return GuardState(bool(on), drift / ONE, settled / ONE, *counts)

    def undo(self) -> None:
        """Back to the image as it was uploaded; what was saved goes, too."""
        self.stop()
        self.target.forget()
