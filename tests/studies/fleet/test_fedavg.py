"""FedAvg of float weights: what Flower's strategy makes of devices that train by themselves."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from flipbit.runtime.commands.cli import main
from tests.checkout import ROOT
from tests.studies.fleet.test_command import DIGITS, needs

KERAS = str(ROOT / "models" / "digits-vgg-small" / "model.h5")
FEW = ["--data", "digits", "--drift", "noise:3", "--devices", "2", "--held-back", "60"]


def test_a_learning_rate_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["fleet", "fedavg", DIGITS, "--model", KERAS, *FEW, "--lr", "2", "-o", str(tmp_path / "out")]
    assert main(command) == 2
    assert "--lr 2: expected" in capsys.readouterr().err


@pytest.mark.slow
def test_the_fleets_weights_are_the_mean_of_the_devices_by_samples(tmp_path: Path) -> None:
    for package in ("flwr", "tensorflow"):
        needs(package)
    if find_spec("tf_keras") is None:
        pytest.skip("needs tf_keras: pip install -c constraints.txt 'flipbit[train]'")
    from flipbit.studies.fleet.fedavg import FloatFleet

    random = np.random.default_rng(1)
    shares = [(random.normal(size=(n, 8, 8, 1)).astype(np.float32), random.integers(0, 10, n)) for n in (4, 12)]
    fleet = FloatFleet(KERAS, shares, shares[0], 0.003, 1)
    alone = [fleet._learn(0, device)[0] for device in range(2)]
    assert any((a != b).any() for a, b in zip(*alone))
    row = fleet.round(0)
    for mean, few, many in zip(fleet.weights, *alone):
        np.testing.assert_allclose(mean, 0.25 * few + 0.75 * many, rtol=1e-4, atol=1e-5)
    floats = sum(w.size for w in fleet.weights)
    assert (row.samples, row.answered) == (16, 2)
    assert 0 <= row.up - 2 * 4 * floats < 2 * 200 * len(fleet.weights)  # float32, and a header for each array
    assert row.up == row.down


@pytest.mark.slow
def test_a_run_writes_a_log_that_report_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for package in ("flwr", "tensorflow"):
        needs(package)
    command = ["fleet", "fedavg", DIGITS, "--model", KERAS, *FEW, "--each", "5-8", "--rounds", "2", "--lr", "0.0001"]
    assert main([*command, "-o", str(tmp_path / "run")]) == 0
    log = json.loads((tmp_path / "run" / "log.json").read_text())
    assert [row["answered"] for row in log["rounds"]] == [2, 2]
    capsys.readouterr()
    assert main(["fleet", "report", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out.count("2/2") == 2
