"""What learning on a device brings, measured: the C core's learner on real images, one command per question.

examples:
  flipbit study drift resnet8.fbit cifar-10-batches-py --bc model.h5    the camera changes; methods, and BC offline
  flipbit study adapt resnet8.fbit cifar-10-batches-py                  without labels, then with: needs references
  flipbit study harm resnet8.fbit cifar-10-batches-py                   recalibrating where nothing has changed
  flipbit study life resnet8.fbit cifar-10-batches-py --plot out.png    the camera changes twice: accuracy and energy
  flipbit study batch resnet8.fbit cifar-10-batches-py --plot out.png   SR and its virtual batch
  flipbit study personalise --make no7                                  files for the next: digits without sevens
  flipbit study personalise no7.fbit no7/field.npz --samples 200        a class the net never saw
  flipbit study replay no7.fbit no7/field.npz --samples 200             the same, from its samples and few of the others
  flipbit study shift motion.fbit motionsense --samples 100             a new person; also cwru (another load), digits
  flipbit study sums digits.fbit digits --samples 100                   sums of gradients in 32, 16 and 8 bits

The device learns from --samples images (each seed draws others, `personalise` takes the first); all others are for
testing. Results go to -o. To resume a study that was stopped, give the same command again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

try:
    from flipbit.runtime.core.learner import Learner
    from flipbit.runtime.core.learner_config import SUM_BITS
    from flipbit.runtime.core.model import Model
    from flipbit.runtime.data.drift import DRIFTS, apply_drift
    from flipbit.runtime.data.load import Data, load_data
    from flipbit.runtime.data.pictures import add_resize_option
    from flipbit.runtime.data.sets import open_arrays
    from flipbit.runtime.errors import ArgumentError, InputError
    from flipbit.runtime.exits import CommandParser, guarded
    from flipbit.runtime.files import check_place, write_json
    from flipbit.runtime.image.inputs import to_planes
    from flipbit.runtime.shown import say, shown
    from flipbit.runtime.tune.job import Job
    from flipbit.runtime.tune.methods import METHODS, augmenting
    from flipbit.runtime.tune.offline import NAME as OFFLINE
    from flipbit.runtime.tune.replay import balanced
    from flipbit.studies.learning_report import (
        Result,
        class_table,
        harm_table,
        plot_batches,
        recovered,
        shift_table,
        summary,
        table,
    )
    from flipbit.studies.life import Story, life_table, live, plot_life
    from flipbit.studies.offline_bc import RECIPE, tune_offline
    from flipbit.studies.shifts import Shift, shifts_of
except ModuleNotFoundError as error:
    if error.name is None or not error.name.startswith("flipbit"):
        raise
    sys.exit("flipbit is not installed here; run: pip install -e . (or: make setup)")

PROG = "flipbit study"
SAMPLES = 500  # to learn from


@dataclass(frozen=True)
class Cell:
    """One run: a change of the camera, a method of ``flipbit finetune`` or BC offline, a seed; rates if not the
    method's own."""

    drift: str
    method: str
    seed: int
    batch: int = SAMPLES
    steps: int = 20
    rate_bits: float | None = None
    rate_bias: float | None = None
    sum_bits: int = 32
    replay: int | None = None  # learn a new class alone, with so many stored samples of each other one

    @property
    def job(self) -> Job:
        rates = self.rate_bits, self.rate_bias
        return Job(self.method, self.steps, *rates, seed=self.seed, sum_bits=self.sum_bits)


COMPARED = ("bias", "sr+bias", "sr", "buffer")
SEEDS = (1, 2, 3)
SMALL = 50  # a batch for comparison
OFFLINE_BATCH = (RECIPE.batch, RECIPE.epochs * SAMPLES // RECIPE.batch)  # and its steps


def small_batch(drift: str, seed: int, batch: int, same_flips: bool) -> Cell:
    """SR with a smaller batch and more steps, so that it sees as many samples. Its rate is that of the big batch, which
    flips more bits in all, or lower, so that about as many flip."""
    rate = METHODS["sr"].rate_bits * batch / SAMPLES if same_flips else None
    return Cell(drift, "sr", seed, batch, 20 * SAMPLES // batch, rate_bits=rate)


def drift_cells(quick: bool) -> Iterator[Cell]:
    """All methods for every change at severity 2, then biases at the others."""
    for seed in SEEDS[:1] if quick else SEEDS:
        for drift in DRIFTS:
            yield from (Cell(f"{drift}:2", method, seed) for method in COMPARED)
            yield small_batch(f"{drift}:2", seed, SMALL, same_flips=False)
    if not quick:
        every = ((seed, drift, severity) for seed in SEEDS for drift in DRIFTS for severity in (1, 3))
        yield from (Cell(f"{drift}:{severity}", "bias", seed) for seed, drift, severity in every)


def batch_cells(quick: bool) -> Iterator[Cell]:
    """SR with virtual batches of 10 to 500 samples, 10,000 samples each."""
    for seed in SEEDS[:1] if quick else SEEDS:
        yield Cell("blur:1", "sr", seed)
        for batch in (10, 50, 200):
            yield from (small_batch("blur:1", seed, batch, same_flips) for same_flips in (False, True))


def personal_cells(quick: bool) -> Iterator[Cell]:
    """40 steps over all samples: nothing changes but that a class is new."""
    for seed in (1,) if quick else (1, 2, 3):
        yield Cell("", "bias", seed, 0, 40, rate_bias=1.0)
        yield Cell("", "sr+bias", seed, 0, 40, rate_bits=0.002, rate_bias=1.0)


def replay_cells(quick: bool) -> Iterator[Cell]:
    """A new class is learned from its own samples, with none or a few stored ones of the others."""
    for seed in (1,) if quick else SEEDS:
        for replay in (0, 1, 2, 5, 10):
            yield Cell("", "bias", seed, 0, 40, rate_bias=1.0, replay=replay)
            yield Cell("", "sr+bias", seed, 0, 40, rate_bits=0.002, rate_bias=1.0, replay=replay)


def sum_cells(quick: bool) -> Iterator[Cell]:
    """SR with sums of gradients in 32, 16 and 8 bits, from all samples and from few, behind a mirror."""
    for seed in SEEDS[:1] if quick else SEEDS:
        for batch in (SAMPLES, FEW):
            yield from (Cell("mirror", "sr", seed, batch, rate_bits=0.01, sum_bits=bits) for bits in SUM_BITS)


def adapt_cells(quick: bool) -> Iterator[Cell]:
    """Without labels at every severity; with labels, gains and biases, at severity 2, then at the others."""
    seeds = SEEDS[:1] if quick else SEEDS
    for severity in (2,) if quick else (2, 1, 3):
        for seed in seeds:
            yield from (Cell(f"{drift}:{severity}", "recalibrate", seed, steps=1) for drift in DRIFTS)
    for severity in (2,) if quick else (2, 1, 3):
        for seed in seeds:
            yield from (Cell(f"{drift}:{severity}", "adapt", seed) for drift in DRIFTS)


SHIFTED = (  # ways to learn; rates beside the default: the best of three, mirrored digits, seed 1
    ("gain+bias", None, None), ("gain+bias", None, 1.0), ("sr", 0.01, None), ("sr+bias", 0.005, 0.5),
)  # fmt: skip


def shift_cells(quick: bool, names: list[str]) -> Iterator[Cell]:
    """Every way to learn for everything that a data set has to meet."""
    for seed in SEEDS[:1] if quick else SEEDS:
        for name in names:
            for method, rate_bits, rate_bias in SHIFTED:
                yield Cell(name, method, seed, rate_bits=rate_bits, rate_bias=rate_bias)


ONE_CLASS, FEW = "one class", 20  # a drift that is none; samples


def harm_cells(quick: bool) -> Iterator[Cell]:
    """Recalibrating on images that have not changed: all classes, few samples, and one class alone (the seed's)."""
    for seed in SEEDS[:1] if quick else SEEDS:
        yield Cell("none", "recalibrate", seed, steps=1)
        yield Cell("none", "recalibrate", seed, FEW, steps=1)
    for seed in SEEDS[:1] if quick else range(10):
        yield Cell(ONE_CLASS, "recalibrate", seed, steps=1)
        yield Cell(ONE_CLASS, "recalibrate", seed, FEW, steps=1)


STUDIES = {
    "drift": drift_cells,
    "adapt": adapt_cells,
    "harm": harm_cells,
    "batch": batch_cells,
    "personalise": personal_cells,
    "replay": replay_cells,
    "sums": sum_cells,
    "shift": lambda quick: iter(()),  # depends on the data: shift_cells
    "life": lambda quick: iter(()),  # of another kind: life
}
UNCHANGED = ("none", ONE_CLASS)


def right(image: bytes, pixels: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Which images a net classifies rightly."""
    found: np.ndarray = Model(image).predict(pixels, raw=True).argmax(1) == labels
    return found


def by_class(found: np.ndarray, labels: np.ndarray) -> list[float]:
    return [float(found[labels == c].mean()) if (labels == c).any() else 0.0 for c in range(labels.max() + 1)]


@dataclass(frozen=True)
class Field:
    """What a device meets: images as the camera sees them now, those to learn from first, and before it changed."""

    pixels: np.ndarray
    labels: np.ndarray
    clean: np.ndarray
    samples: int

    @property
    def test(self) -> tuple[np.ndarray, np.ndarray]:
        return self.pixels[self.samples :], self.labels[self.samples :]


def field_of(data: Data, drift: str, seed: int, samples: int) -> Field:
    """A seed draws its own samples; without a change of the camera they are the first."""
    order = np.random.default_rng(seed).permutation(len(data.y)) if drift else np.arange(len(data.y))
    if drift == ONE_CLASS:  # as many as are needed of class number `seed`; the others are for testing
        chosen = order[data.y[order] == seed % (data.y.max() + 1)][:samples]
        order = np.concatenate([chosen, np.setdiff1d(order, chosen)])
    clean = data.x[order]
    changes = drift and drift not in UNCHANGED
    return Field(apply_drift(clean, drift) if changes else clean, data.y[order], clean, samples)


@dataclass(frozen=True)
class Learned:
    """A better image, and what it took; BC offline counts nothing."""

    image: bytes
    flips: int | None = None
    state_bytes: int | None = None
    arena_least: int | None = None


def unseen(model: Model, field: Field) -> int:
    """The class that a net never saw: the one it recognizes least."""
    found = right(model.image.data, *field.test)
    return int(np.argmin(by_class(found, field.test[1])))


def learn(cell: Cell, image: bytes, field: Field) -> Learned:
    """Learn from a field's samples as a device does."""
    model, rates, samples = Model(image), cell.job.rates, field.samples
    inputs, _ = to_planes(field.pixels[:samples], model.image.tensors[model.image.input], model.pixels)
    job = replace(cell.job, augment=augmenting(None, model.image))  # photos, where gains learn
    labels, learner, flips = field.labels[:samples], Learner(image, job.config), 0
    if cell.replay is not None:
        stored = balanced(labels, unseen(model, field), cell.replay)
        inputs, labels, samples = inputs[stored], labels[stored], len(stored)
    draw = np.random.default_rng((cell.seed, 1))
    for step in range(len(rates)):
        whole = not 0 < cell.batch < samples
        chosen = np.arange(samples) if whole else draw.choice(samples, cell.batch, replace=False)
        flips += learner.step(inputs[chosen], labels[chosen], rates.bits[step], rates.bias[step]).flips
    return Learned(learner.image, flips, len(learner.state), learner.arena_least)


def field_of_shift(shift: Shift, seed: int, samples: int) -> Field:
    """Samples that the seed draws of those to learn from, then all to test on."""
    x, y = shift.drawn(samples, seed)
    pixels, labels = np.concatenate([x, shift.test_x]), np.concatenate([y, shift.test_y])
    return Field(pixels, labels, pixels, samples)


def run_cell(
    cell: Cell, image: bytes, data: Data, samples: int, h5: Path | None = None, shift: Shift | None = None
) -> Result:
    """Learn from some samples as the camera sees them now; test on the others."""
    field = field_of_shift(shift, cell.seed, samples) if shift else field_of(data, cell.drift, cell.seed, samples)
    begin = time.process_time()
    if cell.method == OFFLINE:
        assert h5 is not None
        learned = Learned(tune_offline(h5, field.pixels[:samples], field.labels[:samples], cell.seed))
    else:
        learned = learn(cell, image, field)
    seconds = time.process_time() - begin
    pixels, labels = field.test
    before, after = right(image, pixels, labels), right(learned.image, pixels, labels)
    return {
        **asdict(cell),
        "clean": float(right(image, field.clean[samples:], labels).mean()),
        "before": float(before.mean()),
        "after": float(after.mean()),
        "unchanged": float(right(learned.image, field.clean[samples:], labels).mean()),
        "classes_before": by_class(before, labels),
        "classes_after": by_class(after, labels),
        "flips": learned.flips,
        "state_bytes": learned.state_bytes,
        "arena_least": learned.arena_least,
        "cpu_seconds": round(seconds, 1),
    }


def make_files(folder: Path, without: int = 7, each: int = 20) -> None:
    """Digits for `personalise`: ``known.npz`` to train a net on that never sees one class, and ``field.npz``, which
    begins with ``each`` training digits of every class, to learn from; behind them are the test digits."""
    digits = open_arrays("digits")
    assert digits is not None
    (x_train, y_train), (x_test, y_test) = digits.read("train"), digits.read("test")
    known, seen = y_train != without, y_test != without
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(
        folder / "known.npz",
        x_train=x_train[known], y_train=y_train[known], x_test=x_test[seen], y_test=y_test[seen],
    )  # fmt: skip
    draw = np.random.default_rng(0)
    few = np.concatenate([draw.permutation(np.flatnonzero(y_train == c))[:each] for c in range(len(digits.classes))])
    x, y = np.concatenate([x_train[few], x_test]), np.concatenate([y_train[few], y_test])
    np.savez(folder / "field.npz", x=x, y=y)


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    description, epilog = (__doc__ or "").split("\n\n", 1)
    p = CommandParser(
        prog=prog, description=description, epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    p.add_argument("study", choices=STUDIES)
    p.add_argument("model", type=Path, nargs="?", help="a .fbit image")
    p.add_argument("data", nargs="?", help="labelled images: see flipbit run --help")
    p.add_argument("-o", "--output", type=Path, default=Path("study.json"), metavar="FILE", help="results (study.json)")
    p.add_argument("--samples", type=int, default=SAMPLES, metavar="N", help="images to learn from (500)")
    p.add_argument("--bc", type=Path, metavar="H5", help="drift: also run BC offline on this model.h5 (flipbit[train])")
    p.add_argument("--plot", type=Path, metavar="PNG", help="batch, life: draw the result (needs matplotlib)")
    p.add_argument("--make", type=Path, metavar="DIR", help="personalise: make known.npz and field.npz there")
    add_resize_option(p)
    p.add_argument("--quick", action="store_true", help="fewer runs")
    p.add_argument(
        "--part", default="0/1", metavar="I/N", help="part I of N of the runs (I from 0), for N processes side by side"
    )
    return p


def main(argv: list[str] | None = None, prog: str = PROG) -> int:
    return guarded(lambda: study(parser(prog).parse_args(argv)), stopped="stopped; the same command goes on")


def cells_of(given: argparse.Namespace, shifts: list[str]) -> list[Cell]:
    """The runs that are asked for."""
    if given.bc and given.study != "drift":
        raise ArgumentError("--bc goes with the study drift")
    if given.plot and given.study not in ("batch", "life"):
        raise ArgumentError("--plot goes with the studies batch and life")
    part, _, parts = given.part.partition("/")
    if not (part.isdigit() and parts.isdigit() and int(part) < int(parts)):
        raise ArgumentError(f"--part {given.part}: expected I/N with I below N, such as 0/2")
    cells = list(STUDIES[given.study](given.quick) if given.study != "shift" else shift_cells(given.quick, shifts))
    if given.bc:
        seeds = SEEDS[:1] if given.quick else SEEDS
        cells += [Cell(f"{drift}:2", OFFLINE, seed, *OFFLINE_BATCH) for seed in seeds for drift in DRIFTS]
    return cells[int(part) :: int(parts)]


def _belongs(image: bytes, data: Data, given: argparse.Namespace) -> dict[str, object]:
    """What results belong to: a file of others is not gone on with."""
    found = hashlib.sha256()
    for array in (data.x, data.y):
        found.update(f"{array.dtype.str} {array.shape};".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return {"image": hashlib.sha256(image).hexdigest(), "data": found.hexdigest(), "samples": given.samples}


def _saved(path: Path, belongs: dict[str, object]) -> list[Result]:
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        runs, theirs = list(saved["runs"]), dict(saved["belongs"])
        different = [key for key, value in belongs.items() if theirs.get(key) != value]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not results of this version ({error!r}); name another file with -o") from None
    if different:
        raise InputError(f"{path}: results of another study ({', '.join(different)} differ); name another file with -o")
    return runs


def life(given: argparse.Namespace, image: bytes, data: Data) -> None:
    """Whole lives of devices, a seed after the other."""
    belongs = _belongs(image, data, given)
    results: list[Result] = _saved(given.output, belongs) if given.output.is_file() else []
    for seed in SEEDS[:1] if given.quick else SEEDS:
        if all(r["seed"] != seed for r in results):
            say = lambda text: print(text, flush=True)  # noqa: E731
            results += live(image, data.x, data.y, seed, given.samples, Story(), say)
            write_json(given.output, {"study": given.study, "belongs": belongs, "runs": results})
    print("\n" + life_table(results, Story()))
    if given.plot:
        plot_life(results, Story(), given.plot)
        print(f"wrote {given.plot}")


def study(given: argparse.Namespace) -> int:
    if given.make:
        make_files(given.make)
        print(f"wrote {given.make / 'known.npz'} to train on and {given.make / 'field.npz'} to learn from")
        return 0
    if given.model is None or given.data is None:
        raise ArgumentError("a study needs a .fbit image and labelled images")
    check_place(given.output, given.plot)
    image = given.model.read_bytes()
    model = Model(image)
    data = load_data(given.data, model.input_shape, model.labels, given.resize, front_end=model.image.front_end)
    say(data.notes)
    if not 0 < given.samples < len(data.y) or not data.labelled:
        raise ArgumentError(
            f"--samples {given.samples} of {len(data.y)} images: some are needed to test on, all labelled"
        )
    if given.study == "life":
        cells_of(given, [])
        life(given, image, data)
        return 0
    shifts = {shift.name: shift for shift in shifts_of(given.data, data)} if given.study == "shift" else {}
    for shift in shifts.values():
        if given.samples > len(shift.y):
            raise ArgumentError(f"--samples {given.samples}: {shift.name} has {len(shift.y)} to learn from")
    cells = cells_of(given, list(shifts))
    print(f"{shown(data.name)}: {given.samples} images to learn from, {len(data.x) - given.samples} to test on")
    results: list[Result] = []
    belongs = _belongs(image, data, given)
    if given.output.is_file():
        results = _saved(given.output, belongs)
    done = {tuple(r.get(name, one.default) for name, one in Cell.__dataclass_fields__.items()) for r in results}
    for number, cell in enumerate(cells):
        if tuple(asdict(cell).values()) in done:
            continue
        last = run_cell(cell, image, data, given.samples, given.bc, shifts.get(cell.drift))
        results.append(last)
        print(
            f"{number + 1:3d}/{len(cells)}  {cell.drift:8s} {cell.method:10s} batch {cell.batch:3d} seed {cell.seed}: "
            f"{100 * last['before']:.1f} → {100 * last['after']:.1f} %, {100 * recovered(last):.0f} % recovered",
            flush=True,
        )
        write_json(given.output, {"study": given.study, "belongs": belongs, "runs": results})
    print(table(results))
    if given.study in ("drift", "adapt"):
        for severity in (1, 2, 3):
            if any(r["drift"].endswith(f":{severity}") for r in results):
                print("\n" + summary(results, severity))
    if given.study == "harm":
        print("\n" + harm_table(results))
    if given.study == "shift":
        print("\n" + shift_table(results))
    if given.study in ("personalise", "replay"):
        print("\n" + class_table(results, model.labels))
    if given.plot:
        plot_batches(results, given.plot)
        print(f"wrote {given.plot}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
