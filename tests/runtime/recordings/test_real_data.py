"""Real recordings, where FLIPBIT_DATA has them: as many as documented, and shipped nets as good as documented."""

from __future__ import annotations

import numpy as np
import pytest

from flipbit.runtime.core.model import Model
from flipbit.runtime.data import sets
from flipbit.runtime.data.load import load_data
from tests.checkout import ROOT, needs_data

SHIPPED = {
    "speech_commands": ("words-word-s", 0.92859),
    "motionsense": ("motion-signal-s", 0.95342),
    "magic_wand": ("gestures-signal-s", 0.94406),
    "cwru": ("bearings-vibration-s", 0.88673),
}
# The copy of Speech Commands is decoded from Opus: which decoder did that moves the figure by a clip of 3,081.
TOLERANCE = {"speech_commands": 0.001}


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_net_is_as_good_as_documented(name: str) -> None:
    needs_data(name)
    folder, accuracy = SHIPPED[name]
    model = Model(ROOT / "models" / folder / "model.fbit")
    data = load_data(name, model.input_shape, model.labels)
    assert np.mean(model.predict(data.x).argmax(1) == data.y) == pytest.approx(
        accuracy, abs=TOLERANCE.get(name, 0.00005)
    )


def test_magic_wand_has_gestures_of_two_unseen_people() -> None:
    needs_data("magic_wand")
    found = sets.open_arrays("magic_wand")
    assert found is not None
    _, y = found.read("test")
    assert np.bincount(y).tolist() == [41, 42, 44, 16]


def test_cwru_tests_on_loads_1_to_3() -> None:
    needs_data("cwru")
    found = sets.open_arrays("cwru")
    assert found is not None
    _, y = found.read("test")
    assert np.bincount(y).min() == np.bincount(y)[0] == 141 and (np.bincount(y)[1:] > 700).all()
