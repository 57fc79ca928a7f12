"""Images of strangers in the page itself: whatever they hold, there is a message, and the page goes on."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Callable

import pytest

from tests.browser.chromium import Page
from tests.browser.test_inputs import PIXELS, opened
from tests.browser.test_page import Save, check_alive, settle, trouble
from tests.firmware.wasm.strangers import strangers
from tests.nets.raw_image import BINARY, CONV, DENSE, FLATTEN, Layer, Shape
from tests.nets.raw_image import image as raw_image

# Opens each image as if it had been dropped, and runs what it can.
OPEN_ALL = """(async (images) => {
  const { nets } = await import("/js/nets.js");
  const { refresh } = await import("/js/try.js");
  const said = [];
  for (const [i, text] of images.entries()) {
    try {
      await nets.open(`stranger ${i}`, Uint8Array.from(atob(text), (c) => c.charCodeAt(0)));
      await refresh();
      said.push("");
    } catch (error) {
      said.push(error.message || "nothing said");
    }
  }
  return said;
})"""


def open_all(page: Page, images: list[bytes]) -> list[str]:
    """What was said of each; nothing of those that run."""
    given = json.dumps([base64.b64encode(image).decode() for image in images])
    found: list[str] = page.evaluate(f"{OPEN_ALL}({given})")
    return found


def test_hundreds_of_bent_images_leave_the_page_alive(page: Page) -> None:
    images = list(strangers(300, seed=2))
    said = []
    for at in range(0, len(images), 50):
        said += open_all(page, images[at : at + 50])
    assert sum(not text for text in said) > 20 and sum(bool(text) for text in said) > 150
    assert [text for text in said if "the core stopped" in text or "nothing said" in text] == []
    check_alive(page)


def chain(shape: Shape, layers: int, kernel: int = 1, **fields: int) -> bytes:
    metadata = json.dumps({"input": PIXELS}).encode()
    return raw_image([shape] * (layers + 1), [Layer(CONV, (kernel, kernel), shift=8, **fields)] * layers, metadata)


GREEDY: dict[str, tuple[Callable[[], bytes], str]] = {
    "needs 300 MB": (lambda: chain(Shape(7_000, 7_000, 3), 1), "MB of memory"),
    "has 9 million inputs": (lambda: chain(Shape(3_000, 3_000, 1), 2), "9,000,000 values"),
}


@pytest.mark.parametrize("what", GREEDY)
def test_an_image_that_asks_for_too_much_is_refused(page: Page, saved: Save, what: str) -> None:
    make, says = GREEDY[what]
    page.choose_file("#net-file", saved("greedy.fbit", make()))
    assert says in trouble(page)
    check_alive(page)


def test_a_net_of_more_layers_than_are_painted_is_shown_in_part(page: Page, saved: Save) -> None:
    """Of a hundred and twenty layers, the page takes the first hundred, and of those what it paints."""
    image = chain(Shape(40, 40, 3), 120, fill=0)
    opened(page, saved("deep.fbit", image))
    page.evaluate("document.getElementById('long').hidden || document.getElementById('long-run').click()")
    settle(page)
    assert page.evaluate("document.querySelectorAll('#maps li').length") == 100
    check_alive(page)


def test_a_net_with_thousands_of_layers_of_bits_paints_the_first_ones(page: Page, saved: Save) -> None:
    metadata = json.dumps({"input": PIXELS}).encode()
    shapes = [Shape(4, 4, 32)] * 1_201
    image = raw_image(shapes, [Layer(CONV, (3, 3), BINARY, shift=4, fill=0x5A)] * 1_200, metadata)
    opened(page, saved("layers.fbit", image))
    assert page.evaluate("document.querySelectorAll('#bits li').length") == 50
    assert page.evaluate("document.querySelectorAll('#inside-layers tbody tr').length") == 1_000
    check_alive(page)


def test_a_run_of_minutes_is_begun_only_if_the_user_says_so(page: Page, saved: Save) -> None:
    image = chain(Shape(1_000, 1_000, 1), 8, kernel=255, fill=0)
    page.choose_file("#net-file", saved("slow.fbit", image))
    page.until("!document.getElementById('long').hidden")
    assert "s for one answer" in page.text("long-text") and page.text("answer-class") == "–"
    assert page.evaluate("document.querySelectorAll('#maps li').length") == 0
    page.click("#tab-inside")
    assert "8" in page.text("inside-facts")
    check_alive(page)
    assert page.evaluate("document.getElementById('long').hidden")


def test_hundreds_of_thousands_of_labels_do_not_hold_the_page_up(page: Page, saved: Save) -> None:
    metadata = json.dumps({"labels": ["a" * 40] * 400_000, "names": ["n" * 3_000_000], "input": PIXELS}).encode()
    shapes = [Shape(4, 4, 1), Shape(1, 1, 16, rank=1), Shape(1, 1, 3, rank=1)]
    image = raw_image(shapes, [Layer(FLATTEN), Layer(DENSE, shift=4, fill=1)], metadata)
    opened(page, saved("labels.fbit", image))
    assert len(page.evaluate("import('/js/nets.js').then(({ nets }) => nets.current.facts.labels)")) == 10_000
    check_alive(page)


def test_a_picture_that_is_small_as_a_file_and_huge_on_the_page_gets_a_message(page: Page, saved: Save) -> None:
    """30,000 × 30,000 pixels of one bit: 3.6 GB as the page would paint them."""
    side = 30_000
    row = bytes(1 + side // 8)
    packer = zlib.compressobj(9)
    data = b"".join(packer.compress(row * 1_000) for _ in range(side // 1_000)) + packer.flush()

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">2I5B", side, side, 1, 0, 0, 0, 0)
    picture = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    page.choose_file("#picture-file", saved("bomb.png", picture))
    assert "bomb.png has more than 50 million pixels" in trouble(page)
    check_alive(page)
