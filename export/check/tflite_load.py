"""Open a TFLite file; weights that were packed become constants first, so that delegates take them at full speed."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import os
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.export.graph import Array, ExportError

log = logging.getLogger(__name__)
RUNTIMES = ("ai_edge_litert", "tflite_runtime")
# What reading a damaged flatbuffer in Python runs into.
DAMAGE = (struct.error, IndexError, ValueError, TypeError, OverflowError, AttributeError, AssertionError)


def load_tflite(model: str | Path | bytes, folded: bool = True, **options: Any) -> Any:
    """A LiteRT interpreter, ready to run, of a file or its content.

    ``folded`` computes packed weights once, here, rather than on each run: the result is what the unpacked file gives,
    bit for bit and as fast, at the price of its memory. ``options`` go to the interpreter, e.g. ``num_threads``. Where
    tflite-runtime alone is installed, which brings no schema to fold with, the file runs as it is.
    """
    name, content = _read(model)
    home = _runtime()
    if importlib.util.find_spec("ai_edge_litert") is not None:
        constant = _fold(name, content)
        content = constant if folded else content
    elif folded:
        log.warning("%s: runs as it is, as folding packed weights needs ai-edge-litert", name)
    try:
        maker = importlib.import_module(f"{home}.interpreter").Interpreter
        with _without_info():
            interpreter = maker(model_content=content, **options)
            interpreter.allocate_tensors()
    except (ValueError, RuntimeError) as error:
        raise ExportError(f"{name}: {home} does not run it ({_first_line(error)})") from None
    return interpreter


@contextlib.contextmanager
def _without_info() -> Iterator[None]:
    """LiteRT's C++ writes to stderr which delegate it made. Leave out such lines (INFO: …) and nothing else."""
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            said.seek(0)
            for line in said:
                if not line.startswith(b"INFO: "):
                    os.write(stderr, line)
            os.close(stderr)


def fold_tflite(model: str | Path | bytes) -> bytes:
    """The content of a TFLite file with its packed weights unpacked; of other files, what they hold already."""
    return _fold(*_read(model))


def _runtime() -> str:
    for home in RUNTIMES:
        if importlib.util.find_spec(home) is not None:
            return home
    raise ExportError("no TFLite runtime is installed; pip install ai-edge-litert (or tflite-runtime on 32-bit Arm)")


def _read(model: str | Path | bytes) -> tuple[str, bytes]:
    """(name for messages, content) of what has a TFLite file's first bytes."""
    if isinstance(model, (bytes, bytearray)):
        name, content = "the model", bytes(model)
    else:
        name = str(model)
        try:
            content = Path(model).read_bytes()
        except OSError as error:
            raise ExportError(f"{name}: {error.strerror or error}") from None
    if content[4:8] != b"TFL3":
        raise ExportError(f"{name}: not a TFLite file (bytes 4 to 8 must be TFL3, found {content[4:8]!r})")
    return name, content


def _fold(name: str, content: bytes) -> bytes:
    from ai_edge_litert import schema_py_generated as schema

    try:
        model = schema.ModelT.InitFromObj(schema.Model.GetRootAsModel(content, 0))
        found = _Folder(schema, model).fold()
    except DAMAGE as error:
        raise ExportError(f"{name}: cut short or damaged ({_first_line(error)})") from None
    if not found:
        return content
    from flipbit.export.write.tflite_file import model_bytes

    return model_bytes(model)


class _Folder:
    """Runs the operations of a model that read constants alone, and leaves their results in their place."""

    def __init__(self, schema: Any, model: Any):
        self.schema, self.model = schema, model
        kind, op = schema.TensorType, schema.BuiltinOperator
        self.types = {kind.FLOAT32: "<f4", kind.INT32: "<i4", kind.UINT8: "u1", kind.INT8: "i1"}
        self.rules: dict[int, Callable[..., Array | None]] = {
            op.CAST: lambda o, target, x: x.astype(self.types[target.type]),
            op.GATHER: lambda o, target, table, rows: table[rows] if o.axis == 0 and not o.batchDims else None,
            op.MUL: lambda o, target, a, b: a * b if not o.fusedActivationFunction else None,
            op.RESHAPE: lambda o, target, x, *shape: x.reshape(target.shape),
            op.SLICE: lambda o, target, x, begin, size: (
                x[tuple(slice(b, b + n) for b, n in zip(begin, size))] if (size >= 0).all() else None
            ),
        }

    def fold(self) -> bool:
        if not self.model.subgraphs or self.model.buffers is None or self.model.operatorCodes is None:
            raise ValueError("it holds no net")
        changed = [self._subgraph(index, graph) for index, graph in enumerate(self.model.subgraphs)]
        return any(changed)

    def _subgraph(self, index: int, graph: Any) -> bool:
        values = {i: value for i, t in enumerate(graph.tensors) if (value := self._constant(t)) is not None}
        operators = []
        for operator in graph.operators or []:
            result = self._run(graph, operator, values)
            if result is None:
                operators.append(operator)
            else:
                values[operator.outputs[0]] = result
        if len(operators) == len(graph.operators or []):
            return False
        graph.operators = operators
        read = {int(i) for o in operators for i in (*o.inputs, *o.outputs) if i >= 0}
        used = read | {int(i) for i in (*graph.inputs, *graph.outputs)}
        for i in sorted(used & values.keys()):
            self._store(graph.tensors[i], values[i])
        self._keep(index, graph, sorted(used))
        return True

    def _constant(self, tensor: Any) -> Array | None:
        data = self.model.buffers[tensor.buffer].data
        if data is None or not len(data) or tensor.type not in self.types or tensor.isVariable:
            return None
        shape = () if tensor.shape is None else tuple(tensor.shape)
        return np.frombuffer(np.asarray(data, np.uint8).tobytes(), self.types[tensor.type]).reshape(shape)

    def _run(self, graph: Any, operator: Any, values: dict[int, Array]) -> Array | None:
        code = self.model.operatorCodes[operator.opcodeIndex]
        rule = self.rules.get(max(code.builtinCode, code.deprecatedBuiltinCode))
        if rule is None or not all(int(i) in values for i in operator.inputs):
            return None
        target = graph.tensors[operator.outputs[0]]
        result = rule(operator.builtinOptions, target, *(values[int(i)] for i in operator.inputs))
        if result is None or result.shape != tuple(target.shape) or result.dtype != self.types.get(target.type):
            return None
        return result

    def _store(self, tensor: Any, value: Array) -> None:
        if not tensor.buffer:
            data = np.frombuffer(np.ascontiguousarray(value).tobytes(), np.uint8)
            self.model.buffers.append(self.schema.BufferT(data=data))
            tensor.buffer = len(self.model.buffers) - 1

    def _keep(self, index: int, graph: Any, used: list[int]) -> None:
        """Drop tensors that nobody reads or writes any more."""
        place = {old: new for new, old in enumerate(used)} | {-1: -1}

        def moved(indices: Any) -> Array:
            return np.array([place[int(i)] for i in indices], np.int32)

        graph.tensors = [graph.tensors[i] for i in used]
        graph.inputs, graph.outputs = moved(graph.inputs), moved(graph.outputs)
        for operator in graph.operators:
            operator.inputs, operator.outputs = moved(operator.inputs), moved(operator.outputs)
        for signature in self.model.signatureDefs or []:
            if (signature.subgraphIndex or 0) == index:
                for entry in [*(signature.inputs or []), *(signature.outputs or [])]:
                    entry.tensorIndex = place[entry.tensorIndex]
        # Buffers keep their numbers, which metadata use too; those of dropped tensors are emptied.
        kept = {t.buffer for g in self.model.subgraphs for t in g.tensors}
        kept |= {entry.buffer for entry in self.model.metadata or []}
        for number, buffer in enumerate(self.model.buffers):
            if number not in kept:
                buffer.data = None


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
