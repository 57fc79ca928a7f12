"""Writes a deploy graph in the format a file's suffix names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flipbit.export.graph import ExportError, Graph

SUFFIXES = (".fbit", ".onnx", ".tflite", ".c")


def save(graph: Graph, path: Path, **options: Any) -> Path:
    """Write ``path`` whole or not at all; ``options`` are those of the format's writer."""
    if path.suffix == ".fbit":
        from flipbit.export.fbit import write_fbit

        write_fbit(graph, path, **options)
    elif path.suffix == ".onnx":
        from flipbit.export.onnx_file import write_onnx

        write_onnx(graph, path, **options)
    elif path.suffix == ".tflite":
        from flipbit.export.tflite_file import write_tflite

        write_tflite(graph, path, **options)
    elif path.suffix == ".c":
        from flipbit.export.c_file import write_c

        write_c(graph, path, **options)
    else:
        raise ExportError(f"{path}: the suffix names the format; choose one of {', '.join(SUFFIXES)}")
    return path
