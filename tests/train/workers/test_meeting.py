"""Workers find each other, or say in one line why not. Nothing here needs TensorFlow."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from flipbit.runtime.errors import InputError
from flipbit.train.workers.cluster import Cluster, from_environment
from flipbit.train.workers.launch import free_ports
from flipbit.train.workers.meeting import Facts, meet
from tests.patience import PATIENCE


def config(jobs: dict[str, list[str]], task: str = "worker", index: object = 0) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({"cluster": jobs, "task": {"type": task, "index": index}})}


def test_tf_config_names_the_workers_the_chief_first() -> None:
    jobs = {"worker": ["b:1", "c:1"], "chief": ["a:1"]}
    assert from_environment(config(jobs, "worker", 1)) == Cluster(("a:1", "b:1", "c:1"), 2)
    assert from_environment(config(jobs, "chief")) == Cluster(("a:1", "b:1", "c:1"), 0)
    assert from_environment(config(jobs, "worker", "0")) == Cluster(("a:1", "b:1", "c:1"), 1)  # text, as some write it
    found = from_environment(config(jobs, "chief"))
    assert found is not None and from_environment({"TF_CONFIG": found.tf_config()}) == found


@pytest.mark.parametrize("text", ["", " ", "{}", '{"cluster": {}}', *config({"worker": ["a:1"]}).values()])
def test_without_others_a_worker_is_alone(text: str) -> None:
    assert from_environment({"TF_CONFIG": text}) is None


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not an object"),
        ('{"cluster": 3}', "expected"),
        ('{"cluster": {"worker": ["a:1", "b:1"]}}', "expected"),
        *((config(jobs, task, index)["TF_CONFIG"], named) for jobs, task, index, named in [
            ({"worker": ["a:1", "b:1"], "ps": ["c:1"]}, "worker", 0, "not ps"),
            ({"worker": "a:1"}, "worker", 0, "not a list"),
            ({"worker": ["a:1", "b"]}, "worker", 0, "'b'"),
            ({"worker": ["a:1", "b:70000"]}, "worker", 0, "'b:70000'"),
            ({"worker": ["a:1", 5]}, "worker", 0, "5"),
            ({"worker": ["a:1", "a:1"]}, "worker", 0, "named twice"),
            ({"worker": ["a:1", "b:1"]}, "worker", 2, "0 to 1"),
            ({"worker": ["a:1", "b:1"]}, "worker", True, "True"),
            ({"worker": ["a:1", "b:1"]}, "chief", 0, "'chief'"),
            ({"worker": ["a:1"], "chief": ["b:1", "c:1"]}, "chief", 0, "2 chiefs"),
            ({"worker": ["a:1", "b:1"]}, ["worker"], 0, "['worker']"),
        ]),
    ],
)  # fmt: skip
def test_a_wrong_tf_config_is_named(text: str, named: str) -> None:
    with pytest.raises(InputError) as found:
        from_environment({"TF_CONFIG": text})
    assert "TF_CONFIG" in str(found.value) and named in str(found.value)


def all_meet(facts: list[Facts], indices: list[int] | None = None, wait: float = PATIENCE) -> list[str]:
    """What each worker is told; nothing where all is well."""
    addresses = tuple(f"127.0.0.1:{port}" for port in free_ports(len(facts)))

    def one(place: int) -> str:
        index = place if indices is None else indices[place]
        try:
            meet(Cluster(addresses, index), facts[place], wait)
        except InputError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(len(facts)) as pool:
        return list(pool.map(one, range(len(facts))))


def test_workers_with_the_same_facts_meet() -> None:
    assert all_meet([{"--lr": "0.1"}] * 3) == ["", "", ""]


def test_all_are_told_whose_settings_differ() -> None:
    told = all_meet([{"--lr": "0.1"}, {"--lr": "0.1"}, {"--lr": "0.2"}])
    assert set(told) == {
        "worker 2 has --lr 0.2, the chief 0.1: start all workers with the same settings, data and versions"
    }
    assert "worker 1 has more yes, the chief nothing" in all_meet([{}, {"more": "yes"}])[0]


def test_a_worker_that_does_not_come_is_named() -> None:
    ports = free_ports(2)
    cluster = Cluster(tuple(f"127.0.0.1:{port}" for port in ports), 0)
    with pytest.raises(InputError, match=rf"worker 1 \(127.0.0.1:{ports[1]}\) cannot be reached: .* within 0.3 s"):
        meet(cluster, {}, 0.3)
    with pytest.raises(InputError, match=rf"the chief \(127.0.0.1:{ports[0]}\) cannot be reached within 0.3 s"):
        meet(Cluster(cluster.addresses, 1), {}, 0.3)


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(InputError, match=f"port {port} is taken by another program"):
            meet(Cluster((f"127.0.0.1:{port}", "127.0.0.1:1"), 0), {}, 0.3)


def test_a_stranger_at_the_door_does_not_keep_workers_from_meeting() -> None:
    addresses = tuple(f"127.0.0.1:{port}" for port in free_ports(2))
    with ThreadPoolExecutor(1) as pool:
        chief = pool.submit(meet, Cluster(addresses, 0), {}, PATIENCE)
        facts = b'{"worker": 1, "workers": 2, "facts": 5}\n'
        for content in (b"GET / HTTP/1.1\r\n\r\n", b"[1]\n", facts, b"[" * 100_000 + b"\n", b""):
            while True:
                try:
                    with socket.create_connection(Cluster(addresses, 1).host_and_port(0)) as stranger:
                        stranger.sendall(content)
                    break
                except ConnectionRefusedError:  # the chief is not there yet
                    continue
        meet(Cluster(addresses, 1), {}, PATIENCE)
        chief.result()


def test_a_worker_of_another_cluster_is_refused() -> None:
    addresses = tuple(f"127.0.0.1:{port}" for port in free_ports(3))
    with ThreadPoolExecutor(1) as pool:
        chief = pool.submit(meet, Cluster(addresses[:2], 0), {}, PATIENCE)
        with pytest.raises(InputError, match="names another cluster"):
            meet(Cluster(addresses, 2), {}, PATIENCE)
        with pytest.raises(InputError, match="names another cluster"):
            chief.result()
