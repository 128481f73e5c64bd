"""Promises of a salvage: about every expected replica, and that there are no findings except those in the manifest."""

import json
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.verify import ExecutedPlan, Outcome, Verified, read_promises, verify
from lab.fault_base import read_log
from tests.questions.verify.verifications import LOG, repaired_copies
from tests.support.audit import put_audit

KEPT = {"start": "as_planned", "end": "as_planned", "bytes": "same_bytes"}


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    """Brokers that were started on broker 2's log, and the manifest."""
    copies = repaired_copies(tmp_path / "copies")
    data = (copies / "broker-2" / LOG).read_bytes()
    whole = {"file": LOG, "byte_start": 0, "byte_end": len(data), "offset_start": 0, "offset_end": 370}
    put_manifest(copies, ranges=[{**whole, "sha256": sha256(data).hexdigest()}])
    return copies


def put_manifest(copies: Path, **changes: Any) -> None:
    file = copies.parent / "manifest.json"
    fresh = {
        "topic": "audit",
        "partition": 0,
        "base_broker": 2,
        "log_start_offset": 0,
        "log_end_offset": 370,
        "leader_epochs": [[0, 0]],
    }
    partition = (
        json.loads(file.read_text())["partitions"][0]
        if file.exists()
        else {**fresh, "replicas": [], "gaps": [], "inherited": [], "new": []}
    )
    file.write_text(json.dumps({"schema_version": "1.0", "partitions": [partition | changes], "refused": []}))


def promises_of(copies: Path, *names: str) -> dict[tuple[str, Any], Verified]:
    paths = [str(copies / name) for name in names] or [str(copies)]
    checked = verify(paths, read_promises(str(copies.parent / "manifest.json")), ScanOptions(topic_glob="audit"), ExecutedPlan())
    return {(promise.promise, promise.broker): promise for promise in checked.promises}


def reasons(copies: Path, *names: str) -> dict[tuple[str, Any], str]:
    return {key: promise.reason for key, promise in promises_of(copies, *names).items()}


def expected_reasons(*brokers: int, reason: str | None = None) -> dict[tuple[str, Any], str]:
    return {(promise, broker): reason or kept for broker in brokers for promise, kept in KEPT.items()}


def test_every_replica_has_the_salvaged_log(copies: Path) -> None:
    assert reasons(copies) == {**expected_reasons(1, 2, 3), ("intact", 2): "nothing_found"}


def test_replicas_without_a_copy_are_reported(copies: Path) -> None:
    """The controllers' log assigns a replica to brokers 1, 2 and 3."""
    promises = promises_of(copies, "broker-1")
    found = {key: promise.reason for key, promise in promises.items()}
    assert found == {**expected_reasons(1), **expected_reasons(2, 3, reason="no_copy"), ("intact", 2): "not_all_given"}
    assert {promises[key].outcome for key in expected_reasons(2, 3)} == {Outcome.UNKNOWN}
    shutil.rmtree(copies / "broker-3" / "audit-0")
    assert reasons(copies) == {**expected_reasons(1, 2), **expected_reasons(3, reason="no_copy"), ("intact", 2): "not_all_given"}


def test_replicas_known_only_from_a_checkpoint_are_reported(copies: Path) -> None:
    for broker in (1, 2, 3):
        shutil.rmtree(copies / f"broker-{broker}" / "__cluster_metadata-0")
    shutil.rmtree(copies / "broker-3" / "audit-0")
    assert reasons(copies) == {**expected_reasons(1, 2), **expected_reasons(3, reason="no_copy"), ("intact", 2): "found"}


@pytest.mark.parametrize(
    ("offsets", "reason"),
    [
        ((None, None), "nothing_found"),
        ((20, 40), "nothing_found"),
        ((0, 60), "nothing_found"),
        ((0, 20), "found"),
        ((30, 60), "found"),
        ((40, None), "found"),
    ],
)
@pytest.mark.parametrize("listed", ["inherited", "new"])
def test_only_findings_in_the_manifest_are_excused(listed: str, offsets: tuple[Any, Any], reason: str, copies: Path) -> None:
    log = copies / "broker-3" / LOG
    data = bytearray(log.read_bytes())
    second, third = (read_log(log.parent).batches[number].position for number in (1, 2))
    data[(second + third) // 2] ^= 1
    log.write_bytes(data)
    kinds = promises_of(copies)["intact", 2].kinds
    assert "BATCH_CRC_MISMATCH" in kinds
    place = {"severity": "error", "offset_start": offsets[0], "offset_end": offsets[1], "producer_id": None}
    put_manifest(copies, **{listed: [{"kind": kind, **place} for kind in kinds]})
    assert reasons(copies)["intact", 2] == reason
    put_manifest(copies, **{listed: [{"kind": kind, **place, "producer_id": 7} for kind in kinds]})
    assert reasons(copies)["intact", 2] == "found", "those listed are another producer's"


@pytest.mark.parametrize(("end", "reason"), [(370, "nothing_found"), (None, "found")])
def test_a_gap_without_an_end_excuses_nothing(end: int | None, reason: str, copies: Path) -> None:
    """It means bytes after the end of the salvaged log, where brokers write new records."""
    log = copies / "broker-3" / LOG
    data = bytearray(log.read_bytes())
    data[-5] ^= 1
    log.write_bytes(data)
    put_manifest(copies, gaps=[{"offset_start": 300, "offset_end": end}])
    assert reasons(copies)["intact", 2] == reason


def test_a_manifest_without_offsets_is_refused(copies: Path) -> None:
    put_manifest(copies, inherited=[{"kind": "BATCH_CRC_MISMATCH"}])
    with pytest.raises(UsageError, match="is not a plan"):
        promises_of(copies)


def test_older_copies_differ_from_the_salvaged_log(copies: Path, tmp_path: Path) -> None:
    put_audit(tmp_path / "before")
    shutil.copy(tmp_path / "manifest.json", tmp_path / "kept.json")
    shutil.rmtree(copies)
    (tmp_path / "before").rename(copies)
    promises = reasons(copies)
    assert (promises["bytes", 1], promises["end", 3], promises["bytes", 2]) == ("other_bytes", "cut_short", "same_bytes")
