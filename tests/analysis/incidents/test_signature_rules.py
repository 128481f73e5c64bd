"""Matching of incident signatures: required conditions, conditions for and against a match, and unknown ones."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from kafka_forensics.analysis.incidents import SIGNATURES
from kafka_forensics.analysis.incidents.replication_rules import risky_settings
from kafka_forensics.analysis.incidents.signatures import (
    Condition,
    ConditionResult,
    IncidentSignature,
    PartitionEvidence,
    Weight,
    match_signatures,
    version_bounds,
)
from kafka_forensics.analysis.kinds import finding
from kafka_forensics.model.controller import ControllerHistory, PartitionControl
from kafka_forensics.model.findings import Confidence, Finding, Place, Severity
from kafka_forensics.wording import advice

YES: ConditionResult = True
SHOWN = Finding("SEG_HOLE", Severity.ERROR, Confidence.PROVEN, Place("t", 0, 2, "b2", "t-0/x.log", 10, 20, 5, 9))


def condition(weight: Weight, answer: ConditionResult, text: str = "") -> Condition:
    return Condition(weight, text or f"{weight.value} {answer}"[:60], lambda _: answer)


def signature(*conditions: Condition, fixed_in: tuple[str, ...] = ()) -> IncidentSignature:
    return IncidentSignature("d99", "KAFKA-99", "a thing", "before 9", fixed_in, conditions)


def match(*conditions: Condition) -> Finding | None:
    findings = match_signatures(PartitionEvidence([SHOWN]), [signature(*conditions)])
    assert len(findings) <= 1
    return findings[0] if findings else None


@pytest.mark.parametrize("answer", [False, None])
def test_one_failed_required_condition_prevents_a_match(answer: ConditionResult) -> None:
    assert match(condition(Weight.MUST, YES), condition(Weight.MUST, answer), condition(Weight.EXPECTED, YES)) is None


def test_a_signature_without_required_conditions_never_matches() -> None:
    assert match(condition(Weight.EXPECTED, YES)) is None


@pytest.mark.parametrize(
    ("weight", "answer", "key", "confidence"),
    [
        (Weight.EXPECTED, True, "fits", Confidence.INFERRED),
        (Weight.EXPECTED, None, "unknown", Confidence.SUSPECTED),
        (Weight.EXTRA, True, "fits", Confidence.INFERRED),
        (Weight.EXTRA, False, None, Confidence.SUSPECTED),
        (Weight.EXTRA, None, "unknown", Confidence.SUSPECTED),
        (Weight.AGAINST, False, None, Confidence.SUSPECTED),
        (Weight.AGAINST, None, "unknown", Confidence.SUSPECTED),
    ],
)
def test_how_a_condition_counts(weight: Weight, answer: ConditionResult, key: str | None, confidence: Confidence) -> None:
    finding = match(condition(Weight.MUST, YES, "must"), condition(weight, answer, "other"))
    assert finding is not None
    listed = {name for name in ("fits", "does_not_fit", "unknown") if "other" in finding.evidence[name]}
    assert (listed, finding.confidence) == ({key} - {None}, confidence)
    assert finding.evidence["fits"][0] == "must"


@pytest.mark.parametrize(("weight", "answer"), [(Weight.EXPECTED, False), (Weight.AGAINST, True)])
def test_a_condition_against_outweighs_conditions_for_a_match(weight: Weight, answer: ConditionResult) -> None:
    """With the required conditions alone there is no match; with more it is suspected."""
    assert match(condition(Weight.MUST, YES), condition(weight, answer)) is None
    finding = match(condition(Weight.MUST, YES), condition(Weight.EXTRA, YES, "more"), condition(weight, answer, "other"))
    assert finding is not None
    text = "not true: other" if weight is Weight.EXPECTED else "other"
    assert (finding.confidence, finding.evidence["does_not_fit"]) == (Confidence.SUSPECTED, [text])


def test_the_place_is_that_of_the_finding_without_file_and_bytes() -> None:
    finding = match(condition(Weight.MUST, YES), condition(Weight.MUST, SHOWN))
    assert finding is not None
    assert finding.place == Place("t", 0, 2, "b2", offset_start=5, offset_end=9)
    assert finding.severity is Severity.INFO


@pytest.mark.parametrize(
    ("level", "bounds"),
    [
        (None, []),
        (0, []),
        (7, [((3, 3, 0), "metadata.version 7")]),
        (25, [((4, 0, 0), "metadata.version 25")]),
        (999, [((4, 3, 0), "metadata.version 999")]),
    ],
)
def test_the_level_of_a_feature_bounds_the_version(level: int | None, bounds: list[tuple[tuple[int, ...], str]]) -> None:
    assert version_bounds([], {} if level is None else {"metadata.version": level}) == bounds


def test_a_version_with_the_fix_counts_against_a_match() -> None:
    case = PartitionEvidence([SHOWN], [], {"metadata.version": 22})
    for fix_rules_out in (True, False):
        fixed = signature(condition(Weight.MUST, YES), condition(Weight.EXTRA, YES), fixed_in=("2.0.1", "4.0.0"))
        [finding] = match_signatures(case, [replace(fixed, fix_rules_out=fix_rules_out)])
        assert finding.evidence["does_not_fit"] == ["metadata.version 22: Kafka 4.0.0 or later"] * fix_rules_out
        assert finding.evidence["version_at_least"] == "4.0.0"


@pytest.mark.parametrize("incident_signature", SIGNATURES, ids=lambda signature: signature.key)
def test_no_findings_match_no_signature(incident_signature: IncidentSignature) -> None:
    assert match_signatures(PartitionEvidence([]), [incident_signature]) == []
    assert all(condition.holds(PartitionEvidence([])) in (True, False, None) for condition in incident_signature.conditions)


SAFE = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}


def cluster(**topics: Any) -> ControllerHistory:
    """Topics by name: (replicas, settings)."""
    history = ControllerHistory(last_ms=10_000)
    for name, (replicas, configs) in topics.items():
        assignment = list(range(1, replicas + 1))
        history.partitions[name, 0] = PartitionControl(1, 0, assignment, [], assignment, configs)
    return history


def risky(history: ControllerHistory, *findings: Finding, as_of_ms: int | None = None) -> list[Finding]:
    return risky_settings(history, {topic for topic, _ in history.partitions}, list(findings), as_of_ms)


def risks(found: list[Finding]) -> list[list[str]]:
    return [finding.evidence["risks"] for finding in found]


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
    assert risks(risky(cluster(t=(replicas, configs)))) == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("topic", "policy", "severity"),
    [
        ("__consumer_offsets", "delete", Severity.WARNING),
        ("__transaction_state", "compact,delete", Severity.WARNING),
        ("__consumer_offsets", "compact", None),
        ("__consumer_offsets", None, None),
        ("t", "delete", None),
        ("__remote_log_metadata", "delete", None),
    ],
)
def test_topics_of_coordinators_must_not_be_deleted_by_retention(topic: str, policy: str | None, severity: Severity | None) -> None:
    history = cluster(**{topic: (3, {})})
    history.partitions[topic, 0] = structs.replace(history.partitions[topic, 0], cleanup_policy=policy)
    found = risky(history)
    assert [finding.severity for finding in found] == ([] if severity is None else [severity])
    assert all("Set cleanup.policy=compact" in (advice(finding) or "") for finding in found)


def test_topics_of_equal_risks_share_a_finding() -> None:
    history = cluster(a=(3, {"min.insync.replicas": "1"}), b=(1, {}), c=(3, {"min.insync.replicas": "1"}))
    shared, single = risky(history)
    assert (shared.evidence["topics"], shared.evidence["count"], shared.place) == (["a", "c"], 2, Place())
    assert (single.evidence["topics"], single.place) == (["b"], Place("b"))


def test_a_setting_explains_findings() -> None:
    history = cluster(a=(3, {"min.insync.replicas": "1"}), c=(3, {"min.insync.replicas": "1"}))
    explaining, other = risky(history, finding("UNCLEAN_LOSS", Place("a", 0)), finding("INDEX_MISSING", Place("c", 0)))
    assert (explaining.place, explaining.evidence["explains"]) == (Place("a"), ["UNCLEAN_LOSS"])
    assert (other.evidence["topics"], "explains" in other.evidence) == (["c"], False)


def test_no_setting_explains_an_election_without_loss() -> None:
    election = finding("UNCLEAN_ELECTION", Place("a", 0), {"same_leader": True})
    assert "explains" not in risky(cluster(a=(3, {"min.insync.replicas": "1"})), election)[0].evidence


def test_a_single_replica_explains_damage() -> None:
    [found] = risky(cluster(a=(1, {})), finding("BATCH_CRC_MISMATCH", Place("a", 0)))
    assert found.evidence["explains"] == ["BATCH_CRC_MISMATCH"]


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
    findings = risky(cluster(a=(3, {"retention.ms": retention})), opened, as_of_ms=as_of_ms)
    assert risks(findings) == ([["retention shorter than an open transaction"]] if expected else [])
    assert all(risk.evidence["explains"] == ["TXN_OPEN"] for risk in findings)


def test_topic_settings_override_broker_defaults() -> None:
    history = cluster(a=(3, {}), b=(3, {"min.insync.replicas": "2"}))
    for key, control in history.partitions.items():
        history.partitions[key] = PartitionControl(
            1, 0, [], [], control.replica_assignment, control.configs, defaults={"min.insync.replicas": "1"}
        )
    assert [risk.evidence["topics"] for risk in risky(history)] == [["a"]]


def test_no_risks_without_a_controller_or_for_other_topics() -> None:
    assert risky_settings(None, {"a"}, [], None) == []
    assert risky_settings(cluster(a=(1, {})), {"b"}, [], None) == []
