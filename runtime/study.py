"""What learning on a device brings, measured: the C core's learner on real images, one command per question.

examples:
  python runtime/study.py drift resnet8.fbit cifar-10-batches-py -o drift.json  the camera changes; methods
  python runtime/study.py batch resnet8.fbit cifar-10-batches-py -o batch.json  SR and its virtual batch

  python runtime/study.py personalise no7.fbit digits.npz --samples 200           a class the net never saw

So many images (--samples; each seed draws others, `personalise` takes the first) are what the device learns from, all
others are for testing. A run that was stopped goes on when the same command is given again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

try:
    from flipbit.runtime.data_files import Data, load_data
    from flipbit.runtime.drift import DRIFTS, apply_drift
    from flipbit.runtime.errors import ArgumentError, FlipbitError
    from flipbit.runtime.finetune import Job
    from flipbit.runtime.inputs import to_planes
    from flipbit.runtime.learner import Learner
    from flipbit.runtime.model import Model
    from flipbit.runtime.text_table import text_table
except ModuleNotFoundError as error:
    if error.name is None or not error.name.startswith("flipbit"):
        raise
    sys.exit("flipbit is not installed here; run:  pip install -e .   (or: make setup)")

SAMPLES = 500  # to learn from


@dataclass(frozen=True)
class Cell:
    """One run: a change of the camera, a method of ``flipbit finetune``, a seed; rates if not the method's own."""

    drift: str
    method: str
    seed: int
    batch: int = SAMPLES
    steps: int = 20
    rate_bits: float | None = None
    rate_bias: float | None = None

    @property
    def job(self) -> Job:
        return Job(self.method, self.steps, self.rate_bits, self.rate_bias, seed=self.seed)


COMPARED = ("sr", "buffer", "sr+bias")


def drift_cells(quick: bool) -> Iterator[Cell]:
    """Biases for every change and severity; the other methods at severity 2. Seed by seed."""
    for seed in (1, 2, 3):
        for drift in DRIFTS:
            for severity in (2,) if quick else (1, 2, 3):
                yield Cell(f"{drift}:{severity}", "bias", seed)
        for drift in DRIFTS:
            for method in COMPARED:
                yield Cell(f"{drift}:2", method, seed)
            # the paper's small batch, with as many samples
            yield Cell(f"{drift}:2", "sr", seed, batch=50, steps=200)
        if quick:
            return


def batch_cells(quick: bool) -> Iterator[Cell]:
    """SR with virtual batches of 10 to 500 samples, 10,000 samples each."""
    for seed in (1,) if quick else (1, 2, 3):
        for batch in (10, 50, 100, 250, 500):
            yield Cell("blur:1", "sr", seed, batch, 10_000 // batch)


def personal_cells(quick: bool) -> Iterator[Cell]:
    """40 steps over all samples: nothing changes but that a class is new."""
    for seed in (1,) if quick else (1, 2, 3):
        yield Cell("", "bias", seed, 0, 40, rate_bias=1.0)
        yield Cell("", "sr+bias", seed, 0, 40, rate_bits=0.002, rate_bias=1.0)


STUDIES = {"drift": drift_cells, "batch": batch_cells, "personalise": personal_cells}


def recovered(before: float, after: float, clean: float) -> float:
    """The share of what a change has cost that learning has brought back."""
    return (after - before) / (clean - before) if clean != before else 0.0


def accuracy(image: bytes, pixels: np.ndarray, labels: np.ndarray) -> float:
    return float(np.mean(Model(image).predict(pixels, raw=True).argmax(1) == labels))


def by_class(image: bytes, pixels: np.ndarray, labels: np.ndarray) -> list[float]:
    right = Model(image).predict(pixels, raw=True).argmax(1) == labels
    return [float(right[labels == c].mean()) if (labels == c).any() else 0.0 for c in range(labels.max() + 1)]


def run_cell(cell: Cell, image: bytes, data: Data, samples: int) -> dict[str, Any]:
    """Learn from the first samples as the camera sees them now; test on the others."""
    model, rates = Model(image), cell.job.rates
    order = np.random.default_rng(cell.seed)
    mixed = order.permutation(len(data.y)) if cell.drift else np.arange(len(data.y))  # a seed draws its own samples
    pixels, truth = data.x[mixed], data.y[mixed]
    if cell.drift:
        pixels = apply_drift(pixels, cell.drift)
    inputs, _ = to_planes(pixels[:samples], model.image.tensors[model.image.input], model.pixels)
    labels = truth[:samples]
    learner = Learner(image, cell.job.config)
    flips, start = 0, time.process_time()
    for step in range(cell.steps):
        whole = not 0 < cell.batch < samples
        chosen = np.arange(samples) if whole else order.choice(samples, cell.batch, replace=False)
        done = learner.step(inputs[chosen], labels[chosen], rates.bits[step], rates.bias[step])
        flips += done.flips
    test = pixels[samples:], truth[samples:]
    return {
        **asdict(cell),
        "before": accuracy(image, *test),
        "after": accuracy(learner.image, *test),
        "classes_before": by_class(image, *test),
        "classes_after": by_class(learner.image, *test),
        "flips": flips,
        "state_bytes": len(learner.state),
        "arena_least": learner.arena_least,
        "cpu_seconds": round(time.process_time() - start, 1),
    }


def table(results: list[dict[str, Any]], clean: float) -> str:
    """Recovered share of what the change cost, mean and spread over seeds."""
    groups: dict[tuple[str, int, str], list[dict[str, Any]]] = {}
    for result in results:
        groups.setdefault((result["method"], result["batch"], result["drift"]), []).append(result)
    rows = []
    for (method, batch, drift), found in sorted(groups.items()):
        shares = [100 * recovered(r["before"], r["after"], clean) for r in found]
        after = [100 * r["after"] for r in found]
        rows.append(
            [method, str(batch), drift, f"{100 * found[0]['before']:.1f} %", f"{np.mean(after):.1f} %",
             f"{np.mean(shares):.0f} %", f"{np.std(shares):.0f}", f"{np.mean([r['flips'] for r in found]):.0f}",
             str(len(found))]
        )  # fmt: skip
    heads = ["method", "batch", "change", "before", "after", "recovered", "± over seeds", "flips", "seeds"]
    return text_table(heads, rows)


def class_table(results: list[dict[str, Any]], labels: list[str]) -> str:
    """Accuracy of each class before and after, seeds averaged."""
    rows = []
    for method in dict.fromkeys(r["method"] for r in results):
        found = [r for r in results if r["method"] == method]
        for name in ("classes_before", "classes_after"):
            means = np.mean([r[name] for r in found], axis=0)
            rows.append([method, name.split("_")[1], *(f"{100 * mean:.0f}" for mean in means)])
    return text_table(["method", "accuracy, %", *labels[: len(rows[0]) - 2]], rows)


def parser() -> argparse.ArgumentParser:
    description, epilog = (__doc__ or "").split("\n\n", 1)
    p = argparse.ArgumentParser(
        prog="runtime/study.py", description=description, epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    p.add_argument("study", choices=STUDIES)
    p.add_argument("model", type=Path, help="a .fbit image")
    p.add_argument("data", help="labelled images: see flipbit run --help")
    p.add_argument("-o", "--output", type=Path, default=Path("study.json"), metavar="FILE", help="results (study.json)")
    p.add_argument("--samples", type=int, default=SAMPLES, metavar="N", help="images to learn from (500)")
    p.add_argument("--quick", action="store_true", help="fewer runs")
    p.add_argument("--part", default="0/1", metavar="I/N", help="only every N-th run, for N processes side by side")
    return p


def main(argv: list[str] | None = None) -> int:
    given = parser().parse_args(argv)
    try:
        return study(given)
    except FlipbitError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # a missing file, a full disk
        print(f"error: {error.filename or given.output}: {error.strerror}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on", file=sys.stderr)
        return 130


def study(given: argparse.Namespace) -> int:
    image = given.model.read_bytes()
    model = Model(image)
    data = load_data(given.data, model.input_shape, model.labels)
    if not 0 < given.samples < len(data.y) or not data.labelled:
        raise ArgumentError(
            f"--samples {given.samples} of {len(data.y)} images: some are needed to test on, all labelled"
        )
    clean = accuracy(image, data.x[given.samples :], data.y[given.samples :])
    print(
        f"{data.name}: {given.samples} images to learn from, {len(data.x) - given.samples} to test on; "
        f"accuracy before any change {100 * clean:.2f} %"
    )
    part, _, parts = given.part.partition("/")
    if not (part.isdigit() and parts.isdigit() and int(part) < int(parts)):
        raise ArgumentError(f"--part {given.part}: expected I/N with I below N, such as 0/2")
    cells = list(STUDIES[given.study](given.quick))[int(part) :: int(parts)]
    results: list[dict[str, Any]] = []
    if given.output.is_file():
        results = json.loads(given.output.read_text())["runs"]
    done = {tuple(r[name] for name in Cell.__dataclass_fields__) for r in results}
    for number, cell in enumerate(cells):
        if tuple(asdict(cell).values()) in done:
            continue
        results.append(run_cell(cell, image, data, given.samples))
        last = results[-1]
        share = recovered(last["before"], last["after"], clean)
        print(
            f"{number + 1:3d}/{len(cells)}  {cell.drift:8s} {cell.method:8s} batch {cell.batch:3d} seed {cell.seed}: "
            f"{100 * last['before']:.1f} → {100 * last['after']:.1f} %, {100 * share:.0f} % recovered", flush=True
        )  # fmt: skip
        unfinished = given.output.with_suffix(".part")
        unfinished.write_text(json.dumps({"study": given.study, "clean": clean, "runs": results}, indent=1))
        os.replace(unfinished, given.output)
    print(table(results, clean))
    if given.study == "personalise":
        print(class_table(results, model.labels))
    return 0


if __name__ == "__main__":
    sys.exit(main())
