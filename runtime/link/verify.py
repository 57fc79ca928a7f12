"""Every layer of a net on a device, compared with this machine's C core."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flipbit.runtime.core.model import Model
from flipbit.runtime.link.refusals import DeviceError

if TYPE_CHECKING:
    from flipbit.runtime.link.device import Device


@dataclass(frozen=True)
class Difference:
    """The first layer whose output is not the host's."""

    input: int  # number of the input
    layer: int
    name: str
    count: int  # values that differ
    total: int
    place: tuple[int, ...]  # of the first: channel, row, column; of bits: 16 channels, row, column, byte
    device: int
    host: int

    def __str__(self) -> str:
        return (
            f"input {self.input}: layer {self.layer} ({self.name}) differs in {self.count:,} of {self.total:,} values, "
            f"first at {self.place}: {self.device} on the device, {self.host} on the host"
        )


def first_difference(device: Device, net: Model, number: int, x: np.ndarray) -> Difference | None:
    """Of input ``number``, ``x`` as it lies in memory; None if every layer is equal."""
    device.load(x)
    expected = _layer_outputs(net, x)
    for report in device.layers(plans=False):
        if report.crc != zlib.crc32(expected[report.index].tobytes()):
            return _difference(device, number, net, report.index, expected[report.index])
    return None


def _difference(device: Device, number: int, model: Model, index: int, expected: np.ndarray) -> Difference:
    found = device.read_layer(index)
    layer = model.layers[index]
    wrong = np.flatnonzero(found != expected)
    if not len(wrong):
        raise DeviceError(
            f"input {number}: layer {index} ({layer.name}) differed, and was equal when it was run again: the "
            "device does not give the same result twice"
        )
    tensor = model.image.tensors[layer.output]
    shape = (-1, tensor.height, tensor.width, 2) if tensor.bits else tensor.shape
    place = tuple(int(i) for i in np.argwhere(found.reshape(shape) != expected.reshape(shape))[0])
    return Difference(
        number, index, layer.name, len(wrong), found.size, place, int(found[wrong[0]]), int(expected[wrong[0]])
    )


def _layer_outputs(model: Model, planes: np.ndarray) -> list[np.ndarray]:
    """The output of every layer on this machine, as it lies in memory, for an input as it lies in memory."""
    return [values[0] for values in model.stored(planes[None])]
