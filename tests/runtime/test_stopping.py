"""A signal that comes at a bad moment is heard all the same."""

from __future__ import annotations

import subprocess
import sys

import pytest

FORK = """
import os, signal, sys
from flipbit.runtime.exits import guarded
from flipbit.runtime.stopping import run_child, start_child, wait_for_stop

number = signal.Signals(int(sys.argv[1]))
sent = []

def at_fork():
    if not sent:
        sent.append(number)
        signal.raise_signal(number)

os.register_at_fork(after_in_parent=at_fork)

def command():
    child = start_child(["sleep", "600"])
    print("went on with", child.pid)

sys.exit(guarded(command))
"""

LOST = """
import signal, sys
from flipbit.runtime.exits import guarded
from flipbit.runtime.stopping import wait_for_stop

class Destroyed:
    def __del__(self):
        signal.raise_signal(int(sys.argv[1]))

def command():
    lost = Destroyed()
    del lost  # what a destructor raises is printed and forgotten
    wait_for_stop()

sys.exit(guarded(command))
"""


def signalled(program: str, number: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, str(number)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere a child is not started by fork")
@pytest.mark.parametrize("number", [2, 15, 1])
def test_a_signal_in_the_middle_of_a_fork_ends_the_command_and_its_child(number: int) -> None:
    ended = signalled(FORK, number)
    assert (ended.returncode, ended.stdout) == (128 + number, "")
    assert "Exception ignored" not in ended.stderr


@pytest.mark.parametrize("number", [2, 15])
def test_a_signal_that_a_destructor_swallowed_ends_who_waits_for_one(number: int) -> None:
    ended = signalled(LOST, number)
    assert ended.returncode == 128 + number
    assert ended.stderr.endswith("stopped\n")
