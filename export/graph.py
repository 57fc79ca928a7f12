"""The deploy graph: what a net computes on a device, as a list of small operations.

A graph is built from a trained model (`read/from_keras.py`, `read/from_torch.py`) with
BatchNorm folded and ReLU fused, in real numbers; :mod:`flipbit.export.quantize` turns it into integers. Every file
format is written from it, and :mod:`flipbit.export.oracle` runs it.

Tensors are images without the batch axis, ``(height, width, channels)``, or vectors ``(units,)``. An operation names
the tensors it reads and the one it writes. Operations stand in an order in which they can run.

What a kind of operation has is a row of runtime/image/kinds.py, ``op.traits``; its class has a field for each: ``size``
(the kernel), ``stride``, ``padding``, ``shift``, ``factors`` (the multipliers).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.export.functions import Function
from flipbit.runtime.errors import FlipbitError
from flipbit.runtime.image.kinds import Kind, named
from flipbit.runtime.image.pixels import Pixels
from flipbit.runtime.recordings.front_ends import FrontEndInput

Array = np.ndarray


class ExportError(FlipbitError):
    """A model cannot be exported; the message says which layer, what was found and what is supported."""

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class Tensor:
    """A value between operations: real = scale · (int8 − zero_point); ``scale`` None means still in real numbers."""

    name: str
    shape: tuple[int, ...]
    scale: float | None = None
    zero_point: int = 0

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))


@dataclass(frozen=True)
class Requantize:
    """int32 accumulators to int8, per output channel: ((acc + bias) · multiplier + half) >> shift, + zero point.

    ``bias`` is in units of the accumulator and has the input's zero point folded in. For binary weights
    ``multiplier`` fits int16 and the product int32; for int8 weights they take int32 and int64.
    """

    bias: Array
    multiplier: Array
    shift: int


@dataclass(frozen=True)
class Op:
    name: str
    inputs: tuple[str, ...]
    output: str

    @property
    def kind(self) -> str:
        return type(self).__name__

    @property
    def traits(self) -> Kind:
        """The row of its kind; a class of operations that devices know has it as an attribute."""
        raise ExportError(f"{self.name}: {self.kind} is not an operation that devices know")


@dataclass(frozen=True)
class Weighted(Op):
    """An operation with weights: real result = relu?(Σ x·weights · scale + bias), per output channel.

    ``weights`` end in the axis of output channels. ``binary``: they are int8 ±1. Otherwise they are real, or int8, once
    ``requantize`` is set or where the net comes with integers. ``scale`` and ``bias`` stay as the real numbers the
    integers came from. ``ceiling``: the ReLU is clipped there (ReLU6); in integers the largest, 127, stands for no more
    than that.
    """

    weights: Array = field(repr=False)
    scale: Array = field(repr=False)
    bias: Array = field(repr=False)
    binary: bool = False
    relu: bool = False
    ceiling: float | None = None
    requantize: Requantize | None = field(default=None, repr=False)
    references: Array | None = field(default=None, repr=False)  # (channels, 2), as the file keeps them

    @property
    def shift(self) -> int:
        return self.requantize.shift if self.requantize else 0

    @property
    def channels(self) -> int:
        return int(self.weights.shape[-1])


@dataclass(frozen=True)
class Conv(Weighted):
    """2-D convolution, weights (kernel height, kernel width, input channels, output channels), zero padding."""

    traits = named("conv")
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)  # top, bottom, left, right

    @property
    def size(self) -> tuple[int, int]:
        height, width = self.weights.shape[:2]
        return int(height), int(width)


@dataclass(frozen=True)
class DepthwiseConv(Weighted):
    """2-D convolution of each channel by itself, weights (kernel height, kernel width, channels), zero padding."""

    traits = named("depthwise")
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)  # top, bottom, left, right

    @property
    def size(self) -> tuple[int, int]:
        height, width = self.weights.shape[:2]
        return int(height), int(width)


@dataclass(frozen=True)
class Dense(Weighted):
    """Fully connected, weights (inputs, units); the input is a vector."""

    traits = named("dense")


@dataclass(frozen=True)
class MaxPool(Op):
    traits = named("max_pool")
    size: tuple[int, int] = (2, 2)
    stride: tuple[int, int] = (2, 2)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)  # padded places never win


@dataclass(frozen=True)
class AveragePool(Op):
    """Average over windows, of the pixels that lie inside the image; over the whole image this is global pooling."""

    traits = named("average_pool")
    size: tuple[int, int] = (2, 2)
    stride: tuple[int, int] = (2, 2)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)  # padded places do not count
    multiplier: int = 0
    shift: int = 0

    @property
    def factors(self) -> tuple[int, ...]:
        return (self.multiplier,)


@dataclass(frozen=True)
class Add(Op):
    """Residual addition: int8 result ((a − za) · multipliers[0] + (b − zb) · multipliers[1] + half) >> shift, + zo."""

    traits = named("add")
    relu: bool = False
    ceiling: float | None = None  # of the ReLU
    multipliers: tuple[int, int] = (0, 0)
    shift: int = 0

    @property
    def factors(self) -> tuple[int, ...]:
        return self.multipliers


@dataclass(frozen=True)
class PadShortcut(Op):
    """Every ``stride``-th pixel, and zeros for channels the input lacks (He et al.'s option A)."""

    traits = named("shortcut")
    stride: int = 1
    channels: int = 0


@dataclass(frozen=True)
class Relu(Op):
    """A ReLU that could not be fused into the operation before it."""

    traits = named("relu")


@dataclass(frozen=True)
class Flatten(Op):
    """Image to vector in the order height, width, channels."""

    traits = named("flatten")


@dataclass(frozen=True)
class Table(Op):
    """A function of one value (functions.py); in integers, the results of −128 … 127 in a table."""

    traits = named("table")
    function: Function = field(default_factory=lambda: Function("sigmoid"))
    table: Array | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Concat(Op):
    """The channels of two tensors: int8 result ((x − z) · multiplier + half) >> shift, + zo, for each of them."""

    traits = named("concat")
    multipliers: tuple[int, int] = (0, 0)
    shift: int = 0

    @property
    def factors(self) -> tuple[int, ...]:
        return self.multipliers


@dataclass(frozen=True)
class Binarize(Op):
    """Signs: +1 where gain · x + offset ≥ 0 (> 0 if ``strict``), else −1, per channel. A device packs them as bits.

    In integers +1 where x ≥ threshold, or x < threshold where ``inverted``. A vector becomes an image of 1×1.
    """

    traits = named("binarize")
    gain: Array = field(repr=False, default_factory=lambda: np.ones(0))
    offset: Array = field(repr=False, default_factory=lambda: np.zeros(0))
    strict: bool = False
    threshold: Array | None = field(default=None, repr=False)
    inverted: Array | None = field(default=None, repr=False)

    def positive(self, x: Array) -> Array:
        """Where real numbers ``x``, channels last, become +1."""
        y = self.gain * x + self.offset
        return y > 0 if self.strict else y >= 0


@dataclass(frozen=True)
class BitConv(Weighted):
    """2-D convolution of signs by binary weights; padding is 0, or +1 with ``ones``."""

    traits = named("conv_bits")
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)  # top, bottom, left, right
    ones: bool = False

    @property
    def size(self) -> tuple[int, int]:
        height, width = self.weights.shape[:2]
        return int(height), int(width)


@dataclass(frozen=True)
class BitPool(Op):
    """Max pooling of signs: +1 where the window has one."""

    traits = named("max_pool_bits")
    size: tuple[int, int] = (2, 2)
    stride: tuple[int, int] = (2, 2)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)  # padded places never win


@dataclass(frozen=True)
class Reference:
    """The model that a graph was read from: what a file made from the graph is compared with."""

    name: str
    run: Callable[[Array], Array]  # inputs as the graph takes them → the model's output, batch first, channels last
    ends: str = ""  # "softmax" or "log_softmax" if the model ends in one, which the graph leaves out
    integers: Callable[[Array], dict[str, Array]] | None = None  # of a quantized model: its tensors, as int8


@dataclass(frozen=True)
class Given:
    """The scales of a net that comes quantized: they are taken over, and not made from sample images.

    ``steps`` has the scale and zero point of tensors, ``reads`` the scale with which an operation (by its output) reads
    one of its inputs, where that is not the tensor's own.
    """

    steps: dict[str, tuple[float, int]]
    reads: dict[tuple[str, int], float] = field(default_factory=dict)


@dataclass
class Graph:
    """Operations in running order, the tensors between them, and what a user of the net must know.

    A reader leaves the model beside the graph (``reference``), where the net rescales its own input, how
    (``rescaling``), and where it comes quantized, its scales (``given``); ``pixels`` says how pixels become the input,
    all in all; quantization leaves the graph in real numbers
    (``real``), calibration its inputs (``samples``). They serve the check of what is written (`check/guard.py`).
    """

    input: str
    output: str
    ops: list[Op]
    tensors: dict[str, Tensor]
    labels: list[str] = field(default_factory=list)
    front_end: FrontEndInput | None = None  # how recordings become the input
    values: bool = False  # the outputs are values, not scores of classes
    reference: Reference | None = field(default=None, repr=False, compare=False)
    rescaling: Pixels | None = field(default=None, compare=False)
    pixels: Pixels | None = field(default=None, compare=False)
    given: Given | None = field(default=None, repr=False, compare=False)
    real: Graph | None = field(default=None, repr=False, compare=False)
    samples: Array | None = field(default=None, repr=False, compare=False)

    @property
    def quantized(self) -> bool:
        return self.tensors[self.input].scale is not None

    def __iter__(self) -> Iterator[Op]:
        return iter(self.ops)

    def weighted(self) -> list[Weighted]:
        return [op for op in self.ops if isinstance(op, Weighted)]

    def macs(self, op: Op) -> int:
        """Multiply-accumulates of an operation for one image."""
        if not isinstance(op, Weighted):
            return 0
        return op.weights.size * self.tensors[op.output].size // op.channels

    def weight_bytes(self, op: Op) -> int:
        """Bytes of an operation's weights and requantization on a device."""
        if not isinstance(op, Weighted):
            return 0
        if op.requantize is None:
            return (op.weights.size + 7) // 8 + 8 * op.channels if op.binary else 4 * (op.weights.size + op.channels)
        bits = 1 if op.binary else 8
        return (op.weights.size * bits + 7) // 8 + (6 if op.binary else 8) * op.channels

    def with_ops(self, ops: list[Op], tensors: dict[str, Tensor]) -> Graph:
        return replace(self, ops=ops, tensors=tensors)

    def check(self) -> None:
        """Refuse a graph that reads what is not there, or holds numbers that are none."""
        if not self.ops:
            raise ExportError("the net has no layer that computes anything")
        known = {self.input}
        bits = {op.output for op in self.ops if isinstance(op, (Binarize, BitPool))}
        if self.output in bits:
            raise ExportError(f"the output {self.output} is binary; end the net in a layer of real numbers")
        for op in self.ops:
            for name in op.inputs:
                if (name in bits) != isinstance(op, (BitConv, BitPool)):
                    found, wanted = ("signs", "int8") if name in bits else ("int8", "signs")
                    raise ExportError(f"{op.name}: {op.kind} of {found}, {name}; devices compute it of {wanted}")
                if name not in known:
                    raise ExportError(f"{op.name}: reads {name}, which no operation before it writes")
            if op.output in known:
                raise ExportError(f"{op.name}: writes {op.output}, which another operation or the input has written")
            known.add(op.output)
            if isinstance(op, (Weighted, Binarize)):
                for what in ("gain", "offset") if isinstance(op, Binarize) else ("weights", "scale", "bias"):
                    if not np.isfinite(getattr(op, what)).all():
                        raise ExportError(f"{op.name}: its {what} hold NaN or infinity; train it again, or lower --lr")
        if self.output not in known:
            raise ExportError(f"the output {self.output} is never written")

    def save(self, path: str | Path, report: Callable[[str], None] | None = None, **options: Any) -> Path:
        """Write the format that the file's suffix names: .fbit, .onnx, .tflite, or .c (with a .h beside it).

        What was written is compared with the oracle and the model first (`check/guard.py`); ``report`` gets
        the line that says so. On a mismatch there is an :class:`ExportError` and no file. ``input_formula`` says how
        pixels become the net's input, where that is not known from the model or :func:`convert`.
        """
        from flipbit.export.write.save import save

        options.setdefault("input_formula", self.pixels.formula if self.pixels else None)
        return save(self, Path(path), report, **options)


def same_padding(size: tuple[int, int], kernel: tuple[int, int], stride: tuple[int, int]) -> tuple[int, int, int, int]:
    """TensorFlow's SAME: what is odd goes to the bottom and right, so that at stride 2 it is not symmetric."""
    edges: list[int] = []
    for n, k, s in zip(size, kernel, stride):
        total = max((-(-n // s) - 1) * s + k - n, 0)
        edges += [total // 2, total - total // 2]
    return edges[0], edges[1], edges[2], edges[3]
