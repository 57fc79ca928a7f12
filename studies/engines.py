"""Time a .fbit image against the same net in LiteRT and onnxruntime: one thread each, in turns, in one run.

The other files are looked for beside the image (model.fbit, model.tflite, model.onnx), or given with --against; write
them with flipbit export. Measured is one inference with its input in place (fb_invoke, the interpreter's invoke, the
session's run), in CPU time, which other work on the machine does not lengthen. A tool that is not installed is named
and left out.

examples:
  flipbit bench resnet8.fbit
  flipbit bench resnet8.fbit --against other/resnet8.tflite --rounds 500 --json times.json
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.runtime.core import library as core
from flipbit.runtime.core.model import Model
from flipbit.runtime.errors import ArgumentError
from flipbit.runtime.exits import CommandParser
from flipbit.runtime.files import check_place, write_json
from flipbit.runtime.image.inputs import from_planes, to_planes
from flipbit.runtime.shown import shown
from flipbit.runtime.text_table import text_table

PROG = "flipbit bench"
Array = np.ndarray
IMAGES = 8  # on which the tools' answers are held against flipbit's
ROUND_SECONDS = 0.004  # of one tool in one round: many times the clock's step, and less than a turn of the scheduler


@dataclass(frozen=True)
class Timing:
    """One tool. ``seconds`` is the median over the rounds, ``best`` the shortest, which other work on the machine
    disturbs least. Ratios are to flipbit's: below 1 is faster than flipbit."""

    tool: str
    kernels: str
    seconds: float
    ratio: float
    best: float
    best_ratio: float
    agreement: float  # share of images with flipbit's top-1


@dataclass(frozen=True)
class EngineBench:
    """What ``bench`` found: flipbit first."""

    image: str
    macs: int
    rounds: int
    timings: list[Timing]
    missing: list[str] = field(default_factory=list)


@dataclass
class _Runner:
    tool: str
    kernels: str
    set_input: Callable[[Array], None]  # int8, height × width × channels
    invoke: Callable[[], object]
    output: Callable[[], Array]


def bench(path: Path, against: Sequence[Path] = (), rounds: int = 100, seed: int = 0) -> EngineBench:
    """Median times of one inference, the tools taking turns. Without ``against``, files beside the image are taken."""
    if rounds < 1:
        raise ArgumentError(f"--rounds {rounds}: at least 1")
    model = Model(path)
    files = list(against) or [f for f in (path.with_suffix(".tflite"), path.with_suffix(".onnx")) if f.is_file()]
    if not files:
        raise ArgumentError(
            f"nothing to compare {path} with: no .tflite or .onnx of that name beside it; write them with "
            "export/to_tflite.py and export/to_onnx.py, or name files with --against"
        )
    runners, missing = [_flipbit(model)], []
    for file in files:
        module, make = _tool_for(file)
        if importlib.util.find_spec(module) is None:
            missing.append(f"{file.name}: {module.replace('_', '-')} is not installed (pip install 'flipbit[export]')")
        else:
            runners.append(make(file, model))
    inputs = np.random.default_rng(seed).integers(-128, 128, (IMAGES, *model.input_shape)).astype(np.int8)
    agreement = _agreement(runners, inputs)
    times = _in_turns(runners, rounds)
    median, best = np.median(times, axis=1), np.min(times, axis=1)
    timings = [
        Timing(r.tool, r.kernels, float(m), float(m / median[0]), float(b), float(b / best[0]), share)
        for r, m, b, share in zip(runners, median, best, agreement)
    ]
    return EngineBench(str(path), sum(layer.macs for layer in model.layers), rounds, timings, missing)


def _agreement(runners: list[_Runner], inputs: Array) -> list[float]:
    answers: list[list[int]] = []
    for runner in runners:
        answers.append([])
        for x in inputs:
            runner.set_input(x)
            runner.invoke()
            answers[-1].append(int(runner.output().argmax()))
    return [float(np.mean(np.equal(found, answers[0]))) for found in answers]


def _in_turns(runners: list[_Runner], rounds: int) -> list[list[float]]:
    """Seconds of one inference, for each tool in each round. How often it runs in a round follows from its speed."""
    repeats = [max(1, int(ROUND_SECONDS / max(min(_seconds(r.invoke, 1) for _ in range(3)), 1e-6))) for r in runners]
    seconds: list[list[float]] = [[] for _ in runners]
    for _ in range(rounds):
        for runner, repeat, row in zip(runners, repeats, seconds):
            row.append(_seconds(runner.invoke, repeat))
    return seconds


def _seconds(invoke: Callable[[], object], repeat: int) -> float:
    """CPU time of one call: time in which the machine did something else does not count."""
    begin = time.process_time()
    for _ in range(repeat):
        invoke()
    return (time.process_time() - begin) / repeat


def _flipbit(model: Model) -> _Runner:
    opened = core.Opened(model.path.read_bytes() if model.path else b"")
    source, target = (model.image.tensors[i] for i in (model.image.input, model.image.output))
    arena, x, y = core.aligned(model.arena), core.aligned(source.size).view(np.int8), np.empty(target.size, np.int8)

    def set_input(image: Array) -> None:
        x[:] = to_planes(image, source, None)[0].reshape(-1)

    kernels = dict.fromkeys(layer.kernel.removeprefix("fb_") for layer in model.layers if layer.kernel)
    return _Runner(
        f"flipbit {importlib.metadata.version('flipbit')}",
        ", ".join(kernels),
        set_input,
        lambda: opened.invoke(arena, x, y),
        lambda: from_planes(y[None], target)[0].reshape(-1),
    )


def _tool_for(file: Path) -> tuple[str, Callable[[Path, Model], _Runner]]:
    """The module that runs a file, and what makes a runner with it."""
    if not file.is_file():
        raise ArgumentError(f"{file}: no such file")
    tools = {".tflite": ("ai_edge_litert", _litert), ".onnx": ("onnxruntime", _onnxruntime)}
    if file.suffix not in tools:
        raise ArgumentError(f"{file}: expected a name that ends in {' or '.join(tools)}")
    return tools[file.suffix]


def _litert(file: Path, model: Model) -> _Runner:
    from flipbit.export import ExportError, load_tflite  # unpacks the weights once, so that XNNPACK takes them

    try:
        interpreter = load_tflite(file, num_threads=1)
    except ExportError as error:
        raise ArgumentError(str(error)) from None
    source, target = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    _same_shape(file, model, source["shape"], target["shape"])
    scale = model.image.tensors[model.image.input]

    def set_input(image: Array) -> None:
        value = image if source["dtype"] == np.int8 else _real(image, scale)
        interpreter.set_tensor(source["index"], value.reshape(source["shape"]).astype(source["dtype"]))

    numbers = "int8" if source["dtype"] == np.int8 else np.dtype(source["dtype"]).name
    return _Runner(
        f"LiteRT {importlib.metadata.version('ai-edge-litert')}",
        f"XNNPACK, {numbers}",
        set_input,
        interpreter.invoke,
        lambda: np.asarray(interpreter.get_tensor(target["index"])).reshape(-1),
    )


def _onnxruntime(file: Path, model: Model) -> _Runner:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its own exceptions share no class
        raise ArgumentError(f"{file}: onnxruntime does not run it ({str(error).splitlines()[0]})") from None
    source, target = session.get_inputs()[0], session.get_outputs()[0]
    shape = [size if isinstance(size, int) else 1 for size in source.shape]
    _same_shape(file, model, shape, [size if isinstance(size, int) else 1 for size in target.shape])
    scale = model.image.tensors[model.image.input]
    feed: dict[str, Array] = {}
    result: list[Array] = []

    def set_input(image: Array) -> None:
        value = image if source.type == "tensor(int8)" else _real(image, scale)
        feed[source.name] = np.ascontiguousarray(value.reshape(shape))

    def invoke() -> None:
        result[:] = session.run(None, feed)

    return _Runner(
        f"onnxruntime {onnxruntime.__version__}", "MLAS", set_input, invoke, lambda: np.asarray(result[0]).reshape(-1)
    )


def _real(image: Array, tensor: Any) -> Array:
    """int8 values as the real numbers they stand for."""
    return ((image.astype(np.float32) - tensor.zero_point) * tensor.scale).astype(np.float32)


def _same_shape(file: Path, model: Model, source: Sequence[int], target: Sequence[int]) -> None:
    sizes = tuple(int(n) for n in source)[1:], int(np.prod(target))
    expected = tuple(model.input_shape), int(np.prod(model.output_shape))
    if sizes != expected:
        raise ArgumentError(
            f"{file}: another net than {model.path}: it takes {sizes[0]} and gives {sizes[1]} values, not "
            f"{expected[0]} and {expected[1]}"
        )


def describe(result: EngineBench) -> str:
    """The result as a table for people."""
    rows = [
        [t.tool, f"{1e6 * t.seconds:.0f} µs", f"{t.ratio:.2f}", f"{1e6 * t.best:.0f} µs", f"{t.best_ratio:.2f}",
         f"{100 * t.agreement:.0f} %", t.kernels] for t in result.timings
    ]  # fmt: skip
    head = ["tool", ">median", ">to flipbit's", ">best", ">to flipbit's", ">same answer", "kernels"]
    lines = [
        f"{shown(result.image)}: {result.macs:,} multiply-accumulates",
        f"one thread, CPU time of one image, {result.rounds} rounds in turns",
        text_table(head, rows),
        *(f"left out: {reason}" for reason in result.missing),
    ]
    if any(t.agreement < 0.5 for t in result.timings):
        lines.append("warning: answers differ on most images: are these files of the same net?")
    return "\n".join(lines)


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    description, epilog = (__doc__ or "").split("examples:\n")
    p = CommandParser(
        prog=prog, description=description, epilog=f"examples:\n{epilog}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    p.add_argument("image", type=Path, metavar="IMAGE", help="a .fbit file")
    p.add_argument("--against", type=Path, nargs="+", default=[], metavar="FILE", help=".tflite and .onnx files")
    p.add_argument("--rounds", type=int, default=100, metavar="N", help="turns each tool gets (100)")
    p.add_argument("--json", type=Path, metavar="FILE", help="also write the result there")
    return p


def main(argv: list[str] | None = None, prog: str = PROG) -> int:
    """The command ``flipbit bench``; bad input is a FlipbitError, which the command line reports."""
    given = parser(prog).parse_args(argv)
    check_place(given.json)
    result = bench(given.image, given.against, given.rounds)
    if given.json:
        write_json(given.json, asdict(result))
    print(describe(result))
    return 0
