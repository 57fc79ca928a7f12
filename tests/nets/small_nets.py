"""Small nets with every kind of operation, made without a training framework."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from flipbit.export.calibrate import calibrate
from flipbit.export.graph import (
    Add,
    AveragePool,
    Conv,
    Dense,
    Flatten,
    Graph,
    MaxPool,
    Op,
    PadShortcut,
    Relu,
    Tensor,
)
from flipbit.export.quantize import quantize_graph
from flipbit.export.write.fbit import fbit_bytes

FORMULA = "(pixel - 128) * 0.0078125"


class _Builder:
    def __init__(self, shape: tuple[int, ...], seed: int):
        self.random = np.random.default_rng(seed)
        self.tensors = {"x": Tensor("x", shape)}
        self.ops: list[Op] = []
        self.last = "x"

    def add(self, kind: type[Op], shape: tuple[int, ...], *inputs: str, **fields: object) -> str:
        name = f"{kind.__name__.lower()}{len(self.ops)}"
        self.tensors[name] = Tensor(name, shape)
        self.ops.append(kind(name, inputs or (self.last,), name, **fields))
        self.last = name
        return name

    def weighted(self, kind: type[Op], shape: tuple[int, ...], weights: tuple[int, ...], binary: bool, **fields) -> str:
        values = self.random.choice([-1, 1], weights) if binary else self.random.normal(0, 0.3, weights)
        scale = self.random.uniform(0.5, 1.5, weights[-1]) / np.sqrt(np.prod(weights[:-1]))
        bias = self.random.normal(0, 0.2, weights[-1])
        dtype = np.int8 if binary else np.float64
        return self.add(kind, shape, weights=values.astype(dtype), scale=scale, bias=bias, binary=binary, **fields)


@lru_cache
def small_graph(seed: int = 0) -> Graph:
    """9×8 images of 3 channels to 5 classes, through every kind of operation, odd sizes and both layouts of bits."""
    b = _Builder((9, 8, 3), seed)
    same = (1, 1, 1, 1)
    first = b.weighted(Conv, (9, 8, 16), (3, 3, 3, 16), True, padding=same, relu=True)
    second = b.weighted(Conv, (9, 8, 16), (3, 3, 16, 16), True, padding=same)
    b.add(Add, (9, 8, 16), first, second, relu=True)
    join = b.last
    short = b.add(PadShortcut, (5, 4, 19), join, stride=2, channels=19)
    b.last = join
    main = b.weighted(Conv, (5, 4, 19), (3, 3, 16, 19), True, stride=(2, 2), padding=(1, 1, 0, 1))
    b.add(Add, (5, 4, 19), short, main)
    b.add(MaxPool, (3, 3, 19), size=(2, 2), stride=(2, 1), padding=(0, 1, 0, 0))
    b.add(Relu, (3, 3, 19))
    b.weighted(Conv, (3, 3, 6), (1, 1, 19, 6), False, relu=True)
    b.add(AveragePool, (2, 2, 6), size=(2, 2), stride=(1, 1))
    b.add(Flatten, (24,))
    b.weighted(Dense, (7,), (24, 7), True)
    b.weighted(Dense, (5,), (7, 5), False)
    labels = ["ant", "bee", "čmelák", "dragonfly", "earwig"]
    graph = Graph("x", b.last, b.ops, b.tensors, labels)
    graph.check()
    images = (np.random.default_rng(seed + 1).integers(0, 256, (16, 9, 8, 3)) - 128) / 128
    return quantize_graph(graph, calibrate(graph, images), (1 / 128, 0))


# One operation of each kind, behind an image of 6×6×16. A new kind gets a line here: tests/test_kinds.py takes it from
# there through everything that must know it.
EXAMPLES: dict[str, Callable[[_Builder], str]] = {
    "conv": lambda b: b.weighted(Conv, (6, 6, 5), (3, 3, 16, 5), False, padding=(1, 1, 1, 1), relu=True),
    "dense": lambda b: b.add(Flatten, (576,)) and b.weighted(Dense, (7,), (576, 7), True),
    "max_pool": lambda b: b.add(MaxPool, (3, 3, 16), size=(2, 3), stride=(2, 2), padding=(0, 0, 1, 0)),
    "average_pool": lambda b: b.add(AveragePool, (16,), size=(6, 6), stride=(6, 6)),
    "add": lambda b: b.add(Add, (6, 6, 16), b.last, b.add(Relu, (6, 6, 16)), relu=True),
    "shortcut": lambda b: b.add(PadShortcut, (3, 3, 18), stride=2, channels=18),
    "relu": lambda b: b.add(Relu, (6, 6, 16)),
    "flatten": lambda b: b.add(Flatten, (576,)),
}


@lru_cache
def graph_with(kind: str) -> Graph:
    """6×6 images of 3 channels to 3 classes: a binary convolution, an operation of this kind, a dense layer."""
    b = _Builder((6, 6, 3), 7)
    b.weighted(Conv, (6, 6, 16), (3, 3, 3, 16), True, padding=(1, 1, 1, 1))
    EXAMPLES[kind](b)
    shape = b.tensors[b.last].shape
    if len(shape) == 3:
        b.add(Flatten, (int(np.prod(shape)),))
    b.weighted(Dense, (3,), (int(np.prod(shape)), 3), False)
    graph = Graph("x", b.last, b.ops, b.tensors, ["ant", "bee", "cricket"])
    graph.check()
    images = (np.random.default_rng(8).integers(0, 256, (16, 6, 6, 3)) - 128) / 128
    return quantize_graph(graph, calibrate(graph, images), (1 / 128, 0))


@lru_cache
def small_image(seed: int = 0) -> bytes:
    return fbit_bytes(small_graph(seed), FORMULA)


def photos(n: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, 9, 8, 3), np.uint8)


def repaired(image: bytearray) -> bytes:
    """With a CRC that is right again, so that only the deep checks are left."""
    image[12:16] = bytes(4)
    image[12:16] = struct.pack("<I", zlib.crc32(image))
    return bytes(image)
