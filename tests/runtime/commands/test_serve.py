"""``flipbit serve``: the page and its reports for this machine, nothing else and to nobody else."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from flipbit.runtime.commands.serve import PAGE_POLICY, REPORT_POLICY, PageServer, page_folder
from tests.patience import PATIENCE


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PageServer]:
    runs = tmp_path / "runs"
    (runs / "a b").mkdir(parents=True)
    (runs / "a b" / "report.html").write_text("<p>held</p>", encoding="utf-8")
    (runs / "notes.txt").write_text("no report", encoding="utf-8")
    (tmp_path / "secret.html").write_text("secret", encoding="utf-8")
    (runs / "way-out.html").symlink_to(tmp_path / "secret.html")
    with PageServer(reports=[runs]) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


def get(
    server: PageServer, path: str, host: str | None = None, method: str = "GET"
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=PATIENCE)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host or f"127.0.0.1:{server.server_address[1]}")
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, {name.title(): value for name, value in answer.getheaders()}, answer.read()
    connection.close()
    return found


def test_files_have_their_types_and_a_strict_policy(server: PageServer) -> None:
    kinds = {"/index.html": "text/html", "/core/flipbit.wasm": "application/wasm", "/js/main.js": "text/javascript",
             "/style.css": "text/css", "/icon.svg": "image/svg+xml",
             "/nets/digits.fbit": "application/octet-stream"}  # fmt: skip
    for path, kind in kinds.items():
        status, headers, data = get(server, path)
        assert (status, data) == (200, (page_folder() / path[1:]).read_bytes())
        assert headers["Content-Type"].startswith(kind)
        assert headers["Content-Security-Policy"] == PAGE_POLICY
        assert headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    ["/../setup.py", "/%2e%2e/setup.py", "/js/", "/nothing", "/reports/runs/notes.txt", "/reports/runs/way-out.html",
     "/reports/../secret.html", "/reports/%2e%2e/secret.html"],
)  # fmt: skip
def test_nothing_outside_the_page_and_its_reports_is_served(server: PageServer, path: str) -> None:
    status, _, data = get(server, path)
    assert status == 404
    assert b"secret" not in data and b"no report" not in data


def test_reports_are_listed_and_may_not_run_scripts(server: PageServer) -> None:
    status, headers, _ = get(server, "/")
    assert (status, headers["Location"]) == (302, "/?reports")
    assert get(server, "/?reports")[2] == (page_folder() / "index.html").read_bytes()
    _, headers, listing = get(server, "/reports/")
    (link,) = re.findall(rb'<li><a href="([^"]+)"', listing)
    assert headers["Content-Security-Policy"] == REPORT_POLICY
    status, headers, data = get(server, "/reports/" + link.decode())
    assert (status, data) == (200, b"<p>held</p>")
    assert (
        "script-src" not in headers["Content-Security-Policy"]
        and "default-src 'none'" in headers["Content-Security-Policy"]
    )


def test_other_names_of_this_machine_and_other_methods_are_refused(server: PageServer) -> None:
    """A page elsewhere whose name was made to point here reads nothing."""
    assert get(server, "/index.html", host="evil.example:80")[0] == 421
    assert get(server, "/index.html", method="POST")[0] == 501
    assert get(server, "/index.html", host=f"localhost:{server.server_address[1]}")[0] == 200


def test_a_port_in_use_is_an_error_in_one_line(server: PageServer, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "flipbit.runtime", "serve", "--no-open", "--port", str(server.server_address[1])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2
    assert re.fullmatch(r"error: .*port \d+: Address already in use; choose another with --port\n", done.stderr)


def test_it_says_where_it_is_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "flipbit.runtime", "serve", "--no-open", "--port", "0"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
    )
    assert process.stdout
    line = process.stdout.readline()
    (port,) = re.findall(r"http://127\.0\.0\.1:(\d+)/", line)
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=PATIENCE)
    connection.request("GET", "/")
    assert connection.getresponse().read().startswith(b"<!doctype html>")
    (tmp_path / "reproduced").mkdir()  # after it was started
    (tmp_path / "reproduced" / "report.html").write_text("held", encoding="utf-8")
    connection.request("GET", "/reports/reproduced/report.html")
    assert connection.getresponse().read() == b"held"
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 130
