"""How a device fails to do what it is asked, in words."""

from __future__ import annotations

from flipbit.runtime.core import library as core
from flipbit.runtime.errors import FlipbitError
from flipbit.runtime.link.protocol import Command, Status


class DeviceError(FlipbitError):
    """A device does not do what it is asked."""

    status = "FB_ERR_DEVICE"

    def __str__(self) -> str:
        return self.message


class NoAnswerError(DeviceError):
    """Nothing comes back."""


class RestartedError(DeviceError):
    """The device started anew in the middle of a request."""


class RefusedError(DeviceError):
    """The device answered with an error; ``code`` and ``detail`` are what it sent."""

    def __init__(self, command: int, code: int, detail: int):
        super().__init__(refusal(command, code, detail))
        self.code = code
        self.detail = detail


def command_name(command: int) -> str:
    try:
        return Command(command & 0x7F).name
    except ValueError:
        return f"command {command:#04x}"


_MISSING = {
    1: "it has no model: upload one",
    2: "the input is not loaded yet, or not whole",
    3: "no upload has begun",
    4: "the upload is not complete",
    5: "the slot holds no image",
    6: "the net does not stand still at a layer",
    7: "the board has no storage",
    8: "no net is learning: open learning first",
    9: "no step of learning has begun",
    10: "a step of learning is under way: end it first",
    11: "what was learned is not saved: save it, or reset the board to drop it",
    12: "it does not listen: open listening first",
}
_STORE = {
    1: "outside the storage",
    2: "not aligned",
    3: "the flash controller reported an error",
    4: "it does not hold what was written: is the flash locked, or an emulator's that cannot be written?",
}


_CONSENT = {
    1: "hold its button or set its jumper, then try again",
    2: "present its key (--key FILE)",
}


def refusal(command: int, code: int, detail: int) -> str:
    reasons = {
        Status.COMMAND: "the firmware does not know this command: flash a newer one",
        Status.LENGTH: f"a payload of {detail} bytes is too short or too long",
        Status.RANGE: f"an offset, index or length is too large: the limit is {detail:,}",
        Status.ORDER: f"pieces must follow each other: expected offset {detail:,}",
        Status.STATE: _MISSING.get(detail, f"not now ({detail})"),
        Status.MODEL: f"the image is refused: {core.status_name(detail)}",
        Status.STORE: f"storage: {_STORE.get(detail, detail)}",
        Status.IN_USE: f"slot {detail} holds the model in use: select another first",
        Status.FULL: f"no place left to note a selection, after {detail}: upload an image again",
        Status.DIFFERS: f"a piece is not what came at its offset ({detail:,}) before",
        Status.LOCKED: "the board is locked: " + _CONSENT.get(detail, "somebody must consent"),
        Status.LEARN: f"learning or saving failed: {core.status_name(detail)}",
    }
    try:
        reason = reasons[Status(code)]
    except (ValueError, KeyError):
        reason = f"status {code}, {detail}"
    return f"{command_name(command)}: {reason}"
