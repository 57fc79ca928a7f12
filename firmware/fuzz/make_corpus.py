"""Writes the fuzzer's first images: small random nets that together use every operation, layout and border.

    python firmware/fuzz/make_corpus.py firmware/fuzz/corpus

The same seeds give the same bytes. A net costs little to run (the fuzzer runs it thousands of times per second), so
images are a few pixels wide; the last ones have many channels, or many outputs. For learning, the nets with weights get
a script behind them (fuzz_learning.h).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

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

    def average_pool(self, x: str, size: tuple[int, int] | None = None, stride: tuple[int, int] = (2, 2)) -> str:
        """Over windows, or over the whole image: then the result is a vector."""
        h, w, c = self._shape(x)
        shape = (*_windows((h, w), size, stride, NONE), c) if size else (c,)
        return self._append(lambda name, y: AveragePool(name, (x,), y, size or (h, w), stride), shape)

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

    def image(self) -> bytes:
        samples = self.random.uniform(-1, 1, (8, *self._shape(self.graph.input)))
        return fbit_bytes(quantize_graph(self.graph, calibrate(self.graph, samples)))


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


def large_window(seed: int) -> bytes:
    """A maximum over more pixels than a byte can tell apart."""
    net = Net(seed, (4, 4, 1))
    x = net.max_pool(net.conv("t0", 1, (1, 1), padding=NONE, relu=False), (17, 17), (1, 1), (16, 0, 16, 0))
    net.dense(net.flatten(x), 2, binary=True)
    return net.image()


def wide(channels: int, filters: int) -> Callable[[int], bytes]:
    """Many channels, few pixels: sums of gradients are long where planes are small."""

    def build(seed: int) -> bytes:
        net = Net(seed, (2, 2, channels))
        x = net.conv("t0", filters, padding=NONE, kernel=(2, 2))
        x = net.conv(x, filters // 2, (1, 1), padding=NONE, binary=False)
        net.dense(net.flatten(x), 3, binary=True)
        return net.image()

    return build


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
}


# Seed, buffer bits, start, what is trained, samples, first and last operation, both rates, arena, passes before the
# checkpoint, forgeries; and what is forged: where, how, value.
SCRIPTS = {
    "flips": bytes([1, 0, 0, 1, 0, 0, 255, 64, 0, 255, 2, 1, 0, 0, 0, 0]),
    "buffers": bytes([2, 3, 1, 3, 2, 0, 255, 128, 64, 100, 3, 1, 40, 0, 1, 1]),
    "biases": bytes([3, 0, 0, 2, 0, 0, 255, 0, 200, 0, 1, 2, 0, 0, 1, 128]),
}
SCRIPT_SIZE = 36
LEARNING = {
    "flips": (
        "conv-chunks-16",
        "conv-taps-2x4",
        "dense-binary",
        "projection",
        "max-pool-17x17",
        "wide-96",
        "outputs-65536",
    ),
    "buffers": ("conv-taps-3", "conv-1x1-stride-2", "dense-binary-whole-words", "chain", "wide-256"),
    "biases": ("conv-int8-stride", "dense-int8", "residual", "holes", "outputs-131072"),
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
