"""What a device that learns keeps in flash: the data of its record, as firmware/app/ writes it and docs/store.md says.

::

    "FBDV" | selected slot | length and CRC of slot 0 | of slot 1 | "FBL2" | configuration | sizes | image | state
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from flipbit.runtime.core.learner_config import PACKED, LearnerConfig
from flipbit.runtime.errors import StateError

DIRECTORY = struct.Struct("<4s5I")
CHECKPOINT = struct.Struct(f"<4s{PACKED.size}s2I")
DEVICE_MAGIC, CHECKPOINT_MAGIC, EARLIER_MAGIC = b"FBDV", b"FBL2", b"FBLR"
SELECTED_BUILT_IN = 0xFF
RECORD_HEAD = DIRECTORY.size + CHECKPOINT.size  # bytes before the image


@dataclass(frozen=True)
class DeviceRecord:
    """A checkpoint of the image that is linked into the firmware, on a device that was sent no other."""

    config: LearnerConfig
    image: bytes
    state: bytes

    def pack(self) -> bytes:
        directory = DIRECTORY.pack(DEVICE_MAGIC, SELECTED_BUILT_IN, 0, 0, 0, 0)
        head = CHECKPOINT.pack(CHECKPOINT_MAGIC, self.config.pack(), len(self.image), len(self.state))
        return directory + head + self.image + self.state

    @classmethod
    def unpack(cls, data: bytes) -> DeviceRecord:
        """:class:`StateError` unless the bytes are a device's record with a checkpoint of this version."""
        if len(data) < RECORD_HEAD or data[:4] != DEVICE_MAGIC:
            raise StateError(f"{len(data)} bytes that are not a device's record with a checkpoint of learning")
        magic, config, image, state = CHECKPOINT.unpack_from(data, DIRECTORY.size)
        if magic == EARLIER_MAGIC:
            raise StateError("a checkpoint of an earlier version of flipbit, whose configuration has another form")
        if magic != CHECKPOINT_MAGIC:
            raise StateError(f"a checkpoint that begins with {magic!r}; expected {CHECKPOINT_MAGIC!r}")
        if len(data) != RECORD_HEAD + image + state:
            raise StateError(f"a record of {len(data)} bytes; expected {RECORD_HEAD + image + state}, as it says")
        return cls(LearnerConfig.unpack(config), data[RECORD_HEAD:][:image], data[RECORD_HEAD + image :])
