"""The toy problem of the page is that of train/theory: exact shares of SR, and what lies between SR and BC."""

from __future__ import annotations

import json
import shutil
import subprocess

import numpy as np
import pytest

from flipbit.train.theory import markov
from flipbit.train.theory.toy import wide_grid
from flipbit.train.theory.toy_problem import BEST, DELTA, START, gradient, loss
from tests.browser.chromium import Page
from tests.browser.test_page import TRY
from tests.patience import PATIENCE


def shares(*settings: dict[str, object], steps: int = 400_000) -> list[float]:
    """Of the steps that chains spend on the two best points."""
    node = shutil.which("node")
    if not node:
        pytest.skip("needs node")
    code = (
        f"const {{ Chain }} = await import({json.dumps((TRY / 'js' / 'toy.js').as_uri())});"
        f"console.log(JSON.stringify({json.dumps(settings)}.map((one) => {{"
        f" const chain = new Chain({{ batch: 1, ...one }}); chain.run({steps}); return chain.best; }})))"
    )
    command = [node, "--input-type=module", "-e", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    found: list[float] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("rate", "noise", "batch"), [(1.0, 1.0, 1), (0.1, 1.0, 1), (0.1, 4.0, 1), (0.01, 4.0, 1), (0.1, 4.0, 16)]
)
def test_sr_without_buffer_has_its_exact_distribution(rate: float, noise: float, batch: int) -> None:
    sigma = noise / np.sqrt(batch)
    grid = wide_grid(sigma)
    exact = markov.stationary(markov.transition_matrix(gradient(grid), DELTA, rate, sigma))
    (found,) = shares({"bufferBits": 0, "rate": rate, "noise": noise, "batch": batch})
    assert found == pytest.approx(float(exact[np.isin(grid, BEST)].sum()), abs=0.03)


def test_buffer_bits_lead_from_sr_to_bc() -> None:
    common = {"rate": 0.01, "noise": 4.0}
    dial = shares(*({"bufferBits": bits, **common} for bits in (0, 1, 2, 3, 6, None)))
    assert dial == sorted(dial)
    assert dial[0] < 0.6 and dial[3] > 0.9 and dial[-1] > 0.97


def test_the_problem_is_that_of_the_paper() -> None:
    node = shutil.which("node")
    if not node:
        pytest.skip("needs node")
    w = np.linspace(-2, 7, 91)
    code = (
        f"const toy = await import({json.dumps((TRY / 'js' / 'toy.js').as_uri())});"
        f"const w = {w.tolist()};"
        "console.log(JSON.stringify([w.map(toy.loss), w.map(toy.slope), toy.DELTA, toy.START, toy.BEST]))"
    )
    done = subprocess.run([node, "--input-type=module", "-e", code], capture_output=True, text=True, timeout=PATIENCE)
    values, slopes, delta, start, best = json.loads(done.stdout)
    assert np.allclose(values, loss(w)) and np.allclose(slopes, gradient(w))
    assert (delta, start, tuple(best)) == (DELTA, START, BEST)


def test_sliders_show_both_side_by_side(page: Page) -> None:
    def set_bits(bits: int) -> tuple[float, float]:
        page.evaluate(
            "(() => { const dial = document.getElementById('dial-bits');"
            f" dial.value = {bits}; dial.dispatchEvent(new Event('input')); }})()"
        )
        page.until("document.getElementById('dial-note').innerText")
        texts = (page.text("dial-sr-share"), page.text("dial-bc-share"))
        sr, bc = (float(text.split(" %")[0]) for text in texts)
        return sr, bc

    page.click("#tab-dial")
    without, bc = set_bits(0)
    buffered, same = set_bits(4)
    assert without < 60 and buffered > 90 and bc == same > 97
    assert "SR with 4 buffer bits" in page.text("dial-sr-name")
    page.evaluate("document.getElementById('dial-batch').focus()")
    page.press("ArrowRight", 3)
    assert page.text("dial-batch-out") == "8"
