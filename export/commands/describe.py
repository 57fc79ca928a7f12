"""What a model file holds, whatever its format: a list of operations with shapes, bits and bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.export.graph import ExportError, Graph, Weighted
from flipbit.export.read.recognise import recognise


@dataclass(frozen=True)
class Node:
    """An operation: what it reads (names of tensors), what it writes, and the constants it holds."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    shape: tuple[int, ...] = ()
    bits: int | None = None
    bytes: int = 0
    note: str = ""


@dataclass(frozen=True)
class Description:
    format: str
    file_bytes: int
    nodes: list[Node]
    facts: dict[str, Any] = field(default_factory=dict)


def describe(path: Path) -> Description:
    """Reads the formats below; raises :class:`ExportError` for others and for damaged files."""
    readers = {".fbit": _fbit, ".onnx": _onnx, ".tflite": _tflite, ".h5": _model, ".keras": _model, ".pt2": _model}
    if path.suffix not in readers:
        if path.exists():
            recognise(path)  # says what it is, unless it is a model under another name
        raise ExportError(f"{path}: expected a name that ends in {', '.join(readers)}")
    if not path.is_file():
        raise ExportError(f"{path}: {'a folder' if path.is_dir() else 'no such file'}")
    return readers[path.suffix](path)


def _fbit(path: Path) -> Description:
    from flipbit.runtime.image.reader import ImageError, read_image

    try:
        image = read_image(path)
    except ImageError as error:
        raise ExportError(str(error)) from None
    nodes = []
    for op in image.operations:
        weights = 0 if op.weights is None else op.weights.nbytes
        parameters = 0 if op.bias is None else op.bias.nbytes + len(op.bias) * (2 if op.binary else 4)
        bits = None if op.weights is None else 1 if op.binary else 8
        window = f"{op.kernel[0]}×{op.kernel[1]} " if op.kernel[0] else ""
        stride = f" /{op.stride[0]}" if op.stride[0] > 1 else ""
        kind = f"{window}{op.kind.replace('_', ' ')}{stride}{' + relu' if op.relu else ''}"
        names = tuple(f"t{i}" for i in op.inputs)
        shape = image.tensors[op.output].shape
        nodes.append(Node(op.name, kind, names, (f"t{op.output}",), shape, bits, weights + parameters))
    source, target = image.tensors[image.input], image.tensors[image.output]
    facts = {
        "input": f"int8 {'×'.join(map(str, source.shape))}, scale {source.scale:g}, zero point {source.zero_point}",
        "pixels": image.metadata.get("input"),
        "output": f"values, scale {target.scale:g}, zero point {target.zero_point}" if image.values else None,
        "classes": ", ".join(image.labels),
    }
    return Description(
        f"flipbit image, version {int.from_bytes(image.data[4:6], 'little')}",
        len(image.data),
        nodes,
        {k: v for k, v in facts.items() if v},
    )


def _onnx(path: Path) -> Description:
    import onnx
    from google.protobuf.message import DecodeError
    from onnx import numpy_helper, shape_inference

    try:
        model = onnx.load(str(path), load_external_data=False)
        onnx.checker.check_model(model)
    except (DecodeError, onnx.checker.ValidationError) as error:
        raise ExportError(f"{path}: not a valid ONNX model ({str(error).splitlines()[0][:120]})") from None
    model = shape_inference.infer_shapes(model)
    constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    values = [*model.graph.value_info, *model.graph.output]
    shapes = {v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in values}
    nodes = []
    for node in model.graph.node:
        held = [constants[name] for name in node.input if name in constants]
        largest = max(held, key=lambda a: a.nbytes, default=None)
        nodes.append(
            Node(
                node.name or node.output[0],
                node.op_type,
                tuple(name for name in node.input if name not in constants),
                tuple(node.output),
                shapes.get(node.output[0], ()),
                None if largest is None else 8 * largest.itemsize,
                sum(a.nbytes for a in held),
            )
        )
    facts = {
        "opset": ", ".join(str(o.version) for o in model.opset_import if not o.domain),
        "producer": model.producer_name,
        **{{"input": "pixels"}.get(p.key, p.key): p.value for p in model.metadata_props},
    }
    return Description("ONNX", path.stat().st_size, nodes, facts)


def _tflite(path: Path) -> Description:
    from ai_edge_litert import schema_py_generated as schema

    content = path.read_bytes()
    if content[4:8] != b"TFL3":
        raise ExportError(f"{path}: not a TFLite model")
    try:
        model = schema.ModelT.InitFromObj(schema.Model.GetRootAsModel(content, 0))
    except Exception as error:  # a flatbuffer cut short fails wherever the cut is
        raise ExportError(f"{path}: damaged TFLite model ({error})") from None
    graph = model.subgraphs[0]
    kinds = {v: k for k, v in vars(schema.BuiltinOperator).items() if isinstance(v, int)}

    def text(name: Any) -> str:
        return name.decode() if isinstance(name, bytes) else str(name)

    def constant(i: int) -> int:
        data = model.buffers[graph.tensors[i].buffer].data
        return 0 if data is None else len(data)

    nodes = []
    for op in graph.operators:
        code = model.operatorCodes[op.opcodeIndex]
        kind = kinds[max(code.builtinCode, code.deprecatedBuiltinCode)]
        inputs = [i for i in op.inputs if i >= 0]
        out = graph.tensors[op.outputs[0]]
        nodes.append(
            Node(
                text(out.name),
                kind,
                tuple(text(graph.tensors[i].name) for i in inputs if not constant(i)),
                tuple(text(graph.tensors[i].name) for i in op.outputs),
                tuple(int(n) for n in out.shape),
                None,
                sum(constant(i) for i in inputs),
            )
        )
    facts = {"description": text(model.description or "")}
    for entry in model.metadata or []:
        if text(entry.name) == "input.txt" and model.buffers[entry.buffer].data is not None:
            facts["pixels"] = bytes(model.buffers[entry.buffer].data).decode("utf-8", "replace")
    return Description("TFLite", len(content), nodes, facts)


def _model(path: Path) -> Description:
    from flipbit.export.conversion import open_source
    from flipbit.runtime.errors import InputError

    try:
        source = open_source(path)
    except InputError as error:
        raise ExportError(str(error)) from None
    pixels = source.known_pixels
    facts = {"pixels": pixels.formula if pixels else "", "classes": ", ".join(source.labels)}
    return Description(
        "PyTorch" if path.suffix == ".pt2" else "Keras",
        path.stat().st_size,
        graph_nodes(source.real()),
        {k: v for k, v in facts.items() if v},
    )


def graph_nodes(graph: Graph) -> list[Node]:
    from flipbit.export.commands.table import rows

    return [
        Node(op.name, row["kind"], op.inputs, (op.output,), tuple(row["output"]), row["bits"], row["bytes"],
             "" if not isinstance(op, Weighted) else f"scale {np.min(op.scale):.2g} … {np.max(op.scale):.2g}")
        for op, row in zip(graph, rows(graph))
    ]  # fmt: skip
