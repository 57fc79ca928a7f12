"""A browser, a server of the page, and a page that has just been opened."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flipbit.runtime.commands.serve import PageServer
from tests.browser.bench import PORT
from tests.browser.chromium import Chromium, Page


@pytest.fixture(scope="session")
def browser() -> Iterator[Chromium]:
    started = Chromium()
    yield started
    started.close()


@pytest.fixture(scope="session")
def server() -> Iterator[PageServer]:
    with PageServer() as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


@pytest.fixture
def page(browser: Chromium, server: PageServer) -> Iterator[Page]:
    """Without animations; at the end nothing has gone wrong unseen, and nobody else was asked."""
    opened = browser.page()
    opened.look(reduced_motion=True)
    opened.open(server.address)
    opened.until("document.body.dataset.ready")
    yield opened
    assert opened.troubles == []
    assert [url for url in opened.requests if not url.startswith((server.address, "blob:", "data:"))] == []
    opened.close()


@pytest.fixture
def bench(browser: Chromium, server: PageServer) -> Iterator[Page]:
    """A page in a browser that has a serial port."""
    opened = browser.page()
    opened.look(reduced_motion=True)
    opened.before(PORT)
    opened.open(server.address)
    opened.until("document.body.dataset.ready")
    yield opened
    assert opened.troubles == []
    opened.close()


@pytest.fixture(scope="session")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where firmware is built."""
    return tmp_path_factory.mktemp("builds")


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[str, bytes], Path]:
    def save(name: str, data: bytes) -> Path:
        (tmp_path / name).write_bytes(data)
        return tmp_path / name

    return save
