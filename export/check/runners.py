"""Runs exported files with other people's tools, so that their results can be held against the oracle.

A runner takes images as the net sees them (float32, batch × height × width × channels) and returns every tensor it
can show under the deploy graph's names, batch first and channels last: int8 where the file computes in integers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.export import oracle
from flipbit.export.graph import Array, ExportError, Graph
from flipbit.export.planar import in_graph_order
from flipbit.runtime.image.kinds import named

Runner = Callable[[Array], dict[str, Array]]


def keras_runner(model: Any, graph: Graph) -> Runner:
    return lambda images: {graph.output: np.asarray(model(images, training=False))}


def oracle_runner(graph: Graph) -> Runner:
    return lambda images: oracle.run(graph, images)


def file_runner(path: Path, graph: Graph, output_only: bool = False) -> Runner:
    """A runner for a .fbit, .c, .onnx or .tflite file that was made from ``graph``."""
    makers = {".fbit": _fbit, ".c": _fbit, ".onnx": _onnx, ".tflite": _tflite}
    if path.suffix not in makers:
        raise ExportError(f"{path}: expected a name that ends in .fbit, .onnx or .tflite")
    if not path.is_file():
        raise ExportError(f"{path}: no such file")
    return makers[path.suffix](path, graph, output_only)


def core_runner(path: Path, graph: Graph, output_only: bool = False) -> Runner:
    """A .fbit file (or one in C) run by the C core, which is what a device runs."""
    from flipbit.runtime import FlipbitError, Model

    try:
        model = Model(path if path.suffix == ".fbit" else _image_bytes(path))
    except FlipbitError as error:
        raise ExportError(str(error)) from None
    names = _tensor_names(path, graph, len(model.image.tensors))

    def run(images: Array) -> dict[str, Array]:
        if output_only:
            return {graph.output: np.asarray(model.predict(images, raw=True))}
        values = model.tensors(images)
        # What moves nothing, the core does not run.
        run_by_core = [layer for layer in model.layers if not named(layer.kind).moves_nothing]
        shown = {names[layer.output]: values[layer.name] for layer in run_by_core}
        return in_graph_order({names[model.image.input]: values["input"], **shown}, graph)

    return run


def _tensor_names(path: Path, graph: Graph, count: int) -> list[str]:
    names = list(graph.tensors)
    if len(names) != count:
        raise ExportError(f"{path}: has {count} tensors, the model {len(names)}; is it of this model?")
    return names


def _image_bytes(path: Path) -> bytes:
    """The image in a .fbit file, or in the array of 32-bit words of a .c file."""
    try:
        if path.suffix == ".fbit":
            return path.read_bytes()
        words = re.findall(r"0x([0-9a-f]{8})u,", path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ExportError(f"{path}: {error.strerror}") from None
    return b"".join(int(word, 16).to_bytes(4, "little") for word in words)


def _fbit(path: Path, graph: Graph, output_only: bool) -> Runner:
    from flipbit.runtime.image import reference
    from flipbit.runtime.image.reader import ImageError, read_image

    try:
        image = read_image(_image_bytes(path))
    except ImageError as error:
        raise ExportError(f"{path}: {error}") from None
    source = image.tensors[image.input]
    names = _tensor_names(path, graph, len(image.tensors))

    def run(images: Array) -> dict[str, Array]:
        scaled = oracle.round_half_away(images.astype(np.float64) / source.scale) + source.zero_point
        pixels = np.clip(scaled, -128, 127).astype(np.int8)
        values = reference.run(image, pixels.transpose(0, 3, 1, 2) if pixels.ndim == 4 else pixels)
        found = {n: v.transpose(0, 2, 3, 1) if v.ndim == 4 else v for n, v in zip(names, values)}
        return in_graph_order(found, graph)

    return run


def _onnx(path: Path, graph: Graph, output_only: bool) -> Runner:
    import onnx
    import onnxruntime

    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # protobuf's own exceptions differ between its versions
        raise ExportError(f"{path}: not a readable ONNX model ({error})") from None
    made = {name for node in model.graph.node for name in node.output}
    integers = f"{graph.output}/uint8" in made
    wanted = {name: f"{name}/uint8" if integers else name for name in graph.tensors}
    wanted = {name: inside for name, inside in wanted.items() if inside in made}
    result = model.graph.output[0].name
    if not output_only:
        known = {output.name for output in model.graph.output}
        model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in wanted.values() if n not in known)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    shown = {name: inside for name, inside in wanted.items() if not output_only}

    def run(images: Array) -> dict[str, Array]:
        outputs = session.run([result, *shown.values()], {session.get_inputs()[0].name: images})
        values = {}
        for name, value in zip(shown, outputs[1:]):
            value = value.transpose(0, 2, 3, 1) if value.ndim == 4 else value
            values[name] = (value.astype(np.int16) - 128).astype(np.int8) if integers else value
        if integers:
            values.setdefault(graph.output, oracle.quantize(outputs[0], graph.tensors[graph.output]))
        else:
            values[graph.output] = outputs[0]
        return values

    return run


def _tflite(path: Path, graph: Graph, output_only: bool) -> Runner:
    from ai_edge_litert.interpreter import OpResolverType

    from flipbit.export.check.tflite_load import load_tflite

    # Reference kernels: XNNPACK's rounding differs, and packed filters keep it away in any case.
    interpreter = load_tflite(
        path,
        experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
        experimental_preserve_all_tensors=not output_only,
    )
    source, result = interpreter.get_input_details()[0], interpreter.get_output_details()[0]

    def run(images: Array) -> dict[str, Array]:
        integers = source["dtype"] == np.int8
        interpreter.resize_tensor_input(source["index"], images.shape)
        interpreter.allocate_tensors()
        pixels = oracle.quantize(images, graph.tensors[graph.input]) if integers else images
        interpreter.set_tensor(source["index"], pixels)
        interpreter.invoke()
        values = {graph.output: interpreter.get_tensor(result["index"])}
        if not output_only:
            for detail in interpreter.get_tensor_details():
                name = detail["name"]
                if (
                    name in graph.tensors
                    and detail["shape"].size
                    and len(interpreter.get_tensor(detail["index"])) == len(images)
                ):
                    values[name] = interpreter.get_tensor(detail["index"])
        return values

    return run
