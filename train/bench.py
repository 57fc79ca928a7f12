"""Training speed and memory of each method against the same net in plain float Keras, in one run.

examples:
  python train/bench.py                          resnet8 and vgg9, batch 128
  python train/bench.py --net resnet8 --seconds 5 --json bench.json
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

try:
    from flipbit.runtime.exits import CommandParser, guarded
    from flipbit.runtime.files import check_place
    from flipbit.train.settings import NETWORK_NAMES, InputError, Settings
except ModuleNotFoundError as error:
    if error.name is None or not error.name.startswith("flipbit"):
        raise
    sys.exit("flipbit is not installed here; run: pip install -c constraints.txt -e '.[train]' (or: make setup)")

VARIANTS: dict[str, dict[str, Any]] = {
    "float Keras": {},
    "adam": {"method": "adam"},
    "bc": {"method": "bc"},
    "bc bfloat16": {"method": "bc", "precision": "bfloat16"},
    "bc stochastic": {"method": "bc", "forward": "stochastic"},
    "sr": {"method": "sr"},
    "r": {"method": "r"},
    "buffer 3 bits": {"method": "sr", "buffer_bits": 3},
}
TARGET, MEMORY_TARGET = 0.90, 1.30


def images(batch: int) -> Any:
    """A CIFAR-shaped data set with its augmentation; the pixels do not matter for speed."""
    import numpy as np

    from flipbit.train.data.batches import AUGMENT_DEFAULT, ImageArrays

    random = np.random.default_rng(0)
    x = random.integers(0, 256, (max(4 * batch, 2048), 32, 32, 3), np.uint8)
    y = random.integers(0, 10, len(x))
    return ImageArrays("random", x, y, x[:batch], y[:batch], [str(i) for i in range(10)], AUGMENT_DEFAULT)


def step_of(variant: str, net: str, data: Any, batch: int) -> Any:
    """A function that trains on one batch."""
    from flipbit.train.keras_larq import keras, tf
    from flipbit.train.nets.networks import Layers, build
    from flipbit.train.trainer import Trainer

    if variant != "float Keras":
        trainer = Trainer(Settings(net=net, batch=batch, epochs=1, **VARIANTS[variant]).resolve(), data)
        return trainer._train_step
    model = build(net, data.shape, len(data.classes), Layers(plain=True))
    optimizer = keras.optimizers.Adam(0.01)
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(x: Any, y: Any) -> tuple[Any, Any]:
        with tf.GradientTape() as tape:
            logits = model((tf.cast(x, tf.float32) - 128.0) / 128.0, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss, tf.math.count_nonzero(tf.not_equal(tf.argmax(logits, 1), y))

    return step


def rates(net: str, variants: list[str], batch: int, seconds: float, show: Any) -> dict[str, list[float]]:
    """Images per second of each variant, a list of rounds; the variants take turns, so that noise hits all alike."""
    data = images(batch)
    x, y = data.x_train[:batch], data.y_train[:batch]
    steps = {name: step_of(name, net, data, batch) for name in variants}
    for name, step in steps.items():
        show(f"{net}: compiling {name}")
        float(step(x, y)[0])
        float(step(x, y)[0])
    found: dict[str, list[float]] = {name: [] for name in steps}
    one = _time(lambda: float(steps["float Keras"](x, y)[0]))
    count = max(1, round(seconds / 10 / one))
    for turn in range(10):
        for name, step in steps.items():
            show(f"{net}: round {turn + 1} of 10, {name}")

            def several(step: Any = step) -> None:
                for _ in range(count):
                    float(step(x, y)[0])

            found[name].append(batch * count / _time(several))
    return found


def _time(work: Any) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def data_rate(batch: int) -> float:
    """Images per second that the data pipeline alone makes: shuffled, padded, cropped, mirrored."""
    data = images(batch)
    seen, start, epoch = 0, time.perf_counter(), 0
    while time.perf_counter() - start < 2:
        for x, _ in data.train_batches(batch, 0, epoch):
            seen += len(x)
        epoch += 1
    return seen / (time.perf_counter() - start)


def peak_memory(variant: str, net: str, batch: int) -> int:
    """Peak resident KB of a fresh process that trains a few steps."""
    done = subprocess.run(
        [sys.executable, __file__, "--net", net, "--batch", str(batch), "--memory-of", variant],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return int(done.stdout.split()[-1])


def _memory_child(variant: str, net: str, batch: int) -> None:
    data = images(batch)
    step = step_of(variant, net, data, batch)
    for _ in range(5):
        float(step(data.x_train[:batch], data.y_train[:batch])[0])
    print(_peak_kb())


def _peak_kb() -> int:
    """This process' own peak. Linux's ru_maxrss would count what the parent held when it forked."""
    try:
        status = Path("/proc/self/status").read_text()
        return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def parser() -> argparse.ArgumentParser:
    doc = (__doc__ or "").split("\n\n", 1)
    p = CommandParser(
        prog="train/bench.py", description=doc[0], epilog=doc[1], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--net", choices=NETWORK_NAMES, action="append", metavar="NAME", help="may be repeated")
    p.add_argument("--variant", choices=list(VARIANTS), action="append", metavar="NAME", help=", ".join(VARIANTS))
    p.add_argument("--batch", type=int, default=128, metavar="N")
    p.add_argument("--seconds", type=float, default=15, help="of measuring for each variant (15)")
    p.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers there")
    p.add_argument("--memory-of", choices=VARIANTS, help=argparse.SUPPRESS)
    return p


def main(argv: list[str] | None = None) -> int:
    return guarded(lambda: _bench(parser().parse_args(argv)))


def _bench(given: argparse.Namespace) -> None:
    if given.batch < 1:
        raise InputError(f"--batch {given.batch}: must be at least 1")
    if not 0 < given.seconds < float("inf"):
        raise InputError(f"--seconds {given.seconds:g}: must be more than 0")
    check_place(given.json)
    nets = given.net or ["resnet8", "vgg9"]
    variants = ["float Keras", *(v for v in given.variant or VARIANTS if v != "float Keras")]
    if given.memory_of:
        _memory_child(given.memory_of, nets[0], given.batch)
        return
    from rich.console import Console
    from rich.table import Table

    console = Console()
    result: dict[str, Any] = {"batch": given.batch, "nets": {}}
    with console.status("measuring the data pipeline") as status:
        result["data_images_per_second"] = data_rate(given.batch)
        for net in nets:
            found = rates(net, variants, given.batch, given.seconds, status.update)
            base = found["float Keras"]
            rows = {}
            for name, values in found.items():
                status.update(f"{net}: memory of {name}")
                # The median of ratios taken within a round: slow spells of the machine cancel.
                ratio = statistics.median(v / b for v, b in zip(values, base))
                rows[name] = {
                    "images_per_second": statistics.median(values),
                    "ratio": ratio,
                    "peak_kb": peak_memory(name, net, given.batch),
                }
            result["nets"][net] = rows
    for net, rows in result["nets"].items():
        table = Table(title=f"{net}, batch {given.batch}", title_justify="left")
        for column in ("", "images/s", "of float", "peak memory", "of float"):
            table.add_column(column, justify="left" if not column else "right")
        base_kb = rows["float Keras"]["peak_kb"]
        for name, row in rows.items():
            row["memory_ratio"] = row["peak_kb"] / base_kb
            table.add_row(
                name, f"{row['images_per_second']:,.0f}", f"{row['ratio']:.2f}",
                f"{row['peak_kb'] / 1024:,.0f} MiB", f"{row['memory_ratio']:.2f}",
            )  # fmt: skip
        console.print(table)
        fastest = max(row["images_per_second"] for row in rows.values())
        console.print(
            f"data pipeline alone: {result['data_images_per_second']:,.0f} images/s, "
            f"{result['data_images_per_second'] / fastest:.0f}× what the fastest of these takes\n"
        )
        missed = [n for n, r in rows.items() if r["ratio"] < TARGET or r["memory_ratio"] > MEMORY_TARGET]
        if missed:
            console.print(
                f"short of {TARGET:.2f} of float's speed or over {MEMORY_TARGET}× its memory: {', '.join(missed)}"
            )
    if given.json:
        from flipbit.runtime.files import write_json

        write_json(given.json, result)


if __name__ == "__main__":
    sys.exit(main())
