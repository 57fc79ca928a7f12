"""Every answer that is an error has words."""

from __future__ import annotations

import re

import pytest

from flipbit.runtime.link.protocol import Command, Status
from flipbit.runtime.link.refusals import RefusedError, command_name, refusal
from tests.checkout import ROOT

HEADERS = {Status.STATE: ("app/fb_frame.h", "fb_missing"), Status.LOCKED: ("app/fb_consent.h", "fb_consent_by")}
ANSWERS = [status for status in Status if Status.OK < status < Status.LONG]


@pytest.mark.parametrize("status", ANSWERS)
def test_a_refusal_names_the_command_and_the_reason(status: Status) -> None:
    said = refusal(Command.SELECT, status, 1)
    assert said.startswith("SELECT: ") and "status" not in said


@pytest.mark.parametrize("status", HEADERS)
def test_every_detail_of_the_firmware_has_words(status: Status) -> None:
    """Details count from 1 in the order of the header's enum."""
    header, enum = HEADERS[status]
    body = re.search(rf"typedef enum {enum} {{(.*?)}} {enum};", (ROOT / "firmware" / header).read_text(), re.DOTALL)
    assert body
    count = len(re.findall(r"\bFB_[A-Z_]+", re.sub(r"/\*.*?\*/", "", body[1], flags=re.DOTALL)))
    unknown = refusal(Command.INFER, status, 99).replace("99", "")
    texts = [refusal(Command.INFER, status, detail) for detail in range(1, count + 1)]
    assert len(set(texts)) == count
    assert not [text for text in texts if re.sub(r"\d+", "", text) == unknown]


def test_what_later_firmware_may_say_is_shown_as_numbers() -> None:
    assert refusal(0x7E, 15, 3) == "command 0x7e: status 15, 3"
    assert command_name(Command.INFER | 0x80) == "INFER"
    error = RefusedError(Command.ECHO, Status.LENGTH, 245)
    assert (error.code, error.detail, str(error)) == (2, 245, "ECHO: a payload of 245 bytes is too short or too long")
