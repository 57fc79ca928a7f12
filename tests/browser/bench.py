"""A page, a serial port that a test holds, and an emulated board behind it."""

from __future__ import annotations

import base64
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flipbit.runtime.board.profile import build, load_profile
from flipbit.runtime.link.emulator import Emulator
from flipbit.runtime.link.line import LineError
from tests.browser.chromium import Page

BOARD = "mps2-an385"  # its RAM lets the digits net learn, and holds what is uploaded

# A serial port as Web Serial has it; its bytes go to and come from the test.
PORT = """
(() => {
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  let controller = null;
  const port = {
    async open({ baudRate }) {
      if (window.portIsOpen) throw new DOMException("The port is already open.", "InvalidStateError");
      window.portIsOpen = true;
      window.baudRate = baudRate;
      this.readable = new ReadableStream({ start: (given) => { controller = given; } });
      this.writable = new WritableStream({ write: (data) => { window.toBoard(btoa(String.fromCharCode(...data))); } });
    },
    async close() {
      if (this.readable.locked || this.writable.locked) throw new TypeError("The streams are locked.");
      window.portIsOpen = false;
      controller = null;
    },
  };
  window.fromBoard = (text) => controller?.enqueue(bytes(text));
  window.unplug = () => controller?.error(new Error("The device has been lost."));
  const serial = { requestPort: async () => (window.noPort ? Promise.reject(new Error("none chosen")) : port) };
  Object.defineProperty(Navigator.prototype, "serial", { get: () => serial, configurable: true });
})()
"""


def firmware(board: str, image: bytes, builds: Path) -> Path:
    profile = load_profile(board)
    for tool in (f"{profile.facts['build']['compiler']}gcc", "make", *(profile.qemu or [])[:1]):
        if not shutil.which(tool):
            pytest.skip(f"{board} needs {tool}")
    (builds / f"{board}.fbit").write_bytes(image)
    return build(profile, builds / f"{board}.fbit", builds).elf


@contextmanager
def board_at(
    page: Page,
    board: str,
    elf: Path,
    worsen: Callable[[bytes], bytes] = bytes,
    seen: Callable[[bytes], object] = bytes,
    passes: Callable[[bytes], bool] = bool,
) -> Iterator[None]:
    """An emulated board at the other end of the page's port; ``worsen`` is what the line does to its bytes, ``seen`` is
    told those of the page, and ``passes`` whether they are to reach the board."""
    with Emulator(board, elf) as emulator:
        line = emulator.line()

        def to_board(text: str) -> None:
            data = base64.b64decode(text)
            seen(data)
            if passes(data):
                line.write(data)

        page.bind("toBoard", to_board)
        ended = threading.Event()

        def pump() -> None:
            while not ended.is_set():
                try:
                    data = worsen(line.read(0.05))
                except LineError:
                    return
                if data:
                    page.evaluate(f"fromBoard({json.dumps(base64.b64encode(data).decode())})")

        thread = threading.Thread(target=pump, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            line.close()


def connect(page: Page) -> None:
    page.click("#tab-board")
    page.click("#board-connect")
    page.until("document.getElementById('board-status').innerText.startsWith('Connected')")


def result(page: Page, button: str, says: str) -> str:
    """What the bench says after a button was pressed."""
    page.evaluate("document.getElementById('board-result').textContent = ''")
    page.evaluate("document.getElementById('trouble').hidden = true")
    page.click(button)
    said = f"document.getElementById('board-result').innerText.includes({json.dumps(says)})"
    page.until(f"{said} || !document.getElementById('trouble').hidden")
    assert page.evaluate(said), page.text("trouble")
    page.until(f"!document.querySelector({json.dumps(button)}).disabled")
    return page.text("board-result")
