"""Writes the fuzzer's first images: small random nets that together use every operation, layout and border.

    python firmware/fuzz/make_corpus.py firmware/fuzz/corpus

The same seeds give the same bytes. A net costs little to run (the fuzzer runs it thousands of times per second), so
images are a few pixels wide; the last ones have many channels, or many outputs. For learning, the nets with weights get
a script behind them (fuzz_learning.h).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

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
from flipbit.export.quantize import quantize_graph
from flipbit.export.references import with_references
from flipbit.export.write.fbit import fbit_bytes
from flipbit.runtime.audio.config import AudioConfig
from flipbit.runtime.recordings.front_ends import AudioInput, FrontEndInput, SignalInput

Padding = tuple[int, int, int, int]
NONE: Padding = (0, 0, 0, 0)
SAME: Padding = (1, 1, 1, 1)


class Net:
    """Builds a graph operation by operation; each method returns the name of the tensor it writes."""

    def __init__(self, seed: int, shape: tuple[int, ...]):
        self.random = np.random.default_rng(seed)
        self.graph = Graph("t0", "t0", [], {"t0": Tensor("t0", shape)})

    def _append(self, make: Callable[[str, str], Op], shape: tuple[int, ...]) -> str:
        output = f"t{len(self.graph.tensors)}"
        self.graph.tensors[output] = Tensor(output, shape)
        self.graph.ops.append(make(f"op{len(self.graph.ops)}", output))
        self.graph.output = output
        return output

    def _shape(self, name: str) -> tuple[int, ...]:
        return self.graph.tensors[name].shape

    def _weights(self, shape: tuple[int, ...], binary: bool) -> dict[str, Any]:
        filters = shape[-1]
        weights = self.random.choice([-1, 1], shape).astype(np.int8) if binary else self.random.normal(0, 1, shape)
        scale = self.random.uniform(0.05, 0.2, filters) if binary else np.ones(filters)
        return {"weights": weights, "scale": scale, "bias": self.random.normal(0, 0.5, filters), "binary": binary}

    def conv(
        self,
        x: str,
        filters: int,
        kernel: tuple[int, int] = (3, 3),
        stride: tuple[int, int] = (1, 1),
        padding: Padding = SAME,
        binary: bool = True,
        relu: bool = True,
    ) -> str:
        h, w, c = self._shape(x)
        parameters = self._weights((*kernel, c, filters), binary)
        shape = (*_windows((h, w), kernel, stride, padding), filters)
        return self._append(
            lambda name, y: Conv(name, (x,), y, relu=relu, stride=stride, padding=padding, **parameters),
            shape,
        )

    def dense(self, x: str, units: int, binary: bool = False, relu: bool = False) -> str:
        parameters = self._weights((self._shape(x)[0], units), binary)
        return self._append(lambda name, y: Dense(name, (x,), y, relu=relu, **parameters), (units,))

    def max_pool(
        self, x: str, size: tuple[int, int] = (2, 2), stride: tuple[int, int] = (2, 2), padding: Padding = NONE
    ) -> str:
        h, w, c = self._shape(x)
        shape = (*_windows((h, w), size, stride, padding), c)
        return self._append(lambda name, y: MaxPool(name, (x,), y, size, stride, padding), shape)

    def average_pool(
        self, x: str, size: tuple[int, int] | None = None, stride: tuple[int, int] = (2, 2), padding: Padding = NONE
    ) -> str:
        """Over windows, or over the whole image: then the result is a vector."""
        h, w, c = self._shape(x)
        shape = (*_windows((h, w), size, stride, padding), c) if size else (c,)
        return self._append(lambda name, y: AveragePool(name, (x,), y, size or (h, w), stride, padding), shape)

    def depthwise(
        self,
        x: str,
        kernel: tuple[int, int] = (3, 3),
        stride: tuple[int, int] = (1, 1),
        padding: Padding = SAME,
        binary: bool = True,
        relu: bool = True,
    ) -> str:
        h, w, c = self._shape(x)
        parameters = self._weights((*kernel, c), binary)
        shape = (*_windows((h, w), kernel, stride, padding), c)
        return self._append(
            lambda name, y: DepthwiseConv(name, (x,), y, relu=relu, stride=stride, padding=padding, **parameters),
            shape,
        )

    def table(self, x: str, function: str, *parameters: float) -> str:
        return self._append(lambda name, y: Table(name, (x,), y, Function(function, parameters)), self._shape(x))

    def concat(self, a: str, b: str) -> str:
        shape = (*self._shape(a)[:-1], self._shape(a)[-1] + self._shape(b)[-1])
        return self._append(lambda name, y: Concat(name, (a, b), y), shape)

    def add(self, a: str, b: str, relu: bool = True) -> str:
        return self._append(lambda name, y: Add(name, (a, b), y, relu), self._shape(a))

    def shortcut(self, x: str, channels: int, stride: int = 2) -> str:
        h, w, _ = self._shape(x)
        shape = (-(-h // stride), -(-w // stride), channels)
        return self._append(lambda name, y: PadShortcut(name, (x,), y, stride, channels), shape)

    def relu(self, x: str) -> str:
        return self._append(lambda name, y: Relu(name, (x,), y), self._shape(x))

    def flatten(self, x: str) -> str:
        return self._append(lambda name, y: Flatten(name, (x,), y), (int(np.prod(self._shape(x))),))

    def signs(self, x: str) -> str:
        """Rising, falling and constant channels; a vector becomes an image of 1×1."""
        shape = self._shape(x)
        gain = self.random.choice([1.0, -0.5, 0.0], shape[-1], p=[0.6, 0.3, 0.1])
        offset = self.random.normal(0, 0.3, shape[-1])
        return self._append(
            lambda name, y: Binarize(name, (x,), y, gain=gain, offset=offset),
            shape if len(shape) == 3 else (1, 1, *shape),
        )

    def bit_pool(
        self, x: str, size: tuple[int, int] = (2, 2), stride: tuple[int, int] = (2, 2), padding: Padding = NONE
    ) -> str:
        h, w, c = self._shape(x)
        shape = (*_windows((h, w), size, stride, padding), c)
        return self._append(lambda name, y: BitPool(name, (x,), y, size, stride, padding), shape)

    def bit_conv(
        self,
        x: str,
        filters: int,
        kernel: tuple[int, int] = (3, 3),
        stride: tuple[int, int] = (1, 1),
        padding: Padding = SAME,
        ones: bool = False,
        relu: bool = False,
        vector: bool = False,
    ) -> str:
        """Of signs; ``vector``: the result, 1×1, is one."""
        h, w, c = self._shape(x)
        fields = self._weights((*kernel, c, filters), True)
        size = () if vector else _windows((h, w), kernel, stride, padding)
        return self._append(
            lambda name, y: BitConv(name, (x,), y, relu=relu, stride=stride, padding=padding, ones=ones, **fields),
            (*size, filters),
        )

    def image(self, references: bool = False) -> bytes:
        samples = self.random.uniform(-1, 1, (8, *self._shape(self.graph.input)))
        integers = quantize_graph(self.graph, calibrate(self.graph, samples))
        return fbit_bytes(with_references(integers, samples) if references else integers)


def _windows(
    size: tuple[int, int], kernel: tuple[int, int], stride: tuple[int, int], padding: Padding
) -> tuple[int, int]:
    top, bottom, left, right = padding
    return (
        (size[0] + top + bottom - kernel[0]) // stride[0] + 1,
        (size[1] + left + right - kernel[1]) // stride[1] + 1,
    )


def single(operation: Callable[[Net, str], str], shape: tuple[int, ...]) -> Callable[[int], bytes]:
    """A net of one operation: its input and output are the caller's, the arena holds tables alone."""

    def build(seed: int) -> bytes:
        net = Net(seed, shape)
        operation(net, "t0")
        return net.image()

    return build


def residual(seed: int) -> bytes:
    """Two blocks as in a ResNet: an identity, then a shortcut by padding; average pooling and a dense layer."""
    net = Net(seed, (5, 4, 3))
    x = net.conv("t0", 16)
    x = net.add(net.conv(net.conv(x, 16), 16, relu=False), x)
    y = net.conv(net.conv(x, 20, stride=(2, 2)), 20, relu=False)
    x = net.add(y, net.shortcut(x, 20), relu=False)
    net.dense(net.average_pool(x), 5)
    return net.image()


def projection(seed: int) -> bytes:
    """A residual block whose shortcut is a 1×1 convolution, and an addition of a tensor to itself."""
    net = Net(seed, (4, 5, 4))
    x = net.conv("t0", 6, stride=(2, 2), relu=False)
    x = net.add(x, net.conv("t0", 6, (1, 1), (2, 2), NONE, relu=False))
    net.dense(net.flatten(net.add(x, x)), 3, binary=True)
    return net.image()


def chain(seed: int) -> bytes:
    """As a VGG: convolutions, pooling, ReLU and flatten in place, two dense layers."""
    net = Net(seed, (8, 6, 1))
    x = net.max_pool(net.conv("t0", 5, binary=False, relu=False))
    x = net.relu(net.conv(x, 7, relu=False))
    x = net.relu(net.flatten(net.max_pool(x)))
    net.dense(net.dense(x, 9, binary=True, relu=True), 4)
    return net.image()


def many_alive(count: int) -> Callable[[int], bytes]:
    """`count` tensors wait to be added up at the end; the core keeps at most 16 alive (FB_MAX_LIVE)."""

    def build(seed: int) -> bytes:
        net = Net(seed, (2, 2, 1))
        waiting = [net.relu("t0") for _ in range(count)]
        x = waiting[0]
        for other in waiting[1:]:
            x = net.add(x, other, relu=False)
        net.flatten(x)
        return net.image()

    return build


def holes(seed: int) -> bytes:
    """Tensors of many sizes that end at different times: the planner fills holes at both ends of the arena."""
    net = Net(seed, (6, 6, 2))
    a = net.conv("t0", 4, (1, 1), padding=NONE)
    b = net.conv(a, 3, (3, 3))
    c = net.max_pool(b)
    d = net.conv(a, 3, (2, 2), (2, 2), NONE)
    e = net.add(c, d)
    f = net.conv(b, 3, (2, 2), (2, 2), NONE)
    g = net.add(f, e)
    net.relu(net.average_pool(net.add(g, c)))
    return net.image()


def beyond_memory(seed: int) -> bytes:
    """Three tensors at once of nearly 2 GB each: no arena of 32 bits holds them."""
    net = Net(seed, (1, 1, 1))
    a, b, c = (net.relu("t0") for _ in range(3))
    net.add(net.add(a, b), c)
    integers = quantize_graph(net.graph, calibrate(net.graph, net.random.uniform(-1, 1, (8, 1, 1, 1))))
    large = {name: replace(tensor, shape=(32_767, 65_535, 1)) for name, tensor in integers.tensors.items()}
    return fbit_bytes(replace(integers, tensors=large))


def large_window(seed: int) -> bytes:
    """A maximum over more pixels than a byte can tell apart."""
    net = Net(seed, (4, 4, 1))
    x = net.max_pool(net.conv("t0", 1, (1, 1), padding=NONE, relu=False), (17, 17), (1, 1), (16, 0, 16, 0))
    net.dense(net.flatten(x), 2, binary=True)
    return net.image()


def bits(seed: int) -> bytes:
    """As a Bi-Real net: convolutions of signs, int8 shortcuts around them, a dense layer of signs."""
    net = Net(seed, (5, 6, 3))
    x = net.conv("t0", 16, relu=False)
    x = net.add(net.bit_conv(net.signs(x), 16), x, relu=False)
    y = net.bit_conv(net.signs(x), 20, stride=(2, 2), ones=True)
    x = net.add(y, net.shortcut(x, 20), relu=False)
    x = net.bit_conv(net.signs(x), 18, (2, 2), padding=(0, 1, 1, 0), relu=True)
    x = net.bit_conv(net.signs(net.average_pool(x)), 7, (1, 1), padding=NONE, vector=True)
    net.dense(x, 3)
    return net.image()


def few_bits(seed: int) -> bytes:
    """As `bits`, but small enough to run: signs of images and of a vector, words that are full and that are not."""
    net = Net(seed, (3, 3, 2))
    x = net.bit_conv(net.signs("t0"), 16, ones=True)
    x = net.bit_conv(net.signs(x), 3, stride=(2, 2), relu=True)
    x = net.bit_conv(net.signs(net.average_pool(x)), 4, (1, 1), padding=NONE, vector=True)
    net.dense(x, 2)
    return net.image()


def pooled_bits(seed: int) -> bytes:
    """As a VGG of signs: pooling inside an image and over its border, words that are full and that are not."""
    net = Net(seed, (6, 5, 2))
    x = net.bit_pool(net.signs(net.conv("t0", 20, relu=False)), (2, 2), (2, 2), (0, 0, 0, 1))
    x = net.bit_pool(net.signs(net.bit_conv(x, 16)), (3, 2), (1, 1), (1, 2, 0, 1))
    net.dense(net.flatten(net.bit_conv(x, 3, (2, 2), padding=NONE)), 3)
    return net.image()


def referenced(seed: int) -> bytes:
    """A net that can be recalibrated: binary and int8 convolutions one after the other and side by side."""
    net = Net(seed, (5, 4, 2))
    x = net.conv("t0", 4, binary=False)
    y = net.conv(x, 3, stride=(2, 2))
    z = net.depthwise(net.conv(x, 3, (1, 1), (2, 2), NONE, relu=False), binary=False, relu=False)
    net.dense(net.flatten(net.add(y, z)), 3, binary=True)
    return net.image(references=True)


def wide(channels: int, filters: int) -> Callable[[int], bytes]:
    """Many channels, few pixels: sums of gradients are long where planes are small."""

    def build(seed: int) -> bytes:
        net = Net(seed, (2, 2, channels))
        x = net.conv("t0", filters, padding=NONE, kernel=(2, 2))
        x = net.conv(x, filters // 2, (1, 1), padding=NONE, binary=False)
        net.dense(net.flatten(x), 3, binary=True)
        return net.image()

    return build


def recorded(front_end: FrontEndInput, shape: tuple[int, int, int]) -> Callable[[int], bytes]:
    """A net whose image says how recordings become its input."""

    def build(seed: int) -> bytes:
        net = Net(seed, shape)
        net.dense(net.flatten(net.conv("t0", 2)), 2, binary=True)
        net.graph.front_end = front_end
        return net.image()

    return build


AUDIO = AudioInput(AudioConfig(window=32, hop=16, fft=64, bands=3, low_hz=100, high_hz=8000), length=4, hop=2)
ONE_SCALE = SignalInput.scaled(12_000, 6, 3, [-2.0], [2.0], channels=2)
OWN_SCALES = SignalInput.scaled(50, 4, 2, [-1.0, -3.0, 0.0], [1.0, 2.0, 9.81])


def separable(seed: int) -> bytes:
    """As a MobileNet: depthwise and 1×1 convolutions in turn, a clipped ReLU as a table, and branches put together."""
    net = Net(seed, (6, 5, 2))
    x = net.table(net.conv("t0", 8, stride=(2, 2), relu=False), "clip", 0.0, 1.0)
    x = net.conv(net.depthwise(x), 6, (1, 1), padding=NONE)
    a = net.table(net.depthwise(x, binary=False, relu=False), "swish")
    b = net.average_pool(x, (3, 3), (1, 1), SAME)
    net.dense(net.average_pool(net.concat(net.concat(a, b), x)), 4, binary=True)
    return net.image()


def _depthwise(shape: tuple[int, int, int], *rest: object, **options: object) -> Callable[[int], bytes]:
    return single(lambda net, x: net.depthwise(x, *rest, **options), shape)  # type: ignore[arg-type]


def _conv(shape: tuple[int, int, int], *rest: object, **options: object) -> Callable[[int], bytes]:
    return single(lambda net, x: net.conv(x, *rest, **options), shape)  # type: ignore[arg-type]


NETS: dict[str, Callable[[int], bytes]] = {
    "conv-chunks-16": _conv((5, 5, 16), 3),
    "conv-chunks-32-stride-2": _conv((5, 7, 32), 2, stride=(2, 2), padding=(0, 1, 0, 1), relu=False),
    "conv-chunks-no-padding": _conv((4, 9, 16), 4, padding=NONE),
    "conv-chunks-wide": _conv((1, 19, 16), 1),
    "conv-chunks-many-filters": _conv((2, 2, 16), 17),
    "conv-taps-3": _conv((6, 5, 3), 4),
    "conv-taps-17": _conv((3, 4, 17), 2),
    "conv-taps-5x5": _conv((6, 6, 2), 3, (5, 5), (1, 1), (2, 2, 2, 2)),
    "conv-taps-2x4": _conv((6, 9, 3), 2, (2, 4), (3, 2), (1, 0, 3, 1), relu=False),
    "conv-1x1": _conv((4, 4, 24), 5, (1, 1), (1, 1), NONE),
    "conv-1x1-stride-2": _conv((5, 4, 16), 8, (1, 1), (2, 2), NONE),
    "conv-kernel-over-border": _conv((1, 2, 1), 2, (3, 3), (1, 1), (2, 2, 2, 2)),
    "conv-int8": _conv((5, 4, 3), 4, binary=False),
    "conv-int8-16": _conv((4, 4, 16), 2, binary=False, relu=False),
    "conv-int8-stride": _conv((7, 5, 2), 3, (3, 2), (2, 3), (1, 1, 0, 1), binary=False),
    "dense-int8": single(lambda net, x: net.dense(x, 5), (33,)),
    "dense-int8-relu": single(lambda net, x: net.dense(x, 3, relu=True), (16,)),
    "dense-binary": single(lambda net, x: net.dense(x, 5, binary=True), (50,)),
    "dense-binary-whole-words": single(lambda net, x: net.dense(x, 4, binary=True, relu=True), (64,)),
    "max-pool": single(lambda net, x: net.max_pool(x), (5, 4, 3)),
    "max-pool-padding": single(lambda net, x: net.max_pool(x, (3, 3), (2, 2), (1, 1, 1, 1)), (5, 6, 2)),
    "max-pool-overlapping": single(lambda net, x: net.max_pool(x, (3, 2), (1, 1)), (4, 17, 1)),
    "average-pool": single(lambda net, x: net.average_pool(x, (2, 3), (2, 1)), (4, 5, 3)),
    "average-pool-global": single(lambda net, x: net.average_pool(x), (4, 4, 5)),
    "add": single(lambda net, x: net.add(x, x), (3, 3, 3)),
    "add-vectors": single(lambda net, x: net.add(x, x, relu=False), (19,)),
    "shortcut": single(lambda net, x: net.shortcut(x, 5), (5, 4, 3)),
    "shortcut-same": single(lambda net, x: net.shortcut(x, 3, stride=1), (2, 3, 3)),
    "relu": single(lambda net, x: net.relu(x), (3, 2, 2)),
    "flatten": single(lambda net, x: net.flatten(x), (2, 3, 1)),
    "residual": residual,
    "projection": projection,
    "chain": chain,
    "holes": holes,
    "alive-16": many_alive(16),
    "alive-17": many_alive(17),
    "max-pool-17x17": large_window,
    "wide-96": wide(96, 48),
    "wide-256": wide(256, 64),
    "outputs-65536": _conv((256, 256, 1), 1, (1, 1), padding=NONE, relu=False),
    "outputs-131072": _conv((256, 256, 1), 2, (1, 1), padding=NONE, relu=False),
    "front-end-audio": recorded(AUDIO, (4, 3, 1)),
    "front-end-one-scale": recorded(ONE_SCALE, (1, 6, 2)),
    "front-end-own-scales": recorded(OWN_SCALES, (4, 3, 1)),
    "depthwise": _depthwise((6, 5, 3)),
    "depthwise-stride-2": _depthwise((7, 6, 2), stride=(2, 2), padding=(0, 1, 0, 1), relu=False),
    "depthwise-5x5": _depthwise((5, 6, 2), (5, 5), (1, 1), (2, 2, 2, 2)),
    "depthwise-1x9": _depthwise((1, 12, 3), (1, 9), (1, 2), (0, 0, 4, 4)),
    "depthwise-int8": _depthwise((5, 4, 3), binary=False),
    "depthwise-int8-stride": _depthwise((7, 5, 2), (3, 2), (2, 3), (1, 1, 0, 1), binary=False, relu=False),
    "table": single(lambda net, x: net.table(x, "gelu"), (5, 3, 2)),
    "table-vector": single(lambda net, x: net.table(x, "leaky_relu", 0.25), (7,)),
    "concat": single(lambda net, x: net.concat(net.table(x, "tanh"), x), (3, 4, 2)),
    "concat-vectors": single(lambda net, x: net.concat(x, x), (9,)),
    "average-pool-padding": single(lambda net, x: net.average_pool(x, (3, 3), (2, 2), SAME), (5, 6, 2)),
    "separable": separable,
    "bits": bits,
    "bits-chunks-48": single(lambda net, x: net.bit_conv(net.signs(x), 5, ones=True), (3, 9, 48)),
    "bits-few": few_bits,
    "bits-chunks-32": single(lambda net, x: net.bit_conv(net.signs(x), 3, stride=(2, 2)), (3, 4, 32)),
    "bits-5x2": single(lambda net, x: net.bit_conv(net.signs(x), 2, (5, 2), (1, 2), (3, 1, 1, 0)), (4, 5, 17)),
    "references": referenced,
    "beyond-memory": beyond_memory,
    "bits-pooled": pooled_bits,
}


# Seed, buffer bits, start, what is trained, samples, first and last operation, both rates, arena, passes before the
# checkpoint, forgeries; and what is forged: where, how, value.
SCRIPTS = {
    "flips": bytes([1, 0, 0, 1, 0, 0, 255, 64, 0, 255, 2, 1, 0, 0, 0, 0]),
    "buffers": bytes([2, 3, 1, 3, 2, 0, 255, 128, 64, 100, 3, 1, 40, 0, 1, 1]),
    "biases": bytes([3, 0, 0, 2, 0, 0, 255, 0, 200, 0, 1, 2, 0, 0, 1, 128]),
    "gains": bytes([4, 0, 0, 10, 3, 0, 255, 0, 255, 80, 3, 1, 60, 0, 1, 2]),
    "sums-of-16-bits": bytes([6, 10, 0, 3, 3, 0, 255, 90, 60, 60, 2, 1, 50, 0, 1, 3]),
    "sums-of-8-bits": bytes([7, 23, 1, 1, 3, 0, 255, 128, 0, 30, 3, 0]),
    "recalibrates": bytes([5, 0, 0, 16, 3, 0, 255, 0, 0, 128, 1, 1, 30, 0, 1, 4]),
    "recalibrates-gains": bytes([0, 0, 0, 26, 2, 0, 255, 0, 255, 200, 2, 0]),
}
SCRIPT_SIZE = 36
LEARNING = {
    "flips": (
        "conv-chunks-16",
        "conv-taps-2x4",
        "dense-binary",
        "projection",
        "separable",
        "depthwise-stride-2",
        "max-pool-17x17",
        "wide-96",
        "outputs-65536",
    ),
    "buffers": ("conv-taps-3", "conv-1x1-stride-2", "dense-binary-whole-words", "chain", "wide-256"),
    "biases": ("conv-int8-stride", "dense-int8", "residual", "holes", "outputs-131072"),
    "gains": ("conv-int8-16", "chain", "separable"),
    "sums-of-16-bits": ("conv-taps-3", "separable", "dense-binary"),
    "sums-of-8-bits": ("conv-chunks-16", "projection", "depthwise-stride-2"),
    "recalibrates": ("references",),
    "recalibrates-gains": ("references",),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    images = {name: build(seed) for seed, (name, build) in enumerate(NETS.items())}
    for kind in ("image", "learning"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    for name, image in images.items():
        (folder / "image" / f"{name}.fbit").write_bytes(image)
    for what, names in LEARNING.items():
        for name in names:
            (folder / "learning" / f"{name}-{what}").write_bytes(images[name] + SCRIPTS[what].ljust(SCRIPT_SIZE, b"\0"))


if __name__ == "__main__":
    main()
