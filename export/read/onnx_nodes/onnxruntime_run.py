"""The model itself, run by onnxruntime: what the deploy graph is compared with."""

from __future__ import annotations

from typing import Any

import numpy as np

from flipbit.export.graph import Array, ExportError, Graph, Reference
from flipbit.export.read.onnx_nodes.values import OnnxValue


class Onnxruntime:
    """The model itself, run by onnxruntime on images as the deploy graph takes them."""

    def __init__(
        self,
        model: Any,
        source: str,
        given: OnnxValue,
        result: OnnxValue,
        graph: Graph,
        stored: dict[str, tuple[str, OnnxValue]],
    ):
        self.model, self.source, self.given, self.result, self.graph = model, source, given, result, graph
        self.stored = {name: held for name, held in stored.items() if name in graph.tensors}

    def reference(self, ends: str) -> Reference:
        return Reference("onnxruntime", self.run, ends, self.integers if self.graph.given else None)

    def run(self, images: Array) -> Array:
        name = self.model.graph.output[0].name
        return _channels_behind(self._answers(self.model, [name], images)[0], self.result).astype(np.float64)

    def integers(self, images: Array) -> dict[str, Array]:
        """The 8-bit tensors of a quantized net, as int8."""
        from onnx import ModelProto, TensorProto, helper

        model = ModelProto()
        model.CopyFrom(self.model)
        names = [name for name, _ in self.stored.values()]
        del model.graph.output[:]
        model.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in names)
        for entry in model.graph.output:
            entry.ClearField("type")
        found = {}
        for (tensor, (_, seen)), values in zip(self.stored.items(), self._answers(model, names, images)):
            shifted = values.astype(np.int16) - (128 if values.dtype == np.uint8 else 0)
            found[tensor] = _channels_behind(shifted.astype(np.int8), seen).reshape(
                len(images), *self.graph.tensors[tensor].shape
            )
        return found

    def _answers(self, model: Any, names: list[str], images: Array) -> list[Array]:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        # As the file says: fused kernels saturate on some CPUs (docs/export.md).
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            session = onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            (fed,) = [entry for entry in session.get_inputs() if entry.name == self.source]
            fixed = fed.shape[0] if isinstance(fed.shape[0], int) else 1  # some files fold a batch of 1 in
            kind = np.float16 if "16" in fed.type else np.float64 if "double" in fed.type else np.float32
            parts: list[list[Array]] = []
            for start in range(0, len(images), fixed):
                part = images[start : start + fixed]
                whole = self._as_the_file_takes(np.resize(part, (fixed, *part.shape[1:]))).astype(kind)
                parts.append([value[: len(part)] for value in session.run(names, {self.source: whole})])
        except Exception as error:
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ExportError(f"onnxruntime cannot run the model: {first[:300]}") from None
        return [np.concatenate(values) for values in zip(*parts)]

    def _as_the_file_takes(self, images: Array) -> Array:
        if images.ndim == 2:
            return images
        letters = [letter for letter in self.given.axes if letter in "bhwc"]
        whole = images.transpose(["bhwc".index(letter) for letter in letters + sorted(set("bhwc") - set(letters))])
        return whole.reshape(len(images), *self.given.shape[1:])


def _channels_behind(values: Array, seen: OnnxValue) -> Array:
    """As ONNX has a value → (batch, height, width, channels) or (batch, units); of flattened ones, in their places."""
    if "f" in seen.axes:
        placed = np.empty_like(values)
        placed[:, seen.order] = values
        return placed
    letters = [letter for letter in seen.axes if letter != "1"]
    plain = values.reshape([n for n, letter in zip(values.shape, seen.axes) if letter != "1"])
    return plain.transpose([letters.index(letter) for letter in "bhwc" if letter in letters])
