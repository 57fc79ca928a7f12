"""``flipbit serve``: the page of docs/try/ on this machine, with reports beside it."""

from __future__ import annotations

import argparse
import html
import io
import os
import posixpath
import urllib.parse
import webbrowser
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from flipbit.runtime.errors import ArgumentError, FileError

SHIPPED = Path(__file__).resolve().parents[1] / "page"  # setup.py puts it into wheels
CHECKOUT = Path(__file__).resolve().parents[2] / "docs" / "try"
PORT = 8017
REPORTS = "runs", "reproduced"  # where training and `flipbit reproduce` write
KINDS = {".html", ".png", ".svg"}
MOST = 500  # reports that are listed
# As in the page itself, so that no file of the folder escapes it. Reports have styles and pictures inside.
PAGE_POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' blob: data:; "
    "media-src 'self' blob:; connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'"


def page_folder() -> Path:
    """Where the page is: in the checkout, or in the installed package."""
    for folder in (CHECKOUT, SHIPPED):
        if (folder / "index.html").is_file():
            return folder
    raise FileError(f"the page is missing in {SHIPPED}: install flipbit again")


def found_reports(folders: list[Path]) -> dict[str, Path]:
    """Reports and plots by their name in the address, newest first. Links out of the folders are not followed."""
    found: dict[str, Path] = {}
    for folder in folders:
        for parent, _, names in os.walk(folder):
            for name in names:
                path = Path(parent) / name
                if path.suffix.lower() in KINDS and path.resolve().is_relative_to(folder.resolve()):
                    found[f"{folder.name}/{path.relative_to(folder).as_posix()}"] = path
    newest = sorted(found, key=lambda name: -found[name].stat().st_mtime)
    return {name: found[name] for name in newest[:MOST]}


class _Handler(SimpleHTTPRequestHandler):
    """Files of the page, and under reports/ those that were found there. Nothing else, and only to be read."""

    server: PageServer
    extensions_map = {  # noqa: RUF012 -- as in the class it comes from; systems differ in what they know
        **SimpleHTTPRequestHandler.extensions_map,
        ".js": "text/javascript", ".wasm": "application/wasm", ".svg": "image/svg+xml", ".css": "text/css",
        ".html": "text/html; charset=utf-8", ".fbit": "application/octet-stream",
    }  # fmt: skip

    def send_head(self) -> Any:
        split = urllib.parse.urlsplit(self.path)
        path = posixpath.normpath(urllib.parse.unquote(split.path))
        if self.headers.get("Host", "").rpartition(":")[0] not in self.server.hosts:
            return self._refuse(HTTPStatus.MISDIRECTED_REQUEST, "this server is only for this machine")
        if path == "/" and not split.query and found_reports(self.server.reports):
            self.send_response(HTTPStatus.FOUND)
            self.send_header("Location", "/?reports")
            self.end_headers()
            return None
        if path == "/reports" and not split.path.endswith("/"):
            self.send_response(HTTPStatus.FOUND)
            self.send_header("Location", "/reports/")
            self.end_headers()
            return None
        if path == "/reports" or path.startswith("/reports/"):
            return self._report(path.removeprefix("/reports").strip("/"))
        return super().send_head()

    def _report(self, name: str) -> Any:
        reports = found_reports(self.server.reports)
        if not name:
            return self._text(_listing(reports))
        if name not in reports:
            return self._refuse(HTTPStatus.NOT_FOUND, "no such report")
        self.reported = True
        path = reports[name]
        file = path.open("rb")
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", self.guess_type(str(path)))
        self.send_header("Content-Length", str(os.fstat(file.fileno()).st_size))
        self.end_headers()
        return file

    def _text(self, text: str) -> Any:
        data = text.encode()
        self.reported = True
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        return io.BytesIO(data)

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self.send_error(status, why)

    reported = False

    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", REPORT_POLICY if self.reported else PAGE_POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()
        self.reported = False

    def list_directory(self, path: Any) -> None:
        self.send_error(HTTPStatus.NOT_FOUND, "no such page")

    def log_message(self, format: str, *args: Any) -> None:
        pass


class PageServer(ThreadingHTTPServer):
    """Serves the page to this machine alone; ``port`` 0 takes a free one."""

    daemon_threads = True
    hosts = ("127.0.0.1", "localhost")

    def __init__(self, port: int = 0, reports: list[Path] | None = None):
        folder = str(page_folder())
        self.reports = reports or []

        def handler(*given: Any) -> _Handler:
            return _Handler(*given, directory=folder)

        try:
            super().__init__(("127.0.0.1", port), handler)
        except OSError as error:
            raise ArgumentError(f"port {port}: {error.strerror}; choose another with --port") from None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"


LISTING = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>flipbit: reports</title>
<style>
html {{ color-scheme: light dark }}
body {{ font: 16px/1.6 system-ui, sans-serif; max-width: 50em; margin: 2em auto; padding: 0 1em }}
</style></head><body><h1>Reports on this machine</h1>
<p>From <code>flipbit reproduce</code>, <code>flipbit finetune --report</code>, training and the demo, newest first.
<a href="/">Back to the page</a></p><ul>{rows}</ul></body></html>
"""


def _listing(reports: dict[str, Path]) -> str:
    rows = [
        f'<li><a href="{html.escape(urllib.parse.quote(name), quote=True)}">{html.escape(name)}</a></li>'
        for name in reports
    ]
    return LISTING.format(rows="\n".join(rows) or "<li>none yet</li>")


def add_serve_parser(commands: Any) -> None:
    p = commands.add_parser(
        "serve",
        help="open the page that runs nets in a browser",
        description="Serve the page of docs/try/ to this machine and open it: draw, classify, teach, look into .fbit "
        "files, talk to a board over Web Serial. Ctrl-C ends it.",
        epilog="""examples:
  flipbit serve
  flipbit serve --port 8080 --no-open
  flipbit serve --reports runs/cifar10          also list the reports and plots in a folder""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("--port", type=int, default=PORT, metavar="N", help=f"port to listen on ({PORT}); 0: any free one")
    p.add_argument(
        "--reports",
        type=Path,
        action="append",
        metavar="DIR",
        help=f"folder with reports to list ({', '.join(REPORTS)})",
    )
    p.add_argument("--no-open", action="store_true", help="do not open a browser")
    p.set_defaults(command=_serve)


def _serve(given: argparse.Namespace) -> int:
    if not 0 <= given.port <= 65535:
        raise ArgumentError(f"--port {given.port}: expected 0 to 65535")
    for folder in given.reports or []:
        if not folder.is_dir():
            raise ArgumentError(f"--reports {folder}: no such folder")
    folders = given.reports or [Path(name) for name in REPORTS]  # what is not there yet may come
    with PageServer(given.port, folders) as server:
        print(f"flipbit in a browser: {server.address}   (Ctrl-C ends it)", flush=True)
        if not given.no_open:
            webbrowser.open(server.address)
        server.serve_forever()
    return 0
