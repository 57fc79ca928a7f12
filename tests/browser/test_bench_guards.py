"""The guard of a board at the page: it watches what it is shown, recalibrates as this machine does, and is undone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flipbit.runtime.core.learner import Learner, LearnerConfig
from flipbit.runtime.link.protocol import Command, Frame, Reader
from tests.browser.bench import BOARD, board_at, connect, firmware, result
from tests.browser.chromium import Page
from tests.browser.test_page import DIGITS, png, trouble
from tests.browser.test_teach import image_now
from tests.nets.small_nets import photos, referenced_image

WINDOW = 4
CONFIG = LearnerConfig(bits=False, recalibrate=1, prior=250)


@pytest.fixture
def page(bench: Page) -> Page:
    return bench


def inputs_of(frames: list[Frame]) -> list[np.ndarray]:
    """What was loaded before each INFER."""
    loaded, found, last = b"", [], 0
    for frame in frames:
        if frame.id == last:
            continue  # sent again
        last = frame.id
        if frame.command == Command.LOAD:
            at = int.from_bytes(frame.payload[:4], "little")
            loaded = loaded[:at] + frame.payload[4:]
        elif frame.command == Command.INFER:
            found.append(np.frombuffer(loaded, np.int8))
    return found


def on_host(inputs: list[np.ndarray]) -> tuple[bytes, int]:
    """The image after one recalibration by these inputs, and how many windows it took."""
    host = Learner(referenced_image(), CONFIG)
    shape, passes, more = (3, 9, 8), 0, True
    while more:
        host.begin(WINDOW)
        for x in inputs[WINDOW * passes : WINDOW * (passes + 1)]:
            host.sample(x.reshape(shape), 0)
        more, passes = host.end_pass(), passes + 1
    return host.image, passes


def show(page: Page, path: Path) -> None:
    """A picture under Try, and back to the bench."""
    page.choose_file("#picture-file", path)
    page.until("!document.getElementById('picture').hidden")
    page.evaluate("import('/js/try.js').then((part) => part.refresh())")


def test_a_net_is_recalibrated_by_what_it_is_shown_and_undone(page: Page, builds: Path, saved) -> None:  # type: ignore[no-untyped-def]
    reader, frames = Reader(), []
    elf = firmware(BOARD, referenced_image(), builds)
    with board_at(page, BOARD, elf, seen=lambda data: frames.extend(reader.feed(data))):
        connect(page)
        assert page.text("guard-status") == "The guard is off."
        page.evaluate(f"document.getElementById('guard-window').value = {WINDOW}")
        page.evaluate("document.getElementById('guard-threshold').value = 7")
        assert "is on" in result(page, "#guard-toggle", "guard")
        pictures = [saved(f"{i}.png", png(photo // 3)) for i, photo in enumerate(photos(WINDOW))]
        for path in pictures:
            show(page, path)
            assert "every output" in result(page, "#board-infer", "The board says")
        page.until("document.getElementById('guard-status').innerText.includes('1 windows, 0 of them')")
        drift = float(page.text("guard-status").split("window: ")[1].split(" %")[0])
        assert drift > 10
        assert image_now(page) == referenced_image()

        frames.clear()
        result(page, "#guard-now", "recalibrates by what it is given next")
        for i in range(60):
            show(page, pictures[i % WINDOW])
            told = result(page, "#board-infer", "oard ")
            if "recalibrated" in told:
                break
        inputs = inputs_of(frames)
        image, passes = on_host(inputs)
        assert len(inputs) == WINDOW * passes > WINDOW
        assert image_now(page) == image != referenced_image()
        assert "0 windows" in page.text("guard-status")  # it watches on, with the threshold as before
        show(page, pictures[0])
        assert "every output is that of this browser" in result(page, "#board-infer", "The board says")

        result(page, "#guard-undo", "Undone")
        assert image_now(page) == referenced_image()
        assert page.text("guard-status") == "The guard is off."
        assert "bit for bit" in result(page, "#board-verify", "layers")


def test_a_guard_that_is_on_is_seen_by_a_page_that_comes_later(page: Page, builds: Path) -> None:
    with board_at(page, BOARD, firmware(BOARD, referenced_image(), builds)):
        connect(page)
        result(page, "#guard-toggle", "guard is on")
        page.click("#board-disconnect")
        page.until("document.getElementById('board-bench').hidden")
        connect(page)
        assert page.evaluate("document.getElementById('guard-toggle').getAttribute('aria-pressed')") == "true"
        page.click("#board-verify")
        assert "guard is on" in trouble(page)
        result(page, "#guard-toggle", "guard is off")


def test_a_net_without_references_says_so(page: Page, builds: Path) -> None:
    with board_at(page, BOARD, firmware(BOARD, DIGITS.read_bytes(), builds)):
        connect(page)
        assert "no references" in page.text("guard-cannot")
        assert page.evaluate("document.getElementById('guard-can').hidden")


def test_wrong_settings_are_named(page: Page, builds: Path) -> None:
    with board_at(page, BOARD, firmware(BOARD, referenced_image(), builds)):
        connect(page)
        page.evaluate("document.getElementById('guard-window').value = 0")
        page.click("#guard-toggle")
        assert "Window: 1 to 65535" in trouble(page)
        assert page.text("guard-status") == "The guard is off."
