"""ONNX models to a deploy graph: of nets in real numbers, and of quantized nets (QDQ) with their own scales.

What depends on constants alone is computed at once, so that packed, transposed or dequantized weights become the
numbers they stand for; what depends on the image becomes an operation. BatchNormalization and constants per channel are
folded, ReLU is fused, a final softmax is dropped, as `from_keras.py` does. Reference of the checks is onnxruntime.

`onnx_file.py` opens files, the package ``onnx_nodes`` reads them: ``walk`` goes through the graph, ``values`` holds the
deploy graph as it grows, and the other files read one family of operators each.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flipbit.export.graph import Graph
from flipbit.export.read.onnx_file import load_onnx
from flipbit.export.read.onnx_nodes.walk import OnnxWalk


def from_onnx(model: Any, labels: list[str] | None = None) -> Graph:
    """The deploy graph of an ONNX model (``onnx.ModelProto`` or a path); :class:`ExportError` for what is not
    supported."""
    if isinstance(model, (str, Path)):
        model = load_onnx(model)
    return OnnxWalk(model, labels or []).graph()
