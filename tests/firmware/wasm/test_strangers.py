"""Hundreds of bent images through the module: each runs, or is refused by name, as on this machine."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flipbit.runtime import Model
from flipbit.runtime.errors import FlipbitError
from tests.checkout import ROOT
from tests.firmware.wasm.strangers import strangers
from tests.patience import PATIENCE

PACKAGE = ROOT / "firmware" / "wasm"


def tried(images: list[bytes]) -> list[dict[str, Any]]:
    node = shutil.which("node")
    if not node:
        pytest.skip("needs node")
    command = [node, str(Path(__file__).parent / "strangers.mjs"), str(PACKAGE)]
    given = json.dumps([base64.b64encode(image).decode() for image in images])
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def host_says(image: bytes) -> dict[str, Any]:
    """What this machine's core makes of the image, and of the same input."""
    try:
        model = Model(image)
    except FlipbitError as error:
        return {"error": error.status}
    target = model.image.tensors[model.image.input]
    values = (np.arange(target.size) * 37 % 256 - 128).astype(np.int8)
    planes = values.reshape(target.channels, target.height, target.width).transpose(1, 2, 0)
    stored = model.predict(planes if len(model.input_shape) == 3 else values, raw=True)
    stored = stored.transpose(2, 0, 1) if stored.ndim == 3 else stored
    return {"output": zlib.crc32(np.ascontiguousarray(stored).tobytes())}


def test_images_of_strangers_run_or_are_refused_by_name_as_on_this_machine() -> None:
    images = list(strangers(400, seed=1))
    found = tried(images)
    assert [one for one in found if "broken" in one] == []
    for image, one in zip(images, found, strict=True):
        if one.get("run") == "large":
            continue
        wanted = host_says(image)
        if wanted.get("error") == "FB_ERR_METADATA" and one.get("opened"):
            continue  # Python reads the JSON too; the core checks its position, and the page goes without it
        assert {key: one.get(key) for key in wanted} == wanted
    assert all(one["message"] and "FB_" not in one["message"] for one in found if "error" in one)
    assert len({one["error"] for one in found if "error" in one}) > 12
    assert sum(one.get("learned") == "done" for one in found) > 10
