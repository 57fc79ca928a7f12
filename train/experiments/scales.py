"""What quick, small and paper mean for experiments that train nets.

=======  ==========================  ======  =================  =====================================
scale    data and net                epochs  batch, big batch   learning rate
=======  ==========================  ======  =================  =====================================
quick    digits, a narrow vgg-small  12      32, 256            cosine
small    CIFAR-10, resnet8           12      64, 512            cosine
long     CIFAR-10, resnet8           60      64, 512            cosine
paper    the paper's                 160     128, 1024          0.01, a tenth at epochs 82 and 122
=======  ==========================  ======  =================  =====================================

The big batch is always eight times the small one, as in the paper. ``small`` halves both: 12 epochs of batch 1024
would be 590 steps, too few for SR to move its weights at all. ``long`` is for the one pair of :mod:`table1` that 12
epochs do not tell apart, SR and Big SR.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flipbit.train.settings import Settings
from flipbit.train.theory.outcome import size_of


@dataclass(frozen=True)
class Scale:
    """The recipe that the runs of a scale share, so that experiments can share runs."""

    recipe: str
    data: str
    net: str
    epochs: int
    batch: int
    big_batch: int
    width: float = 1.0

    def settings(self, method: str, seed: int, kind: type[Settings] = Settings, **more: Any) -> Settings:
        """A run of this scale; ``more`` overrides any setting."""
        chosen: dict[str, Any] = {
            "method": method, "data": self.data, "net": self.net, "width": self.width, "recipe": self.recipe,
            "epochs": self.epochs, "batch": self.batch, "seed": seed,
        }  # fmt: skip
        chosen |= more
        if self.recipe == "paper" and chosen["data"] != "imagenet":
            # 82 and 122 of 160 epochs; a run that was made shorter keeps the proportion.
            chosen["lr_drops"] = tuple(max(1, round(drop / 160 * chosen["epochs"])) for drop in (82, 122))
        return kind(**chosen)


SCALES = {
    "quick": Scale("quick", "digits", "vgg-small", 12, 32, 256, width=0.5),
    "small": Scale("quick", "cifar10", "resnet8", 12, 64, 512),
    "long": Scale("quick", "cifar10", "resnet8", 60, 64, 512),
    "paper": Scale("paper", "cifar10", "vgg9", 160, 128, 1024),
}


def scale_of(name: str) -> Scale:
    return size_of(name, SCALES)
