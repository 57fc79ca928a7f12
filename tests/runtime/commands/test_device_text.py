"""What is told of a device and its runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flipbit.runtime.commands.device_text import identity_facts, identity_text, timing_text
from flipbit.runtime.link.protocol import BUILT_IN, LOCK_BUILT, LOCK_CONSENT, LOCK_KEY, Identity
from flipbit.runtime.link.reports import Inference

BOARD = Identity(
    protocol=2, piece=240, slots=2, slot=BUILT_IN, refused=0, store_is_ram=False, model_crc=0xABC, model_size=1000,
    layers=5, input_size=64, output_size=10, arena_size=900, arena_least=400, ram_free=8000, ram=16384, flash=262144,
    slot_room=32768, clock_hz=16_000_000, tick_hz=0, version="0.1.0", board="a board", chip="a chip", core="a core",
)  # fmt: skip


def run(milliseconds: float, on_device: float | None) -> Inference:
    none = np.zeros(1)
    return Inference(0, "0", none, none, 0, on_device and on_device / 1e3, milliseconds / 1e3)


def test_a_board_is_told_with_its_model() -> None:
    told = identity_text(BOARD)
    for words in ("a board: a chip, a core at 16 MHz, no counter", "CRC 00000abc", "from slot built-in", "protocol 2"):
        assert words in told
    assert "lock" not in told and "warning" not in told
    assert (identity_facts(BOARD)["slot"], identity_facts(BOARD)["model_crc"]) == ("built-in", "00000abc")


@pytest.mark.parametrize(("changed", "says"), [
    ({"layers": 0}, "model    none: upload one"),
    ({"store_is_ram": True}, "(in RAM: lost without power)"),
    ({"lock": LOCK_BUILT}, "all else needs its button or jumper"),
    ({"lock": LOCK_BUILT | LOCK_KEY}, "all else needs its key"),
    ({"lock": LOCK_BUILT | LOCK_CONSENT}, "open for now"),
    ({"refused": 5}, "could not be used: FB_ERR_CRC"),
])  # fmt: skip
def test_what_a_user_should_know_is_told(changed: dict, says: str) -> None:
    assert says in identity_text(replace(BOARD, **changed))


def test_the_time_of_a_run_is_the_median_and_says_whose_it_is() -> None:
    assert timing_text([]) == "no inputs"
    assert "has no counter that runs" in timing_text([run(3, None)])
    told = timing_text([run(10, 1), run(30, 2), run(20, 9)])
    assert told == "a run took 2.000 ms by the board's counter, 20.00 ms with the line"
    assert "took the emulator 2.000 ms" in timing_text([run(10, 2)], emulated=True)
