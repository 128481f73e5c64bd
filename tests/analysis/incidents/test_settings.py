"""Settings that allow a loss: which are told, of which topics together, and tied to what."""

from typing import Any

import pytest

from kafka_forensics.analysis.catalogue import finding
from kafka_forensics.analysis.incidents.replication_rules import risky_settings
from kafka_forensics.model.controller import ControllerHistory, PartitionControl
from kafka_forensics.model.findings import Finding, Place

SAFE = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}


def cluster(**topics: Any) -> ControllerHistory:
    """Topics by name: (replicas, settings)."""
    history = ControllerHistory(last_ms=10_000)
    for name, (replicas, configs) in topics.items():
        assignment = list(range(1, replicas + 1))
        history.partitions[name, 0] = PartitionControl(1, 0, assignment, [], assignment, configs)
    return history


def told(history: ControllerHistory, *findings: Finding, as_of_ms: int | None = None) -> list[Finding]:
    names = {topic for topic, _ in history.partitions}
    return risky_settings(history, names, list(findings), as_of_ms)


def risks(found: list[Finding]) -> list[list[str]]:
    return [one.evidence["risks"] for one in found]


@pytest.mark.parametrize(
    ("replicas", "configs", "expected"),
    [
        (3, SAFE, []),
        (3, {}, []),
        (3, {"min.insync.replicas": "1"}, ["min.insync.replicas 1 with 3 replicas"]),
        (1, {"min.insync.replicas": "1"}, ["one replica only"]),
        (2, SAFE | {"unclean.leader.election.enable": "true"}, ["unclean elections on"]),
    ],
)
def test_risks(replicas: int, configs: dict[str, str], expected: list[str]) -> None:
    assert risks(told(cluster(t=(replicas, configs)))) == ([expected] if expected else [])


def test_topics_of_equal_risks_are_told_together_and_others_apart() -> None:
    history = cluster(a=(3, {"min.insync.replicas": "1"}), b=(1, {}), c=(3, {"min.insync.replicas": "1"}))
    both, alone = told(history)
    assert (both.evidence["topics"], both.evidence["count"], both.place) == (["a", "c"], 2, Place())
    assert (alone.evidence["topics"], alone.place) == (["b"], Place("b"))


def test_a_setting_is_tied_to_the_findings_it_explains() -> None:
    history = cluster(a=(3, {"min.insync.replicas": "1"}), c=(3, {"min.insync.replicas": "1"}))
    first, rest = told(history, finding("UNCLEAN_LOSS", Place("a", 0)), finding("INDEX_MISSING", Place("c", 0)))
    assert (first.place, first.evidence["explains"]) == (Place("a"), ["UNCLEAN_LOSS"])
    assert (rest.evidence["topics"], "explains" in rest.evidence) == (["c"], False)


def test_an_election_that_cost_nothing_is_explained_by_no_setting() -> None:
    election = finding("UNCLEAN_ELECTION", Place("a", 0), {"same_leader": True})
    assert "explains" not in told(cluster(a=(3, {"min.insync.replicas": "1"})), election)[0].evidence


def test_damage_of_the_only_replica_is_tied_to_there_being_one() -> None:
    [one] = told(cluster(a=(1, {})), finding("BATCH_CRC_MISMATCH", Place("a", 0)))
    assert one.evidence["explains"] == ["BATCH_CRC_MISMATCH"]


@pytest.mark.parametrize(
    ("retention", "as_of_ms", "expected"),
    [
        ("4999", None, True),
        ("5000", None, False),
        ("4999", 5_001, False),
        ("-1", None, False),
        ("٣", None, False),
        ("9" * 30, None, False),
    ],
)
def test_retention_shorter_than_an_open_transaction(retention: str, as_of_ms: int | None, expected: bool) -> None:
    opened = finding("TXN_OPEN", Place("a", 0), {"last_timestamp": 5_000})
    findings = told(cluster(a=(3, {"retention.ms": retention})), opened, as_of_ms=as_of_ms)
    assert risks(findings) == ([["retention shorter than an open transaction"]] if expected else [])
    assert all(one.evidence["explains"] == ["TXN_OPEN"] for one in findings)


def test_defaults_of_all_brokers_count_and_a_topics_own_setting_before_them() -> None:
    history = cluster(a=(3, {}), b=(3, {"min.insync.replicas": "2"}))
    for key, control in history.partitions.items():
        history.partitions[key] = PartitionControl(
            1, 0, [], [], control.replica_assignment, control.configs, defaults={"min.insync.replicas": "1"}
        )
    assert [one.evidence["topics"] for one in told(history)] == [["a"]]


def test_without_a_controller_and_of_topics_not_asked_for_nothing_is_told() -> None:
    assert risky_settings(None, {"a"}, [], None) == []
    assert risky_settings(cluster(a=(1, {})), {"b"}, [], None) == []
