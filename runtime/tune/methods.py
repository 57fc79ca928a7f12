"""The methods of ``flipbit finetune``, with their defaults."""

from __future__ import annotations

from dataclasses import dataclass

from flipbit.runtime.core.learner_config import MIRROR
from flipbit.runtime.errors import ArgumentError
from flipbit.runtime.image.reader import Image


@dataclass(frozen=True)
class Method:
    """What is trained and how fast: rates at the first step, falling to 0 in a line."""

    bits: bool = True
    bias: bool = False
    gain: bool = False
    recalibrate: bool = False
    rate_bits: float = 0.0
    rate_bias: float = 0.0
    buffer_bits: int = 0


# Measured on resnet8 under four camera changes: docs/results/learning.md.
METHODS = {
    "adapt": Method(bits=False, bias=True, gain=True, recalibrate=True, rate_bias=0.12),
    "recalibrate": Method(bits=False, recalibrate=True),
    "gain+bias": Method(bits=False, bias=True, gain=True, rate_bias=0.12),
    "bias": Method(bits=False, bias=True, rate_bias=0.5),
    "sr": Method(rate_bits=0.0007),
    "sr+bias": Method(bias=True, rate_bits=0.0004, rate_bias=0.5),
    "buffer": Method(rate_bits=0.004, buffer_bits=2),
}
COMPARED = ("bias", "sr", "buffer")
REFERENCED, PLAIN = "adapt", "bias"
PRIOR = 250  # samples that the parameters of an image count as
AUGMENT = {"none": 0, "shift": 2, "mirror": MIRROR, "both": MIRROR | 2}  # shifts of 2 pixels
PHOTO = 16  # pixels a side, at least, of three channels


def check_used(name: str, rate: float | None, bias_rate: float | None, augment: str | None) -> None:
    """Raise for an option that a method would leave aside without a word."""
    takes = {"--rate": "bits", "--bias-rate": "bias", "--augment": "gain"}
    given = {"--rate": rate, "--bias-rate": bias_rate, "--augment": None if augment == "none" else augment}
    for option, part in takes.items():
        if given[option] is not None and not getattr(METHODS[name], part):
            fitting = ", ".join(other for other, method in METHODS.items() if getattr(method, part))
            raise ArgumentError(f"{option} {given[option]}: --method {name} does not use it; these do: {fitting}")


def buffer_start(bits: int) -> int:
    """How sure buffers are of their bits at first: a quarter of the way."""
    return (1 << bits) // 4


def default_method(image: Image) -> str:
    """The best that an image can: :data:`REFERENCED` where it has references, else biases."""
    return REFERENCED if any(op.references is not None for op in image.operations) else PLAIN


def augmenting(asked: str | None, image: Image) -> int:
    """How samples are changed: as asked, else photos in both ways. A mirrored digit is none, and nor is a sound."""
    if asked is not None:
        return AUGMENT[asked]
    source = image.tensors[image.input]
    return AUGMENT["both" if source.channels == 3 and min(source.height, source.width) >= PHOTO else "none"]
