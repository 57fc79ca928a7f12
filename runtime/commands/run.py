"""``flipbit run``: classify pictures, or measure accuracy on a data set."""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from flipbit.runtime.commands.run_values import print_values, value_result
from flipbit.runtime.core.model import Model
from flipbit.runtime.data.load import Data, load_data
from flipbit.runtime.data.pictures import PictureError, add_resize_option
from flipbit.runtime.errors import ArgumentError
from flipbit.runtime.image.inputs import Array
from flipbit.runtime.shown import say, shown, shown_json
from flipbit.runtime.text_table import text_table


def add_run_parser(commands: Any) -> None:
    p = commands.add_parser(
        "run",
        help="classify pictures or recordings; accuracy",
        description="Run a net on pictures, recordings, arrays or a data set.",
        epilog="""DATA is a picture, a folder of pictures (in folders named after classes, if labels are known),
an .npy, an .npz with x_test and y_test, or what training knows by name: digits, mnist, fashion-mnist, cifar10,
cifar100, imagenet (their test part; official files in FLIPBIT_DATA), or a folder of such files.
Arrays hold pixels (uint8), real numbers as in training (float) or the device's own int8. Nets trained on recordings
take .wav, .csv and .npy recordings (an answer per hop) and folders of them. Of a net that gives values (angles,
counts) the numbers are printed, and RMSE and MAE where an .npz has floats as y.

examples:
  flipbit run resnet8.fbit cat.png dog.jpg
  flipbit run resnet8.fbit photos/ --resize letterbox
  flipbit run resnet8.fbit cifar10 --limit 1000 --threads 2
  flipbit run kws.fbit yes.wav
  flipbit run digits.fbit digits --json""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("image", metavar="IMAGE", help="a .fbit file")
    p.add_argument("data", nargs="+", metavar="DATA", help="see below")
    p.add_argument("--top", type=int, default=3, metavar="K", help="classes to show for each picture (3)")
    p.add_argument("--each", action="store_true", help="also print a line per image of an array or data set")
    p.add_argument("--limit", type=int, metavar="N", help="only the first N images of each DATA")
    add_resize_option(p)
    p.add_argument("--threads", type=int, default=1, metavar="N", help="share the images between threads (1)")
    p.add_argument("--arena", type=int, metavar="BYTES", help="RAM for activations and tables (as much as is useful)")
    p.add_argument("--json", action="store_true", help="print JSON")
    p.set_defaults(command=_run)


def _run(given: argparse.Namespace) -> int:
    for option in ("top", "threads", "limit"):
        value = getattr(given, option)
        if value is not None and value < 1:
            raise ArgumentError(f"--{option} {value}: at least 1")
    model = Model(given.image, given.arena)
    results: list[dict[str, Any]] = []
    unread: list[PictureError] = []
    for source in given.data:
        try:
            data = load_data(
                source, model.input_shape, model.labels, given.resize, given.limit, model.image.front_end,
                model.value_count,
            )  # fmt: skip
        except PictureError as error:  # the others may be fine
            unread.append(error)
            continue
        say([*data.notes, *([] if model.values else _stray_labels(model, data))])
        begin = time.perf_counter()
        try:
            logits = model.predict(data.x, threads=given.threads)
        except ArgumentError as error:
            raise error.about(source) from None
        seconds = time.perf_counter() - begin
        logits = logits.reshape(-1, int(np.prod(model.output_shape)))
        results.append(
            value_result(model, data, logits, seconds)
            if model.values
            else _result(model, data, logits, seconds, given.top)
        )
    if unread and not results:
        raise unread[0]
    say(f"left out: {error.message}" for error in unread)
    if given.json:
        print(shown_json(results))
        return 0
    for result in results:
        print_values(result, given) if model.values else _print(result, given)
    return 0


def _stray_labels(model: Model, data: Data) -> list[str]:
    """A note on labels that the net has no class for."""
    classes = int(np.prod(model.output_shape))
    stray = data.y[data.y >= classes]
    if not len(stray):
        return []
    return [f"{data.name}: {len(stray)} labels of {classes} and above; the net has {classes} classes"]


def _result(model: Model, data: Data, logits: Array, seconds: float, top: int) -> dict[str, Any]:
    def name(i: int) -> str:
        return model.labels[i] if i < len(model.labels) else str(i)

    order = np.argsort(-logits, axis=1, kind="stable")[:, :top]  # stable: the first among equals
    shares = np.exp(logits - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    images = [
        {
            "name": data.names[i] if i < len(data.names) else str(i),
            "label": name(int(data.y[i])) if i < len(data.y) and data.y[i] >= 0 else None,
            "classes": [
                {"class": name(int(k)), "logit": float(logits[i, k]), "share": float(shares[i, k])} for k in order[i]
            ],
        }
        for i in range(len(logits))
    ]
    known = data.y >= 0 if len(data.y) == len(logits) else np.zeros(len(logits), bool)
    labelled = int(known.sum())
    right = int(np.sum((order[:, 0] == data.y)[known])) if labelled else None
    counts = np.bincount(order[:, 0], minlength=logits.shape[1])
    return {
        "data": data.name,
        "images": len(logits),
        "seconds": seconds,
        "labelled": labelled,
        "right": right,
        "accuracy": None if right is None else right / labelled,
        "answers": {name(i): int(n) for i, n in enumerate(counts) if n},
        "each": images,
        "pictures": bool(data.names),
    }


def _print(result: dict[str, Any], given: argparse.Namespace) -> None:
    if result["pictures"] or given.each:
        rows = []
        for image in result["each"]:
            found = "  ".join(f"{c['class']} {100 * c['share']:.1f} %" for c in image["classes"])
            rows.append((image["name"], found, image["label"]))
        known = any(row[2] for row in rows)
        head = ("image", "classes", "label")
        print(text_table(head if known else head[:2], rows if known else [row[:2] for row in rows]))
    count, seconds = result["images"], result["seconds"]
    speed = f"{1e3 * seconds / max(1, count):.3f} ms each with {given.threads} thread{'s' * (given.threads > 1)}"
    name, labelled = shown(result["data"]), result["labelled"]
    if labelled:
        of = f"{labelled:,} right" if labelled == count else f"{labelled:,} with a label right"
        print(f"{name}: {result['right']:,} of {of}, {100 * result['accuracy']:.2f} %; {speed}")
    elif not result["pictures"]:
        answers = ", ".join(f"{n:,} {shown(c)}" for c, n in sorted(result["answers"].items(), key=lambda a: -a[1]))
        print(f"{name}: {count:,} images: {answers}; {speed}")
