"""A net of 352 bytes that learns, for tests that let it learn ten thousand times."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from flipbit.export.calibrate import calibrate
from flipbit.export.graph import AveragePool, Conv, Dense, Flatten, Graph
from flipbit.export.quantize import quantize_graph
from flipbit.export.write.fbit import fbit_bytes
from tests.nets.small_nets import _Builder


@lru_cache
def tiny_image(seed: int = 0) -> bytes:
    """4×4 images of 2 channels to 3 classes: a convolution, pooling, a dense layer."""
    b = _Builder((4, 4, 2), seed)
    b.weighted(Conv, (4, 4, 4), (3, 3, 2, 4), True, padding=(1, 1, 1, 1), relu=True)
    b.add(AveragePool, (1, 1, 4), size=(4, 4), stride=(4, 4))
    b.add(Flatten, (4,))
    b.weighted(Dense, (3,), (4, 3), True)
    graph = Graph("x", b.last, b.ops, b.tensors, ["a", "b", "c"])
    graph.check()
    images = np.random.default_rng(seed + 1).uniform(-1, 1, (16, 4, 4, 2))
    return fbit_bytes(quantize_graph(graph, calibrate(graph, images), (1 / 128, 0)))
