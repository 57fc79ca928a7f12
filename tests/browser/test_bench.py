"""The page talks to a board over Web Serial: a real browser, a port that a test holds, an emulated board behind it."""

from __future__ import annotations

import random
import re
import threading
from pathlib import Path

import numpy as np
import pytest

from flipbit.runtime import Model
from flipbit.runtime.core.learner import Learner, LearnerConfig
from flipbit.runtime.core.library import status_name
from flipbit.runtime.image.inputs import to_planes
from flipbit.runtime.link.protocol import Command, Frame, Reader, encode
from tests.browser.bench import BOARD, board_at, connect, firmware, result
from tests.browser.chromium import Chromium, Page
from tests.browser.test_page import DIGITS, DRAWN, check_alive, given_pixels, settle, trouble
from tests.browser.test_teach import image_now
from tests.checkout import ROOT
from tests.nets.small_nets import small_image
from tests.patience import PATIENCE


@pytest.fixture
def page(bench: Page) -> Page:
    return bench


@pytest.mark.slow
def test_a_board_infers_verifies_learns_and_forgets_at_the_page(page: Page, builds: Path) -> None:
    digits = DIGITS.read_bytes()
    with board_at(page, BOARD, firmware(BOARD, digits, builds)):
        page.click("#pad-clear")
        page.draw("#pad", DRAWN["7"])
        settle(page)
        pixels = given_pixels(page)
        connect(page)
        facts = page.text("board-facts")
        assert BOARD in facts and "built-in, 11,652 bytes, CRC 50ba5e4e" in facts
        assert page.evaluate("window.baudRate") == 115200
        assert "ready: flipbit" in page.text("board-log") or page.text("board-log") == ""

        told = result(page, "#board-infer", "The board says")
        assert "says 7" in told and "every output is that of this browser" in told
        told = result(page, "#board-verify", "layers")
        assert told == "All 10 layers are equal to this browser's, bit for bit."

        page.evaluate("document.getElementById('lesson-class').value = '4'")
        page.evaluate("document.getElementById('lesson-add').click()")
        page.evaluate("document.getElementById('learn-steps').value = '3'")
        told = result(page, "#board-learn", "has learned")
        assert "saved in its flash" in told and "its bits are those of this browser" in told
        model, learner = Model(digits), Learner(digits, LearnerConfig(seed=1, bits=True, bias=True))
        planes, _ = to_planes(pixels.reshape(8, 8, 1), model.image.tensors[model.image.input], model.pixels)
        for step in range(3):
            learner.step(planes, np.array([4]), 0.005 * (1 - step / 3), 0.5 * (1 - step / 3))
        assert image_now(page) == learner.image != digits
        assert "it has learned" in page.text("board-facts")
        assert "bit for bit" in result(page, "#board-verify", "layers")

        assert "as it was uploaded" in result(page, "#board-forget", "has its net back")
        assert image_now(page) == digits


@pytest.mark.slow
def test_an_image_is_uploaded_selected_and_still_there_after_a_reset(page: Page, builds: Path, saved) -> None:  # type: ignore[no-untyped-def]
    with board_at(page, BOARD, firmware(BOARD, DIGITS.read_bytes(), builds)):
        connect(page)
        page.choose_file("#net-file", saved("insects.fbit", small_image(0)))
        page.until("document.getElementById('own-name').innerText === 'insects.fbit'")
        assert "insects.fbit is in slot 0" in result(page, "#board-upload", "is in slot")
        crc = f"{int.from_bytes(small_image(0)[12:16], 'little'):08x}"
        assert f"slot 0, {len(small_image(0)):,} bytes, CRC {crc}" in page.text("board-facts")
        assert "All" in result(page, "#board-verify", "layers")
        result(page, "#board-reset", "started anew")
        assert "ready: flipbit" in page.text("board-log")


def test_the_page_takes_the_net_that_is_on_the_board(page: Page, builds: Path) -> None:
    with board_at(page, "microbit", firmware("microbit", small_image(1), builds)):
        connect(page)
        assert image_now(page) == small_image(1)
        assert "bit for bit" in result(page, "#board-verify", "layers")


def test_a_board_with_too_little_ram_says_how_much_is_missing(page: Page, builds: Path) -> None:
    with board_at(page, "microbit", firmware("microbit", DIGITS.read_bytes(), builds)):
        connect(page)
        page.evaluate("document.getElementById('lesson-add').click()")
        page.click("#board-learn")
        assert "bytes of RAM" in trouble(page)
        assert "error: The board has" in page.text("board-log")
        assert "layers" in result(page, "#board-verify", "layers")  # and it goes on


@pytest.mark.slow
def test_noise_on_the_line_costs_time_and_no_bits(page: Page, builds: Path) -> None:
    drawn = random.Random(3)

    def worsen(data: bytes) -> bytes:
        return bytes(byte ^ (1 << drawn.randrange(8)) if drawn.random() < 0.004 else byte for byte in data)

    with board_at(page, BOARD, firmware(BOARD, DIGITS.read_bytes(), builds), worsen):
        connect(page)
        for _ in range(6):
            assert "bit for bit" in result(page, "#board-verify", "layers")


def test_the_camera_is_streamed_to_the_board(page: Page, builds: Path) -> None:
    with board_at(page, BOARD, firmware(BOARD, DIGITS.read_bytes(), builds)):
        connect(page)
        page.click("#board-stream")
        page.until("/Frame [3-9]/.test(document.getElementById('board-result').innerText)")
        seen, same = page.evaluate(
            "document.getElementById('board-result').innerText.match(/(\\d+) of (\\d+) as/).slice(1)"
        )
        assert seen == same
        page.click("#board-stream")
        page.until("document.getElementById('camera').srcObject === null")


def test_a_board_that_is_unplugged_is_noticed(page: Page, builds: Path) -> None:
    with board_at(page, BOARD, firmware(BOARD, DIGITS.read_bytes(), builds)):
        connect(page)
        page.evaluate("unplug()")
        page.until("document.getElementById('board-status').innerText.startsWith('Disconnected')")
        assert "unplugged" in page.text("board-status")
        assert page.evaluate("document.getElementById('board-bench').hidden")


def test_after_the_cable_was_pulled_the_same_port_is_opened_again(page: Page, builds: Path) -> None:
    elf = firmware(BOARD, DIGITS.read_bytes(), builds)
    with board_at(page, BOARD, elf):
        connect(page)
        page.evaluate("unplug()")
        page.until("document.getElementById('board-status').innerText.startsWith('Disconnected')")
        page.until("!window.portIsOpen")
        connect(page)
        assert "bit for bit" in result(page, "#board-verify", "layers")


class Cable:
    """Breaks behind the fourth frame of a command: nothing of the page reaches the board until it is mended."""

    def __init__(self, command: Command):
        self.command, self.reader = command, Reader()
        self.left: int | None = 4  # frames until it breaks
        self.broken = threading.Event()

    def passes(self, data: bytes) -> bool:
        if self.broken.is_set():
            return False
        if self.left is not None:
            self.left -= sum(frame.command == self.command for frame in self.reader.feed(data))
            if self.left <= 0:
                self.broken.set()
        return True

    def mend(self) -> None:
        self.left = None
        self.broken.clear()


@pytest.mark.parametrize("what", ["upload", "learn", "stream"])
def test_a_cable_pulled_in_the_middle_gets_a_message_and_the_page_lives_on(page: Page, builds: Path, what: str) -> None:
    cable = Cable({"upload": Command.PIECE, "learn": Command.LEARN_SAMPLE, "stream": Command.INFER}[what])
    with board_at(page, BOARD, firmware(BOARD, DIGITS.read_bytes(), builds), passes=cable.passes):
        connect(page)
        page.evaluate("document.getElementById('lesson-add').click()")
        page.click(f"#board-{what}")
        assert cable.broken.wait(PATIENCE)
        page.evaluate("unplug()")
        page.until("document.getElementById('board-status').innerText.startsWith('Disconnected')")
        assert "unplugged" in page.text("board-status")
        page.until("document.getElementById('board-stream').getAttribute('aria-pressed') === 'false'")
        assert page.evaluate("document.getElementById('camera').srcObject === null")
        assert image_now(page) == DIGITS.read_bytes()
        cable.mend()
        connect(page)
        page.until("!document.getElementById('board-verify').disabled")
        if what == "learn":  # the board has a sample, and nobody told it that the step is over
            page.click("#board-verify")
            assert "Forget or Reset ends it" in trouble(page)
            result(page, "#board-forget", "as it was uploaded")
        assert "bit for bit" in result(page, "#board-verify", "layers")
    check_alive(page)


def test_disconnecting_in_the_middle_leaves_no_strange_words(page: Page, builds: Path) -> None:
    with board_at(page, BOARD, firmware(BOARD, DIGITS.read_bytes(), builds)):
        connect(page)
        page.evaluate("document.getElementById('lesson-add').click()")
        page.click("#board-learn")
        page.until("document.getElementById('board-result').innerText.startsWith('Step')")
        page.click("#board-disconnect")
        assert trouble(page).removesuffix("Close").strip() in ("disconnected", "the board is not connected any more")
        assert page.text("board-status") == "Disconnected."
        connect(page)
        result(page, "#board-reset", "started anew")
        result(page, "#board-infer", "The board says")


def test_one_thing_at_a_time_happens_on_the_line(page: Page, builds: Path) -> None:
    with board_at(page, BOARD, firmware(BOARD, DIGITS.read_bytes(), builds)):
        connect(page)
        page.click("#board-stream")
        page.until("/Frame/.test(document.getElementById('board-result').innerText)")
        free = "[...document.querySelectorAll('#board-bench button')].filter((b) => !b.disabled).map((b) => b.id)"
        assert page.evaluate(free) == ["board-stream"]
        page.click("#board-stream")
        page.until("!document.getElementById('board-verify').disabled")
        for _ in range(3):  # as fast as a hand that trembles
            page.evaluate("document.getElementById('board-verify').click()")
        page.until("document.getElementById('board-result').innerText.includes('bit for bit')")
        page.until("!document.getElementById('board-verify').disabled")
        assert page.text("board-log").count("error") == 0


def test_who_leaves_the_bench_leaves_the_stream_and_the_camera(page: Page, builds: Path) -> None:
    with board_at(page, BOARD, firmware(BOARD, DIGITS.read_bytes(), builds)):
        connect(page)
        page.click("#board-stream")
        page.until("/Frame/.test(document.getElementById('board-result').innerText)")
        page.click("#tab-inside")
        page.until("document.getElementById('board-stream').getAttribute('aria-pressed') === 'false'")
        assert page.evaluate("document.getElementById('camera').srcObject === null")


def test_a_board_with_another_net_than_the_page_is_not_compared_with_it(page: Page, builds: Path) -> None:
    with board_at(page, BOARD, firmware(BOARD, DIGITS.read_bytes(), builds)):
        connect(page)
        page.click("input[value=cifar10]")
        page.until("document.getElementById('inside-title').textContent.includes('CIFAR')")
        for button in ("infer", "verify", "stream"):
            page.click(f"#board-{button}")
            assert "another net" in trouble(page)
            page.click("#trouble button")
            page.until("!document.getElementById('board-verify').disabled")


def test_a_port_that_another_tab_has_open_gets_a_message(page: Page) -> None:
    page.evaluate("window.portIsOpen = true")
    page.click("#tab-board")
    page.click("#board-connect")
    page.until("document.getElementById('board-status').innerText.startsWith('Not connected')")
    assert "another program or tab" in page.text("board-status")
    assert not page.evaluate("document.getElementById('board-connect').disabled")


def test_connecting_twice_asks_for_one_port(page: Page) -> None:
    page.evaluate(
        "window.asked = 0; navigator.serial.requestPort = () => { asked += 1; return new Promise(() => {}); }"
    )
    page.click("#tab-board")
    page.evaluate("for (const _ of [1, 2, 3]) document.getElementById('board-connect').click()")
    assert page.evaluate("asked") == 1


def test_without_a_camera_streaming_says_so(page: Page, builds: Path) -> None:
    with board_at(page, BOARD, firmware(BOARD, DIGITS.read_bytes(), builds)):
        connect(page)
        page.evaluate("navigator.mediaDevices.getUserMedia = () => Promise.reject(new Error('Permission denied'))")
        page.click("#board-stream")
        assert "No camera: Permission denied" in trouble(page)
        page.until("!document.getElementById('board-verify').disabled")


def test_statuses_of_the_core_have_the_numbers_of_the_header(page: Page) -> None:
    named = page.evaluate("import('/js/link/refusals.js').then((part) => part.CORE_STATUS)")
    assert ["FB_OK", *(f"FB_ERR_{name}" for name in named[1:])] == [status_name(i) for i in range(len(named))]
    assert status_name(len(named)) == "FB_MORE"


def test_a_port_without_a_board_gets_a_message(page: Page) -> None:
    page.bind("toBoard", lambda text: None)
    page.evaluate("import('/js/link/device.js').then(({ Device }) => { const hello = Device.prototype.hello;"
                  " Device.prototype.hello = function () { return hello.call(this, 500); }; })")  # fmt: skip
    page.click("#tab-board")
    page.click("#board-connect")
    page.until("document.getElementById('board-status').innerText.startsWith('Not connected')")
    assert "does the board run the flipbit firmware" in page.text("board-status")


def test_choosing_no_port_changes_nothing(page: Page) -> None:
    page.evaluate("window.noPort = true")
    page.click("#tab-board")
    page.click("#board-connect")
    assert page.text("board-status") == ""


def test_a_browser_without_web_serial_says_so(browser: Chromium, server) -> None:  # type: ignore[no-untyped-def]
    page = browser.page()
    page.before("delete Navigator.prototype.serial")
    page.open(server.address)
    page.until("document.body.dataset.ready")
    page.click("#tab-board")
    assert "has no Web Serial" in page.text("board-unsupported")
    assert page.evaluate("document.getElementById('board-supported').hidden")
    page.close()


def test_frames_are_those_of_the_host(page: Page) -> None:
    """Every request, byte for byte, and every reply back."""
    drawn = np.random.default_rng(0)
    payloads = [drawn.integers(0, 4, size).astype(np.uint8).tobytes() for size in (0, 1, 5, 100, 243, 244)]
    source = "Promise.all([import('/js/link/frames.js'), import('/core/flipbit.js').then((part) => part.loadCore())])"
    for number, payload in enumerate(payloads, 1):
        values = f"{number}, 3, Uint8Array.from({list(payload)}), (bytes) => core.crc32(bytes)"
        sent = page.evaluate(f"{source}.then(([frames, core]) => [...frames.encodeRequest({values})])")
        assert bytes(sent) == b"\0" + encode(Frame(number, 3, 0, payload))
        line = list(encode(Frame(number, 0x83, 0, payload)))
        read = page.evaluate(
            f"{source}.then(([frames, core]) => new frames.FrameReader((bytes) => core.crc32(bytes)).feed({line})"
            ".map((frame) => [frame.id, frame.command, frame.status, ...frame.payload]))"
        )
        assert read == [[number, 0x83, 0, *payload]]
    assert Reader().feed(encode(Frame(1, 3))) == [Frame(1, 3)]


def test_command_numbers_are_those_of_the_host() -> None:
    source = (ROOT / "docs/try/js/link/frames.js").read_text(encoding="utf-8")
    (listed,) = re.findall(r"COMMANDS = \{(.*?)\};", source, re.DOTALL)
    numbers = {name: int(value, 16) for name, value in re.findall(r"(\w+): (0x\w+)", listed)}
    assert len(numbers) > 15
    assert numbers.items() <= {command.name: int(command) for command in Command}.items()
