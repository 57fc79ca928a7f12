"""The .fbit files in models/ are what export/to_fbit.py makes of the model.h5 beside them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from flipbit.runtime.core.model import Model
from flipbit.runtime.image.reader import read_image
from tests.checkout import ROOT, needs_data


def trained(folder: Path) -> dict[str, Any]:
    """What is known of the run."""
    found: dict[str, Any] = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    return found


MODELS = sorted(path.parent for path in (ROOT / "models").glob("*/model.h5"))


@pytest.mark.parametrize("folder", MODELS, ids=lambda folder: folder.name)
def test_a_shipped_image_is_a_fresh_export(folder: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("needs tensorflow: pip install -e '.[train]'")
    from flipbit.export.commands import convert as command

    if "cifar10" in folder.name:
        request.getfixturevalue("cifar10")
    elif "digits" not in folder.name:
        needs_data(str(trained(folder)["settings"]["data"]))
    out = tmp_path / "fresh.fbit"
    assert command.main("fbit", [str(folder / "model.h5"), "-o", str(out)]) == 0
    again = f"python export/to_fbit.py models/{folder.name}/model.h5"
    if "words" in folder.name:
        # Copies of its clips differ (some were coded with Opus), and with them the ranges of activations a little.
        fresh, shipped = read_image(out.read_bytes()), read_image((folder / "model.fbit").read_bytes())
        assert [op.kind for op in fresh.operations] == [op.kind for op in shipped.operations]
        scales = [[tensor.scale for tensor in image.tensors] for image in (fresh, shipped)]
        assert scales[0] == pytest.approx(scales[1], rel=0.02), again
        return
    assert out.read_bytes() == (folder / "model.fbit").read_bytes(), again


@pytest.mark.parametrize("folder", MODELS, ids=lambda folder: folder.name)
def test_a_shipped_image_says_its_classes_and_its_pixels(folder: Path) -> None:
    model = Model(folder / "model.fbit")
    assert model.labels == trained(folder)["classes"] and model.pixels is not None


def test_the_image_for_containers_is_the_digits_model() -> None:
    digits = (ROOT / "models" / "digits-vgg-small" / "model.fbit").read_bytes()
    assert (ROOT / "docker" / "digits.fbit").read_bytes() == digits
