"""``.pt2`` files (``torch.export.save``), opened without running code that is in them.

``torch.export.load`` trusts its file. As of PyTorch 2.13 a crafted one can run code in these ways:

=====================  ===============================================================================================
pickles                sample inputs (``weights_only=True`` falls back to ``False``), custom and opaque objects,
                       tensors marked ``use_pickle``, weights of the older layouts
machine code           ``data/aotinductor/`` holds shared libraries, which are loaded
text that is run       names of nodes end in generated Python, symbolic sizes go through ``sympy.sympify``, tree
                       specifications import modules, guards are compiled
operator names         any attribute below ``torch`` can be the target of a node
=====================  ===============================================================================================

So the archive is not handed on. A new one is made from the few records that a net of tensors and ATen operators
needs: graph, weights and constants as raw bytes. In the graph every piece of text must be a plain word, operators
must be ATen's, and everything else (sample inputs, stack traces, guards, extra files, devices) is left out.
A file can still ask for much memory or hold wrong weights; it cannot run code of its own.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flipbit.export.graph import ExportError

ATEN = "torch.ops.aten."
# No brackets, quotes, operators or spaces: nothing that can be called; but for the size of a batch that may vary.
PLAIN = re.compile(r"[\w.:-]*|Symbol\('s\d+'(, [a-z]+=(True|False))*\)", re.ASCII)
SPECS = ("in_spec", "out_spec")
PYTREES = (None, "builtins.tuple", "builtins.list", "builtins.dict")
GRAPH = "models/model.json"
HOW = (
    "make one with torch.export.save(torch.export.export(model.eval(), (example,)), 'model.pt2') inside torch.no_grad()"
)


def without_code(path: Path) -> io.BytesIO:
    """The archive at ``path`` again, less all that could run: for ``torch.export.load``."""
    records = _records(path)
    safe = {
        "archive_format": b"pt2",
        "archive_version": records.get("archive_version", b"0"),
        "byteorder": b"little",
        ".data/version": b"3\n",
        "data/sample_inputs/model.pt": b"",
    }
    try:
        safe[GRAPH] = json.dumps(_program(path, json.loads(records[GRAPH]))).encode()
        for kind in ("weights", "constants"):
            config = f"data/{kind}/model_{kind}_config.json"
            payload = json.loads(records[config])
            for name, found in _payload(path, payload):
                safe[f"data/{kind}/{found}"] = records[f"data/{kind}/{found}"]
                _words(path, name)
            safe[config] = json.dumps(payload).encode()
    except (KeyError, TypeError, AttributeError, IndexError, ValueError, RecursionError) as error:
        raise ExportError(
            f"{path}: not a model that torch.export.save of PyTorch 2.8 or newer wrote "
            f"({type(error).__name__}: {error}); {HOW}"
        ) from error
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, data in safe.items():
            archive.writestr(f"model/{name}", data)
    out.seek(0)
    return out


def _records(path: Path) -> dict[str, bytes]:
    """All records by name, without the folder they stand in."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
                raise ExportError(f"{path}: holds compressed records, which torch.export.save never writes")
            return {entry.filename.partition("/")[2]: archive.read(entry) for entry in entries}
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError) as error:
        raise ExportError(f"{path}: not a whole .pt2 archive ({error}); {HOW}") from error


def _program(path: Path, program: dict[str, Any]) -> dict[str, Any]:
    """The exported program with plain words only."""
    graph = program["graph_module"]["graph"]
    for node in graph["nodes"]:
        if not str(node["target"]).startswith(ATEN):
            raise ExportError(
                f"{path}: node {node.get('name')}: calls {node['target']}; only operators of {ATEN}* are read "
                "(for torch.no_grad() inside forward: export the model inside torch.no_grad())"
            )
    stacks = [node["metadata"].get("nn_module_stack", "") for node in graph["nodes"]]
    for node in graph["nodes"]:
        node["metadata"] = {}
    program["guards_code"], program["torch_version"], program["graph_module"]["metadata"] = [], "", {}
    # Only the entry of the whole module says how inputs and outputs nest; its JSON within JSON is looked at apart.
    calls = [entry for entry in program["graph_module"]["module_call_graph"] if entry["fqn"] == ""]
    program["graph_module"]["module_call_graph"] = calls
    specs = [(call["signature"], spec, call["signature"].pop(spec)) for call in calls for spec in SPECS]
    _words(path, program)
    _on_cpu(program)
    for signature, spec, text in specs:
        protocol, tree = json.loads(text)
        signature[spec] = json.dumps([protocol, _tree(path, tree)])
    for node, stack in zip(graph["nodes"], stacks):
        # Which module a node belongs to: only ever shown, in messages.
        if stack and stack.isprintable():
            node["metadata"]["nn_module_stack"] = stack
    return program


def _tree(path: Path, tree: dict[str, Any]) -> dict[str, Any]:
    """How inputs and outputs nest: tuples, lists and dicts with plain keys."""
    if tree["type"] not in PYTREES:
        raise ExportError(f"{path}: its inputs or outputs nest in a {tree['type']}; tuples, lists and dicts are read")
    if tree["context"] is not None:
        keys = json.loads(tree["context"])
        if keys is not None and not (isinstance(keys, list) and all(isinstance(key, str) for key in keys)):
            raise ExportError(f"{path}: its inputs or outputs have names that are not plain words")
        _words(path, keys)
    return {**tree, "children_spec": [_tree(path, child) for child in tree["children_spec"]]}


def _payload(path: Path, payload: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(name of a tensor, its record) of weights or constants."""
    _words(path, payload)
    _on_cpu(payload)
    for name, entry in payload["config"].items():
        record = entry["path_name"]
        if entry["use_pickle"] or not record.startswith(("weight_", "tensor_")):
            raise ExportError(
                f"{path}: {name}: stored as a pickle, which can run code; plain tensors are read "
                "(no tensor subclasses, no scripted or custom objects)"
            )
        yield name, record


def _words(path: Path, found: Any) -> None:
    if isinstance(found, str):
        if not PLAIN.fullmatch(found):
            raise ExportError(
                f"{path}: holds the text {found[:60]!r}, which torch.export.load might run; names must be plain "
                "words, and sizes fixed (dynamic_shapes for the batch at most)"
            )
    elif isinstance(found, dict):
        for key, value in found.items():
            _words(path, key)
            _words(path, value)
    elif isinstance(found, list):
        for value in found:
            _words(path, value)


def _on_cpu(found: Any) -> None:
    """A model saved on a GPU is read on the CPU."""
    if isinstance(found, dict):
        if isinstance(found.get("device"), dict):
            found["device"] = {"type": "cpu", "index": None}
        if isinstance(found.get("as_device"), dict):
            found["as_device"] = {"type": "cpu", "index": None}
        for value in found.values():
            _on_cpu(value)
    elif isinstance(found, list):
        for value in found:
            _on_cpu(value)
