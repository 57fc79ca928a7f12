"""Nets with random weights and BatchNorm statistics that leave nothing at its default."""

from __future__ import annotations

from typing import Any

import numpy as np

from flipbit.export.calibrate import calibrate
from flipbit.export.graph import Graph
from flipbit.export.quantize import quantize_graph
from flipbit.export.read.from_keras import from_keras
from flipbit.train.nets.networks import Layers, build

# Widths that keep the largest nets small enough for a test.
WIDTH = {"vgg9": 0.13, "vgg-bc": 0.05, "resnet56": 0.25, "wrn-56-2": 0.2, "resnet18": 0.1, "resnet20": 0.5,
         "resnet8": 0.8, "flip-s": 0.5, "flip-m": 0.5, "flip-l": 0.5, "vgg-small": 0.8, "bireal": 0.5, "teacher": 0.1,
         "word-s": 0.5, "person-s": 0.25, "signal-s": 0.5, "vibration-s": 0.5}  # fmt: skip


def stir(model: Any, seed: int = 0) -> Any:
    """Random gains (some negative) and offsets for every BatchNorm, means and variances from random images."""
    random = np.random.default_rng(seed)
    for layer in model.layers:
        if type(layer).__name__ == "BatchNormalization":
            n = layer.moving_mean.shape[0]
            layer.momentum = 0.5
            if layer.scale:
                layer.gamma.assign(random.uniform(0.5, 1.5, n) * random.choice([-1, 1], n))
            if layer.center:
                layer.beta.assign(random.normal(0, 0.5, n))
        elif getattr(layer, "use_bias", False):
            layer.bias.assign(random.normal(0, 0.5, layer.bias.shape))
    for i in range(8):
        model(images(model, 16, seed=100 + i), training=True)
    return model


def random_model(name: str, shape: tuple[int, int, int] = (16, 12, 3), seed: int = 0, **layers: Any) -> Any:
    layers = {"width": WIDTH[name], "seed": seed, **layers}
    return stir(build(name, shape, 10, Layers(**layers)), seed)


def images(model: Any, n: int = 8, seed: int = 1) -> np.ndarray:
    shape = (n, *model.input_shape[1:])
    return (np.random.default_rng(seed).integers(0, 256, shape) - 128).astype(np.float32) / 128


def int8_graph(model: Any) -> tuple[Graph, Graph]:
    """The deploy graph in real numbers and in integers."""
    graph = from_keras(model)
    inputs = images(model, 16, seed=2).reshape(16, *graph.tensors[graph.input].shape)
    return graph, quantize_graph(graph, calibrate(graph, inputs), (1 / 128, 0))
