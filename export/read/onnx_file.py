"""``.onnx`` files: a graph of stock operators and plain arrays, looked through before anything is made of them.

Weights may lie in a second file (PyTorch writes ``net.onnx.data``): it must lie beside the first, under a plain name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flipbit.export.graph import Array, ExportError

LARGEST = 2**31 - 1  # bytes of a protobuf message
OPSETS = range(9, 100)
DOMAINS = ("", "ai.onnx")
NODES = 100_000
HOW = "export it again with torch.onnx.export or tf2onnx, in standard operators"


def load_onnx(path: str | Path) -> Any:
    """The model in an ``.onnx`` file with its weights inside; :class:`ExportError` for what cannot be read here."""
    import onnx
    from google.protobuf.message import DecodeError
    from onnx import inliner

    path = Path(path)
    try:
        if path.stat().st_size > LARGEST:
            raise ExportError(f"{path}: larger than 2 GB, which no ONNX file without its weights is")
        model = onnx.ModelProto.FromString(path.read_bytes())
    except (DecodeError, ValueError):
        raise ExportError(f"{path}: not a valid ONNX model, or cut short") from None
    except OSError as error:
        raise ExportError(f"{path}: {error.strerror}") from None
    if not model.graph.node:
        raise ExportError(f"{path}: not a valid ONNX model: it has no operations")
    opset = {entry.domain: entry.version for entry in model.opset_import}
    found = opset.get("", opset.get("ai.onnx"))
    if found is None or found not in OPSETS:
        raise ExportError(f"{path}: opset {found}; opset {OPSETS[0]} and newer are read")
    if model.functions:
        try:
            model = inliner.inline_local_functions(model)
        except Exception as error:
            raise ExportError(f"{path}: holds functions that cannot be inlined ({error}); {HOW}") from None
    if len(model.graph.node) > NODES or len(model.graph.sparse_initializer):
        raise ExportError(f"{path}: has {len(model.graph.node)} operations or sparse weights; {HOW}")
    beside = _External(path)
    for tensor in _tensors(model):
        beside.take_in(tensor)
    return model


def _tensors(model: Any) -> Any:
    yield from model.graph.initializer
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t


class _External:
    """Weights in a file beside the model."""

    def __init__(self, path: Path):
        self.path = path
        self.contents: dict[str, bytes] = {}

    def take_in(self, tensor: Any) -> None:
        """Put a tensor's bytes into the model, if they lie elsewhere."""
        from onnx import TensorProto

        if tensor.data_location != TensorProto.EXTERNAL:
            return
        entries = {entry.key: entry.value for entry in tensor.external_data}
        name = entries.get("location", "")
        content = self._content(name)
        try:
            start, length = int(entries.get("offset", 0)), int(entries.get("length", len(content)))
        except ValueError:
            start, length = -1, 0
        if start < 0 or length < 0 or start + length > len(content):
            raise ExportError(f"{self.path}: {tensor.name} is said to lie outside {name}; copy both files again")
        tensor.raw_data = content[start : start + length]
        del tensor.external_data[:]
        tensor.data_location = TensorProto.DEFAULT

    def _content(self, name: str) -> bytes:
        if name not in self.contents:
            beside = self.path.parent / name
            if not name or name != Path(name).name or name in (".", "..") or "\\" in name or beside.is_symlink():
                raise ExportError(f"{self.path}: refused, as its weights lie in {name!r}, not in a file beside it")
            try:
                if beside.stat().st_size > LARGEST:
                    raise ExportError(f"{beside}: larger than 2 GB")
                self.contents[name] = beside.read_bytes()
            except OSError as error:
                raise ExportError(f"{beside}: {error.strerror}; it holds the weights of {self.path.name}") from None
        return self.contents[name]


def array_of(tensor: Any) -> Array:
    """A tensor's values; :class:`ExportError` where its bytes do not make its shape."""
    from onnx import numpy_helper

    try:
        found: Array = numpy_helper.to_array(tensor)
    except Exception as error:
        raise ExportError(
            f"{tensor.name}: its values do not make its shape {list(tensor.dims)[:6]} ({error})"
        ) from None
    return found


def metadata(model: Any) -> dict[str, str]:
    return {entry.key: entry.value for entry in model.metadata_props}
