"""Ctrl-C is not lost, even where a library catches it."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

import pytest

from flipbit.train import run, stopping
from flipbit.train.report import console

FAST = ["--data", "digits", "--net", "resnet8", "--width", "0.25", "--batch", "256", "--no-plot", "--no-tensorboard"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda s: s.name)
def test_a_signal_that_was_caught_elsewhere_is_raised_again(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stopping.heard():
        stopping.check()
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(number)
        with pytest.raises(KeyboardInterrupt):
            stopping.check()
    stopping.check()
    assert signal.getsignal(number) == before


def _fail_in_a_callback() -> None:
    with contextlib.suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    raise ZeroDivisionError


def test_errors_are_themselves_until_a_signal_came() -> None:
    with pytest.raises(ZeroDivisionError), stopping.heard():
        raise ZeroDivisionError
    with pytest.raises(KeyboardInterrupt), stopping.heard():
        _fail_in_a_callback()


@pytest.mark.parametrize("swallowed", [True, False], ids=["forgotten", "turned into another error"])
def test_a_run_stops_although_a_callback_caught_the_signal(
    swallowed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def step(*_: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            if not swallowed:
                raise RuntimeError("internal error: a callback failed") from None

    monkeypatch.setattr(console.Terminal, "step", step)
    assert run.main(["--method", "bc", "--epochs", "3", "-o", str(tmp_path / "run"), *FAST]) == 130
    assert "stopped" in capsys.readouterr().err
