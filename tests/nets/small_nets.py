"""Small nets with every kind of operation, made without a training framework."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from flipbit.export.calibrate import calibrate
from flipbit.export.functions import Function
from flipbit.export.graph import (
    Add,
    AveragePool,
    Binarize,
    BitConv,
    BitPool,
    Concat,
    Conv,
    Dense,
    DepthwiseConv,
    Flatten,
    Graph,
    MaxPool,
    Op,
    PadShortcut,
    Relu,
    Table,
    Tensor,
)
from flipbit.export.quantize import HEADROOM, quantize_graph
from flipbit.export.references import with_references
from flipbit.export.write.fbit import fbit_bytes
from flipbit.runtime.image import reader

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

    def signs(self) -> str:
        """Of the last image: rising, falling and constant channels."""
        height, width, channels = self.tensors[self.last].shape
        gain = np.resize([1.0, -0.7, 0.3, 0.0], channels)
        return self.add(Binarize, (height, width, channels), gain=gain, offset=self.random.normal(0, 0.2, channels))


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


@lru_cache
def newer_graph(seed: int = 0) -> Graph:
    """9×8 images of 3 channels to 5 classes, through what version 2 of the format has: see docs/fbit-format.md."""
    b = _Builder((9, 8, 3), seed)
    same = (1, 1, 1, 1)
    b.weighted(Conv, (9, 8, 16), (3, 3, 3, 16), True, padding=same)
    b.add(Table, (9, 8, 16), function=Function("leaky_relu", (0.2,)))
    b.weighted(DepthwiseConv, (9, 8, 16), (3, 3, 16), True, padding=same, relu=True, ceiling=1.5)
    first = b.weighted(Conv, (9, 8, 7), (1, 1, 16, 7), True, relu=True)
    b.weighted(DepthwiseConv, (5, 4, 7), (3, 3, 7), False, stride=(2, 2), padding=(1, 1, 0, 1))
    wide = b.add(Table, (5, 4, 7), function=Function("swish"))
    b.last = first
    b.add(AveragePool, (5, 4, 7), size=(3, 3), stride=(2, 2), padding=(1, 1, 0, 1))
    b.add(Concat, (5, 4, 14), wide, b.last)
    b.weighted(DepthwiseConv, (5, 2, 14), (1, 5, 14), True, stride=(1, 2), padding=(0, 0, 2, 2))
    pooled = b.add(AveragePool, (14,), size=(5, 2), stride=(5, 2))
    b.weighted(Dense, (6,), (14, 6), True)
    b.add(Table, (6,), function=Function("tanh"))
    b.add(Concat, (20,), b.last, pooled)
    b.weighted(Dense, (5,), (20, 5), False)
    graph = Graph("x", b.last, b.ops, b.tensors, ["ant", "bee", "čmelák", "dragonfly", "earwig"])
    graph.check()
    images = (np.random.default_rng(seed + 1).integers(0, 256, (16, 9, 8, 3)) - 128) / 128
    return quantize_graph(graph, calibrate(graph, images), (1 / 128, 0))


@lru_cache
def operations_graph() -> Graph:
    """24×24 images of 16 channels through each operation of version 2 once, at sizes worth counting."""
    b = _Builder((24, 24, 16), 0)
    same, wide = (1, 1, 1, 1), (2, 2, 2, 2)
    b.weighted(DepthwiseConv, (24, 24, 16), (3, 3, 16), True, padding=same, relu=True)
    b.add(Table, (24, 24, 16), function=Function("swish"))
    b.weighted(DepthwiseConv, (24, 24, 16), (3, 3, 16), False, padding=same, relu=True)
    third = b.weighted(DepthwiseConv, (24, 24, 16), (5, 5, 16), True, padding=wide)
    left = b.weighted(DepthwiseConv, (12, 12, 16), (3, 3, 16), True, stride=(2, 2), padding=(0, 1, 0, 1))
    b.last = third
    b.add(AveragePool, (12, 12, 16), size=(3, 3), stride=(2, 2), padding=(0, 1, 0, 1))
    b.add(Concat, (12, 12, 32), left, b.last)
    b.weighted(DepthwiseConv, (12, 12, 32), (1, 9, 32), True, padding=(0, 0, 4, 4))
    b.add(AveragePool, (32,), size=(12, 12), stride=(12, 12))
    b.weighted(Dense, (4,), (32, 4), False)
    graph = Graph("x", b.last, b.ops, b.tensors)
    graph.check()
    images = (np.random.default_rng(1).integers(0, 256, (8, 24, 24, 16)) - 128) / 128
    return quantize_graph(graph, calibrate(graph, images), (1 / 128, 0))


@lru_cache
def bits_graph(seed: int = 0) -> Graph:
    """9×8 images of 3 channels to 5 classes, through what computes with packed bits, in whole words and in others."""
    b = _Builder((9, 8, 3), seed)
    same = (1, 1, 1, 1)
    b.weighted(Conv, (9, 8, 16), (3, 3, 3, 16), True, padding=same)
    b.signs()
    b.add(BitPool, (5, 8, 16), size=(2, 1), stride=(2, 1), padding=(0, 1, 0, 0))
    short = b.weighted(BitConv, (5, 8, 21), (3, 3, 16, 21), True, padding=same, relu=True)
    b.signs()
    b.weighted(BitConv, (5, 8, 21), (3, 3, 21, 21), True, padding=same, ones=True)
    b.add(Add, (5, 8, 21), short, b.last)
    b.signs()
    b.add(BitPool, (3, 4, 21), size=(3, 3), stride=(2, 2), padding=same)
    b.weighted(BitConv, (2, 2, 32), (2, 3, 21, 32), True, stride=(1, 1))
    b.signs()
    b.weighted(BitConv, (2, 2, 6), (3, 3, 32, 6), True, padding=same)
    b.add(Flatten, (24,))
    b.weighted(Dense, (5,), (24, 5), False)
    graph = Graph("x", b.last, b.ops, b.tensors, ["ant", "bee", "čmelák", "dragonfly", "earwig"])
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
    "depthwise": lambda b: b.weighted(
        DepthwiseConv, (3, 3, 16), (3, 3, 16), True, stride=(2, 2), padding=(0, 1, 0, 1), relu=True
    ),
    "table": lambda b: b.add(Table, (6, 6, 16), function=Function("leaky_relu", (0.1,))),
    "concat": lambda b: b.add(Concat, (6, 6, 32), b.last, b.add(Relu, (6, 6, 16))),
    "binarize": lambda b: (
        b.signs()
        and b.weighted(BitConv, (2, 2, 3), (3, 3, 16, 3), True, stride=(3, 3), ones=True, padding=(0, 1, 2, 0))
    ),
    "conv_bits": lambda b: b.signs() and b.weighted(BitConv, (6, 6, 20), (3, 3, 16, 20), True, padding=(1, 1, 1, 1)),
    "max_pool_bits": lambda b: (
        b.signs()
        and b.add(BitPool, (3, 3, 16), size=(3, 2), stride=(2, 2), padding=(1, 0, 0, 1))
        and b.weighted(BitConv, (3, 3, 6), (1, 1, 16, 6), True)
    ),
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


def graph_through(shape: tuple[int, int, int], through: Callable[[_Builder], str], seed: int) -> Graph:
    """Images of ``shape`` through a few operations, in integers."""
    b = _Builder(shape, seed)
    through(b)
    graph = Graph("x", b.last, b.ops, b.tensors)
    graph.check()
    images = (np.random.default_rng(seed + 1).integers(0, 256, (8, *shape)) - 128) / 128
    return quantize_graph(graph, calibrate(graph, images), (1 / 128, 0))


@lru_cache
def small_image(seed: int = 0) -> bytes:
    return fbit_bytes(small_graph(seed), FORMULA)


@lru_cache
def newer_image(seed: int = 0) -> bytes:
    return fbit_bytes(newer_graph(seed), FORMULA)


@lru_cache
def bits_image(seed: int = 0) -> bytes:
    return fbit_bytes(bits_graph(seed), FORMULA)


@lru_cache
def referenced_image(seed: int = 0) -> bytes:
    """The same net with what it needs to be recalibrated, from the images of :func:`photos`."""
    real = small_graph(seed).real
    assert real is not None
    images = (np.random.default_rng(seed + 1).integers(0, 256, (16, 9, 8, 3)) - 128) / 128
    integers = quantize_graph(real, calibrate(real, images), (1 / 128, 0), HEADROOM)
    return fbit_bytes(with_references(integers, (photos(200, 5).astype(np.float32) - 128) / 128), FORMULA)


def in_memory(values: np.ndarray, tensor: reader.Tensor) -> bytes:
    """A tensor of the NumPy reference as it lies in a device's memory: signs as bits, 16 channels to a word."""
    if not tensor.bits:
        return np.ascontiguousarray(values).tobytes()
    spare = ((0, 0), (0, -tensor.channels % 16), (0, 0), (0, 0))
    words = np.pad(values > 0, spare).reshape(len(values), -1, 16, tensor.height, tensor.width)
    return (words.astype("<u2") << np.arange(16, dtype="<u2")[:, None, None]).sum(2, dtype="<u2").tobytes()


def photos(n: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, 9, 8, 3), np.uint8)


def repaired(image: bytearray) -> bytes:
    """With a CRC that is right again, so that only the deep checks are left."""
    image[12:16] = bytes(4)
    image[12:16] = struct.pack("<I", zlib.crc32(image))
    return bytes(image)
