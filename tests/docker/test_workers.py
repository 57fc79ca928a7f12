"""The compose file and the Kubernetes manifest start workers that would find each other."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from flipbit.train.commands.train import parser
from flipbit.train.workers.cluster import Cluster, from_environment
from tests.checkout import ROOT

COMPOSE = ROOT / "docker" / "workers.compose.yaml"
KUBERNETES = ROOT / "docs" / "kubernetes-workers.yaml"


def documents(path: Path) -> list[dict[str, Any]]:
    yaml = pytest.importorskip("yaml", reason="needs PyYAML: pip install pyyaml")
    return list(yaml.safe_load_all(path.read_text()))


def started(script: str, folder: Path, environment: dict[str, str]) -> tuple[Cluster, list[str]]:
    """What a container's script hands to Python, which a stand-in writes down: the cluster and the arguments."""
    stand_in = folder / "bin" / "python"
    stand_in.parent.mkdir(exist_ok=True)
    stand_in.write_text('#!/bin/sh\nprintf "%s\\n" "$TF_CONFIG" "$@"\n')
    stand_in.chmod(0o755)
    environment = {"PATH": f"{stand_in.parent}:{os.environ['PATH']}", **environment}
    done = subprocess.run(["sh", "-c", script], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    config, name, *arguments = done.stdout.splitlines()
    assert name == "train/run.py"
    parser().parse_args(arguments)
    cluster = from_environment({"TF_CONFIG": config})
    assert cluster is not None
    return cluster, arguments


def starts_and_goes_on(script: str, folder: Path, environment: dict[str, str]) -> Cluster:
    cluster, arguments = started(script, folder, environment)
    assert arguments[-2:] == ["-o", "runs/shared"]
    (folder / "runs" / "shared").mkdir(parents=True, exist_ok=True)
    (folder / "runs" / "shared" / "run.json").touch()
    again, arguments = started(script, folder, environment)
    assert again == cluster and arguments == ["--resume", "runs/shared"]
    (folder / "runs" / "shared" / "run.json").unlink()
    return cluster


def test_the_compose_file_names_each_worker_by_its_service(tmp_path: Path) -> None:
    services = documents(COMPOSE)[0]["services"]
    assert len(services) == 2
    for index, (name, service) in enumerate(services.items()):
        shell, flag, script = service["command"]
        assert (shell, flag) == ("sh", "-c") and service["image"] == "flipbit/train"
        cluster = starts_and_goes_on(script.replace("$$", "$"), tmp_path, service["environment"])
        assert cluster.index == index and cluster.host_and_port(index)[0] == name
        assert [cluster.host_and_port(i)[0] for i in range(len(cluster.addresses))] == list(services)


def test_docker_compose_accepts_the_file() -> None:
    docker = shutil.which("docker")
    if not docker or subprocess.run([docker, "compose", "version"], capture_output=True).returncode:
        pytest.skip("needs docker compose: apt-get install docker-compose-v2")
    done = subprocess.run(
        [docker, "compose", "-f", str(COMPOSE), "config", "--format", "json"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    for service in json.loads(done.stdout)["services"].values():
        assert service["volumes"][0]["source"] == str(ROOT / "runs")


def test_the_kubernetes_manifest_names_each_worker_by_its_pod(tmp_path: Path) -> None:
    service, policy, job = documents(KUBERNETES)
    assert [d["kind"] for d in (service, policy, job)] == ["Service", "NetworkPolicy", "Job"]
    name, template = job["metadata"]["name"], job["spec"]["template"]["spec"]
    assert job["spec"]["completionMode"] == "Indexed" and job["spec"]["completions"] == job["spec"]["parallelism"]
    assert template["subdomain"] == service["metadata"]["name"] and service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == policy["spec"]["podSelector"]["matchLabels"] == {"job-name": name}
    (container,) = template["containers"]
    (mount,), (volume,) = container["volumeMounts"], template["volumes"]
    assert mount["name"] == volume["name"] and mount["mountPath"] == "/src/runs"
    environment = {variable["name"]: variable["value"] for variable in container["env"]}
    for index in range(job["spec"]["completions"]):
        cluster = starts_and_goes_on(
            container["command"][2], tmp_path, environment | {"JOB_COMPLETION_INDEX": str(index)}
        )
        assert cluster.index == index and len(cluster.addresses) == job["spec"]["completions"]
        # An indexed Job calls its pods JOB-INDEX, and the headless service makes POD.SERVICE of it.
        assert (
            cluster.addresses[index] == f"{name}-{index}.{template['subdomain']}:{service['spec']['ports'][0]['port']}"
        )
