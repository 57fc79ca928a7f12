"""What the page shows to nets that are no digits, and what it shows of nets that give values."""

from __future__ import annotations

import json

import numpy as np
import pytest

from flipbit.runtime import Model
from flipbit.runtime.commands.serve import PageServer
from tests.browser.chromium import Chromium, Page
from tests.browser.test_page import DIGITS, DRAWN, Save, check_alive, settle, trouble
from tests.checkout import ROOT
from tests.nets.raw_image import CONV, DENSE, FLATTEN, Layer, Shape
from tests.nets.raw_image import image as raw_image

MODELS = ROOT / "models"
PIXELS = "(pixel - 128) * 0.0078125"


def opened(page: Page, path: object) -> None:
    """The page has this net, and has run it."""
    name = getattr(path, "name", "")
    page.choose_file("#net-file", path)  # type: ignore[arg-type]
    page.until(f"document.getElementById('own-name').textContent === {json.dumps(name)}")
    settle(page)


def given(page: Page) -> np.ndarray:
    return np.array(page.evaluate("import('/js/try.js').then((part) => [...part.currentInput().values])"), np.int8)


def shown_values(page: Page) -> list[float]:
    texts = page.evaluate("[...document.querySelectorAll('#scores .n')].map((e) => e.innerText)")
    return [float(text.replace("−", "-")) for text in texts]


def image_of_values(outputs: int, metadata: dict[str, object], pixels: tuple[int, int, int] = (6, 6, 1)) -> bytes:
    shapes = [Shape(*pixels), Shape(1, 1, int(np.prod(pixels)), rank=1), Shape(1, 1, outputs, rank=1)]
    layers = [Layer(FLATTEN), Layer(DENSE, shift=4, fill=1)]
    return raw_image(shapes, layers, json.dumps(metadata).encode())


def test_values_are_shown_as_numbers_and_not_as_classes(page: Page, saved: Save) -> None:
    image = image_of_values(3, {"input": PIXELS, "output": "values", "labels": ["x", "y"]})
    path = saved("place.fbit", image)
    opened(page, path)
    page.draw("#pad", DRAWN["7"])
    settle(page)
    model = Model(path)
    pixels = np.array(page.evaluate("import('/js/try.js').then((part) => [...part.currentInput().pixels])"), np.uint8)
    wanted = model.predict(pixels.reshape(6, 6, 1))
    assert shown_values(page) == pytest.approx(wanted.tolist(), rel=1e-3)
    names = page.evaluate("[...document.querySelectorAll('#scores li > :first-child')].map((e) => e.innerText)")
    assert names == ["x", "y", "value 3"]
    assert "%" not in page.text("scores") + page.text("answer-class") + page.text("answer-score")
    assert page.evaluate("document.getElementById('lesson-row').hidden")
    page.click("#tab-inside")
    assert "3 values, not classes" in page.text("inside-facts")
    page.click("#tab-teach")
    assert "gives values, not classes" in page.text("teach-elsewhere")
    check_alive(page)


def test_a_single_output_is_a_value_even_if_the_image_does_not_say_so(page: Page, saved: Save) -> None:
    opened(page, saved("one.fbit", image_of_values(1, {"input": PIXELS})))
    assert "%" not in page.text("scores") + page.text("answer-score")
    assert page.evaluate("document.getElementById('answer-class').innerText") != "0"
    check_alive(page)


def test_an_image_that_comes_out_is_shown_in_part(page: Page, saved: Save) -> None:
    metadata = json.dumps({"input": PIXELS, "output": "values"}).encode()
    image = raw_image([Shape(20, 20, 1)] * 2, [Layer(CONV, (1, 1), shift=4, fill=1)], metadata)
    opened(page, saved("denoiser.fbit", image))
    assert len(shown_values(page)) == 12
    assert "the first 12 of 400 values" in page.text("answer-score")
    check_alive(page)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("words-word-s", "a tone that rises"),
        ("motion-signal-s", "a slow swing"),
        ("gestures-signal-s", "a slow swing"),
        ("bearings-vibration-s", "a slow swing"),
    ],
)
def test_a_net_of_sound_or_of_sensors_is_shown_a_made_up_recording(page: Page, name: str, what: str) -> None:
    path = MODELS / name / "model.fbit"
    opened(page, path)
    assert page.text("numbers-what") == f"Made up: {what}."
    assert page.evaluate("document.getElementById('pad-box').hidden && document.getElementById('picture-box').hidden")
    first = given(page)
    model = Model(path)
    assert len(first) == model.image.tensors[model.image.input].size and len(set(first.tolist())) > 20
    page.click("#numbers-example")
    settle(page)
    assert not np.array_equal(given(page), first)
    tensor = model.image.tensors[model.image.input]
    planes = given(page).reshape(tensor.channels, tensor.height, tensor.width).transpose(1, 2, 0)
    assert page.text("answer-class") == model.labels[int(model.predict(planes).argmax())]
    seen = "(({width, height}) => numbers.getContext('2d').getImageData(0, 0, width, height).data)(numbers)"
    assert page.evaluate(f"new Set({seen}).size > 10")
    check_alive(page)


def test_a_net_of_numbers_is_shown_numbers(page: Page, saved: Save) -> None:
    shapes = [Shape(1, 1, 13, rank=1), Shape(1, 1, 2, rank=1)]
    opened(page, saved("houses.fbit", raw_image(shapes, [Layer(DENSE, shift=4, fill=1)], b'{"output": "values"}')))
    assert "made up: numbers" in page.text("numbers-what").lower()
    assert len(shown_values(page)) == 2
    check_alive(page)


@pytest.mark.parametrize("side", [5, 28, 64])
def test_a_net_of_another_size_is_not_given_the_digit_of_the_net_before(page: Page, saved: Save, side: int) -> None:
    """The page begins with an example of 8×8 pixels on the pad."""
    image = image_of_values(4, {"input": PIXELS, "labels": ["a", "b", "c", "d"]}, (side, side, 1))
    opened(page, saved("figures.fbit", image))
    assert page.evaluate("document.getElementById('trouble').hidden"), page.text("trouble")
    assert page.text("input-title") == "Draw something"
    assert len(given(page)) == side * side and len(set(given(page).tolist())) > 1
    check_alive(page)


LATE = """(() => {
  const real = window.fetch;
  window.fetch = async (url) => {
    if (String(url).includes("digits.bin")) await new Promise((resolve) => { window.arrive = resolve; });
    return real(url);
  };
})()"""


@pytest.mark.parametrize("meanwhile", ["another net is opened", "something is drawn"])
def test_an_example_that_comes_late_does_not_replace_what_came_meanwhile(
    browser: Chromium, server: PageServer, saved: Save, meanwhile: str
) -> None:
    page = browser.page()
    page.before(LATE)
    page.open(server.address).until("document.body.dataset.ready && !!window.arrive")
    if meanwhile == "something is drawn":
        page.draw("#pad", DRAWN["7"])
    else:
        opened(page, saved("figures.fbit", image_of_values(4, {"input": PIXELS}, (5, 5, 1))))
    settle(page)
    before = given(page)
    page.evaluate("arrive()")
    page.until("performance.getEntriesByName(new URL('nets/digits.bin', location.href).href).length")
    page.evaluate("new Promise((done) => setTimeout(done, 200))")  # it has come, and is taken or left
    settle(page)
    assert page.evaluate("document.getElementById('trouble').hidden"), page.text("trouble")
    assert np.array_equal(given(page), before)
    assert page.troubles == []
    page.close()


def test_a_made_up_picture_does_not_keep_the_digits_from_being_drawn(page: Page) -> None:
    page.click("input[value=cifar10]")
    page.until("document.getElementById('picture-what').innerText.includes('made-up')")
    settle(page)
    assert len(given(page)) == 32 * 32 * 3
    page.click("input[value=digits]")
    page.until("!document.getElementById('pad-box').hidden")
    settle(page)
    assert len(given(page)) == 64
    assert page.text("answer-class") == Model(DIGITS).classify(
        np.frombuffer((ROOT / "docs/try/nets/digits.bin").read_bytes(), np.uint8)[:64].reshape(8, 8, 1)
    )


def test_a_signal_with_a_damaged_header_is_refused(page: Page, saved: Save) -> None:
    image = bytearray((MODELS / "motion-signal-s" / "model.fbit").read_bytes())
    image[40] ^= 1
    page.choose_file("#net-file", saved("motion.fbit", bytes(image)))
    assert "motion.fbit" in trouble(page)
    check_alive(page)
