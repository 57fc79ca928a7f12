"""Train a net with binary weights.

examples:
  flipbit train --method bc                      digits, about a minute, no download
  flipbit train --method sr --buffer-bits 3      three buffer bits beside each weight's sign
  flipbit train --method bc --data cifar10 --net resnet8 --width 2 --epochs 40 --holdout 0.1
  flipbit train --method bc --data my_photos/    a folder of images per class
  flipbit train --resume runs/digits-vgg-small-bc --epochs 80
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from flipbit.runtime.exits import CommandParser, guarded, tell, typed
from flipbit.runtime.shown import shown
from flipbit.train import stopping
from flipbit.train.settings import (
    AUGMENTS,
    BATCH_NORMS,
    DATA_NAMES,
    FORWARD,
    METHODS,
    MODEL_FILES,
    NETWORK_NAMES,
    OPTIMIZERS,
    PRECISIONS,
    SCHEDULES,
    InputError,
    Settings,
    is_net,
)
from flipbit.train.workers.cluster import VARIABLE, Cluster, from_environment
from flipbit.train.workers.launch import launch
from flipbit.train.workers.meeting import WAIT

PROG = "flipbit train"


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    description, epilog = (__doc__ or "").split("\n\n", 1)
    p = CommandParser(
        prog=prog,
        usage=f"{prog} --method {{adam,bc,sr,r}} [options]   or   {prog} --resume DIR",
        description=description,
        epilog=epilog.replace(PROG, typed(prog)),
        # Room for the longest option and its choices beside its explanation: one line each.
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=32),
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
        add_help=False,
    )
    main = p.add_argument_group("what to train")
    main.add_argument("--method", choices=METHODS, help="adam: full precision; bc: BinaryConnect; sr, r: rounding")
    main.add_argument("--data", metavar="NAME|PATH", help=f"{', '.join(DATA_NAMES)}, .npz or folder")
    main.add_argument("--data-dir", metavar="DIR", help="folder of the official files (FLIPBIT_DATA, Keras' cache)")
    main.add_argument(
        "--net",
        type=_net,
        metavar="NAME|FILE",
        help=f"{', '.join(NETWORK_NAMES)}, or your own: x.keras, x.h5, x.json, x.py:build",
    )
    main.add_argument("--width", type=float, metavar="X", help="factor on the filters of each layer (1)")
    main.add_argument("--recipe", choices=("quick", "paper"), help="defaults for minutes, or the paper's 160 epochs")
    how = p.add_argument_group("how")
    how.add_argument("--optimizer", choices=OPTIMIZERS, help="core around which the method rounds (adam)")
    how.add_argument("--lr", type=float, metavar="X", help="learning rate")
    how.add_argument("--momentum", type=float, metavar="X", help="momentum of sgd (0)")
    how.add_argument("--weight-decay", type=float, metavar="X", help="L2 term added to gradients (0)")
    how.add_argument("--batch", type=int, metavar="N", help="images per step; 1024 for big-batch SR")
    how.add_argument("--epochs", type=int, metavar="N")
    how.add_argument(
        "--schedule", choices=SCHEDULES, metavar="NAME", help=f"of the learning rate: {', '.join(SCHEDULES)}"
    )
    how.add_argument("--lr-drops", type=_epochs, metavar="A,B", help="epochs where steps divides it by 10")
    how.add_argument("--restarts", type=int, metavar="N", help="with --schedule restarts; cycles double in length (3)")
    how.add_argument("--warmup", type=int, metavar="N", help="epochs in which the rate rises (0)")
    how.add_argument("--decay-on", choices=("all", "float"), help="weights that --weight-decay acts on (all)")
    how.add_argument(
        "--batch-growth", type=int, metavar="X", help="let the batch double during the run, up to X times (1)"
    )
    how.add_argument("--init-from", metavar="H5", help="start from the weights of an earlier run of the same net")
    how.add_argument(
        "--init-matching", action="store_true",
        help="from another net: take layers of equal name and shape",
    )  # fmt: skip
    how.add_argument(
        "--augment", choices=AUGMENTS, metavar="NAME", help=f"changes to images: {', '.join(AUGMENTS)} (auto)"
    )
    how.add_argument("--input", choices=("fixed", "mean"), help="net sees pixel − 128, or pixel − mean image")
    how.add_argument("--image-size", type=int, metavar="N", help="size of pictures from folders (32; imagenet 224)")
    how.add_argument("--limit", type=int, metavar="N", help="use only N images of each part")
    more = p.add_argument_group("what it learns from")
    more.add_argument("--holdout", type=float, metavar="X", help="share of training images to validate on (0)")
    more.add_argument("--keep", choices=("best", "last"), help="epoch to keep (last; with --holdout: best)")
    more.add_argument("--teacher", metavar="H5", help="a trained model whose answers count beside the labels")
    more.add_argument("--teacher-weight", type=float, metavar="X", help="weight of its answers in the loss (0.9)")
    more.add_argument("--teacher-temperature", type=float, metavar="X", help="temperature that softens them (4)")
    more.add_argument(
        "--teacher-epochs", type=int, metavar="N", help="ask it once for N epochs of images, then reuse them"
    )
    more.add_argument("--label-smoothing", type=float, metavar="X", help="share of a label spread over all classes (0)")
    more.add_argument("--cutout", type=int, metavar="N", help="a grey square of N×N pixels in each image (0)")
    more.add_argument("--mixup", type=float, metavar="X", help="mix pairs of images by a draw from Beta(X, X) (0)")
    grid = p.add_argument_group("quantization")
    grid.add_argument("--bits", type=int, metavar="B", help="1: weights ±Δ; more: a uniform grid (1)")
    grid.add_argument("--delta", type=float, metavar="X", help="Δ (1; for grids so that they span −1 to 1)")
    grid.add_argument("--scale", choices=("none", "filter"), help="filter: BWN's scale per filter, with bc")
    grid.add_argument("--quantize", choices=("conv", "all"), help="conv layers (the paper's choice) or all")
    grid.add_argument("--forward", choices=FORWARD, metavar="NAME", help=f"bc's rounding: {' or '.join(FORWARD)}")
    grid.add_argument("--init", choices=("small", "spread"), help="near zero (Glorot), or all over [−Δ, Δ]")
    grid.add_argument("--buffer-bits", type=int, metavar="K", help="with sr: K integer bits beside each sign, 0 to 8")
    grid.add_argument("--buffer-rule", choices=("core", "mean"), help="mean: no float per weight, one mean per layer")
    grid.add_argument("--pace", type=float, metavar="X", help="levels that a buffer moves in a mean step (0.4)")
    grid.add_argument(
        "--standardize", action="store_true", help="with bc: centre and scale each filter before its sign"
    )
    grid.add_argument("--estimator", choices=("ste", "ede"), help="gradient of the sign; ede sharpens during the run")
    grid.add_argument("--clip", type=float, metavar="X", help="bound of bc's buffer (Δ; 0: none)")
    grid.add_argument(
        "--activations", choices=("real", "binary"), help="binary: convolutions read signs (with --net bireal)"
    )
    grid.add_argument(
        "--activation-bits", type=int, metavar="B", help="simulate activations of B bits, as a device's 8"
    )
    grid.add_argument(
        "--activation-epochs", type=int, metavar="N", help="simulate them in the last N epochs (a tenth of all)"
    )
    run = p.add_argument_group("the run")
    run.add_argument("--seed", type=int, metavar="N", help="seed of weights, batches and rounding (0)")
    run.add_argument(
        "--precision", choices=PRECISIONS, metavar="TYPE", help="convolutions in training: float32, bfloat16"
    )
    run.add_argument(
        "--model-file", choices=MODEL_FILES, metavar="TYPE", help="bc's buffer in model.h5: float32, float16"
    )
    run.add_argument("--workers", type=int, metavar="N", help="processes that share each batch (1)")
    run.add_argument("--wait", type=float, metavar="S", help="seconds to wait for all workers (300)")
    run.add_argument(
        "--batch-norm", choices=BATCH_NORMS, help="statistics of the whole batch, or of each worker's part"
    )
    run.add_argument("--threads", type=int, metavar="N", help="cores to use (all)")
    run.add_argument("-o", "--output", type=Path, metavar="DIR", help="folder to write (runs/…)")
    run.add_argument("--resume", type=Path, metavar="DIR", help="continue a run, bit for bit; --epochs N extends it")
    run.add_argument("--no-plot", action="store_true", help="no curves.png")
    run.add_argument("--no-tensorboard", action="store_true", help="no event files")
    run.add_argument("-h", "--help", action="help", help="show this")
    return p


def _net(text: str) -> str:
    if not is_net(text):
        raise argparse.ArgumentTypeError(
            f"{text!r}: choose from {', '.join(NETWORK_NAMES)}, or name a .keras, a .h5, a .json or my_net.py:build"
        )
    return text


def _epochs(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected epochs such as 82,122") from None


def choose(given: dict[str, Any], writes: bool = True) -> tuple[Settings, Path, bool]:
    """Settings, folder and whether to resume, from the command line; only who ``writes`` the folder makes it."""
    output, resume = given.pop("output", None), given.pop("resume", None)
    if resume is not None:
        epochs = given.pop("epochs", None)
        if given or output:
            names = ", ".join("--" + name.replace("_", "-") for name in [*given, *(["output"] if output else [])])
            raise InputError(f"--resume takes every setting but --epochs from the run it continues: drop {names}")
        path = resume / "run.json"
        try:
            settings = Settings.from_json(json.loads(path.read_text())["settings"])
        except FileNotFoundError:
            raise InputError(f"{resume}: no run.json there, so no run to continue") from None
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise InputError(f"{path}: not readable as a run's settings ({error})") from None
        if epochs is not None:
            settings.epochs = epochs
        return settings.resolve(), resume, True
    if "method" not in given:
        raise InputError(f"--method is needed: {', '.join(METHODS)} (or --resume DIR); see --help")
    settings = Settings(**given).resolve()
    return settings, new_folder(settings, output) if writes else Path(output or "runs"), False


def new_folder(settings: Settings, output: Path | None) -> Path:
    """A folder of its own for each run: nothing is overwritten."""
    if output is not None:
        if (output / "run.json").exists():
            raise InputError(f"{output}: holds a run already; go on with --resume {output}, or choose another -o")
        output.mkdir(parents=True, exist_ok=True)
        return output
    name, number = Path("runs") / settings.name(), 1
    while True:
        folder = name if number == 1 else name.with_name(f"{name.name}-{number}")
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            number += 1


def _train(
    settings: Settings, folder: Path, resume: bool, show: dict[str, bool], cluster: Cluster | None, wait: float
) -> None:
    from rich.console import Console

    from flipbit.train.loop import train
    from flipbit.train.report.console import Terminal

    console = Console()
    if not console.is_terminal:
        console.width = 120  # lines for a log, not folded at 80 columns
    terminal = Terminal(folder, console, **show)
    try:
        train(settings, folder, terminal, resume, cluster=cluster, wait=wait)
    finally:
        terminal.close()


def main(argv: list[str] | None = None, prog: str = PROG) -> int:
    folders: list[Path] = []
    status = guarded(lambda: _run(argv, prog, folders), extras="train")
    for folder in folders if status else []:
        if (folder / "checkpoint.npz").exists():
            tell(f"all finished epochs are kept; go on with: {typed(prog)} --resume {shown(folder)}")
        elif folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    return status


def _run(argv: list[str] | None, prog: str, folders: list[Path]) -> int:
    """Train; the folder that is written is entered in ``folders`` as soon as it is there."""
    arguments = sys.argv[1:] if argv is None else argv
    given = vars(parser(prog).parse_args(arguments))
    show = {"plot": not given.pop("no_plot", False), "tensorboard": not given.pop("no_tensorboard", False)}
    workers, wait = given.pop("workers", 1), given.pop("wait", WAIT)
    if workers < 1:
        raise InputError(f"--workers {workers}: must be at least 1")
    if not 0 < wait < float("inf"):
        raise InputError(f"--wait {wait:g}: must be more than 0")
    cluster = from_environment()
    if workers > 1 and cluster is not None and workers != len(cluster.addresses):
        raise InputError(f"--workers {workers}: {VARIABLE} names {len(cluster.addresses)} workers")
    epochs = given.get("epochs")
    with stopping.heard():
        settings, folder, resume = choose(given, writes=cluster is None or cluster.chief)
        if cluster is None or cluster.chief:
            folders.append(folder)
        if workers == 1 or cluster is not None:
            _train(settings, folder, resume, show, cluster, wait)
            return 0
    return launch(workers, lambda: _worker(arguments, folder, resume, epochs, show, workers), folder)


def _worker(
    arguments: list[str], folder: Path, resume: bool, epochs: int | None, show: dict[str, bool], workers: int
) -> list[str]:
    """The command line of a worker on this machine: the one that was typed, or one that goes on where it died."""
    start = [sys.executable, "-m", "flipbit.train.run"]
    if not resume and not (folder / "run.json").exists():
        return [*start, *arguments, "-o", str(folder)]  # the last -o counts
    more = [] if epochs is None or not resume else ["--epochs", str(epochs)]
    hidden = [f"--no-{name}" for name, wanted in show.items() if not wanted]
    return [*start, "--resume", str(folder), *more, *hidden, "--workers", str(workers)]
