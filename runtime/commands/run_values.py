"""``flipbit run`` for a net that gives values, not scores of classes: the numbers, and how far they are off."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from flipbit.runtime.core.model import Model
from flipbit.runtime.data.load import Data
from flipbit.runtime.image.inputs import Array, value_text
from flipbit.runtime.shown import shown
from flipbit.runtime.text_table import text_table


def value_result(model: Model, data: Data, values: Array, seconds: float) -> dict[str, Any]:
    """What was found, as JSON has it; ``values`` are images × numbers."""
    known = data.y if data.has_values else None
    apart = None if known is None else values.astype(np.float64) - known
    target = model.image.tensors[model.image.output]
    return {
        "data": data.name,
        "images": len(values),
        "seconds": seconds,
        "step": target.scale,  # of the int8 grid
        "rmse": None if apart is None else float(np.sqrt(np.mean(apart**2))),
        "mae": None if apart is None else float(np.mean(np.abs(apart))),
        "each": [
            {
                "name": data.names[i] if i < len(data.names) else str(i),
                "values": values[i].tolist(),
                "wanted": None if known is None else known[i].tolist(),
            }
            for i in range(len(values))
        ],
        "pictures": bool(data.names),
    }


def print_values(result: dict[str, Any], given: argparse.Namespace) -> None:
    if result["pictures"] or given.each:
        rows = [(e["name"], value_text(e["values"]), e["wanted"] and value_text(e["wanted"])) for e in result["each"]]
        known = result["rmse"] is not None
        head = ("image", "values", "wanted")
        print(text_table(head if known else head[:2], rows if known else [row[:2] for row in rows]))
    count, seconds = result["images"], result["seconds"]
    speed = f"{1e3 * seconds / max(1, count):.3f} ms each with {given.threads} thread{'s' * (given.threads > 1)}"
    found = f"{count:,} images"
    if result["rmse"] is not None:
        found += f": RMSE {result['rmse']:.4g}, MAE {result['mae']:.4g}"
    elif not result["pictures"] and result["each"]:
        found += f", the first gives {value_text(result['each'][0]['values'])}"
    print(f"{shown(result['data'])}: {found} (a step of int8 is {result['step']:.3g}); {speed}")
