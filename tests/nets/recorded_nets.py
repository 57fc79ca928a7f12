"""Small nets whose input is made from recordings."""

from __future__ import annotations

import numpy as np

from flipbit.export.calibrate import calibrate
from flipbit.export.graph import Conv, Dense, Flatten, Graph, Tensor
from flipbit.export.quantize import quantize_graph
from flipbit.runtime.recordings.front_ends import FrontEndInput

Shape = tuple[int, int, int]


def recorded_graph(
    front_end: FrontEndInput, shape: Shape, labels: tuple[str, ...] = ("silence", "yes", "no"), seed: int = 5
) -> Graph:
    """A convolution and a dense layer, in integers; int8 values of the front end are the input, divided by 128."""
    random = np.random.default_rng(seed)
    height, width, channels = shape
    filters, classes = 4, len(labels)
    middle = (-(-height // 2), -(-width // 2), filters)
    tensors = {
        "x": Tensor("x", shape),
        "conv": Tensor("conv", middle),
        "flat": Tensor("flat", (int(np.prod(middle)),)),
        "y": Tensor("y", (classes,)),
    }
    bits = random.choice([-1, 1], (3, 3, channels, filters)).astype(np.int8)
    dense = random.normal(0, 1, (int(np.prod(middle)), classes))
    top, left = height % 2, width % 2
    ops = [
        Conv("conv", ("x",), "conv", weights=bits, scale=np.full(filters, 0.1), bias=random.normal(0, 0.5, filters),
             binary=True, relu=True, stride=(2, 2), padding=(top, 1, left, 1)),
        Flatten("flatten", ("conv",), "flat"),
        Dense("dense", ("flat",), "y", weights=dense, scale=np.ones(classes), bias=np.zeros(classes), binary=False,
              relu=False),
    ]  # fmt: skip
    graph = Graph("x", "y", ops, tensors, list(labels), front_end)
    graph.check()
    inputs = random.integers(-128, 128, (16, *shape)) / 128
    return quantize_graph(graph, calibrate(graph, inputs), (1 / 128, 0))
