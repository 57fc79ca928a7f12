"""Writes a deploy graph in the format a file's suffix names, once what was written has been checked."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flipbit.export.graph import ExportError, Graph
from flipbit.runtime.files import replacing

SUFFIXES = (".fbit", ".onnx", ".tflite", ".c")


def save(graph: Graph, path: Path, report: Callable[[str], None] | None = None, **options: Any) -> Path:
    """Write ``path`` whole or not at all; ``options`` are those of the format's writer."""
    from flipbit.export.check.guard import check

    if path.suffix not in SUFFIXES:
        raise ExportError(f"{path}: the suffix names the format; choose one of {', '.join(SUFFIXES)}")
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / path.name
        _write(graph, draft, **options)
        try:
            checked = check(graph, draft)
        except ExportError as error:
            raise ExportError(str(error).replace(str(draft), str(path))) from None
        if report:
            report(str(checked))
        with contextlib.ExitStack() as stack:  # all of them or none
            for file in Path(folder).iterdir():
                stack.enter_context(replacing(path.with_name(file.name))).write_bytes(file.read_bytes())
    return path


def check_as_image(graph: Graph, report: Callable[[str], None]) -> None:
    """The check of :func:`save` for what holds the graph's .fbit image among other things, such as a C project."""
    from flipbit.export.check.guard import check
    from flipbit.export.write.fbit import write_fbit

    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / "image.fbit"
        write_fbit(graph, draft)
        report(str(check(graph, draft)))


def _write(graph: Graph, path: Path, **options: Any) -> None:
    if path.suffix == ".fbit":
        from flipbit.export.write.fbit import write_fbit

        write_fbit(graph, path, **options)
    elif path.suffix == ".onnx":
        from flipbit.export.write.onnx_file import write_onnx

        write_onnx(graph, path, **options)
    elif path.suffix == ".tflite":
        from flipbit.export.write.tflite_file import write_tflite

        write_tflite(graph, path, **options)
    else:
        from flipbit.export.write.c_file import write_c

        write_c(graph, path, **options)
