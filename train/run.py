"""Train a net with binary weights.

examples:
  python train/run.py --method bc                      digits, about a minute, no download
  python train/run.py --method sr --buffer-bits 3      three buffer bits beside each weight's sign
  python train/run.py --method bc --data cifar10 --net resnet8 --width 2 --epochs 40
  python train/run.py --method bc --data cifar10 --net vgg9 --recipe paper
  python train/run.py --method bc --data my_photos/    a folder of images per class
  python train/run.py --resume runs/digits-vgg-small-bc
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

try:
    from flipbit.train import stopping
    from flipbit.train.settings import DATA_NAMES, METHODS, NETWORK_NAMES, OPTIMIZERS, InputError, Settings
except ModuleNotFoundError:
    sys.exit("flipbit is not installed here; run:  pip install -c constraints.txt -e '.[train]'   (or: make setup)")


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="train/run.py",
        description=(__doc__ or "").split("\n\n")[0],
        epilog=(__doc__ or "").split("\n\n", 1)[1],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    main = p.add_argument_group("what to train")
    main.add_argument("--method", choices=METHODS, help="adam: full precision; bc: BinaryConnect; sr, r: rounding")
    main.add_argument("--data", metavar="NAME|PATH", help=f"{', '.join(DATA_NAMES)}, an .npz or a folder (digits)")
    main.add_argument("--data-dir", metavar="DIR", help="where official files lie (FLIPBIT_DATA, Keras' cache)")
    main.add_argument("--net", choices=NETWORK_NAMES, metavar="NAME", help=", ".join(NETWORK_NAMES))
    main.add_argument("--width", type=float, metavar="X", help="times the filters of each layer (1)")
    main.add_argument("--recipe", choices=("quick", "paper"), help="defaults for minutes, or the paper's 160 epochs")
    how = p.add_argument_group("how")
    how.add_argument("--optimizer", choices=OPTIMIZERS, help="core around which the method rounds (adam)")
    how.add_argument("--lr", type=float, metavar="X", help="learning rate")
    how.add_argument("--momentum", type=float, metavar="X", help="of sgd (0)")
    how.add_argument("--weight-decay", type=float, metavar="X", help="L2 term added to gradients (0)")
    how.add_argument("--batch", type=int, metavar="N", help="images a step; 1024 for big-batch SR")
    how.add_argument("--epochs", type=int, metavar="N")
    how.add_argument("--schedule", choices=("cosine", "steps", "constant"), help="of the learning rate")
    how.add_argument("--lr-drops", type=_epochs, metavar="A,B", help="epochs where steps divides it by 10")
    how.add_argument("--augment", choices=("auto", "none"), help="pad, crop and mirror as fits the data (auto)")
    how.add_argument("--input", choices=("fixed", "mean"), help="net sees pixel − 128, or pixel − mean image")
    how.add_argument("--image-size", type=int, metavar="N", help="of image folders (32; imagenet 224)")
    how.add_argument("--limit", type=int, metavar="N", help="use only N images of each part")
    grid = p.add_argument_group("quantization")
    grid.add_argument("--bits", type=int, metavar="B", help="1: weights ±Δ; more: a uniform grid (1)")
    grid.add_argument("--delta", type=float, metavar="X", help="Δ (1; for grids so that they span −1 to 1)")
    grid.add_argument("--scale", choices=("none", "filter"), help="filter: BWN's scale per filter, with bc")
    grid.add_argument("--quantize", choices=("conv", "all"), help="conv layers (the paper's choice) or all")
    grid.add_argument("--forward", choices=("deterministic", "stochastic"), help="rounding in bc's forward pass")
    grid.add_argument("--init", choices=("small", "spread"), help="near zero (Glorot), or all over [−Δ, Δ]")
    grid.add_argument("--buffer-bits", type=int, metavar="K", help="with sr: K integer bits beside each sign, 0 to 8")
    run = p.add_argument_group("the run")
    run.add_argument("--seed", type=int, metavar="N", help="of weights, batches and rounding (0)")
    run.add_argument("--threads", type=int, metavar="N", help="cores to use (all)")
    run.add_argument("-o", "--output", type=Path, metavar="DIR", help="folder to write (runs/…)")
    run.add_argument("--resume", type=Path, metavar="DIR", help="go on with an interrupted run, bit for bit")
    run.add_argument("--no-plot", action="store_true", help="no curves.png")
    run.add_argument("--no-tensorboard", action="store_true", help="no event files")
    return p


def _epochs(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected epochs such as 82,122") from None


def choose(given: dict[str, Any]) -> tuple[Settings, Path, bool]:
    """Settings, folder and whether to resume, from the command line."""
    output, resume = given.pop("output", None), given.pop("resume", None)
    if resume is not None:
        if given or output:
            names = ", ".join("--" + name.replace("_", "-") for name in [*given, *(["output"] if output else [])])
            raise InputError(f"--resume takes every setting from the run it continues: drop {names}")
        path = resume / "run.json"
        try:
            return Settings.from_json(json.loads(path.read_text())["settings"]), resume, True
        except FileNotFoundError:
            raise InputError(f"{resume}: no run.json there, so no run to continue") from None
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise InputError(f"{path}: not readable as a run's settings ({error})") from None
    if "method" not in given:
        raise InputError(f"--method is needed: {', '.join(METHODS)} (or --resume DIR); see --help")
    settings = Settings(**given).resolve()
    return settings, new_folder(settings, output), False


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


def _train(settings: Settings, folder: Path, resume: bool, show: dict[str, bool]) -> None:
    from rich.console import Console

    from flipbit.train.console import Terminal
    from flipbit.train.loop import train

    console = Console()
    if not console.is_terminal:
        console.width = 120  # lines for a log, not folded at 80 columns
    terminal = Terminal(folder, console, **show)
    try:
        train(settings, folder, terminal, resume)
    finally:
        terminal.close()


def main(argv: list[str] | None = None) -> int:
    given = vars(parser().parse_args(argv))
    show = {"plot": not given.pop("no_plot", False), "tensorboard": not given.pop("no_tensorboard", False)}
    folder = None
    try:
        with stopping.heard():
            settings, folder, resume = choose(given)
            _train(settings, folder, resume, show)
        return 0
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        status = 2
    except OSError as error:
        print(f"error: {error.strerror or error}: {error.filename or folder}", file=sys.stderr)
        status = 1
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        status = 130
    if folder is not None:
        if (folder / "checkpoint.npz").exists():
            print(f"all finished epochs are kept; go on with: python train/run.py --resume {folder}", file=sys.stderr)
        elif folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    return status


if __name__ == "__main__":
    sys.exit(main())
