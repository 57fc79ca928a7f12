"""`flipbit fleet`: a simulation in this process and on Ray, and a fleet of processes with TLS and keys."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from flipbit.runtime.commands.cli import main
from flipbit.runtime.errors import InputError
from flipbit.runtime.stopping import end_child, start_child
from flipbit.studies.fleet.deploy import free_port
from flipbit.studies.fleet.run import SHARES, write_shares
from tests.checkout import ROOT
from tests.patience import PATIENCE

DIGITS = str(ROOT / "models" / "digits-vgg-small" / "model.fbit")
FEW = ["--data", "digits", "--drift", "noise:3", "--devices", "4", "--each", "5", "--held-back", "60", "--rounds", "2"]


def needs(package: str) -> None:
    if find_spec(package) is None:
        pytest.skip(f"needs {package}: pip install -c constraints.txt 'flipbit[fleet]'")


def test_a_simulation_writes_image_log_and_plot_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["fleet", "simulate", DIGITS, *FEW, "--local", "--quorum", "1", "-o", str(tmp_path / "run")]
    assert main([*command, "--json", "--plot", str(tmp_path / "plot.png")]) == 0
    log = json.loads(capsys.readouterr().out)
    assert [row["answered"] for row in log["rounds"]] == [4, 4]
    assert all(row["up"] > 0 and row["down"] > 0 and 0 <= row["accuracy"] <= 1 for row in log["rounds"])
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert main(["fleet", "report", str(tmp_path / "run")]) == 0
    table = capsys.readouterr().out
    assert "held back" in table and "4/4" in table
    image = (tmp_path / "run" / "model.fbit").read_bytes()
    assert main(command) == 0  # nothing is left to do
    assert (tmp_path / "run" / "model.fbit").read_bytes() == image
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_a_run_of_another_command_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["fleet", "simulate", DIGITS, *FEW, "--local", "-o", str(tmp_path)]
    assert main(command) == 0
    assert main([*command, "--rate", "0.1"]) == 2
    assert "is of another run" in capsys.readouterr().err


def test_nothing_of_flower_is_imported_by_a_simulation_in_this_process(tmp_path: Path) -> None:
    code = (
        "import sys; from flipbit.runtime.commands.cli import main; "
        f"assert main({['fleet', 'simulate', DIGITS, *FEW, '--local', '-o', str(tmp_path)]!r}) == 0; "
        "sys.exit(any(name.split('.')[0] in ('flwr', 'ray') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("way", ["flips", "sum"])
def test_flower_and_ray_give_the_bits_of_this_process(tmp_path: Path, way: str) -> None:
    needs("flwr")
    needs("ray")
    for where in (["--local"], []):
        command = ["fleet", "simulate", DIGITS, *FEW, "--way", way, "--quorum", "1", "--rate", "0.01"]
        assert main([*command, *where, "-o", str(tmp_path / ("local" if where else "ray"))]) == 0
    images = [(tmp_path / where / "model.fbit").read_bytes() for where in ("local", "ray")]
    assert images[0] == images[1] != Path(DIGITS).read_bytes()


def shares_of_digits(folder: Path, devices: int) -> Path:
    random = np.random.default_rng(1)
    shares = [(random.integers(-128, 128, (6, 1, 8, 8), np.int8), random.integers(0, 10, 6)) for _ in range(devices)]
    write_shares(folder / SHARES, shares, 0)
    return folder / SHARES


def fleet(*words: str) -> list[str]:
    return [sys.executable, "-m", "flipbit.studies.fleet.command", *words]


@pytest.mark.slow
def test_superlink_and_supernodes_lead_a_fleet_over_tls_with_known_keys_only(tmp_path: Path) -> None:
    """Two devices that are known, one of them killed and started again; a third whose key the server does not know."""
    needs("flwr")
    from flipbit.studies.fleet.deploy import free_port

    keys, port = tmp_path / "keys", str(free_port())
    samples = shares_of_digits(tmp_path, 3)
    assert main(["fleet", "keys", "--devices", "3", "-o", str(keys)]) == 0
    assert os.stat(keys / "device-0").st_mode & 0o77 == 0

    def join(number: int) -> subprocess.Popen[bytes]:
        log = open(tmp_path / f"join{number}.txt", "ab")  # noqa: SIM115  the child's
        words = ("join", DIGITS, "--number", str(number), "--keys", str(keys), "--server", f"127.0.0.1:{port}")
        more = ("--samples", str(samples), "--flash", str(tmp_path / f"flash{number}"))
        return start_child(fleet(*words, *more), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    out = tmp_path / "run"
    serve = fleet(
        "serve", DIGITS, "--keys", str(keys), "--devices", "2", "--rounds", "3", "--rate", "0.01", "--quorum", "1",
        "--patience", str(PATIENCE), "--port", port, "-o", str(out),
    )  # fmt: skip
    children = [join(0), join(1), join(2)]
    try:
        leader = start_child(serve, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        children.append(leader)
        end = time.monotonic() + PATIENCE
        while not (out / "log.json").exists():  # the first round is done
            assert leader.poll() is None and time.monotonic() < end, (tmp_path / "join0.txt").read_text()
            time.sleep(0.2)
        os.killpg(children[1].pid, signal.SIGKILL)
        children[1].wait()
        children.append(join(1))
        _, said = leader.communicate(timeout=2 * PATIENCE)
        assert leader.returncode == 0, said.decode()
    finally:
        for child in children:
            end_child(child)
    log = json.loads((out / "log.json").read_text())
    assert len(log["rounds"]) == 3
    assert all(row["answered"] in (1, 2) and row["refused"] == 0 for row in log["rounds"])
    assert (out / "model.fbit").read_bytes() != Path(DIGITS).read_bytes()
    assert "not let in" in (tmp_path / "join2.txt").read_text()
    assert not (tmp_path / "flash2" / "device").exists()


@pytest.mark.slow
def test_a_device_refuses_a_server_whose_certificate_is_of_another_fleet(tmp_path: Path) -> None:
    needs("flwr")
    from flipbit.studies.fleet import keys
    from flipbit.studies.fleet.deploy import Server, free_port, join, supernode

    keys.make_keys(tmp_path / "mine", "127.0.0.1", 2)
    keys.make_keys(tmp_path / "other", "127.0.0.1", 1)
    samples, work, port = shares_of_digits(tmp_path, 2), tmp_path / "work", free_port()
    work.mkdir()
    with Server(work, tmp_path / "mine", "127.0.0.1", port) as server:
        server.register(range(1))
        for number, folder, why in ((0, "other", "is not signed by"), (1, "mine", "does not know this device's key")):
            command, env = supernode(
                number, tmp_path / folder, f"127.0.0.1:{port}", Path(DIGITS), samples, tmp_path / "flash", tmp_path
            )
            with pytest.raises(InputError, match=why):
                join(command, env, f"127.0.0.1:{port}", tmp_path / "log", lambda line: None, attempts=1)
        with pytest.raises(InputError, match="cannot listen there"), Server(work, tmp_path / "mine", "127.0.0.1", port):
            pass


def test_a_device_and_a_server_need_their_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needs("flwr")
    samples = shares_of_digits(tmp_path, 2)
    words = ["--server", "127.0.0.1:1", "--samples", str(samples), "--flash", str(tmp_path / "flash")]
    assert main(["fleet", "join", DIGITS, "--number", "0", "--keys", str(tmp_path / "none"), *words]) == 2
    assert "no such key" in capsys.readouterr().err
    assert main(["fleet", "serve", DIGITS, "--keys", str(tmp_path / "none"), "-o", str(tmp_path / "out")]) == 2
    assert "no such key" in capsys.readouterr().err


def test_keys_that_are_there_are_kept(tmp_path: Path) -> None:
    needs("cryptography")
    assert main(["fleet", "keys", "--devices", "1", "-o", str(tmp_path)]) == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert main(["fleet", "keys", "--devices", "2", "-o", str(tmp_path)]) == 0
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert after.items() >= before.items()
    assert sorted(after.keys() - before.keys()) == ["device-1", "device-1.pub"]


def test_another_host_gets_another_certificate_and_devices_keep_their_authority(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needs("cryptography")
    from cryptography import x509

    def keys(host: str) -> int:
        return main(["fleet", "keys", "--devices", "1", "--host", host, "-o", str(tmp_path)])

    assert keys("127.0.0.1") == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert keys("fleet.example.org") == 2
    assert "server.crt is not for fleet.example.org: remove it" in capsys.readouterr().err
    (tmp_path / "server.crt").unlink()
    assert keys("fleet.example.org") == 0
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {name for name in before if before[name] != after[name]} == {"server.crt", "server.key"}
    leaf, root = (x509.load_pem_x509_certificate(after[name]) for name in ("server.crt", "ca.crt"))
    leaf.verify_directly_issued_by(root)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "fleet.example.org" in names.get_values_for_type(x509.DNSName)
    assert keys("fleet.example.org") == 0 and keys("127.0.0.1") == 0  # both are in it
    (tmp_path / "server.crt").unlink()
    (tmp_path / "ca.key").unlink()
    assert keys("fleet.example.org") == 2
    assert "ca.key: is needed" in capsys.readouterr().err
    assert (tmp_path / "ca.crt").read_bytes() == before["ca.crt"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--way", "sum", "--method", "bias", "--rate", "0.1"], "--rate"),
        (["--way", "recalibrate", "--rate", "0.1"], "--rate"),
        (["--sum-bits", "8"], "--sum-bits"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    assert main(["fleet", "simulate", DIGITS, *FEW, "--local", *options, "-o", str(tmp_path / "run")]) == 2
    assert f"error: {said}" in capsys.readouterr().err


def test_a_device_whose_samples_are_of_another_net_does_not_join(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = tmp_path / SHARES
    write_shares(samples, [(np.zeros((2, 3, 32, 32), np.int8), np.zeros(2, int))], 0)
    words = ["--keys", str(tmp_path), "--server", "127.0.0.1:1", "--flash", str(tmp_path / "flash")]
    join = ["fleet", "join", DIGITS, "--number", "0", "--samples", str(samples), *words]
    assert main(join) == 2
    assert "takes 64" in capsys.readouterr().err
    write_shares(samples, [(np.zeros((2, 1, 8, 8), np.int8), np.array([3, 10]))], 0)
    assert main(join) == 2
    assert "has 0 to 9" in capsys.readouterr().err


def test_a_server_misses_a_devices_key_before_it_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needs("flwr")
    assert main(["fleet", "keys", "--devices", "1", "-o", str(tmp_path)]) == 0
    taken = str(free_port())
    started = ["--devices", "2", "--port", taken, "-o", str(tmp_path / "out")]
    assert main(["fleet", "serve", DIGITS, "--keys", str(tmp_path), *started]) == 2
    said = capsys.readouterr()
    assert "device-1.pub: no such key" in said.err and "listening" not in said.err
    assert not (tmp_path / "out" / "job.npz").exists()
