"""What a net costs on microcontrollers, before it is trained: instructions, cycles, RAM and flash on each core.

Builds a net of train/nets/networks.py with random weights, or reads a model file, and exports it. A layer that was
counted in QEMU before costs what was counted; others are estimated from layers of the same kernel
(runtime/board/estimate.py). Costs and kernels do not depend on the weights.

examples:
  flipbit cost flip-s
  flipbit cost resnet8 --width 2 --shape 32x32x3 --classes 10
  flipbit cost my_net.h5 --shape 96x96x1
"""

from __future__ import annotations

import argparse
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.runtime.board.plan import BoardPlan, board_plan
from flipbit.runtime.core.model import Model
from flipbit.runtime.errors import ArgumentError
from flipbit.runtime.exits import CommandParser
from flipbit.runtime.image.pixels import Pixels
from flipbit.runtime.shown import shown_json
from flipbit.runtime.text_table import text_table

PROG = "flipbit cost"
# One board of each core, with RAM to spare.
BOARDS = ("pico", "mps2-an385", "mps2-an386", "mps2-an500", "mps2-an505", "mps3-an547", "rv32-virt")
SAMPLES = 4  # random pictures: ranges of activations change multipliers, not costs


@dataclass(frozen=True)
class CoreCost:
    """A net on one core. ``ram`` is for input, output, activations and tables; bytes."""

    core: str
    instructions: int | None
    cycles: int | None  # None where Arm publishes no table
    ram_fastest: int
    ram_least: int
    counted: bool  # every layer was counted in QEMU; else some are estimated


@dataclass(frozen=True)
class NetCost:
    """What a net takes."""

    net: str
    macs: int
    image: int  # bytes
    cores: list[CoreCost]


def untrained(net: str, shape: tuple[int, int, int] = (32, 32, 3), classes: int = 10, width: float = 1.0) -> bytes:
    """The image of a net with random weights."""
    from flipbit.train.nets.networks import NETWORKS, Layers, build

    if net not in NETWORKS:
        raise ArgumentError(f"{net}: neither a file nor a net; nets are {', '.join(NETWORKS)}")
    return image_of(build(net, shape, classes, Layers(width=width)), shape)


def image_of(model: Any, shape: tuple[int, int, int]) -> bytes:
    """The image of a Keras model or a model file, calibrated on random pictures."""
    from flipbit.export.conversion import convert
    from flipbit.export.write.fbit import fbit_bytes

    pictures = np.random.default_rng(0).integers(0, 256, (SAMPLES, *shape), np.uint8)
    return fbit_bytes(convert(model, pictures, pixels=Pixels(128, 1 / 128)))


def net_cost(image: bytes, net: str = "") -> NetCost:
    """What an image takes on each core."""
    model = Model(image)
    plans = [board_plan(model, name) for name in BOARDS]
    return NetCost(net, sum(layer.macs for layer in model.layers), len(image), [_core(plan) for plan in plans])


def _core(plan: BoardPlan) -> CoreCost:
    modelled = all(layer.cycles is not None for layer in plan.layers)
    return CoreCost(
        plan.core, plan.instructions, plan.cycles if modelled and plan.layers else None, plan.ram_fastest,
        plan.ram_needed, plan.counted if plan.layers else False,
    )  # fmt: skip


def parser(prog: str = PROG) -> CommandParser:
    found = CommandParser(prog=prog, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("net", metavar="NET", help="a net's name, such as flip-s, or a model file")
    found.add_argument("--width", type=float, default=1.0, metavar="W", help="factor on the filters of each layer (1)")
    found.add_argument("--shape", default="32x32x3", metavar="HxWxC", help="shape of the input (32x32x3)")
    found.add_argument("--classes", type=int, default=10, metavar="N", help="number of classes (10)")
    found.add_argument("--json", action="store_true", help="print JSON")
    return found


def main(argv: list[str] | None = None, prog: str = PROG) -> int:
    """The command ``flipbit cost``; bad input is a FlipbitError, which the command line reports."""
    given = parser(prog).parse_args(argv)
    shape = _shape(given.shape)
    if not 1 <= given.classes <= 0xFFFF:
        raise ArgumentError(f"--classes {given.classes}: expected 1 to 65535")
    if not 0.01 <= given.width <= 16:
        raise ArgumentError(f"--width {given.width:g}: expected 0.01 to 16")
    if Path(given.net).suffix:
        image = image_of(Path(given.net), shape)
    else:
        image = untrained(given.net, shape, given.classes, given.width)
    cost = net_cost(image, given.net)
    print(shown_json(asdict(cost)) if given.json else text(cost))
    return 0


def _shape(text: str) -> tuple[int, int, int]:
    found = re.fullmatch(r"(\d{1,4})x(\d{1,4})x(\d{1,4})", text)
    if found is None or "0" in found.groups():
        raise ArgumentError(f"--shape {text}: expected height, width and channels, such as 32x32x3")
    return int(found[1]), int(found[2]), int(found[3])


def text(cost: NetCost) -> str:
    head = ["core", ">instructions", ">per MAC", ">cycles", ">RAM, fastest", ">RAM, least", "known by"]
    rows = [
        [
            c.core,
            None if c.instructions is None else f"{c.instructions:,}",
            None if c.instructions is None else f"{c.instructions / cost.macs:.3f}",
            None if c.cycles is None else f"{c.cycles:,}",
            f"{c.ram_fastest:,}",
            f"{c.ram_least:,}",
            "does not fit" if c.instructions is None else "counts" if c.counted else "estimate",
        ]
        for c in cost.cores
    ]
    return (
        f"{cost.net}: {cost.macs:,} multiply-accumulates, an image of {cost.image:,} bytes\n\n"
        f"{text_table(head, rows)}\n\n"
        "Cycles: modelled by Arm's tables, memory without wait states; RAM: input, output, activations and tables."
    )
