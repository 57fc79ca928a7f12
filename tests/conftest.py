"""What all tests share: real data, which tests are slow, and an account of what was skipped."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings

# TensorFlow traces on first use, so single examples may be slow; the number of examples bounds the time.
# In CI the examples are the same each time; elsewhere they are new, and so find more.
settings.register_profile("flipbit", deadline=None, max_examples=50, derandomize=bool(os.environ.get("CI")))
settings.load_profile("flipbit")

# A shell starts background jobs with Ctrl-C ignored, nohup ignores SIGHUP, and children inherit that: tests that send
# them need them back.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

# What makes skipped tests run: the first pattern that a reason matches. A reason that matches none is printed alone, as
# there is nothing to install (another CPU, a board that is plugged in).
SLOW = "takes long"
REMEDIES = [
    (r"FLIPBIT_DATA", "FLIPBIT_DATA=FOLDER make test   (CONTRIBUTING.md says what the folder holds)"),
    (r"this CPU|this machine|this system|permits no|there is a probe", ""),
    (r"package lists|apt cannot|a Debian machine", "make test-all on a Debian machine, after apt-get update"),
    (r"PlatformIO to pack", "pip install platformio   (it looks licences up on the network)"),
    (r"systemd-analyze", "apt-get install systemd"),
    (r"rp2040js|\bnode\b|\bnpm\b", "apt-get install npm, then make test-all"),
    (rf"^{SLOW}|^needs |could not import|is not installed", "make test-all"),
]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the slow tests too (make test-all)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow tests are skipped rather than deselected, so that the account at the end counts them."""
    if config.getoption("--slow"):
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason=SLOW))


def remedy(reason: str) -> str:
    """The command that makes tests run that were skipped for this reason; empty where there is none."""
    return next((command for pattern, command in REMEDIES if re.search(pattern, reason)), "")


def account(reasons: list[str]) -> list[str]:
    """Lines that say how many tests were skipped, why, and what makes them run."""
    counts: dict[str, Counter[str]] = {}
    for reason in reasons:
        counts.setdefault(remedy(reason), Counter())[reason] += 1
    lines = []
    for command, found in sorted(counts.items(), key=lambda pair: (not pair[0], -pair[1].total())):
        lines.append(f"To run them: {command}" if command else "Nothing to install makes these run here:")
        lines += [f"  {number:5}  {reason}" for reason, number in found.most_common()]
    return lines


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = terminalreporter.stats.get("skipped", [])
    if not reports:
        return
    reasons = [str(report.longrepr[2]).removeprefix("Skipped: ").strip() for report in reports]
    terminalreporter.section(f"{len(reports)} skipped")
    for line in account(reasons):
        terminalreporter.write_line(line)


@pytest.fixture(scope="session", autouse=True)
def emulated_boards_are_new(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Emulated boards remember: not from one test run to the next, and not in the home folder."""
    os.environ["FLIPBIT_STATE"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture
def cifar10() -> Path:
    """The folder that holds CIFAR-10's official files."""
    folder = os.environ.get("FLIPBIT_DATA")
    if not folder or not (Path(folder) / "cifar-10-batches-py").is_dir():
        pytest.skip("needs real CIFAR-10: set FLIPBIT_DATA to the folder that holds cifar-10-batches-py/")
    return Path(folder)
