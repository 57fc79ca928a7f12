"""The pictures of docs/browser.md: python -m tests.browser.take_pictures (needs chromium, the compilers, QEMU
and speech_commands in FLIPBIT_DATA)."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

import numpy as np
from PIL import Image

from flipbit.runtime.audio.wav import read_wav
from flipbit.runtime.commands.serve import PageServer
from tests.browser.bench import BOARD, PORT, board_at, connect, firmware, result
from tests.browser.chromium import Chromium, Page
from tests.browser.test_bench_listens import WORDS, clips, heard, wav
from tests.browser.test_page import DIGITS, DRAWN, settle
from tests.browser.test_teach import learned
from tests.checkout import ROOT

FIGURES = ROOT / "docs" / "figures"
COLOURS, WIDTH = 64, 900


def take(page: Page, name: str, height: int | None = None) -> None:
    """With few colours, so that it stays small."""
    path = FIGURES / f"browser-{name}.png"
    page.picture(path)
    with Image.open(path) as taken:
        cut = taken.convert("RGB").crop((0, 0, taken.width, min(taken.height, height or taken.height)))
    wide = min(WIDTH, cut.width)
    cut = cut.resize((wide, round(cut.height * wide / cut.width)), Image.Resampling.LANCZOS)
    cut.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")


def opened(browser: Chromium, server: PageServer, tab: str, dark: bool = False, width: int = 1100) -> Page:
    page = browser.page(width, 900, mobile=width < 700)
    page.look(dark, reduced_motion=True)
    page.before(PORT)
    page.open(f"{server.address}#{tab}")
    page.until("document.body.dataset.ready")
    return page


def main() -> None:
    browser, server = Chromium(), PageServer()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name, dark, width, height in (("try", False, 1100, 1090), ("phone", True, 390, 2100)):
        page = opened(browser, server, "try", dark, width)
        page.click("#pad-clear")
        page.draw("#pad", DRAWN["7"])
        settle(page)
        page.evaluate("document.activeElement.blur()")
        take(page, name, height)
        page.close()
    page = opened(browser, server, "teach")
    page.click("#teach-dim")
    page.until("!document.getElementById('learn').disabled")
    page.click("#learn")
    learned(page)
    page.evaluate("document.activeElement.blur()")
    take(page, "teach", 1250)
    page.close()
    with tempfile.TemporaryDirectory() as folder:
        page = opened(browser, server, "try")
        page.click("#pad-clear")
        page.draw("#pad", DRAWN["7"])
        settle(page)
        with board_at(page, BOARD, firmware(BOARD, DIGITS.read_bytes(), Path(folder))):
            connect(page)
            result(page, "#board-verify", "layers")
            page.evaluate("document.activeElement.blur()")
            take(page, "board")
        page.close()
        samples = np.concatenate([read_wav(clip).samples for clip in clips()])
        (Path(folder) / "words.wav").write_bytes(wav(samples))
        page = opened(browser, server, "board")
        with board_at(page, BOARD, firmware(BOARD, WORDS.read_bytes(), Path(folder))):
            connect(page)
            page.choose_file("#listen-file", Path(folder) / "words.wav")
            heard(page)
            page.evaluate("document.activeElement.blur()")
            take(page, "listen")
    browser.close()


if __name__ == "__main__":
    main()
