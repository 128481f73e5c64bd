"""Voters that may elect a node without committed records, and those that may not; basic cases are in the fault gallery."""

from pathlib import Path
from typing import Any

import pytest

from kafka_forensics.evidence.ledger import CopyExtent
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import Finding
from kafka_forensics.parsers.spec.batch_header import EPOCH_AT
from kafka_forensics.questions.plan import PlanOptions, make_plans
from kafka_forensics.scanning.engine.local import scan
from tests.gallery.of_controllers_files import AHEAD, EMPTY, STATED, VOTERS, controllers, written
from tests.support.brokers import Brokers
from tests.support.controllers import METADATA, ControllerLog, broker_registration, control, put_snapshot, record, topic
from tests.support.segments import batch_positions, flip_bit

KIND = "QUORUM_WOULD_TRUNCATE"


def put(root: Path, *logs: ControllerLog | None) -> Brokers:
    return controllers(root / "brokers", dict(zip(VOTERS, logs, strict=False)))


def quorum_findings(brokers: Brokers, kind: str = KIND, **options: Any) -> list[Finding]:
    return [finding for finding in scan([str(brokers.root)], ScanOptions(jobs=1, **options)).findings if finding.kind == kind]


def test_running_nodes_need_no_election(tmp_path: Path) -> None:
    assert quorum_findings(put(tmp_path, EMPTY, EMPTY, AHEAD), live=True) == []


def test_a_partial_copy_of_a_node_proves_nothing_about_its_log(tmp_path: Path) -> None:
    assert quorum_findings(put(tmp_path, None, None, AHEAD), copied=CopyExtent.PARTIAL) == []


def test_a_log_that_was_not_read_is_not_empty(tmp_path: Path) -> None:
    """Two of three logs are links to files that were not copied."""
    brokers = put(tmp_path, AHEAD, AHEAD, AHEAD)
    for node in VOTERS[:2]:
        path = next((brokers.root / f"c{node}" / METADATA).glob("*.log"))
        path.unlink()
        path.symlink_to("/elsewhere/0.log")
    assert quorum_findings(brokers) == []


def test_a_log_with_damage_in_its_first_batch_counts_as_empty(tmp_path: Path) -> None:
    """Two of three logs are damaged in their first batch."""
    brokers = put(tmp_path, AHEAD, AHEAD, AHEAD)
    for node in VOTERS[:2]:
        path = next((brokers.root / f"c{node}" / METADATA).glob("*.log"))
        data = bytearray(path.read_bytes())
        data[70] ^= 1
        path.write_bytes(data)
    (finding,) = quorum_findings(brokers)
    assert (finding.evidence["leaders"], finding.evidence["held_by"]) == ([101, 102], [103])


@pytest.mark.parametrize("node", VOTERS)
def test_a_damaged_leader_epoch_is_no_reason_to_keep_voters_stopped(tmp_path: Path, node: int) -> None:
    """Nor is the topic, which the log creates after it, unknown."""
    brokers = put(tmp_path, AHEAD, AHEAD, AHEAD)
    path = next((brokers.root / f"c{node}" / METADATA).glob("*.log"))
    data = path.read_bytes()
    for position in batch_positions([batch for _, batch in AHEAD.batches])[:-1]:
        path.write_bytes(flip_bit(data, position + EPOCH_AT))
        found = [finding for finding in scan([str(brokers.root)], ScanOptions(jobs=1)).findings if finding.severity.rank]
        assert [finding.kind for finding in found] == ["EPOCH_FIELD_MISMATCH"]


def test_a_snapshot_replaces_an_empty_log(tmp_path: Path) -> None:
    brokers = put(tmp_path, EMPTY, EMPTY, AHEAD)
    for node in VOTERS[:2]:
        put_snapshot(brokers.root / f"c{node}" / METADATA, 3, STATED)
    assert quorum_findings(brokers) == []


def test_a_registered_broker_proves_its_registration_record(tmp_path: Path) -> None:
    unfenced = record(17, broker_id=1, broker_epoch=3, fenced=-1)
    (finding,) = quorum_findings(put(tmp_path, EMPTY, EMPTY, written(broker_registration(1, 3), unfenced)))
    assert finding.evidence["proven_end"] == 4


def test_an_empty_log_does_not_know_the_voters_of_another_one(tmp_path: Path) -> None:
    feature = {"min_supported_version": 0, "max_supported_version": 1}
    voter = {"voter_directory_id": bytes(16), "endpoints": [], "kraft_version_feature": feature}
    log = ControllerLog().control(control(5, kraft_version=1), control(6, voters=[voter | {"voter_id": node} for node in VOTERS]))
    log.lead([*VOTERS]).append(topic())
    assert quorum_findings(put(tmp_path, EMPTY, EMPTY, log)) == []


def test_a_voter_without_a_copy_is_reported(tmp_path: Path) -> None:
    brokers = put(tmp_path, EMPTY, AHEAD)
    assert [finding.evidence["node_id"] for finding in quorum_findings(brokers, "REPLICA_NOT_GIVEN")] == [103]
    assert quorum_findings(brokers) == []


def test_a_plan_has_the_quorum_and_its_harmful_leaders(tmp_path: Path) -> None:
    brokers = put(tmp_path, EMPTY, EMPTY, AHEAD)
    plans = make_plans([str(brokers.root)], ScanOptions(jobs=1), PlanOptions())
    assert plans.quorum is not None
    assert (plans.quorum.has_majority, plans.quorum.not_given) == (True, [])
    assert [leader.node for leader in plans.quorum.harmful_leaders()] == [101, 102]
