"""The page in docs/try/, in a real browser: draw, classify, open files, good ones and bad ones."""

from __future__ import annotations

import json
import math
import re
import struct
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from flipbit.runtime import Model
from flipbit.runtime.commands.serve import PAGE_POLICY, PageServer
from flipbit.runtime.data.pictures import read_picture
from tests.browser.chromium import Chromium, Page
from tests.checkout import ROOT
from tests.firmware.wasm.jobs import expected, inspect_job, learn_job, nets, run_job
from tests.nets.raw_image import CONV, Layer, Shape
from tests.nets.raw_image import image as raw_image
from tests.nets.small_nets import small_image
from tests.nets.tiny_net import tiny_image

DIGITS = ROOT / "models" / "digits-vgg-small" / "model.fbit"
TRY = ROOT / "docs" / "try"
Save = Callable[[str, bytes], Path]
Strokes = list[list[tuple[float, float]]]


def ring(x: float, y: float, wide: float, high: float) -> list[tuple[float, float]]:
    turns = [2 * math.pi * i / 24 for i in range(25)]
    return [(x + wide * math.sin(t), y - high * math.cos(t)) for t in turns]


DRAWN: dict[str, Strokes] = {
    "0": [ring(0.5, 0.5, 0.2, 0.32)],
    "1": [[(0.4, 0.28), (0.52, 0.15), (0.52, 0.85)]],
    "7": [[(0.28, 0.17), (0.5, 0.17), (0.72, 0.17), (0.6, 0.5), (0.45, 0.88)]],
    "8": [ring(0.5, 0.32, 0.17, 0.17), ring(0.5, 0.68, 0.2, 0.19)],
}


def settle(page: Page) -> None:
    """Until what was asked is answered."""
    page.evaluate("import('/js/try.js').then((part) => part.refresh())")


def given_pixels(page: Page) -> np.ndarray:
    """What the net was given, as pixels."""
    found = page.evaluate("import('/js/try.js').then((part) => [...part.currentInput().pixels])")
    return np.array(found, np.uint8)


def check_alive(page: Page) -> None:
    """The page still draws and classifies."""
    page.evaluate("document.getElementById('tab-try').click()")
    page.click("input[value=digits]")
    page.click("#from-draw")
    page.click("#pad-clear")
    page.draw("#pad", DRAWN["7"])
    settle(page)
    assert page.text("answer-class") == "7"


def use(page: Page, net: str) -> None:
    """Choose a net of the page, and wait until it is in use."""
    page.click(f"input[value={net}]")
    page.until(f"import('/js/nets.js').then(({{ nets }}) => nets.key === '{net}')")
    settle(page)


def show_picture(page: Page, path: Path) -> None:
    """Give a picture, and wait until it is the one that is shown."""
    page.evaluate("document.getElementById('picture-what').textContent = 'before'")
    page.choose_file("#picture-file", path)
    page.until("document.getElementById('picture-what').textContent === ''")
    settle(page)


def trouble(page: Page) -> str:
    page.until("!document.getElementById('trouble').hidden")
    return page.text("trouble")


@pytest.mark.parametrize("digit", DRAWN)
def test_a_drawn_digit_is_classified_as_the_host_does_it(page: Page, digit: str) -> None:
    page.click("#pad-clear")
    page.draw("#pad", DRAWN[digit])
    settle(page)
    assert page.text("answer-class") == digit
    pixels = given_pixels(page)
    assert set(pixels) <= {round(i * 255 / 16) for i in range(17)}  # as the training set has them
    model = Model(DIGITS)
    assert model.classify(pixels.reshape(8, 8, 1)) == digit
    real = model.predict(pixels.reshape(8, 8, 1)).astype(float)
    share = np.exp(real - real.max())
    shown = page.evaluate("[...document.querySelectorAll('#scores .n')].map((e) => e.innerText)")
    assert [float(text.removesuffix(" %")) for text in shown] == pytest.approx(100 * share / share.sum(), abs=0.06)
    named = page.evaluate("[...document.querySelectorAll('#maps b')].map((e) => e.innerText)")
    assert named == [layer.name for layer in model.layers]


def test_a_digit_can_be_drawn_with_the_keyboard_alone(page: Page) -> None:
    for _ in range(12):
        page.press("Tab")
        if page.evaluate("document.activeElement.id") == "pad":
            break
    assert page.evaluate("document.activeElement.id") == "pad"
    page.press("Delete")
    page.press("ArrowUp", 8)
    page.press(" ")
    page.press("ArrowDown", 16)
    page.press(" ")
    settle(page)
    assert page.text("answer-class") == "1"


def test_tabs_are_reached_with_arrow_keys(page: Page) -> None:
    page.evaluate("document.getElementById('tab-try').focus()")
    page.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == "tab-teach"
    assert page.evaluate("!document.getElementById('teach').hidden && document.getElementById('try').hidden")
    page.press("End")
    assert page.evaluate("location.hash") == "#board"


def test_the_core_in_the_browser_has_the_bits_of_the_host(page: Page) -> None:
    small = {name: image for name, image in nets().items() if len(image) < 14_000}
    jobs = [run_job(image, 2) for image in [*small.values(), (ROOT / "models/cifar10-flip-m/model.fbit").read_bytes()]]
    jobs += [learn_job(small_image(0), seed=3, bits=True, bias=True), learn_job(tiny_image(2), seed=4, bufferBits=2)]
    jobs += [inspect_job(DIGITS.read_bytes()[:-4])]
    source = (ROOT / "tests/firmware/wasm/answers.js").read_text(encoding="utf-8").replace("export ", "")
    answers = page.evaluate(
        f"(async () => {{ {source}\n const core = await (await import('/core/flipbit.js')).loadCore();"
        f" return answers(core, {json.dumps(jobs)}); }})()"
    )
    for job, answer in zip(jobs, answers, strict=True):
        wanted = expected(job)
        if job["what"] == "learn":
            assert (answer["image"], answer["state"]) == (wanted["image"], wanted["state"])
        elif job["what"] == "run":
            assert answer == wanted
        else:
            assert answer["error"] == wanted["error"] == "FB_ERR_LENGTH"


def test_a_picture_of_the_right_size_gives_the_pixels_of_the_file(page: Page, saved: Save) -> None:
    random = np.random.default_rng(5)
    pixels = random.integers(0, 256, (32, 32, 3), np.uint8)
    use(page, "cifar10")
    show_picture(page, saved("noise.png", png(pixels)))
    assert np.array_equal(given_pixels(page).reshape(32, 32, 3), pixels)
    model = Model(ROOT / "models/cifar10-flip-m/model.fbit")
    assert page.text("answer-class") == model.classify(pixels)


@pytest.mark.parametrize(("net", "channels"), [("digits", 1), ("cifar10", 3)])
def test_behind_what_is_transparent_the_page_is_white_as_on_the_host(
    page: Page, tmp_path: Path, net: str, channels: int
) -> None:
    image = pytest.importorskip("PIL.Image")
    use(page, net)
    side = page.evaluate("document.getElementById('seen').width")
    pixels = np.random.default_rng(7).integers(0, 256, (side, side, 4), np.uint8)
    if channels == 1:
        pixels[..., 1:3] = pixels[..., :1]
    pixels[..., 3] = 255 * (pixels[..., 3] > 127)
    path = tmp_path / "ink.png"
    image.fromarray(pixels).save(path)
    show_picture(page, path)
    page.evaluate("const box = document.getElementById('invert'); if (box.checked) box.click()")
    settle(page)
    assert np.array_equal(given_pixels(page).reshape(side, side, channels), read_picture(path, channels).pixels)


def test_a_digit_on_paper_is_turned_to_light_on_dark(page: Page, saved: Save) -> None:
    digits = np.frombuffer((TRY / "nets" / "digits.bin").read_bytes(), np.uint8).reshape(-1, 65)
    wrong = 0
    for row in digits[:5]:
        paper = np.repeat((255 - row[:64]).reshape(8, 8, 1), 3, axis=2)
        show_picture(page, saved("paper.png", png(paper)))
        assert page.evaluate("document.getElementById('invert').checked")
        assert np.array_equal(given_pixels(page), row[:64])
        wrong += page.text("answer-class") != str(row[64])
        page.evaluate("document.getElementById('invert').checked = false")
    assert wrong <= 1


def png(pixels: np.ndarray) -> bytes:
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def test_the_camera_is_classified_until_it_is_left(page: Page) -> None:
    use(page, "cifar10")
    page.click("#from-camera")
    page.until("document.getElementById('camera').readyState >= 2")
    settle(page)
    assert len(page.text("answer-class")) > 2
    assert given_pixels(page).shape == (32 * 32 * 3,)
    page.evaluate("document.getElementById('tab-inside').click()")
    assert page.evaluate("document.getElementById('camera').srcObject === null")


COUNTED = """(() => {
  const real = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
  window.cameras = [];
  navigator.mediaDevices.getUserMedia = async (asked) => {
    const found = await real(asked);
    if (window.hold) await new Promise((resolve) => { window.release = resolve; });
    window.cameras.push(found);
    return found;
  };
  window.running = () => cameras.filter((one) => one.getTracks().some((track) => track.readyState === "live")).length;
})()"""


def test_a_double_click_on_camera_leaves_one_camera_on_and_none_at_the_end(page: Page) -> None:
    page.evaluate(COUNTED)
    page.evaluate("for (const _ of [1, 2, 3]) document.getElementById('from-camera').click()")
    page.until("document.getElementById('camera').srcObject && cameras.length === 3 && running() === 1")
    page.click("#from-draw")
    page.until("running() === 0")


def test_who_leaves_before_the_camera_comes_does_not_get_it(page: Page) -> None:
    page.evaluate(COUNTED + "; window.hold = true")
    page.click("#from-camera")
    page.until("!!window.release")
    page.click("#from-draw")
    page.evaluate("release()")
    page.until("cameras.length === 1 && running() === 0")
    assert page.evaluate("document.getElementById('camera').srcObject === null")


def test_a_camera_that_is_denied_or_missing_gets_a_message(page: Page) -> None:
    for error in ("Permission denied", "Requested device not found"):
        page.evaluate(f"navigator.mediaDevices.getUserMedia = () => Promise.reject(new Error('{error}'))")
        page.click("#from-camera")
        page.until(f"document.getElementById('camera-note').innerText.includes('No camera: {error}')")
    page.evaluate("Object.defineProperty(navigator, 'mediaDevices', { value: undefined })")
    page.click("#from-camera")
    assert "localhost or https" in page.text("camera-note")
    check_alive(page)


def test_a_camera_that_is_unplugged_is_noticed(page: Page) -> None:
    page.click("#from-camera")
    page.until("!!document.getElementById('camera').srcObject")
    page.evaluate("document.getElementById('camera').srcObject.getTracks()[0].dispatchEvent(new Event('ended'))")
    page.until("document.getElementById('camera-note').innerText.includes('The camera is gone')")
    check_alive(page)


# ---- files of strangers ----


def test_an_own_net_shows_its_layers_and_runs(page: Page, saved: Save) -> None:
    image = small_image(0)
    page.choose_file("#net-file", saved("insects.fbit", image))
    page.until("document.getElementById('own-name').innerText === 'insects.fbit'")
    page.click("#tab-inside")
    rows = page.evaluate("[...document.querySelectorAll('#inside-layers tbody tr')].map((r) => r.cells[0].innerText)")
    model = Model(image)
    assert rows == [op.name for op in model.image.operations]
    facts = page.text("inside-facts")
    assert f"{len(image):,} bytes" in facts and "čmelák" in facts and "9×8×3" in facts
    check_alive(page)


REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "damaged": (lambda: DIGITS.read_bytes()[:-8] + b"\x55" * 8, "damaged"),
    "truncated": (lambda: DIGITS.read_bytes()[:5000], "cut off"),
    "empty": (lambda: b"", "too short"),
    "a picture": (lambda: png(np.zeros((8, 8, 3), np.uint8)), "not a .fbit image"),
    "needs gigabytes": (
        lambda: raw_image(
            [Shape(20_000, 20_000, 1), Shape(20_000, 20_000, 4), Shape(20_000, 20_000, 1)],
            [Layer(CONV, (1, 1), shift=8), Layer(CONV, (1, 1), shift=8)],
        ),
        "MB of memory",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_bad_image_gets_a_message_and_the_page_lives_on(page: Page, what: str, saved: Save) -> None:
    make, says = REFUSED[what]
    page.choose_file("#net-file", saved("bad.fbit", make()))
    message = trouble(page)
    assert "bad.fbit" in message and says in message and "stays" in message
    check_alive(page)


def test_a_huge_file_is_not_read(page: Page, tmp_path: Path) -> None:
    with open(tmp_path / "huge.fbit", "wb") as file:
        file.truncate(3 << 30)
    page.choose_file("#net-file", tmp_path / "huge.fbit")
    assert "3,221 MB" in trouble(page)
    check_alive(page)


@pytest.mark.slow
def test_a_net_that_would_run_for_hours_is_stopped(page: Page, saved: Save) -> None:
    """Eight layers of 255×255 kernels over a thousand by a thousand pixels."""
    shapes = [Shape(1_000, 1_000, 1)] * 9
    layers = [Layer(CONV, (255, 255), shift=30, fill=0)] * 8
    page.choose_file("#net-file", saved("slow.fbit", raw_image(shapes, layers)))
    page.until("!document.getElementById('long').hidden")
    page.click("#long-run")
    assert "was stopped" in trouble(page)
    check_alive(page)


def test_a_net_with_more_outputs_than_anyone_looks_at_is_shown_in_part(page: Page, saved: Save) -> None:
    shapes = [Shape(400, 400, 1), Shape(400, 400, 4)]
    page.choose_file("#net-file", saved("wide.fbit", raw_image(shapes, [Layer(CONV, (1, 1), shift=8, fill=1)])))
    page.until("document.getElementById('own-name').innerText === 'wide.fbit'")
    settle(page)
    assert page.evaluate("document.querySelectorAll('#scores li').length") == 12
    assert page.evaluate("document.querySelectorAll('#lesson-class option').length") == 1000
    assert page.evaluate("document.querySelector('#maps canvas').width") < 1200
    check_alive(page)


def test_labels_and_names_of_a_stranger_are_text(page: Page, saved: Save) -> None:
    nasty = "<img src=x onerror=alert(1)>"
    meta = json.dumps({"labels": [nasty, 3, None], "names": [nasty], "input": "(pixel - 128) * 0.0078125"}).encode()
    image = raw_image([Shape(1, 1, 4), Shape(1, 1, 3)], [Layer(CONV, (1, 1), shift=8)], meta)
    page.choose_file("#net-file", saved(f"{nasty[:4]}.fbit", image))
    page.until("document.getElementById('own-name').innerText.endsWith('.fbit')")
    page.click("#tab-inside")
    assert nasty in page.text("inside-layers") and nasty in page.text("inside-facts")
    assert page.evaluate("document.querySelectorAll('img').length") == 1  # the page's own
    check_alive(page)


def test_a_net_of_sound_takes_no_pictures_and_says_what_it_takes(page: Page) -> None:
    page.choose_file("#net-file", ROOT / "models" / "words-word-s" / "model.fbit")
    page.until("document.getElementById('input-note').innerText.includes('hears sound')")
    assert page.evaluate(
        "document.getElementById('from-camera').disabled && document.getElementById('lesson-add').disabled"
    )
    page.choose_file("#net-file", ROOT / "models" / "motion-signal-s" / "model.fbit")
    page.until("document.getElementById('input-note').innerText.includes('6 values at 50 Hz')")
    page.click("#tab-inside")
    assert "6 values of sensors at 50 Hz" in page.text("inside-facts")
    check_alive(page)


def test_a_broken_picture_leaves_the_one_before(page: Page, saved: Save) -> None:
    random = np.random.default_rng(6)
    use(page, "cifar10")
    show_picture(page, saved("good.png", png(random.integers(0, 256, (32, 32, 3), np.uint8))))
    before = given_pixels(page)
    page.choose_file("#picture-file", saved("broken.png", b"no picture"))
    assert "broken.png: not a picture" in trouble(page)
    settle(page)
    assert np.array_equal(given_pixels(page), before)


def test_the_last_net_that_was_chosen_is_used_however_slow_the_first_comes(page: Page) -> None:
    page.evaluate(
        "(() => { const real = window.fetch; window.fetch = async (url) => {"
        " if (String(url).includes('cifar10')) await new Promise((resolve) => { window.arrive = resolve; });"
        " return real(url); }; })()"
    )
    page.click("input[value=cifar10]")
    page.until("!!window.arrive")
    page.click("input[value=digits]")
    page.evaluate("arrive()")
    page.until("import('/js/nets.js').then(({ nets }) => nets._opened.has('cifar10'))")
    assert page.evaluate("import('/js/nets.js').then(({ nets }) => nets.key)") == "digits"
    check_alive(page)


def test_a_net_that_cannot_be_fetched_leaves_the_one_before_chosen(page: Page) -> None:
    page.evaluate("window.fetch = () => Promise.reject(new TypeError('Failed to fetch'))")
    page.click("input[value=cifar10]")
    assert "Failed to fetch" in trouble(page)
    assert page.evaluate("document.querySelector('input[name=net]:checked').value") == "digits"


def test_many_short_runs_on_a_slow_machine_are_not_stopped(page: Page) -> None:
    """The time that a net may take begins anew with every answer, so a long queue is no long run."""
    script = (
        "(async () => { const { nets } = await import('/js/nets.js');"
        " const net = nets.current; const input = new Int8Array(64);"
        " const real = window.setTimeout; let armed = 0;"
        " window.setTimeout = (work, wait) => { armed += wait === 20000; return real(work, wait); };"
        " const started = armed; await Promise.all(Array.from({ length: 50 }, () => net.call('run', input, false)));"
        " window.setTimeout = real; return armed - started; })()"
    )
    assert page.evaluate(script) >= 49  # the time runs anew with each answer


def test_a_file_that_is_no_picture_gets_a_message(page: Page, saved: Save) -> None:
    page.click("#from-file")
    page.choose_file("#picture-file", saved("broken.png", png(np.zeros((8, 8, 3), np.uint8))[:40]))
    assert "broken.png: not a picture" in trouble(page)
    check_alive(page)


# ---- the page as such ----


def test_there_is_no_inline_script_or_style_and_a_strict_policy(page: Page) -> None:
    html = (TRY / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=|\son\w+=|javascript:", html)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', html)
    assert PAGE_POLICY.startswith(policy)
    assert "default-src 'none'" in policy and "unsafe-inline" not in policy and "'unsafe-eval'" not in policy
    refused = page.evaluate("(() => { try { return new Function('return 1')(); } catch (e) { return e.name; } })()")
    assert refused in ("EvalError", 1)  # the debugger may be let through
    script = "const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s)"
    assert page.evaluate(f"(() => {{ {script}; return window.ran ?? 0; }})()") == 0
    assert any("Content Security Policy" in trouble for trouble in page.troubles)
    page.troubles.clear()


def test_everything_that_takes_the_focus_has_a_name(page: Page) -> None:
    page.call("Accessibility.enable")
    for tab in ("try", "teach", "inside", "dial", "board"):
        page.evaluate(f"document.getElementById('tab-{tab}').click()")
        nodes = page.call("Accessibility.getFullAXTree")["nodes"]
        nameless = []
        for node in nodes:
            facts = {p["name"]: p["value"].get("value") for p in node.get("properties", [])}
            role = node.get("role", {}).get("value")
            if (
                facts.get("focusable")
                and not node.get("name", {}).get("value")
                and role not in ("RootWebArea", "tabpanel")
            ):
                nameless.append((role, node.get("backendDOMNodeId")))
        assert nameless == [], tab


@pytest.mark.parametrize("width", [320, 360, 768, 1400])
def test_nothing_is_cut_off_on_any_screen(browser: Chromium, server: PageServer, width: int) -> None:
    page = browser.page(width, 800, mobile=width < 700).open(server.address)
    page.until("document.body.dataset.ready")
    for tab in ("try", "teach", "inside", "dial", "board"):
        page.evaluate(f"document.getElementById('tab-{tab}').click()")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, tab
    page.close()


def test_a_finger_draws_on_a_phone_and_does_not_scroll(browser: Chromium, server: PageServer) -> None:
    page = browser.page(360, 740, mobile=True).open(server.address)
    page.until("document.body.dataset.ready")
    page.call("Emulation.setTouchEmulationEnabled", enabled=True)
    page.click("#pad-clear")
    page.evaluate("document.getElementById('pad').scrollIntoView({block: 'center'})")
    before = page.evaluate("scrollY")
    box = page.evaluate("(({x, y, width, height}) => [x, y, width, height])(pad.getBoundingClientRect())")
    for i, (x, y) in enumerate(DRAWN["7"][0]):
        point = {"x": box[0] + x * box[2], "y": box[1] + y * box[3]}
        page.call("Input.dispatchTouchEvent", type="touchMove" if i else "touchStart", touchPoints=[point])
    page.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    settle(page)
    assert page.text("answer-class") == "7"
    assert page.evaluate("scrollY") == before
    page.close()


def test_the_answer_is_announced_but_for_every_frame_of_a_camera(page: Page) -> None:
    page.call("Accessibility.enable")

    def announced() -> bool:
        nodes = page.call("Accessibility.getFullAXTree")["nodes"]
        facts = [{p["name"]: p["value"].get("value") for p in node.get("properties", [])} for node in nodes]
        return any(one.get("live") == "polite" and one.get("atomic") for one in facts)

    assert page.evaluate("document.getElementById('answer').getAttribute('aria-live')") == "polite" and announced()
    page.click("#from-camera")
    page.until("!!document.getElementById('camera').srcObject")
    assert page.evaluate("document.getElementById('answer').getAttribute('aria-live')") == "off"
    page.click("#from-draw")
    assert page.evaluate("document.getElementById('answer').getAttribute('aria-live')") == "polite"


def test_after_one_visit_the_page_works_without_a_server(browser: Chromium) -> None:
    with PageServer() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = browser.page()
        page.open(server.address)
        page.until("document.body.dataset.ready")
        page.until("navigator.serviceWorker.ready.then((found) => found.active.state === 'activated')")
        address = server.address
        server.shutdown()
    page.open(address + "#try")
    page.call("Page.reload")
    page.until("document.readyState === 'complete' && document.body.dataset.ready")
    page.click("#pad-clear")
    page.draw("#pad", DRAWN["0"])
    settle(page)
    assert page.text("answer-class") == "0"
    page.click("input[value=cifar10]")
    page.until("document.querySelectorAll('#maps li').length > 15")
    page.close()


def test_copies_in_the_page_are_those_of_the_checkout() -> None:
    copies = {
        "core/flipbit.js": "firmware/wasm/flipbit.js",
        "core/flipbit.wasm": "firmware/wasm/flipbit.wasm",
        "nets/digits.fbit": "models/digits-vgg-small/model.fbit",
        "nets/cifar10.fbit": "models/cifar10-flip-m/model.fbit",
    }
    other = [copy for copy, source in copies.items() if (TRY / copy).read_bytes() != (ROOT / source).read_bytes()]
    assert other == [], "make -C firmware/wasm page"


def test_the_digits_of_the_page_are_the_test_part_of_the_set() -> None:
    from flipbit.runtime.data.sets import open_arrays

    pytest.importorskip("sklearn")
    found = open_arrays("digits")
    assert found
    x, y = found.read("test")
    rows = np.frombuffer((TRY / "nets" / "digits.bin").read_bytes(), np.uint8).reshape(-1, 65)
    assert np.array_equal(rows[:, :64], x.reshape(-1, 64))
    assert np.array_equal(rows[:, 64], y)


def test_every_file_of_the_page_is_kept_for_offline_use() -> None:
    source = (TRY / "offline.js").read_text(encoding="utf-8")
    modules = re.findall(r'"([\w/]+)"', re.findall(r"\.\.\.\[(.*?)\]\.map", source, re.DOTALL)[0])
    named = re.findall(r'"([\w/]+\.\w+)"', source.split("...[")[0])
    kept = {*named, *(f"js/{name}.js" for name in modules)}
    assert kept == {path.relative_to(TRY).as_posix() for path in TRY.rglob("*") if path.is_file()} - {"offline.js"}
