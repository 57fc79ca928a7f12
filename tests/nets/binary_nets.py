"""A Keras net of one-bit weights and activations in the manner of Larq's BinaryNet, with max pooling before signs.

python -m tests.nets.binary_nets FOLDER     its image, untrained, for firmware/count/bench.py
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from flipbit.export.write.fbit import fbit_bytes
from flipbit.train.keras_larq import keras, lq
from tests.nets.random_nets import int8_graph, stir

L = keras.layers


def binary_net(size: int = 32, filters: int = 32, classes: int = 10) -> Any:
    """Pairs of 3×3 convolutions, the second pooled, each with a BatchNorm that has no gain; then a dense layer."""
    keras.utils.set_random_seed(0)
    quantized = {"kernel_quantizer": "ste_sign", "use_bias": False}
    signs = {"input_quantizer": "ste_sign", **quantized}
    image = x = L.Input((size, size, 3))
    x = lq.layers.QuantConv2D(filters, 3, padding="same", name="first", **quantized)(x)
    x = L.BatchNormalization(scale=False)(x)
    for i, count in enumerate((filters, 2 * filters, 2 * filters, 4 * filters)):
        x = lq.layers.QuantConv2D(count, 3, padding="same", pad_values=i % 2, name=f"conv{i + 1}", **signs)(x)
        if i % 2 == 0:
            x = L.MaxPooling2D(2, name=f"pool{i // 2 + 1}")(x)
        x = L.BatchNormalization(scale=False)(x)
    x = L.Flatten()(x)
    x = L.BatchNormalization(scale=False)(lq.layers.QuantDense(classes, name="classes", **signs)(x))
    return keras.Model(image, L.Softmax()(x))


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    _, integers = int8_graph(stir(binary_net()))
    (folder / "binary-net.fbit").write_bytes(fbit_bytes(integers))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
