"""Teaching in a browser: bits flip as they do on the host, accuracy rises, and undo goes back."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import numpy as np
import pytest

from flipbit.runtime import Model
from flipbit.runtime.core.learner import Learner, LearnerConfig
from flipbit.runtime.data.drift import apply_drift
from flipbit.runtime.image.inputs import to_planes
from tests.browser.chromium import Page
from tests.browser.test_page import DIGITS, DRAWN, TRY, given_pixels, settle, trouble
from tests.checkout import ROOT

LESSONS = 80


def digits() -> tuple[np.ndarray, np.ndarray]:
    rows = np.frombuffer((TRY / "nets" / "digits.bin").read_bytes(), np.uint8).reshape(-1, 65)
    return rows[:, :64].reshape(-1, 8, 8, 1), rows[:, 64].astype(int)


def image_now(page: Page) -> bytes:
    """The net that the page works with."""
    found = page.evaluate(
        "import('/js/nets.js').then(({ nets }) => btoa(String.fromCharCode(...nets.current.bytes)))",
    )
    return base64.b64decode(found)


def learned(page: Page) -> str:
    page.until("document.getElementById('learn-status').innerText.includes('Now:')")
    return page.text("learn-status")


def shares(text: str) -> list[float]:
    return [float(found) for found in re.findall(r"([\d.]+) %", text)]


def test_dim_digits_are_learned_with_the_bits_of_the_host_and_undone(page: Page) -> None:
    page.click("#tab-teach")
    assert page.evaluate("document.getElementById('learn').disabled")
    page.click("#teach-dim")
    page.until(f"document.querySelectorAll('#lessons li').length === {LESSONS}")
    page.click("#learn")
    status = learned(page)

    x, y = digits()
    dim = apply_drift(x, "dim:2")
    model, learner = Model(DIGITS), Learner(DIGITS, LearnerConfig(seed=1, bits=True, bias=True))
    planes, _ = to_planes(dim[:LESSONS], model.image.tensors[model.image.input], model.pixels)
    for step in range(20):
        learner.step(planes, y[:LESSONS], 0.005 * (1 - step / 20), 0.5 * (1 - step / 20))
    assert image_now(page) == learner.image

    def right(image: bytes, pictures: np.ndarray, labels: np.ndarray) -> float:
        found = 100 * np.mean(Model(image).predict(pictures, raw=True).argmax(1) == labels)
        return round(float(found), 1)

    nets = (DIGITS.read_bytes(), learner.image)
    parts = ((dim[:LESSONS], y[:LESSONS]), (dim[LESSONS:], y[LESSONS:]), (x[LESSONS:], y[LESSONS:]))
    assert shares(status) == pytest.approx([right(net, *part) for net in nets for part in parts], abs=0.06)
    before, after = shares(status)[:3], shares(status)[3:]
    assert before[1] < 30 and after[1] > 80  # digits that are no lessons

    rows = page.evaluate("[...document.querySelectorAll('#bits li')].map((e) => e.innerText)")
    flips = [int(found.replace(",", "")) for row in rows for found in re.findall(r"([\d,]+) differ from", row)]
    weights = [op.weights for op in model.image.operations if op.binary]
    changed = [op.weights for op in Model(learner.image).image.operations if op.binary]
    differ = [int(np.unpackbits((a ^ b).view(np.uint8)).sum()) for a, b in zip(weights, changed)]
    assert flips == differ and sum(flips) > 500

    page.click("#learn-undo")
    assert image_now(page) == DIGITS.read_bytes()
    assert page.evaluate("document.getElementById('learn-undo').disabled")


def test_a_few_own_drawings_are_learned_and_used_by_the_rest_of_the_page(page: Page) -> None:
    """A sevens' sign is called a 4 from now on."""
    page.click("#tab-teach")
    page.click("#teach-classes label:nth-child(5)")
    for shift in (0.0, 0.02, -0.02):
        page.draw("#teach-pad", [[(x + shift, y) for x, y in DRAWN["7"][0]]])
        page.click("#teach-add")
    page.until("document.querySelectorAll('#lessons li').length === 3")
    page.click("#learn")
    status = learned(page)
    assert page.evaluate("document.querySelector('input[name=teach-class]:checked').value") == "4"  # for the next one
    assert "its lessons 0 %" in status.split("Now")[0] and "its lessons 100 %" in status.split("Now")[1]
    page.click("#tab-try")
    page.click("#pad-clear")
    page.draw("#pad", DRAWN["7"])
    settle(page)
    assert page.text("answer-class") == "4"


def test_what_was_classified_wrongly_becomes_a_lesson(page: Page) -> None:
    page.click("#pad-clear")
    page.draw("#pad", DRAWN["0"])
    settle(page)
    pixels = given_pixels(page)
    page.evaluate("document.getElementById('lesson-class').value = '6'")
    page.click("#lesson-add")
    assert "Added as 6" in page.text("lesson-note")
    found = page.evaluate(
        "import('/js/lessons.js').then(({ lessons }) => lessons.all.map((l) => [...l.pixels, l.label]))"
    )
    assert found == [[*pixels.tolist(), 6]]


def test_a_lesson_can_be_removed_and_an_empty_pad_is_none(page: Page) -> None:
    page.click("#tab-teach")
    page.click("#teach-add")
    assert "Draw something" in trouble(page)
    page.draw("#teach-pad", DRAWN["0"])
    page.press("Enter")
    page.until("document.querySelectorAll('#lessons li').length === 1")
    page.click("#lessons button")
    assert page.text("lessons-title") == "No lessons yet"


def test_lessons_are_removed_with_the_keyboard_one_after_another(page: Page) -> None:
    page.click("#tab-teach")
    for digit in ("0", "1"):
        page.draw("#teach-pad", DRAWN[digit])
        page.press("Enter")
    page.until("document.querySelectorAll('#lessons li').length === 2")
    page.evaluate("document.querySelector('#lessons button').focus()")
    page.press("Enter", 2)
    assert page.text("lessons-title") == "No lessons yet"
    assert page.evaluate("document.activeElement.id") == "teach-pad"


@pytest.mark.parametrize(
    ("field", "value"), [("learn-steps", "0"), ("learn-rate", "2"), ("learn-buffer", ""), ("learn-bias", "-1")]
)
def test_settings_out_of_range_get_a_message(page: Page, field: str, value: str) -> None:
    page.click("#tab-teach")
    page.click("#teach-dim")
    page.until("!document.getElementById('learn').disabled")
    page.evaluate(f"document.getElementById('{field}').value = '{value}'")
    page.click("#learn")
    assert re.search(r": \d+ to \d+", trouble(page))
    assert not page.evaluate("document.getElementById('learn').disabled")


def test_the_learned_net_can_be_saved_and_runs_elsewhere(page: Page, tmp_path: Path) -> None:
    page.browser.call(
        "Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path), browserContextId=page._context
    )
    page.click("#tab-teach")
    page.click("#teach-dim")
    page.until("!document.getElementById('learn').disabled")
    page.evaluate("document.getElementById('learn-steps').value = '2'")
    page.click("#learn")
    learned(page)
    page.click("#learn-save")
    deadline = tmp_path / "digits-taught.fbit"
    page.until("new Promise((done) => setTimeout(() => done(true), 200))")
    for _ in range(200):
        if deadline.exists() and deadline.stat().st_size == len(DIGITS.read_bytes()):
            break
        page.until("new Promise((done) => setTimeout(() => done(true), 50))")
    assert deadline.read_bytes() == image_now(page)
    assert Model(deadline).labels == Model(DIGITS).labels


def test_a_net_that_is_left_while_it_learns_keeps_what_it_learned_and_changes_no_other(page: Page) -> None:
    page.look(reduced_motion=False)  # a pause after every step
    page.click("#tab-teach")
    page.click("#teach-dim")
    page.until(f"document.querySelectorAll('#lessons li').length === {LESSONS}")
    page.click("#learn")
    page.until("document.getElementById('learn-status').innerText.startsWith('Step 2')")
    page.click("input[value=cifar10]")
    page.until("document.getElementById('learn-stop').hidden")
    assert image_now(page) == (ROOT / "models" / "cifar10-flip-m" / "model.fbit").read_bytes()
    assert page.evaluate("document.getElementById('learn-undo').disabled")
    page.click("input[value=digits]")
    page.until("!document.getElementById('learn-undo').disabled")
    assert image_now(page) != DIGITS.read_bytes()
    page.click("#learn-undo")
    page.until("document.getElementById('learn-undo').disabled")
    assert image_now(page) == DIGITS.read_bytes()


def test_a_double_click_on_learn_learns_once(page: Page) -> None:
    page.click("#tab-teach")
    page.click("#teach-dim")
    page.until(f"document.querySelectorAll('#lessons li').length === {LESSONS}")
    page.evaluate("document.getElementById('learn-steps').value = 2")
    page.evaluate("for (const _ of [1, 2]) document.getElementById('learn').click()")
    learned(page)
    page.click("#learn-undo")
    page.until("document.getElementById('learn-undo').disabled")
    assert image_now(page) == DIGITS.read_bytes()
