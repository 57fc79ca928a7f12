"""``--workers N`` with small programs in place of training: who dies, who is blamed, and what is started again."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path

import pytest

from flipbit.runtime.errors import InputError
from flipbit.train.workers.launch import launch

WORKER = """
    import json, os, pathlib, signal, sys, time
    folder, index = pathlib.Path(sys.argv[1]), json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    started = folder / f"{index}.started"
    with started.open("a") as file:
        file.write("x")
    times = len(started.read_text())
    history, done = folder / "history.json", folder / "done"
    def wait_for(path):
        while not path.exists():
            time.sleep(0.01)
"""


def program(folder: Path, body: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(WORKER) + textwrap.dedent(body), str(folder)]


def starts(folder: Path) -> list[int]:
    return [len(path.read_text()) for path in sorted(folder.glob("*.started"))]


def test_it_ends_when_the_chief_is_done(tmp_path: Path) -> None:
    assert launch(3, lambda: program(tmp_path, "if index: wait_for(done)\ndone.touch()"), tmp_path) == 0
    assert starts(tmp_path) == [1, 1, 1]


def test_all_start_again_when_one_is_killed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    body = """
        if times == 2:
            done.touch()
        elif index == 1:
            history.write_text(json.dumps([{}]))
            wait_for(folder / "0.started")
            os.kill(os.getpid(), signal.SIGKILL)
        wait_for(done)
    """
    assert launch(2, lambda: program(tmp_path, body), tmp_path) == 0
    assert starts(tmp_path) == [2, 2]
    assert capfd.readouterr().err == "worker 1 was killed (SIGKILL): all workers start again after epoch 1\n"


def test_a_run_that_dies_twice_in_an_epoch_is_given_up(tmp_path: Path) -> None:
    body = "if index == 0: os.kill(os.getpid(), signal.SIGKILL)\nwait_for(done)"
    with pytest.raises(InputError, match=r"the chief was killed \(SIGKILL\), twice in epoch 1"):
        launch(2, lambda: program(tmp_path, body), tmp_path)
    assert starts(tmp_path)[0] == 2


@pytest.mark.parametrize(("index", "told"), [(0, "error: no\n"), (1, "error: worker 1: no\n")])
def test_what_a_worker_says_is_passed_on(
    index: int, told: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    body = f"if index == {index}: print('error: no', file=sys.stderr); sys.exit(2)\nwait_for(done)"
    assert launch(2, lambda: program(tmp_path, body), tmp_path) == 2
    assert capfd.readouterr().err == told


def test_workers_are_told_who_they_are(tmp_path: Path) -> None:
    body = """
        (folder / f"{index}.config").write_text(os.environ["TF_CONFIG"])
        wait_for(folder / f"{1 - index}.config")
    """
    assert launch(2, lambda: program(tmp_path, body), tmp_path) == 0
    first, second = (json.loads((tmp_path / f"{i}.config").read_text()) for i in (0, 1))
    assert first["cluster"] == second["cluster"] and len(set(first["cluster"]["worker"])) == 2
    assert [config["task"] for config in (first, second)] == [{"type": "worker", "index": i} for i in (0, 1)]
