"""Keras nets of depthwise and 1×1 convolutions, as they are known: MLPerf Tiny's keyword net and MobileNetV1.

python -m tests.nets.mobile_nets FOLDER     their images, untrained, for firmware/count/bench.py
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from flipbit.export.write.fbit import fbit_bytes
from flipbit.train.keras_larq import keras, lq
from tests.nets.random_nets import int8_graph, stir
from tests.nets.small_nets import operations_graph

L = keras.layers


def _block(x: Any, filters: int, stride: int, binary: bool, ceiling: float | None, name: str) -> Any:
    """Depthwise 3×3 and pointwise 1×1, each with BatchNorm and ReLU; the pointwise weights are ±1 if ``binary``."""
    x = L.DepthwiseConv2D(3, stride, padding="same", use_bias=False, name=f"{name}_depthwise")(x)
    x = L.ReLU(ceiling)(L.BatchNormalization()(x))
    quantizer = "ste_sign" if binary else None
    x = lq.layers.QuantConv2D(filters, 1, kernel_quantizer=quantizer, use_bias=False, name=f"{name}_pointwise")(x)
    return L.ReLU(ceiling)(L.BatchNormalization()(x))


def ds_cnn(binary: bool) -> Any:
    """MLPerf Tiny's keyword net: 49×10 features, a 10×4 convolution, four blocks of 64 filters, 12 words."""
    keras.utils.set_random_seed(0)
    image = x = L.Input((49, 10, 1))
    x = L.Conv2D(64, (10, 4), (2, 2), padding="same", use_bias=False, name="first")(x)
    x = L.Dropout(0.2)(L.ReLU()(L.BatchNormalization()(x)))
    for i in range(4):
        x = _block(x, 64, 1, binary, None, f"block{i + 1}")
    x = L.AveragePooling2D((25, 5))(L.Dropout(0.4)(x))
    return keras.Model(image, L.Dense(12, activation="softmax", name="words")(L.Flatten()(x)))


def mobilenet(binary: bool, width: float = 0.25, size: int = 96, classes: int = 2) -> Any:
    """MobileNetV1 of a width, for images of size × size × 3: MLPerf Tiny's net for persons with 0.25 and 96."""
    keras.utils.set_random_seed(0)
    image = x = L.Input((size, size, 3))
    x = L.Conv2D(int(32 * width), 3, 2, padding="same", use_bias=False, name="first")(x)
    x = L.ReLU(6.0)(L.BatchNormalization()(x))
    blocks = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    for i, (filters, stride) in enumerate(blocks):
        x = _block(x, int(filters * width), stride, binary, 6.0, f"block{i + 1}")
    return keras.Model(image, L.Dense(classes, activation="softmax", name="logits")(L.GlobalAveragePooling2D()(x)))


def main(folder: Path) -> None:
    """Untrained nets with random BatchNorms: what they compute does not matter to instructions."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "operations.fbit").write_bytes(fbit_bytes(operations_graph()))
    for name, net in (("ds-cnn", ds_cnn), ("mobilenet", mobilenet)):
        for binary in (True, False):
            _, integers = int8_graph(stir(net(binary)))
            (folder / f"{name}-{'1bit' if binary else 'int8'}.fbit").write_bytes(fbit_bytes(integers))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
