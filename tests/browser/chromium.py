"""A headless Chromium, driven over its DevTools pipe: nothing but the browser is needed."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --mute-audio --remote-debugging-pipe "
    "--use-fake-device-for-media-stream --use-fake-ui-for-media-stream"
).split()
START = """import os, sys
ours = [int(end) for end in sys.argv[1:3]]
os.dup2(ours[0], 3)
os.dup2(ours[1], 4)
os.execv(sys.argv[3], sys.argv[3:])"""
ABOVE = 10  # our ends of the pipes stay clear of 3 and 4, which the browser reads and writes


class BrowserError(Exception):
    """The browser says no."""


class Chromium:
    """One browser with an empty profile."""

    def __init__(self) -> None:
        found = next((path for name in NAMES if (path := shutil.which(name))), None)
        if found is None:
            pytest.skip("needs chromium")
        self._profile = tempfile.TemporaryDirectory(prefix="flipbit-chromium-", ignore_cleanup_errors=True)
        theirs_in, self._to = _pipe()
        self._from, theirs_out = _pipe()
        command = [found, *FLAGS, f"--user-data-dir={self._profile.name}"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", START, str(theirs_in), str(theirs_out), *command], pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self._ids = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self._listeners: list[Callable[[dict[str, Any]], None]] = []
        self._news = threading.Condition()
        self._sending = threading.Lock()
        self._ended = False
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with os.fdopen(self._from, "rb", buffering=0) as stream:
            line = b""
            while data := stream.read(1 << 16):
                *messages, line = (line + data).split(b"\0")
                for message in messages:
                    self._receive(json.loads(message))
        with self._news:
            self._ended = True
            self._news.notify_all()

    def _receive(self, message: dict[str, Any]) -> None:
        if "id" in message:
            with self._news:
                self._answers[message["id"]] = message
                self._news.notify_all()
        else:
            for listener in list(self._listeners):
                listener(message)

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        with self._news:
            self._ids += 1
            number = self._ids
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        with self._sending:
            while data:
                data = data[os.write(self._to, data) :]
        with self._news:
            if not self._news.wait_for(lambda: number in self._answers or self._ended, PATIENCE):
                raise BrowserError(f"{method}: no answer in {PATIENCE} s")
            answer = self._answers.pop(number, None)
        if answer is None:
            raise BrowserError(f"{method}: the browser ended")
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']['message']}")
        found: dict[str, Any] = answer["result"]
        return found

    def listen(self, listener: Callable[[dict[str, Any]], None]) -> None:
        self._listeners.append(listener)

    def page(self, width: int = 1200, height: int = 900, mobile: bool = False) -> Page:
        return Page(self, width, height, mobile)

    def close(self) -> None:
        try:
            self.call("Browser.close")
        except (BrowserError, OSError):
            self._process.terminate()
        self._process.wait(PATIENCE)
        os.close(self._to)
        self._profile.cleanup()


class Page:
    """A tab, in a context of its own: no caches, workers or permissions of other tests."""

    def __init__(self, browser: Chromium, width: int, height: int, mobile: bool):
        self.browser = browser
        self._context = browser.call("Target.createBrowserContext")["browserContextId"]
        target = browser.call("Target.createTarget", url="about:blank", browserContextId=self._context)["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.troubles: list[str] = []  # exceptions and errors in the console, refusals of the policy too
        self.requests: list[str] = []
        self._bound: dict[str, Callable[[str], None]] = {}
        browser.listen(self._event)
        for domain in ("Page", "Runtime", "Log", "Network", "DOM"):
            self.call(f"{domain}.enable")
        metrics = {"width": width, "height": height, "deviceScaleFactor": 2 if mobile else 1, "mobile": mobile}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)

    def _event(self, message: dict[str, Any]) -> None:
        if message.get("sessionId") != self.session:
            return
        given = message["params"]
        if message["method"] == "Runtime.exceptionThrown":
            details = given["exceptionDetails"]
            self.troubles.append(details.get("exception", {}).get("description", details["text"]))
        elif message["method"] == "Log.entryAdded" and given["entry"]["level"] == "error":
            self.troubles.append(f"{given['entry']['text']} {given['entry'].get('url', '')}")
        elif message["method"] == "Network.requestWillBeSent":
            self.requests.append(given["request"]["url"])
        elif message["method"] == "Runtime.bindingCalled":
            self._bound[given["name"]](given["payload"])

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.browser.call(method, self.session, **parameters)

    def bind(self, name: str, receive: Callable[[str], None]) -> None:
        """Calls of ``name(text)`` in the page come here."""
        self._bound[name] = receive
        self.call("Runtime.addBinding", name=name)

    def before(self, script: str) -> None:
        """Run before the scripts of pages that are opened from now on."""
        self.call("Page.addScriptToEvaluateOnNewDocument", source=script)

    def open(self, url: str) -> Page:
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")
        return self

    def evaluate(self, expression: str) -> Any:
        """The value of an expression, awaited, as JSON."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise BrowserError(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    def until(self, expression: str) -> Any:
        """Wait until an expression holds, and return its value."""
        deadline = time.monotonic() + PATIENCE
        while not (found := self.evaluate(expression)):
            if time.monotonic() > deadline:
                raise BrowserError(f"never true: {expression}; troubles: {self.troubles}")
            time.sleep(0.03)
        return found

    def text(self, name: str) -> str:
        """What the element with this id says."""
        found: str = self.evaluate(f"document.getElementById({json.dumps(name)}).innerText")
        return found

    def click(self, selector: str) -> None:
        """With the mouse, where the element is."""
        self.evaluate(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center'}})")
        x, y = self._middle(selector)
        self._mouse("mousePressed", x, y)
        self._mouse("mouseReleased", x, y)

    def _box(self, selector: str) -> dict[str, float]:
        found: dict[str, float] = self.evaluate(
            f"(() => {{ const b = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
            " return {x: b.x, y: b.y, width: b.width, height: b.height}; })()"
        )
        assert found["width"] > 0 and found["height"] > 0, f"{selector} is not shown"
        return found

    def _middle(self, selector: str) -> tuple[float, float]:
        box = self._box(selector)
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def _mouse(self, kind: str, x: float, y: float) -> None:
        pressed = {"button": "left", "buttons": 0 if kind == "mouseReleased" else 1, "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **pressed)

    def draw(self, selector: str, strokes: list[list[tuple[float, float]]]) -> None:
        """Drag over an element: lines of points in its unit square."""
        self.evaluate(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center'}})")
        box = self._box(selector)
        for stroke in strokes:
            places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in stroke]
            self._mouse("mousePressed", *places[0])
            for place in places[1:]:
                self._mouse("mouseMoved", *place)
            self._mouse("mouseReleased", *places[-1])

    def press(self, key: str, times: int = 1) -> None:
        codes = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, " ": 32, "Enter": 13, "Tab": 9,
                 "Delete": 46, "Home": 36, "End": 35}  # fmt: skip
        for _ in range(times):
            for kind in ("keyDown", "keyUp"):
                more = {"text": {"Enter": "\r", " ": " "}.get(key, "")} if kind == "keyDown" else {}
                code = codes[key]
                self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **more)

    def choose_file(self, selector: str, path: Path) -> None:
        answer = self.call("Runtime.evaluate", expression=f"document.querySelector({json.dumps(selector)})")
        self.call("DOM.setFileInputFiles", files=[str(path)], objectId=answer["result"]["objectId"])

    def look(self, dark: bool = False, reduced_motion: bool = False) -> None:
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        features.append({"name": "prefers-reduced-motion", "value": "reduce" if reduced_motion else "no-preference"})
        self.call("Emulation.setEmulatedMedia", features=features)

    def picture(self, path: Path, whole: bool = True) -> None:
        """A screenshot, of the whole page or of what is seen."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def close(self) -> None:
        self.browser.call("Target.disposeBrowserContext", browserContextId=self._context)


def _pipe() -> tuple[int, int]:
    ends = []
    for end in os.pipe():
        ends.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, ABOVE))
        os.close(end)
    return ends[0], ends[1]
