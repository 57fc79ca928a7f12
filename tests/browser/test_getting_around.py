"""Ways through the page: tabs, Back, the keyboard, messages, files that are dropped."""

from __future__ import annotations

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from flipbit.runtime.commands.serve import PageServer, page_folder
from tests.browser.chromium import Chromium, Page

SHOWN = "[...document.querySelectorAll('[role=tabpanel]')].filter((one) => !one.hidden).map(({ id }) => id).join()"


def drop(page: Page, path: Path) -> None:
    """A file from the desktop, on the middle of the page."""
    data = {"items": [], "files": [str(path)], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        page.call("Input.dispatchDragEvent", type=kind, x=600, y=400, data=data)


def test_skipping_the_header_stays_on_the_tab(page: Page) -> None:
    page.click("#tab-dial")
    page.evaluate("document.querySelector('.skip').focus()")
    page.press("Enter")
    page.until("location.hash === '#main'")
    assert page.evaluate(SHOWN) == "dial"


def test_back_leads_to_the_tab_before_and_forward_again(page: Page) -> None:
    page.click("#tab-teach")
    page.click("#tab-inside")
    page.evaluate("history.back()")
    page.until(f"{SHOWN} === 'teach'")
    page.evaluate("history.back()")
    page.until(f"{SHOWN} === 'try'")
    page.evaluate("history.forward()")
    page.until(f"{SHOWN} === 'teach'")


def test_arrow_keys_on_tabs_leave_nothing_to_go_back_through(page: Page) -> None:
    before = page.evaluate("history.length")
    page.evaluate("document.getElementById('tab-try').focus()")
    page.press("ArrowRight", 3)
    assert page.evaluate(SHOWN) == "dial"
    assert page.evaluate("history.length") == before


@pytest.mark.parametrize("width", [360, 1200])
def test_a_message_is_seen_from_wherever_one_is_and_goes_when_the_user_goes_on(
    browser: Chromium, server: PageServer, width: int
) -> None:
    page = browser.page(width, 640, mobile=width < 700).open(f"{server.address}#teach")
    page.until("document.body.dataset.ready")
    page.click("#teach-add")  # nothing is drawn
    page.until("!document.getElementById('trouble').hidden")
    page.evaluate("scrollTo(0, document.querySelector('main').scrollHeight)")
    top, bottom = page.evaluate(
        "(({ top, bottom }) => [top, bottom])(document.getElementById('trouble').getBoundingClientRect())"
    )
    assert 0 <= top < bottom <= 640
    page.click("#teach-dim")
    page.until("document.getElementById('trouble').hidden && document.querySelectorAll('#lessons li').length === 80")
    page.close()


def test_a_slider_tells_its_value_and_not_its_place(page: Page) -> None:
    page.click("#tab-dial")
    told = "[...document.querySelectorAll('#dial input')].map((one) => one.getAttribute('aria-valuetext')).join(', ')"
    assert page.evaluate(told) == "0, 1, α = 0.01, σ = 4"
    page.evaluate("document.getElementById('dial-batch').focus()")
    page.press("ArrowRight", 5)
    assert page.evaluate(told) == "0, 32, α = 0.01, σ = 4"
    assert page.text("dial-batch-out") == "32"


def test_a_folder_that_is_dropped_gets_a_message(page: Page, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    drop(page, tmp_path / "photos")
    page.until("!document.getElementById('trouble').hidden")
    assert page.text("trouble").startswith("photos could not be read: is it a folder")


def test_what_there_is_no_room_to_keep_is_shown_all_the_same(browser: Chromium, server: PageServer) -> None:
    page = browser.page().open(server.address)
    page.until("navigator.serviceWorker.ready.then((found) => found.active.state === 'activated')")
    page.until("!!navigator.serviceWorker.controller")
    page.call("Storage.overrideQuotaForOrigin", origin=server.address[:-1], quotaSize=1)
    full = "caches.open('flipbit').then((kept) => kept.put('x', new Response('x'.repeat(9999)))).then(() => '', String)"
    assert "Quota" in page.evaluate(full)
    assert page.evaluate("fetch('offline.js').then((answer) => answer.status)") == 200
    page.close()


def test_a_page_without_its_scripts_says_what_may_be_wrong(browser: Chromium) -> None:
    """A file server that does not know .js, as Python's on some Windows machines."""

    class Ignorant(SimpleHTTPRequestHandler):
        extensions_map = {**SimpleHTTPRequestHandler.extensions_map, ".js": "text/plain"}  # noqa: RUF012

        def log_message(self, *given: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Ignorant, directory=str(page_folder()))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = browser.page().open(f"http://127.0.0.1:{server.server_address[1]}/")
        assert "does not send .js files as text/javascript" in page.text("starting")
        assert page.evaluate(SHOWN) == ""
        page.close()
        server.shutdown()
