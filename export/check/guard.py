"""The guard of every export: what was written must compute what the model does, or nothing is written.

Four comparisons on the calibration images, each as sharp as its arithmetic allows:

    model ── A ── graph in real numbers ── B ── graph in integers (the oracle) ── C ── the file
                                     └────────────────── C, of files in real numbers ──────┘

A  float32 rounding apart, the same numbers. A net that is read wrongly (an order of values, a fused tensor that others
   read) fails here.
B  quantization: the error may not come near the spread of the net's own answers.
C  bit for bit the oracle's for the C core and its NumPy twin; for tools that round float32, operation by operation on
   the file's own inputs, at most ``STEPS`` apart; and the output of the file as users run it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from flipbit.export import oracle
from flipbit.export.check.runners import core_runner, file_runner
from flipbit.export.graph import Array, Binarize, ExportError, Graph, Op, Reference

MOST, FEWEST = 64, 8  # images; between them, as many as BUDGET multiply-accumulates allow
BUDGET = 500_000_000
BATCH = 16
# Share of the output's size by which float32 and float64 may differ. Largest seen, on every net of train/ with random
# weights and 260 random graphs: 2e-6.
REAL = 1e-3
# Quantization error as a share of the spread of the net's answers. Largest seen on the same nets: 0.08.
NOISE = 0.8
STEPS = 2  # of the int8 grid, that one operation of another tool may be off; 1 has been seen
# Of a net with binary activations: share of the images that must agree so. Rounding of float32 turns the sign of a
# number near zero now and then, and all that follows of that image.
SIGNED = 0.75
COARSE = 4  # steps of int8 that a value should at least vary by (its standard deviation)
SMALLEST = 1e-30  # a softmax's results below it are taken as equal
ADVICE = "please report this with the model; nothing was written"


@dataclass
class Checked:
    """What was compared, for people."""

    images: int
    parts: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"checked on {self.images} images: {'; '.join(self.parts)}"


def check(graph: Graph, path: Path) -> Checked:
    """Compare the file at ``path``, made from ``graph``, with the oracle and the model; :class:`ExportError` if it is
    not the same net."""
    inputs, seen_before = sample_inputs(graph)
    done = Checked(len(inputs))
    real = graph.real if graph.quantized else graph
    answers = None if real is None else oracle.logits(real, inputs)
    if real is not None and answers is not None and real.reference is not None:
        if real.reference.integers is None:
            done.parts.append(_model(real, real.reference, inputs, answers))
        elif graph.quantized:
            done.parts.append(_quantized_model(graph, real.reference, inputs))
        else:
            done.parts.append(_model_quantized_before(real, real.reference, inputs, answers))
    if graph.quantized:
        integers = oracle.logits(graph, inputs)
        if answers is not None and seen_before:  # made-up inputs may lie far outside the ranges of calibration
            done.parts.append(_quantization(graph, integers, answers))
        done.parts.append(_file_in_integers(graph, path, inputs))
    else:
        done.parts.append(_file_in_reals(graph, path, inputs))
    return done


def sample_inputs(graph: Graph) -> tuple[Array, bool]:
    """Inputs to compare on: those of calibration, evenly taken, or made up; and which."""
    work = sum(graph.macs(op) for op in graph)
    count = int(np.clip(BUDGET // max(work, 1), FEWEST, MOST))
    if graph.samples is not None and len(graph.samples):
        chosen = np.linspace(0, len(graph.samples) - 1, min(count, len(graph.samples))).astype(int)
        return np.asarray(graph.samples[chosen], np.float32), True
    source = graph.tensors[graph.input]
    random = np.random.default_rng(0)
    values = random.uniform(-1, 1, (count, *source.shape))
    if source.scale is not None:  # whatever int8 can say
        values = (127.5 * values - 0.5 - source.zero_point) * source.scale
    return values.astype(np.float32), False


def _model(graph: Graph, reference: Reference, inputs: Array, answers: Array) -> str:
    expected = np.concatenate([reference.run(inputs[i : i + BATCH]) for i in range(0, len(inputs), BATCH)])
    found = as_the_model_ends(answers, reference.ends)
    if reference.ends == "softmax":
        expected = np.log(np.maximum(expected.astype(np.float64), SMALLEST))
    gap = _apart(found, expected, graph, inputs)
    if not gap <= REAL:
        raise ExportError(
            f"the graph does not compute what {reference.name} does: outputs differ by {gap:.2g} of their size "
            f"(float32 rounding gives less than {REAL:g}); {ADVICE}"
        )
    return f"graph as {reference.name} within {max(gap, 1e-9):.0e}"


def _quantized_model(graph: Graph, reference: Reference, inputs: Array) -> str:
    """A model that came quantized: each of its operations, on the inputs that it had there."""
    assert reference.integers is not None
    worst = seen = 0
    for start in range(0, len(inputs), BATCH):
        values = reference.integers(inputs[start : start + BATCH])
        worst = max(worst, _operations(graph, reference.name, values))
        seen = sum(all(name in values for name in (*op.inputs, op.output)) for op in graph)
    expected = np.concatenate([reference.run(inputs[i : i + BATCH]) for i in range(0, len(inputs), BATCH)])
    if not reference.ends:
        share = noise(oracle.logits(graph, inputs), expected)
        if share > NOISE / 2:
            raise ExportError(f"answers err by {100 * share:.0f} % of the spread of {reference.name}'s; {ADVICE}")
    how = "equal" if not worst else f"at most {worst} step{'s' if worst > 1 else ''} apart"
    same = _agree(graph, oracle.logits(graph, inputs), expected)
    return f"{seen} of {len(graph.ops)} operations as {reference.name} computes them: {how}; {same}"


def _model_quantized_before(graph: Graph, reference: Reference, inputs: Array, answers: Array) -> str:
    """A model that came quantized, and the graph in real numbers, which rounds nothing."""
    expected = np.concatenate([reference.run(inputs[i : i + BATCH]) for i in range(0, len(inputs), BATCH)])
    share = 0.0 if reference.ends else noise(answers, expected)
    if share > NOISE:
        raise ExportError(
            f"in real numbers the net's answers differ from those of {reference.name} by {100 * share:.0f} % of their "
            "spread, as its scales clip values; export it with int8 activations"
        )
    return f"in real numbers, beside {reference.name}: {_agree(graph, answers, expected)}"


def as_the_model_ends(logits: Array, ends: str) -> Array:
    """Logits as log-probabilities if the model ends in a softmax: what can be had from both, without saturation."""
    if not ends:
        return logits
    shifted = logits - logits.max(-1, keepdims=True)
    found: Array = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return np.maximum(found, np.log(SMALLEST)) if ends == "softmax" else found


def _apart(found: Array, expected: Array, graph: Graph, inputs: Array) -> float:
    """The largest difference as a share of the output's size; of an output near zero, of what it was made from."""
    if found.shape != expected.shape or not np.isfinite(expected).all():
        return float("inf")
    size = float(np.abs(expected).max(initial=0))
    gaps = np.abs(found - expected).reshape(len(found), -1).max(1, initial=0)
    share = SIGNED if any(isinstance(op, Binarize) for op in graph) else 1.0
    gap = float(np.quantile(gaps, share, method="lower")) if len(gaps) else 0.0
    if gap > REAL * size:
        inside = oracle.run(graph, inputs[:FEWEST])
        size = max(size, 0.01 * max(float(np.abs(v).max()) for v in inside.values()))
    return gap / max(size, 1e-30)


def noise(found: Array, expected: Array) -> float:
    """Root mean square of the difference, as a share of how much the expected answers vary."""
    spread = max(float(expected.std()), 0.25 * float(np.sqrt(np.mean(expected**2))), 1e-30)
    return float(np.sqrt(np.mean((found - expected) ** 2))) / spread


def _quantization(graph: Graph, integers: Array, answers: Array) -> str:
    share = noise(integers, answers)
    step = float(graph.tensors[graph.output].scale or 0)
    largest_step = float(np.abs(integers - answers).max(initial=0)) / max(step, 1e-30)
    if share > NOISE and largest_step > 4:
        raise ExportError(
            f"int8 activations lose the net's answers: the error is {100 * share:.0f} % of their spread; calibrate on "
            "images like those it was trained on (--calibrate), or try --method percentile or mse; nothing was written"
        )
    coarse = _coarse_outputs(graph, answers)
    return f"int8 errs by {100 * share:.1f} % of the answers' spread, {_agree(graph, integers, answers)}{coarse}"


def _coarse_outputs(graph: Graph, answers: Array) -> str:
    """A note on values that int8 hardly tells apart, as others of the same output are much larger."""
    if not graph.values or answers.ndim != 2:
        return ""
    step, spread = float(graph.tensors[graph.output].scale or 0), answers.std(0)
    coarse = [str(i) for i in np.flatnonzero((spread > 0) & (spread < COARSE * step))]
    if not coarse:
        return ""
    named = ", ".join(coarse[:5]) + (f" and {len(coarse) - 5} more" if len(coarse) > 5 else "")
    return (
        f"; output {named} varies by less than {COARSE} steps of int8 (of {step:.3g}), as all outputs, and 0, "
        "share one scale: bring them to similar sizes around 0 in y_train"
    )


def _agree(graph: Graph, found: Array, expected: Array) -> str:
    """How far two runs give the same answers: of values, how far they are apart."""
    if graph.values:
        apart = float(np.sqrt(np.mean((found - expected) ** 2)))
        return f"values apart by {apart:.3g} (RMSE; they are {expected.min():.4g} to {expected.max():.4g})"
    return f"same answer for {_same(found, expected)}"


def _same(found: Array, expected: Array) -> str:
    best = [a.reshape(len(a), -1).argmax(1) for a in (found, expected)]
    return f"{100 * float(np.mean(best[0] == best[1])):.0f} %"


def _file_in_integers(graph: Graph, path: Path, inputs: Array) -> str:
    if path.suffix in (".fbit", ".c"):
        return _image(graph, path, inputs)
    run, whole = file_runner(path, graph), file_runner(path, graph, output_only=True)
    worst, found, expected = 0, [], []
    for start in range(0, len(inputs), BATCH):
        part = inputs[start : start + BATCH]
        worst = max(worst, _operations(graph, path.name, run(part)))
        found.append(whole(part)[graph.output])
        expected.append(oracle.run(graph, part)[graph.output])
    target = graph.tensors[graph.output]
    answers, right = (oracle.dequantize(np.concatenate(parts), target) for parts in (found, expected))
    share = noise(answers, right)
    if share > NOISE / 2 and np.abs(answers - right).max() > STEPS * float(target.scale or 1):
        raise ExportError(
            f"{path.name}: its answers err by {100 * share:.0f} % of the spread of the oracle's; {ADVICE}"
        )
    how = "equal" if not worst else f"at most {worst} step{'s' if worst > 1 else ''} apart"
    return f"every operation of the file and the oracle {how}, {_agree(graph, answers, right)}"


def _image(graph: Graph, path: Path, inputs: Array) -> str:
    """A .fbit image, or one in C: every tensor, in NumPy and in the C core, must be the oracle's."""
    runners = {
        "NumPy": file_runner(path, graph),
        "the C core": core_runner(path, graph),
        "the C core without hooks": core_runner(path, graph, output_only=True),
    }
    for start in range(0, len(inputs), BATCH):
        part = inputs[start : start + BATCH]
        expected = oracle.run(graph, part)
        for runner, run in runners.items():
            found = run(part)
            for name in graph.tensors:  # in running order: the first that differs is where it went wrong
                if name in found and not np.array_equal(found[name], expected[name]):
                    raise ExportError(f"{path.name}: {name} in {runner} is not the oracle's; {ADVICE}")
    return "NumPy and the C core give the oracle's integers, bit for bit"


def _operations(graph: Graph, runner: str, values: dict[str, Array]) -> int:
    """The largest difference of an operation, on the inputs that it had, in steps."""
    worst = 0
    for op in graph:
        if not all(name in values for name in (*op.inputs, op.output)):
            continue  # fused away in the file
        apart = operation_apart(graph, op, values)
        if apart > STEPS:
            raise ExportError(f"{runner}: {op.name} ({op.kind}) is {apart} steps off the oracle's result; {ADVICE}")
        worst = max(worst, apart)
    return worst


def operation_apart(graph: Graph, op: Op, values: dict[str, Array]) -> int:
    """By how many steps what ``values`` hold of an operation differs from the oracle's, on the inputs they hold."""
    expected, found = oracle.apply(graph, op, *[values[name] for name in op.inputs]), values[op.output]
    return int(np.abs(found.astype(np.int16) - expected).max(initial=0)) if found.shape == expected.shape else 256


def _file_in_reals(graph: Graph, path: Path, inputs: Array) -> str:
    run = file_runner(path, graph, output_only=True)
    found = np.concatenate([run(inputs[i : i + BATCH])[graph.output] for i in range(0, len(inputs), BATCH)])
    gap = _apart(found.astype(np.float64), oracle.logits(graph, inputs), graph, inputs)
    if not gap <= REAL:
        raise ExportError(
            f"{path.name}: its answers differ from the graph's by {gap:.2g} of their size "
            f"(float32 rounding gives less than {REAL:g}); {ADVICE}"
        )
    return f"file as the graph within {max(gap, 1e-9):.0e}"
