"""PyTorch models to a deploy graph in real numbers, by way of torch.export.

The graph of ATen operators is read in two ways: what depends on parameters alone is computed at once (so
``torch.sign(w) * scale`` in a layer's forward, parametrizations and the like become the weights they stand for), and
what depends on the image becomes an operation. BatchNorm and per-channel constants are folded into the convolution
or linear layer before them, as `from_keras.py` does. A layer is binary when each of its filters holds
two values ±s.

This file opens models; the package ``aten`` beside it reads them: ``walk`` goes through the program, ``builder`` holds
the deploy graph as it grows, and the other files read one family of operators each.
"""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flipbit.export.graph import ExportError, Graph
from flipbit.export.read.aten.nodes import first_line
from flipbit.export.read.aten.walk import Walk
from flipbit.export.read.pt2_file import HOW, without_code

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram


def from_torch(
    module: torch.nn.Module | ExportedProgram, example: Any = None, labels: list[str] | None = None
) -> Graph:
    """The deploy graph of a PyTorch net made of supported layers; raises :class:`ExportError` otherwise.

    ``example`` is an input as the net takes it, a batch of NCHW images or of vectors, or a tuple that holds one; only
    its shape and type matter. A module is exported in eval mode, as a copy on the CPU; an ``ExportedProgram`` (from
    ``torch.export.export`` or :func:`load_torch`) is taken as it is and needs no example.
    """
    torch = _torch()
    if isinstance(module, torch.nn.Module):
        program = _export(module, example)
    elif isinstance(module, torch.export.ExportedProgram):
        program = module
    else:
        raise ExportError(f"expected an nn.Module or an ExportedProgram, found {type(module).__name__}")
    with torch.no_grad():
        return Walk(_functional(program), labels or []).graph()


def load_torch(path: str | Path) -> ExportedProgram:
    """The program in a ``.pt2`` file that ``torch.export.save`` wrote; for :func:`from_torch`.

    Safe for files of unknown origin: ``torch.export.load`` itself unpickles, evaluates and imports what the file says,
    so it is only given the graph and the raw tensors, rewritten and checked; see :mod:`flipbit.export.read.pt2_file`.
    Sample inputs, guards and extra files are not read. Files that need a pickle (tensor subclasses, custom objects),
    compiled code or operators outside ATen are refused, and so are pickled ``.pt`` and ``.pth`` files: these hold
    Python code or bare weights without a net.
    """
    torch = _torch()
    path = Path(path)
    if path.suffix in (".pt", ".pth", ".pkl", ".ckpt", ".bin"):
        raise ExportError(f"{path}: a pickle, which can run code when opened; expected a .pt2 file: {HOW}")
    if not path.is_file():
        raise ExportError(f"{path}: no such file")
    archive = without_code(path)
    try:
        return torch.export.load(archive)
    except Exception as error:
        raise ExportError(f"{path}: PyTorch {torch.__version__} cannot read it: {first_line(error)}; {HOW}") from error


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise ExportError(f"PyTorch models need PyTorch ({error}); pip install torch") from None
    return torch


def _export(module: torch.nn.Module, example: Any) -> ExportedProgram:
    import torch

    if example is None:
        raise ExportError("a module needs an example input, such as torch.zeros(1, 3, 32, 32)")
    inputs = tuple(example) if isinstance(example, (tuple, list)) else (example,)
    try:
        inputs = tuple(torch.as_tensor(x).detach().cpu() for x in inputs)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ExportError(f"the example input must be a tensor, or a tuple that holds one: {error}") from error
    try:
        # In no_grad, so that a no_grad inside forward does not become a sub-graph of its own.
        with torch.no_grad():
            return torch.export.export(copy.deepcopy(module).cpu().eval(), inputs)
    except Exception as error:
        raise ExportError(
            f"torch.export cannot trace {type(module).__name__}: {first_line(error)}; forward must take tensors and "
            "run the same operations for every image"
        ) from error


def _functional(program: ExportedProgram) -> ExportedProgram:
    """The program without operations in place, which change what others read, and without sub-graphs for no_grad."""
    if not any(
        node.op == "get_attr" or getattr(getattr(node.target, "_schema", None), "is_mutable", False)
        for node in program.graph.nodes
    ):
        return program
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # PyTorch's, of its own parts
        return program.run_decompositions({})
