"""Training on several processes for real, on loopback: the digits, a few steps an epoch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from flipbit.train.workers.cluster import Cluster
from flipbit.train.workers.launch import free_ports
from tests.checkout import ROOT
from tests.patience import PATIENCE

pytestmark = pytest.mark.slow

PLAIN = ["--no-plot", "--no-tensorboard"]
FAST = ["--limit", "200", "--width", "0.5", "--threads", "1", *PLAIN]


STARTED: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def nothing_is_left_running() -> Iterator[None]:
    yield
    for process in STARTED:
        process.kill()  # its workers end with it
        process.communicate()
    STARTED.clear()


def start(*arguments: object, cluster: Cluster | None = None) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    if cluster is not None:
        environment["TF_CONFIG"] = cluster.tf_config()
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "train" / "run.py"), *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    STARTED.append(process)
    return process


def run(*arguments: object) -> tuple[str, str]:
    """What a training that succeeds says."""
    process = start(*arguments)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    return out, err


def arrays(folder: Path) -> dict[str, np.ndarray]:
    with np.load(folder / "checkpoint.npz") as saved:
        return {name: saved[name] for name in saved.files if name != "history"}


def same_bits(one: Path, other: Path) -> bool:
    a, b = arrays(one), arrays(other)
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def worker_process(launcher: int, index: int) -> int:
    """The process that is worker ``index`` of a run with ``--workers``."""
    if not Path("/proc/self/environ").exists():
        pytest.skip("needs /proc to find the processes of workers")
    for pid in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
        if f'"index": {index}' in Path(f"/proc/{pid}/environ").read_text():
            return int(pid)
    raise AssertionError(f"no worker {index} is running")


def wait_for_epochs(folder: Path, epochs: int) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            if len(json.loads((folder / "history.json").read_text())) >= epochs:
                return
        except FileNotFoundError:
            pass
        time.sleep(0.05)
    raise AssertionError(f"{epochs} epochs never came")


def test_two_and_three_workers_train_as_one_does(tmp_path: Path) -> None:
    # Real weights and plain SGD follow their gradients without jumps; last batch of 8, where parts differ in size.
    for count in (1, 2, 3):
        learning = ["--method", "adam", "--optimizer", "sgd", "--lr", "0.05", "--cutout", "3", "--mixup", "0.3"]
        run(*learning, "--epochs", "1", *FAST, "--workers", count, "-o", tmp_path / str(count))
    one = arrays(tmp_path / "1")
    for count in (2, 3):
        many = arrays(tmp_path / str(count))
        assert one.keys() == many.keys()
        for name in one:
            if name.startswith("weight"):
                np.testing.assert_allclose(one[name], many[name], rtol=1e-4, atol=1e-5, err_msg=name)
        described = json.loads((tmp_path / str(count) / "run.json").read_text())
        assert described["workers"] == [{"from_epoch": 1, "processes": count, "replicas": count}]
    assert "workers" not in json.loads((tmp_path / "1" / "run.json").read_text())


def test_a_killed_worker_costs_an_epoch_and_no_bit(tmp_path: Path) -> None:
    learning = ["--method", "sr", "--buffer-bits", "2", "--epochs", "3", *FAST, "--workers", "2"]
    out, _ = run(*learning, "-o", tmp_path / "whole")
    assert out.count("epoch   2") == 1  # the chief alone shows progress
    process = start(*learning, "-o", tmp_path / "killed")
    wait_for_epochs(tmp_path / "killed", 1)
    os.kill(worker_process(process.pid, 1), signal.SIGKILL)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert "worker 1 was killed (SIGKILL): all workers start again after epoch" in err
    assert same_bits(tmp_path / "whole", tmp_path / "killed")


def test_a_run_goes_on_with_another_number_of_workers(tmp_path: Path) -> None:
    run("--method", "sr", "--epochs", "1", *FAST, "--workers", "2", "-o", tmp_path / "run")
    run("--resume", tmp_path / "run", "--epochs", "2", *PLAIN, "--workers", "3")
    run("--resume", tmp_path / "run", "--epochs", "3", *PLAIN)
    described = json.loads((tmp_path / "run" / "run.json").read_text())
    assert [(note["from_epoch"], note["processes"]) for note in described["workers"]] == [(1, 2), (2, 3), (3, 1)]
    assert described["status"] == "finished" and described["result"]["epoch"] == 3


def test_ctrl_c_ends_all_workers(tmp_path: Path) -> None:
    process = start("--method", "sr", "--epochs", "500", *FAST, "--workers", "2", "-o", tmp_path / "run")
    wait_for_epochs(tmp_path / "run", 1)
    workers = [worker_process(process.pid, index) for index in (0, 1)]
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert err.split("\n")[-3:-1] == [
        "stopped", f"all finished epochs are kept; go on with: python train/run.py --resume {tmp_path / 'run'}"
    ]  # fmt: skip
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


def test_without_the_launcher_the_others_say_who_is_gone(tmp_path: Path) -> None:
    addresses = tuple(f"127.0.0.1:{port}" for port in free_ports(2))
    workers = [
        start("--method", "sr", "--epochs", "500", *FAST, "-o", tmp_path / "run", cluster=Cluster(addresses, index))
        for index in (0, 1)
    ]
    wait_for_epochs(tmp_path / "run", 1)
    workers[1].kill()
    _, err = workers[0].communicate(timeout=PATIENCE)
    workers[1].communicate()
    assert workers[0].returncode == 2 and "Traceback" not in err
    assert f"error: worker 1 ({addresses[1]}) cannot be reached any more" in err and "--resume" in err


def test_workers_with_other_settings_are_refused(tmp_path: Path) -> None:
    addresses = tuple(f"127.0.0.1:{port}" for port in free_ports(2))
    workers = [
        start("--method", "sr", "--lr", rate, *FAST, "-o", tmp_path / "run", cluster=Cluster(addresses, index))
        for index, rate in enumerate(("0.01", "0.02"))
    ]
    for worker in workers:
        _, err = worker.communicate(timeout=PATIENCE)
        assert worker.returncode == 2
        assert err.splitlines()[0].startswith("error: worker 1 has --lr 0.02, the chief 0.01: start all workers")


TWO_DEVICES = """
import sys
from pathlib import Path
from flipbit.train.keras_larq import tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
tf.config.threading.set_intra_op_parallelism_threads(1)  # before the strategy starts TensorFlow
from flipbit.train import Settings, loop
from flipbit.train.workers.replicas import Replicas
found = Replicas.of(None, ["CPU:0", "CPU:1"])
loop.Replicas.of = staticmethod(lambda cluster: found)
loop.train(Settings(method="sr", epochs=1, limit=200, width=0.5, threads=1), Path(sys.argv[1]))
"""


def test_two_devices_of_one_process_give_the_bits_of_two_processes(tmp_path: Path) -> None:
    run("--method", "sr", "--epochs", "1", *FAST, "--workers", "2", "-o", tmp_path / "processes")
    done = subprocess.run(
        [sys.executable, "-c", TWO_DEVICES, str(tmp_path / "devices")], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    assert same_bits(tmp_path / "processes", tmp_path / "devices")
