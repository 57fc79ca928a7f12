"""Real numbers to the device's integers ("W1A8"): docs/numerics.md is the specification.

Activations become int8 with a scale and a zero point per tensor, chosen from what the net does on calibration
images; binary weights stay ±1, others become int8 with a scale per output channel.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flipbit.export import oracle
from flipbit.export.calibrate import Range
from flipbit.export.graph import (
    Add,
    Array,
    AveragePool,
    Binarize,
    BitConv,
    Concat,
    ExportError,
    Given,
    Graph,
    Op,
    Requantize,
    Table,
    Tensor,
    Weighted,
)

INT31 = 2**31 - 1
# Bits of the multipliers of additions and averages. They see at most 255 · n, so that there is room for more than the
# 15 of convolutions, and their error is the most of what separates other tools' results: with 15 bits XNNPACK agreed
# with the oracle on 98.95 % of 2000 CIFAR-10 images, with 22 on 99.90 %.
SUM_BITS = 22
# Significant bits of the multipliers of binary layers. With 6 every product with an accumulator is exact in float32 and
# in TFLite's two-step rounding (weights are ±64 there), so that all tools round the same number once: docs/numerics.md.
SIGNIFICANT_BITS = 6
MAX_SHIFT = 30  # of 32-bit products
HEADROOM = 2  # bits that multipliers may grow by, where a device moves them
MAX_LONG_SHIFT = 46  # of 64-bit products: a 31-bit multiplier for ratios down to 2^-16
# Multiplier / 2^shift of an int8 channel whose weights hardly count beside its bias (a gain of 0, pruned weights): the
# bias, up to 512 steps of the output, takes 30 bits then.
LEAST_RATIO = 2.0**-21


def quantize_graph(
    graph: Graph, ranges: dict[str, Range], source: tuple[float, int] | None = None, headroom: int = 0
) -> Graph:
    """The same net in integers. ``source`` is the input's scale and zero point, where these are known beforehand;
    ``headroom`` the bits by which multipliers of binary layers may grow on a device.

    Scales that the net brings along (``graph.given``) stay; ``ranges`` serve for the other tensors.
    """
    tensors = dict(graph.tensors)
    ops: list[Op] = []
    ranges = _shared(graph, ranges) if ranges else {}
    given = graph.given or Given({})
    scale, zero = given.steps.get(graph.input) or source or _affine(ranges[graph.input])
    tensors[graph.input] = replace(tensors[graph.input], scale=scale, zero_point=zero)
    for op in graph:
        inputs = [tensors[name] for name in op.inputs]
        if op.traits.keeps_scale:  # values move but do not change
            target = replace(tensors[op.output], scale=inputs[0].scale, zero_point=inputs[0].zero_point)
        elif op.traits.writes_bits:
            target = replace(tensors[op.output], scale=1.0, zero_point=0)
        else:
            scale, zero = given.steps.get(op.output) or _affine(ranges[op.output])
            target = replace(tensors[op.output], scale=scale, zero_point=zero)
        tensors[op.output] = target
        inputs = [replace(t, scale=given.reads.get((op.output, i), t.scale)) for i, t in enumerate(inputs)]
        ops.append(_integers(op, inputs, target, headroom))
    return replace(graph.with_ops(ops, tensors), real=graph)


def _shared(graph: Graph, ranges: dict[str, Range]) -> dict[str, Range]:
    """The same ranges, but what only a concatenation reads has its range: putting together then changes no value."""
    ranges = dict(ranges)
    writer = {op.output: op for op in graph}
    readers: dict[str, int] = {graph.output: 1}
    for op in graph:
        for name in set(op.inputs):
            readers[name] = readers.get(name, 0) + 1
    for op in reversed(graph.ops):
        if not isinstance(op, Concat):
            continue
        for name in op.inputs:
            while name in writer and readers[name] == 1:
                ceiling = getattr(writer[name], "ceiling", None)  # the end of int8 clips at it
                if ceiling is not None and ranges[op.output].high > ceiling:
                    break
                ranges[name] = ranges[op.output]
                if not writer[name].traits.keeps_scale:
                    break
                (name,) = writer[name].inputs
    return ranges


def _affine(found: Range) -> tuple[float, int]:
    """Scale and zero point that map [low, high] onto −128 … 127; zero itself is always exact."""
    low, high = min(found.low, 0.0), max(found.high, 0.0)
    if high - low < 1e-30:
        return 1.0, 0  # a tensor that is always zero
    scale = np.float32((high - low) / 255)  # the files keep float32: what is computed with is what is stored
    return float(scale), int(np.clip(np.round(-128 - low / float(scale)), -128, 127))


def _integers(op: Op, inputs: list[Tensor], target: Tensor, headroom: int) -> Op:
    if isinstance(op, Weighted):
        return _weighted(op, inputs[0], target, headroom)
    scales = [float(t.scale or 1.0) for t in inputs]
    out = float(target.scale or 1.0)
    if isinstance(op, AveragePool):
        ratio = scales[0] / (out * op.size[0] * op.size[1])
        # Over the border fewer pixels count more, and their multiplier is rounded once more: n · m ≤ window · (m + 1).
        reach = 255.0 * op.size[0] * op.size[1] * (2 if any(op.padding) else 1)
        (multiplier,), shift = multipliers(np.array([ratio]), np.array([reach]), SUM_BITS)
        return replace(op, multiplier=int(multiplier), shift=shift)
    if isinstance(op, Add):
        (a, b), shift = multipliers(np.array(scales) / out, np.array([2 * 255.0, 2 * 255.0]), SUM_BITS)
        return replace(op, multipliers=(int(a), int(b)), shift=shift)
    if isinstance(op, Concat):
        (a, b), shift = multipliers(np.array(scales) / out, np.array([2 * 255.0, 2 * 255.0]), SUM_BITS)
        return replace(op, multipliers=(int(a), int(b)), shift=shift)
    if isinstance(op, Table):
        return replace(op, table=table_of(op, inputs[0], target))
    if isinstance(op, Binarize):
        return _thresholds(op, inputs[0])
    if op.traits.shifts:
        raise ExportError(f"{op.name}: {op.kind} is requantized, but quantize.py does not say how")
    return op


def table_of(op: Table, source: Tensor, target: Tensor) -> Array:
    """The result of each int8, the nearest to that of the real number it stands for."""
    return oracle.quantize(op.function(oracle.dequantize(np.arange(-128, 128), source)), target)


def _thresholds(op: Binarize, source: Tensor) -> Binarize:
    """Where the sign of each channel changes among the 256 values that its input can have: no rounding is left."""
    assert source.scale is not None
    real = source.scale * (np.arange(-128, 128) - source.zero_point)
    positive = op.positive(real[:, None])  # (256, channels), rising or falling
    inverted = positive[0] & ~positive[-1]
    threshold = 128 - (positive != inverted).sum(0)
    return replace(op, threshold=threshold.astype(np.int16), inverted=inverted)


def multipliers(ratios: Array, largest: Array, bits: int, significant: int | None = None) -> tuple[Array, int]:
    """Integers m of at most ``bits`` bits and one shift s with m / 2^s ≈ ratio, so that m · largest + half < 2^31.

    ``largest`` bounds the magnitude of what each is multiplied with. The shift is the largest that fits: an error of
    half a unit in m then matters least. With ``significant``, only so many bits of m may differ from 0.
    """
    if significant:
        unit = 2.0 ** (np.floor(np.log2(np.maximum(ratios, 1e-30))) + 1 - significant)
        ratios = np.round(ratios / unit) * unit
    for shift in range(MAX_SHIFT, 0, -1):
        m = np.maximum(np.round(ratios * 2.0**shift), 1)
        if m.max() < 2**bits and (m * largest + 2.0**shift / 2).max() <= INT31:
            return m.astype(np.int64), shift
    raise ExportError(f"scales differ by more than 32-bit integers hold (ratios up to {ratios.max():g})")


def ratio_for_float(multiplier: Array | int, shift: int, summed: bool = False) -> Array:
    """multiplier / 2^shift for tools that compute in float: a little more where ties occur, which go away from zero.

    The little, 2^-21, is more than float32 errs in a product of three scales. Results lie on a grid of 2^shift / (the
    multiplier's factor of 2) places a step; where the grid is so coarse that ties are not rare, nothing but a tie
    moves: 255 · 2^-21 < 2^-13. ``summed``: products of all multipliers are added up before they are rounded.
    """
    multiplier = np.asarray(multiplier, np.int64)
    even = np.bitwise_or.reduce(multiplier) if summed else multiplier
    coarse = 2.0**shift / (even & -even) <= 2**13
    return multiplier / 2.0**shift * np.where(coarse, 1 + 2.0**-21, 1.0)


def _weighted(op: Weighted, source: Tensor, target: Tensor, headroom: int) -> Weighted:
    scale_in, scale_out = float(source.scale or 1.0), float(target.scale or 1.0)
    if op.binary or op.weights.dtype == np.int8:  # single bits, or integers that the net came with
        weights, step = op.weights, op.scale
    else:
        # int8 per output channel, symmetric: −127 … 127.
        largest = np.abs(op.weights.reshape(-1, op.channels)).max(0)
        unit = np.where(largest > 0, largest / 127, 1.0)
        weights = np.clip(np.round(op.weights / unit), -127, 127).astype(np.int8)
        step = unit * op.scale
    ratios = scale_in * step / scale_out
    sums = weights.reshape(-1, op.channels).astype(np.int64)
    if op.binary:
        # Bits may flip on the device: the bound is for any signs.
        inputs = 1.0 if isinstance(op, BitConv) else 128.0
        reach = np.full(op.channels, inputs * len(sums))
        multiplier, shift, bias = _fit(op, ratios, reach, sums.sum(0), source.zero_point, scale_out)
        if headroom and shift > headroom:
            shift -= headroom
            multiplier = np.maximum(np.round(multiplier / 2.0**headroom), 1).astype(np.int64)
            bias = _bias(op, multiplier, shift, sums.sum(0), source.zero_point, scale_out)
    else:
        shift = min(MAX_LONG_SHIFT, max(1, int(30 - np.floor(np.log2(max(ratios.max(), 2.0**-16))))))
        multiplier = np.maximum(np.round(ratios * 2.0**shift), 1).astype(np.int64)
        bias = _bias(op, multiplier, shift, sums.sum(0), source.zero_point, scale_out)
        lost = (np.abs(bias) > INT31) & (ratios < LEAST_RATIO)
        if lost.any():
            least = max(1, round(LEAST_RATIO * 2.0**shift))
            small = np.round(op.weights * op.scale * (scale_in / scale_out * 2.0**shift / least))
            weights = np.where(lost, small, weights).astype(np.int8)
            multiplier = np.where(lost, least, multiplier)
            sums = weights.reshape(-1, op.channels).astype(np.int64)
            bias = _bias(op, multiplier, shift, sums.sum(0), source.zero_point, scale_out)
            # What is far below or above the output's range stays there.
            bias = np.where(lost, np.clip(bias, -(2**30), 2**30), bias)
        if np.abs(bias).max(initial=0) > INT31:
            raise ExportError(
                f"{op.name}: a bias is too large for int32 beside its scale; is a BatchNorm gain near zero?"
            )
    return replace(
        op, weights=weights, requantize=Requantize(bias.astype(np.int32), multiplier.astype(np.int32), shift)
    )


def _fit(
    op: Weighted, ratios: Array, reach: Array, sums: Array, zero: int, scale_out: float
) -> tuple[Array, int, Array]:
    """Multipliers of 15 bits, a shift and biases whose products fit 32 bits whatever the input is."""
    largest = reach
    for _ in range(MAX_SHIFT):
        multiplier, shift = multipliers(ratios, largest, 15, SIGNIFICANT_BITS)
        bias = _bias(op, multiplier, shift, sums, zero, scale_out)
        # The bias joins the accumulator; a flip moves it by 2 · zero point, for all weights at most `moved`.
        moved = abs(zero) * reach / 128 * 2
        need = reach + np.abs(bias) + moved
        if (need * multiplier + 2.0**shift / 2).max() <= INT31:
            return multiplier, shift, bias
        largest = np.maximum(largest * 1.5, need)
    raise ExportError(f"{op.name}: its scales and biases do not fit 32-bit integers; is a BatchNorm gain near zero?")


def _bias(op: Weighted, multiplier: Array, shift: int, sums: Array, zero: int, scale_out: float) -> Array:
    """The offset in units of the accumulator, less what the input's zero point adds: Σ w·(x − z) = Σ w·x − z·Σ w."""
    return np.round(op.bias / scale_out * 2.0**shift / multiplier) - zero * sums
