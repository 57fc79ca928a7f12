"""A net from a .fbit image, run by the C core: the same bits as on a device."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.runtime.core import library as core
from flipbit.runtime.errors import ArenaError, ArgumentError, FileError, FlipbitError, LiveError
from flipbit.runtime.image.inputs import Array, Pixels, dequantize, from_planes, to_planes, user_shape
from flipbit.runtime.image.reader import Image, Operation, read_image

ARENA_ALIGN = 8  # FB_ALIGN: pieces of the arena start at multiples of it
PARAMETER_BYTES = {True: 6, False: 8}  # bias and multiplier of a channel: binary, int8


@dataclass(frozen=True)
class Layer:
    """An operation of the net, and what it does with the arena the model has."""

    index: int
    name: str
    kind: str  # conv, dense …: a name of runtime/image/kinds.py
    description: str  # for people: "3×3 conv /2 + ReLU"
    inputs: tuple[int, ...]  # numbers of tensors
    output: int
    input_shape: tuple[int, ...]  # height, width, channels, or units
    output_shape: tuple[int, ...]
    bits: int | None  # of a weight: 1 or 8; None without weights
    weights: int  # how many
    bytes: int  # of weights and their parameters, in flash
    macs: int  # multiply-accumulates for one input
    kernel: str  # the C function that computes it; "" where there is nothing to do
    live: int  # bytes of activations in the arena while it runs
    scratch: int  # bytes of tables and sums besides

    @property
    def ram(self) -> int:
        """Bytes of arena in use while it runs."""
        return self.live + -(-self.scratch // ARENA_ALIGN) * ARENA_ALIGN


class Model:
    """A net, from a file or from bytes.

    ::

        model = Model("resnet8.fbit")
        logits = model.predict(photos)        # uint8 pixels, N×32×32×3
        names = model.classify(photos)

    ``arena`` is the number of bytes the net may use for activations and tables, as a device would give it; a short one
    makes it run with kernels that need less. Without it every layer gets its fastest kernel. A model may be used from
    several threads at a time.
    """

    def __init__(self, source: str | Path | bytes | bytearray | memoryview, arena: int | None = None):
        self.path = Path(source) if isinstance(source, (str, Path)) else None
        try:
            data = Path(source).read_bytes() if isinstance(source, (str, Path)) else bytes(source)
            self.image: Image = read_image(data)
            self._core = core.Opened(data)
        except OSError as error:
            raise FileError(f"{self.path}: {error.strerror}") from None
        except FlipbitError as error:
            raise (error if self.path is None else error.about(self.path)) from None
        self.arena_size: int = self._core.arena_size
        self.arena_least: int = self._core.arena_least
        if not self.arena_size:
            raise LiveError(f"{self._name} keeps too many activations at a time")
        self.arena: int = self.arena_size if arena is None else arena
        if self.arena < self.arena_least:
            raise ArenaError(
                f"{self._name} does not fit an arena of {self.arena:,} bytes: it needs {self.arena_least:,} at least, "
                f"and {self.arena_size:,} for its fastest kernels"
            )
        self._input = self.image.tensors[self.image.input]
        self._output = self.image.tensors[self.image.output]

    @property
    def _name(self) -> str:
        return str(self.path or "the image")

    def __repr__(self) -> str:
        return f"Model({self._name}: {len(self.image.operations)} layers, {self.input_shape} to {self.output_shape})"

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Height, width, channels; or units."""
        return user_shape(self._input)

    @property
    def output_shape(self) -> tuple[int, ...]:
        return user_shape(self._output)

    @property
    def labels(self) -> list[str]:
        """Names of the classes, if the image has them."""
        return self.image.labels

    @property
    def values(self) -> bool:
        """Whether the outputs are values (angles, counts, an image), and not scores of classes."""
        return self.image.values

    @property
    def value_count(self) -> int | None:
        """How many values the net gives; None for classes."""
        return self._output.size if self.values else None

    @cached_property
    def pixels(self) -> Pixels | None:
        """How pixels become the net's input, if the image says so."""
        return Pixels.parse(self.image.metadata.get("input"))

    @cached_property
    def layers(self) -> list[Layer]:
        """The operations in running order."""
        found: list[Layer] = []
        names: set[str] = {"input"}
        for i, op in enumerate(self.image.operations):
            plan = self._core.plan(self.arena, i)
            name = op.name if op.name not in names else f"{op.name}#{i}"
            names.add(name)
            source, target = self.image.tensors[op.inputs[0]], self.image.tensors[op.output]
            weights, flash = _weights(op, source.channels, target.channels)
            found.append(
                Layer(
                    index=i,
                    name=name,
                    kind=op.kind,
                    description=describe(op),
                    inputs=op.inputs,
                    output=op.output,
                    input_shape=user_shape(source),
                    output_shape=user_shape(target),
                    bits=(1 if op.binary else 8) if weights else None,
                    weights=weights,
                    bytes=flash,
                    macs=weights * target.height * target.width,
                    kernel=plan.kernel.decode(),
                    live=plan.live,
                    scratch=plan.scratch,
                )
            )
        return found

    @property
    def peak_layer(self) -> Layer:
        """The layer that sets the RAM: the first among those that need most of the arena."""
        return max(self.layers, key=lambda layer: layer.ram)

    @property
    def peak_ram(self) -> int:
        """Bytes of RAM for one input: the most that is used of the arena, and the input and output buffers."""
        return self.peak_layer.ram + self._input.size + self._output.size

    def predict(self, x: Any, raw: bool = False, threads: int = 1) -> Array:
        """The net's output for one input or a batch.

        ``x`` is height × width × channels with or without a batch axis in front: uint8 pixels, float as in training,
        or int8 (:mod:`flipbit.runtime.image.inputs`). The result is float32, or int8 with ``raw``. ``threads`` share a
        batch, each with an arena of its own.
        """
        planes, batched = to_planes(x, self._input, self.pixels)
        result: Array = np.empty((len(planes), self._output.size), np.int8)
        if threads < 1:
            raise ArgumentError(f"threads={threads}: at least 1")
        workers = min(threads, len(planes))

        def work(first: int) -> None:
            arena = core.aligned(self.arena)
            for i in range(first, len(planes), workers):
                self._core.invoke(arena, planes[i], result[i])

        if workers == 1:
            work(0)
        elif workers:
            with ThreadPoolExecutor(workers) as pool:
                list(pool.map(work, range(workers)))
        values = from_planes(result, self._output)
        values = values if raw else dequantize(values, self._output)
        return values if batched else values[0]

    def classify(self, x: Any, threads: int = 1) -> Any:
        """The name of the class with the largest output (the first among equals); its number where it has no name.

        One for a single input, a list for a batch.
        """
        if self.values:
            raise ArgumentError(f"{self._name}: its outputs are values, not scores of classes: use predict()")
        values = self.predict(x, raw=True, threads=threads)
        batched = values.ndim > len(self.output_shape)
        best = values.reshape(len(values) if batched else 1, -1).argmax(1)
        labels = self.labels
        names = [labels[i] if i < len(labels) else int(i) for i in best]
        return names if batched else names[0]

    def tensors(self, x: Any) -> dict[str, Array]:
        """Every activation, int8 (±1 where a device has bits), under its layer's name, and ``input``."""
        planes, batched = to_planes(x, self._input, self.pixels)
        sources = [self.image.input, *(layer.output for layer in self.layers)]
        found = dict(zip(["input", *(layer.name for layer in self.layers)], [planes, *self.stored(planes)]))
        shaped = {name: from_planes(v, self.image.tensors[i]) for (name, v), i in zip(found.items(), sources)}
        return shaped if batched else {name: v[0] for name, v in shaped.items()}

    def stored(self, planes: Array) -> list[Array]:
        """What each layer writes, (batch, bytes) as it lies in memory, for inputs as they lie in memory."""
        rows: list[list[Array]] = [[] for _ in self.layers]

        def keep(_context: object, op: int, _tensor: int, values: Any, size: int) -> None:
            rows[op].append(np.ctypeslib.as_array(values, (size,)).copy())

        self._hooked(planes, None, keep)
        empty = [np.empty((0, self.image.tensors[layer.output].bytes), np.int8) for layer in self.layers]
        return [np.stack(row) if row else nothing for row, nothing in zip(rows, empty)]

    def time_layers(self, x: Any, repeats: int = 1) -> Array:
        """Seconds each layer took, (runs, layers), for every input ``repeats`` times.

        Measured between two calls back into Python, which add less than a microsecond to each layer.
        """
        planes, _ = to_planes(x, self._input, self.pixels)
        runs = np.repeat(planes, repeats, axis=0)
        marks: list[float] = []

        def before(_context: object, _op: int) -> None:
            marks.append(-time.perf_counter())

        def after(_context: object, _op: int, _tensor: int, _values: Any, _size: int) -> None:
            marks[-1] += time.perf_counter()

        self._hooked(runs, before, after)
        return np.array(marks).reshape(len(runs), len(self.layers))

    def _hooked(self, planes: Array, before: Callable[..., None] | None, after: Callable[..., None]) -> None:
        hooks = core.CHooks(None, core.BEFORE(before) if before else core.BEFORE(), core.AFTER(after))
        arena, result = core.aligned(self.arena), np.empty(self._output.size, np.int8)
        for x in planes:
            self._core.invoke(arena, x, result, hooks)


def describe(op: Operation) -> str:
    """An operation in a few words: ``3×3 conv /2 + ReLU``."""
    window = f"{op.kernel[0]}×{op.kernel[1]} " if op.kernel[0] else ""
    down, across = op.stride
    stride = f" /{down if down == across else f'{down}×{across}'}" if max(op.stride) > 1 else ""
    return f"{window}{op.kind.replace('_', ' ')}{stride}{' + ReLU' if op.relu else ''}"


def _weights(op: Operation, channels: int, filters: int) -> tuple[int, int]:
    """How many weights an operation has, and the bytes they take with their parameters."""
    if op.table is not None:
        return 0, op.table.nbytes
    if op.threshold is not None:
        return 0, 2 * (channels + -(-channels // 16))
    if op.weights is None:
        return 0, 0
    if op.traits.per_channel:
        channels = 1
    return filters * op.taps * channels, op.weights.nbytes + filters * PARAMETER_BYTES[op.binary]
