"""What the laboratory tells its nodes, and how it waits."""

from pathlib import Path

import pytest

from lab.cluster import random_uuid
from lab.errors import LabTimeoutError
from lab.jvm import wait_until
from lab.settings import free_ports, node_settings, properties_text, voters

CONTROLLERS = {100: 5000, 101: 5001}


def test_ports_differ() -> None:
    assert len(set(free_ports(20))) == 20


def test_voters_are_listed_by_id() -> None:
    assert voters({101: 5001, 100: 5000}) == "100@127.0.0.1:5000,101@127.0.0.1:5001"


@pytest.mark.parametrize(("node", "role", "scheme"), [(100, "controller", "CONTROLLER"), (1, "broker", "PLAINTEXT")])
def test_a_node_has_one_role_and_listens_on_loopback_only(node: int, role: str, scheme: str) -> None:
    settings = node_settings(node, 5000, [Path("/logs")], CONTROLLERS)
    assert settings["process.roles"] == role
    assert settings["listeners"] == f"{scheme}://127.0.0.1:5000"
    addresses = [value for key, value in settings.items() if key.endswith("listeners") or key == "controller.quorum.voters"]
    assert all("127.0.0.1" in value for value in addresses)
    assert ("log.cleaner.backoff.ms" in settings) == (role == "broker")


def test_what_an_experiment_asks_for_wins() -> None:
    settings = node_settings(1, 5000, [Path("/a"), Path("/b")], CONTROLLERS, {"replica.lag.time.max.ms": "9"})
    assert settings["replica.lag.time.max.ms"] == "9"
    assert settings["log.dirs"] == "/a,/b"


def test_properties_are_sorted_lines() -> None:
    assert properties_text({"b": "2", "a": "1"}) == "a=1\nb=2\n"


def test_cluster_ids_are_spelled_as_kafka_does() -> None:
    assert len(random_uuid()) == 22
    assert random_uuid() != random_uuid()


def test_waiting_is_bounded_and_says_for_what() -> None:
    with pytest.raises(LabTimeoutError, match="the moon"):
        wait_until("the moon", lambda: False, timeout_seconds=0.05, step_seconds=0.01)


def test_waiting_ends_when_the_condition_holds() -> None:
    answers = iter([False, False, True])
    wait_until("the third answer", lambda: next(answers), timeout_seconds=5, step_seconds=0.001)
    assert next(answers, None) is None
