"""The .fbit files in models/ are what export/to_fbit.py makes of the model.h5 beside them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from flipbit.runtime.core.model import Model
from tests.checkout import ROOT

MODELS = sorted(path.parent for path in (ROOT / "models").glob("*/model.h5"))


@pytest.mark.parametrize("folder", MODELS, ids=lambda folder: folder.name)
def test_a_shipped_image_is_a_fresh_export(folder: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("needs tensorflow: pip install -e '.[train]'")
    from flipbit.export.commands import convert as command

    if "cifar10" in folder.name:
        request.getfixturevalue("cifar10")
    out = tmp_path / "fresh.fbit"
    assert command.main("fbit", [str(folder / "model.h5"), "-o", str(out)]) == 0
    again = f"python export/to_fbit.py models/{folder.name}/model.h5"
    assert out.read_bytes() == (folder / "model.fbit").read_bytes(), again


@pytest.mark.parametrize("folder", MODELS, ids=lambda folder: folder.name)
def test_a_shipped_image_says_its_classes_and_its_pixels(folder: Path) -> None:
    model = Model(folder / "model.fbit")
    assert len(model.labels) == 10 and model.pixels is not None


def test_the_image_for_containers_is_the_digits_model() -> None:
    digits = (ROOT / "models" / "digits-vgg-small" / "model.fbit").read_bytes()
    assert (ROOT / "docker" / "digits.fbit").read_bytes() == digits
