"""Voters that may elect a node without committed records of the controllers' log, and those that may not."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from kafka_forensics.engine.local import scan
from kafka_forensics.evidence.ledger import Extent
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import Finding
from kafka_forensics.questions.plan import PlanOptions, make_plans
from tests.support.brokers import Brokers, healthy
from tests.support.controllers import (
    METADATA,
    ControllerLog,
    change,
    control,
    partition,
    put_snapshot,
    record,
    registered,
    snapshot,
    topic,
)

VOTERS = [101, 102, 103]
STATE = (topic(), partition([1, 2, 3], 1))
KIND = "QUORUM_WOULD_TRUNCATE"


def written(*more: bytes, voters: list[int] = VOTERS) -> ControllerLog:
    log = ControllerLog().lead(voters)
    for value in (*STATE, *more):
        log.append(value)
    return log


def put(root: Path, *logs: ControllerLog | None) -> Brokers:
    """Healthy brokers, and a log directory for each controller; None: without the log."""
    brokers = healthy(root)
    for node, log in zip(VOTERS, logs, strict=False):
        directory = (log or ControllerLog()).put(brokers.root / f"c{node}", node)
        if log is None:
            shutil.rmtree(directory)
    return brokers


def found(brokers: Brokers, **options: Any) -> list[Finding]:
    return [finding for finding in scan([str(brokers.root)], ScanOptions(jobs=1, **options)).findings if finding.kind == KIND]


EMPTY = ControllerLog()


@pytest.mark.parametrize("lost", [EMPTY, None], ids=["empty", "absent"])
def test_a_majority_with_empty_logs_cuts_what_the_third_holds(tmp_path: Path, lost: ControllerLog | None) -> None:
    (finding,) = found(put(tmp_path / "a", lost, lost, written(change(isr=[1]))))
    evidence = finding.evidence
    assert (str(finding.severity), finding.place.offset_start, finding.place.offset_end) == ("critical", 0, 4)
    assert (evidence["leaders"], evidence["held_by"], evidence["voters"]) == ([101, 102], [103], VOTERS)
    assert evidence["loses"] == 2, "a broker has a directory of the topic at offset 1"
    assert ("harmless_if" in evidence) == (lost is None)


def test_one_empty_log_of_three_wins_nothing(tmp_path: Path) -> None:
    assert found(put(tmp_path / "a", EMPTY, written(), written())) == []


def test_who_lags_wins_nothing_that_matters(tmp_path: Path) -> None:
    """What only one voter holds was never committed."""
    assert found(put(tmp_path / "a", written(), written(), written(change(isr=[1]), change(isr=[1, 2])))) == []


def test_older_logs_of_a_majority_are_suspected(tmp_path: Path) -> None:
    old = ControllerLog().lead(VOTERS)
    (finding,) = found(put(tmp_path / "a", old, old, written()))
    assert (str(finding.severity), str(finding.confidence), finding.place.offset_start) == ("error", "suspected", 1)
    assert finding.evidence["empty"] == []


def test_running_nodes_have_elected(tmp_path: Path) -> None:
    assert found(put(tmp_path / "a", EMPTY, EMPTY, written()), live=True) == []


def test_a_part_of_a_node_says_nothing_of_its_log(tmp_path: Path) -> None:
    assert found(put(tmp_path / "a", None, None, written()), copied=Extent.PARTIAL) == []


def test_a_start_cuts_a_log_at_damage(tmp_path: Path) -> None:
    """Two of three logs are damaged in their first batch."""
    brokers = put(tmp_path / "a", written(), written(), written())
    for node in VOTERS[:2]:
        path = next((brokers.root / f"c{node}" / METADATA).glob("*.log"))
        data = bytearray(path.read_bytes())
        data[70] ^= 1
        path.write_bytes(data)
    (finding,) = found(brokers)
    assert (finding.evidence["leaders"], finding.evidence["held_by"]) == ([101, 102], [103])


def test_a_snapshot_makes_up_for_an_empty_log(tmp_path: Path) -> None:
    brokers = put(tmp_path / "a", EMPTY, EMPTY, written())
    for node in VOTERS[:2]:
        put_snapshot(brokers.root / f"c{node}" / METADATA, 3, snapshot(*STATE))
    assert found(brokers) == []


def test_what_a_registered_broker_wrote_proves_its_registration(tmp_path: Path) -> None:
    unfenced = record(17, broker_id=1, broker_epoch=3, fenced=-1)
    brokers = put(tmp_path / "a", EMPTY, EMPTY, written(registered(1, 3), unfenced))
    (finding,) = found(brokers)
    assert finding.evidence["proven_end"] == 4


def test_voters_in_the_log_are_known_only_to_those_who_have_it(tmp_path: Path) -> None:
    log = ControllerLog()
    voters = [{"voter_id": node, "voter_directory_id": bytes(16), "endpoints": [], "kraft_version_feature": {
        "min_supported_version": 0, "max_supported_version": 1}} for node in VOTERS]  # fmt: skip
    log._append([control(5, kraft_version=1), control(6, voters=voters)], is_control_batch=True)
    log.lead(VOTERS).append(*STATE)
    assert found(put(tmp_path / "a", EMPTY, EMPTY, log)) == []


def test_a_voter_that_was_not_given_is_named(tmp_path: Path) -> None:
    brokers = put(tmp_path / "a", EMPTY, written())
    result = scan([str(brokers.root)], ScanOptions(jobs=1))
    assert [finding.evidence["node_id"] for finding in result.findings if finding.kind == "REPLICA_NOT_GIVEN"] == [103]
    assert found(brokers) == []


def test_a_plan_ends_with_what_must_be_mended_first(tmp_path: Path) -> None:
    brokers = put(tmp_path / "a", EMPTY, EMPTY, written())
    plans = make_plans([str(brokers.root)], ScanOptions(jobs=1), PlanOptions())
    assert plans.quorum is not None
    assert (plans.quorum.has_majority, plans.quorum.not_given) == (True, [])
    assert [leader.node for leader in plans.quorum.harmful_leaders()] == [101, 102]
