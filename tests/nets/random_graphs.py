"""Random Keras nets: branches, second readers, Flatten anywhere, layers that do nothing between others."""

from __future__ import annotations

from typing import Any

import numpy as np

from flipbit.train.keras_larq import keras, lq
from flipbit.train.nets.networks import PadShortcut
from tests.nets.random_nets import stir

L = keras.layers


class _Builder:
    def __init__(self, seed: int):
        self.random = np.random.default_rng(seed)
        self.seed = seed
        height, width, channels = (int(n) for n in self.random.integers([4, 4, 1], [9, 9, 5]))
        self.input = L.Input((height, width, channels))
        self.images: list[Any] = [self.input]
        self.vectors: list[Any] = []

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share)

    def pick(self, values: list[Any]) -> Any:
        """Any of them; the newest more often than others."""
        return values[-1] if self.chance(0.5) else values[int(self.random.integers(len(values)))]

    def idle(self, x: Any) -> Any:
        """Layers that change nothing, which others may read through."""
        while self.chance(0.35):
            x = L.Dropout(0.3)(x) if self.chance(0.5) else L.Activation("linear")(x)
        return x

    def finished(self, x: Any, pool: list[Any]) -> None:
        """BatchNorm and ReLU after a layer, with every tensor on the way open to other readers."""
        if self.chance(0.5):
            if self.chance(0.1):
                pool.append(x)  # which, if read, is refused
            x = L.BatchNormalization()(self.idle(x))
        for _ in range(int(self.random.integers(0, 3))):
            if self.chance(0.5):
                pool.append(x)
            x = self.idle(x)
            if self.chance(0.6):
                x = L.ReLU()(x) if self.chance(0.5) else L.Activation("relu")(x)
        pool.append(x)

    def convolution(self) -> None:
        x = self.pick(self.images)
        if self.chance(0.2):
            x = L.ZeroPadding2D(((1, 0), (0, 1)))(x)
        kernel = int(self.random.integers(1, min(4, 1 + min(x.shape[1:3]))))
        options: dict[str, Any] = {
            "strides": int(self.random.integers(1, 3)),
            "padding": "same" if self.chance(0.5) else "valid",
            "use_bias": self.chance(0.5),
            "activation": "relu" if self.chance(0.2) else None,
        }
        filters = x.shape[-1] if self.chance(0.4) else int(self.random.integers(1, 7))
        if self.chance(0.5):
            layer = lq.layers.QuantConv2D(filters, kernel, kernel_quantizer="ste_sign", **options)
        else:
            layer = L.Conv2D(filters, kernel, **options)
        x = layer(x)
        if options["activation"]:
            self.images.append(x)
        else:
            self.finished(x, self.images)

    def depthwise(self) -> None:
        x = self.pick(self.images)
        options: dict[str, Any] = {"strides": int(self.random.integers(1, 3)), "padding": "same"}
        quantizer = "ste_sign" if self.chance(0.5) else None
        if self.chance(0.5):
            layer = lq.layers.QuantDepthwiseConv2D(3, depthwise_quantizer=quantizer, **options)
        else:
            filters = int(self.random.integers(1, 7))
            layer = lq.layers.QuantSeparableConv2D(
                filters, 3, depthwise_quantizer=quantizer, pointwise_quantizer=quantizer, **options
            )
        self.finished(layer(x), self.images)

    def function(self) -> None:
        pool = self.vectors if self.vectors and self.chance(0.3) else self.images
        names = ["relu6", "swish", "gelu", "sigmoid", "tanh", "elu"]
        layers = [L.LeakyReLU(0.2), L.ReLU(1.0), *(L.Activation(name) for name in names)]
        pool.append(layers[int(self.random.integers(len(layers)))](self.pick(pool)))

    def concatenation(self) -> None:
        x = self.pick(self.images)
        partners = [y for y in self.images if y.shape[1:3] == x.shape[1:3] and y.shape[-1] + x.shape[-1] < 20]
        if partners:
            self.images.append(L.Concatenate()([x, self.pick(partners)]))

    def normal(self) -> None:
        self.images.append(L.BatchNormalization()(self.pick(self.images)))

    def pooling(self) -> None:
        x = self.pick(self.images)
        size = int(self.random.integers(1, 1 + min(3, *x.shape[1:3])))
        if self.chance(0.5):
            x = L.MaxPooling2D(
                size, strides=int(self.random.integers(1, 3)), padding=self.random.choice(["same", "valid"])
            )(x)
        else:
            x = L.AveragePooling2D(size, padding=self.random.choice(["same", "valid"]))(x)
        self.images.append(L.ReLU()(x) if self.chance(0.3) else x)

    def shortcut(self) -> None:
        x = self.pick(self.images)
        more = int(self.random.integers(0, 3))
        self.images.append(PadShortcut(x.shape[-1] + more, int(self.random.integers(1, 3)))(x))

    def addition(self, pool: list[Any]) -> None:
        x = self.pick(pool)
        partners = [y for y in pool if y.shape == x.shape]
        self.finished_add(L.Add()([x, self.pick(partners)]), pool)

    def finished_add(self, x: Any, pool: list[Any]) -> None:
        if self.chance(0.3):
            pool.append(x)
        x = self.idle(x)
        pool.append(L.ReLU()(x) if self.chance(0.5) else x)

    def flatten(self) -> None:
        x = self.pick(self.images)
        if x.shape[1] * x.shape[2] * x.shape[3] <= 400:
            self.vectors.append(self.idle(L.Flatten()(x)))

    def average(self) -> None:
        layer = L.GlobalAveragePooling2D() if self.chance(0.7) else L.GlobalMaxPooling2D()
        self.vectors.append(layer(self.pick(self.images)))

    def dense(self) -> None:
        if not self.vectors:
            return self.flatten()
        x = self.pick(self.vectors)
        units = int(self.pick(self.vectors).shape[-1]) if self.chance(0.6) else int(self.random.integers(1, 9))
        kind = {"kernel_quantizer": "ste_sign"} if self.chance(0.5) else {}
        self.finished(lq.layers.QuantDense(units, **kind)(x), self.vectors)

    def vector_relu(self) -> None:
        if self.vectors:
            self.vectors.append(L.ReLU()(self.pick(self.vectors)))

    def model(self) -> Any:
        moves = [self.convolution, self.depthwise, self.function, self.concatenation, self.normal,
                 self.pooling, self.shortcut, lambda: self.addition(self.images), self.flatten,
                 self.flatten, self.average, self.dense, self.dense, self.vector_relu,
                 lambda: self.addition(self.vectors) if self.vectors else self.flatten()]  # fmt: skip
        self.convolution()
        for _ in range(int(self.random.integers(4, 14))):
            moves[int(self.random.integers(len(moves)))]()
        if not self.vectors:
            self.flatten()
        x = self.pick(self.vectors or self.images)
        # Join what was left unread, so that much of the net counts.
        for y in self.vectors:
            if y is not x and y.shape == x.shape and self.chance(0.5):
                x = L.Add()([x, y])
        if len(x.shape) == 2 and self.chance(0.7):
            x = L.Dense(int(self.random.integers(1, 6)), activation="softmax" if self.chance(0.3) else None)(x)
        if x is self.input:
            x = L.ReLU()(x)
        return stir(keras.Model(self.input, x), self.seed)


def random_graph(seed: int) -> Any:
    """A model of random layers, its BatchNorm gains of either sign; the same seed gives the same."""
    keras.utils.set_random_seed(seed)
    return _Builder(seed).model()
