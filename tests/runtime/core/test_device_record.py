"""A device's record: read as it was written, and refused with a reason where it is of another form."""

from __future__ import annotations

import pytest

from flipbit.runtime.core.device_record import DIRECTORY, RECORD_HEAD, DeviceRecord
from flipbit.runtime.core.learner_config import LearnerConfig
from flipbit.runtime.errors import ArgumentError, StateError

RECORD = DeviceRecord(LearnerConfig(seed=7, bias=True), b"an image", b"a state")


def test_a_record_is_read_as_it_was_written() -> None:
    packed = RECORD.pack()
    assert DeviceRecord.unpack(packed) == RECORD
    assert len(packed) == RECORD_HEAD + len(RECORD.image) + len(RECORD.state) == 52 + 15


def test_the_bytes_are_those_of_the_document() -> None:
    directory, rest = RECORD.pack()[:24], RECORD.pack()[24:]
    assert directory == b"FBDV" + bytes([0xFF, 0, 0, 0]) + bytes(16)
    assert rest == b"FBL2" + RECORD.config.pack() + bytes([8, 0, 0, 0]) + bytes([7, 0, 0, 0]) + b"an image" + b"a state"


@pytest.mark.parametrize(("data", "says"), [
    (b"", "0 bytes"),
    (RECORD.pack()[: RECORD_HEAD - 1], "not a device's record"),
    (RECORD.pack()[:-1], "expected 67"),
    (b"FBIT" + RECORD.pack()[4:], "not a device's record"),
    (RECORD.pack().replace(b"FBL2", b"FBLR"), "earlier version"),
    (RECORD.pack().replace(b"FBL2", b"FBL9"), "FBL9"),
])  # fmt: skip
def test_other_bytes_are_refused(data: bytes, says: str) -> None:
    with pytest.raises(StateError, match=says):
        DeviceRecord.unpack(data)


def test_a_configuration_to_come_is_refused() -> None:
    packed = bytearray(RECORD.pack())
    packed[DIRECTORY.size + 4 + 4] = 1
    with pytest.raises(ArgumentError, match="rule"):
        DeviceRecord.unpack(bytes(packed))
