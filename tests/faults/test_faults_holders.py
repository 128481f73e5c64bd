"""Whose copy may be trusted, kept and compared: replicas that forked, that are another topic's, that cannot be read."""

import struct
from pathlib import Path

import pytest

from kafka_forensics import wording
from kafka_forensics.analysis.replicas import diff as differences
from kafka_forensics.engine import local
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.storage.local import LocalSource
from kafka_forensics.storage.source import ByteFile
from kafka_forensics.writers.files import write_meta_properties, write_partition_metadata
from tests.support.faults import HEALTHY, Brokers, Log, healthy, histories
from tests.support.faults_verdict import offsets, only, said, verdict
from tests.support.injections import delete_segment, history, rewritten, undecodable, with_right_crc

pytestmark = pytest.mark.faults

COMMON = [("p", 0)] * 4
"""Offsets [0, 12) of a history."""
TARGET = HEALTHY.at(40)


def threes(*batches: tuple[str, int]) -> Log:
    """A history in batches of three records."""
    return history(*batches, records=3)


def test_a_lagging_replica_is_not_told_to_copy_from_one_side_of_a_fork(tmp_path: Path) -> None:
    old, new = threes(*COMMON, ("old", 0)), threes(*COMMON, ("new", 1), ("new", 1))
    result = verdict(histories(tmp_path, {1: old, 2: new, 3: threes(*COMMON[:3])}, {1: 9, 2: 9, 3: 9}))
    assert said(result) == [("FORK_ABOVE_HW", "info", None), ("REPLICA_LAGS", "info", 3)]
    lags = only(result, "REPLICA_LAGS")
    assert (lags.evidence["held_by"], lags.evidence["in_conflict"]) == ([], [1, 2])
    advice = wording.advice(lags)
    assert advice is not None
    assert "Keep the longer" not in advice
    assert "Keep every copy" in advice
    assert "brokers 1 and 2" in advice


def test_a_lagging_replica_is_told_of_the_copy_that_is_in_no_conflict(tmp_path: Path) -> None:
    """Brokers 1 and 2 part at 12; 4 ends there and is longer than 3."""
    old, new = threes(*COMMON, ("old", 0)), threes(*COMMON, ("new", 1))
    logs = {1: old, 2: new, 3: threes(*COMMON[:3]), 4: threes(*COMMON)}
    result = verdict(histories(tmp_path, logs, dict.fromkeys(logs, 9)))
    assert said(result) == [("FORK_ABOVE_HW", "info", None), ("REPLICA_LAGS", "info", 3), ("REPLICA_LAGS", "info", 4)]
    third, fourth = (finding.evidence for finding in result.findings if finding.kind == "REPLICA_LAGS")
    assert (third["held_by"], third["in_conflict"]) == ([4], [1, 2])
    assert (fourth["held_by"], fourth["in_conflict"]) == ([], [1, 2])


def test_without_a_fork_the_longer_copies_are_kept(tmp_path: Path) -> None:
    long = threes(*COMMON)
    result = verdict(histories(tmp_path, {1: long, 2: threes(*COMMON[:3]), 3: long}, dict.fromkeys((1, 2, 3), 9)))
    assert "in_conflict" not in only(result, "REPLICA_LAGS").evidence
    assert wording.advice(only(result, "REPLICA_LAGS")) == "Keep the longer copy (on brokers 1 and 3) until this one has caught up."


def test_who_parted_before_the_damage_holds_no_good_copy_of_it(tmp_path: Path) -> None:
    mine = threes(*COMMON, ("a", 1), ("a", 1), ("a", 1))
    other = threes(*COMMON, ("b", 2), ("b", 2), ("b", 2))
    brokers = histories(tmp_path, {1: other, 2: mine, 3: mine}, dict.fromkeys((1, 2, 3), 12))
    brokers.flip(2, mine.at(16), 100)
    brokers.flip(2, mine.at(4), 100)
    result = verdict(brokers)
    damaged = [finding for finding in result.findings if finding.kind == "BATCH_CRC_MISMATCH"]
    assert [(offsets(finding), finding.evidence["held_by"]) for finding in damaged] == [((3, 6), [1, 3]), ((15, 18), [3])]
    differs = {offsets(finding): finding.evidence for finding in result.findings if finding.kind == "REPLICA_DIFFERS"}
    assert {place: (one["majority"], one["held_by"]) for place, one in differs.items()} == {
        (3, 6): ([1, 3], [1, 3]),
        (15, 18): ([3], [3]),
    }


def test_a_batch_rewritten_elsewhere_does_not_spoil_the_copy_of_another(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    rewritten(brokers, 1, 33)
    brokers.flip(2, TARGET, 100)
    result = verdict(brokers)
    assert only(result, "BATCH_CRC_MISMATCH").evidence["held_by"] == [1, 3]
    brokers.flip(2, HEALTHY.at(33), 100)
    first = next(finding for finding in verdict(brokers).findings if finding.kind == "BATCH_CRC_MISMATCH")
    assert (offsets(first), first.evidence["held_by"]) == ((32, 35), [1, 3])


@pytest.mark.parametrize("cluster", [False, True])
def test_f40_replicas_of_one_topic_are_compared_beside_a_stranger(tmp_path: Path, cluster: bool) -> None:
    brokers = healthy(tmp_path)
    rewritten(brokers, 2, 40)
    rewritten(brokers, 3, 46)
    if cluster:
        (brokers.log_dir(2) / "meta.properties").write_bytes(write_meta_properties(node_id=2, cluster_id="AAAAAAAAAAAAAAAAAAAAAA"))
    else:
        brokers.named(2, "partition.metadata").write_bytes(write_partition_metadata("AAAAAAAAAAAAAAAAAAAAAQ"))
    result = verdict(brokers)
    mismatch = "CLUSTER_ID_MISMATCH" if cluster else "TOPIC_ID_MISMATCH"
    assert said(result) == sorted([("SAME_EPOCH_DIVERGENCE", "critical", None), (mismatch, "error", None)])
    conflict = only(result, "SAME_EPOCH_DIVERGENCE")
    assert offsets(conflict) == (46, 49)
    assert [version["brokers"] for version in conflict.evidence["versions"]] == [[1], [3]]
    assert result.partitions[0].agreement.kind == "conflict"


def test_f40_a_replica_without_an_id_beside_two_topics_is_compared_with_none(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    rewritten(brokers, 1, 40)
    brokers.named(2, "partition.metadata").write_bytes(write_partition_metadata("AAAAAAAAAAAAAAAAAAAAAQ"))
    brokers.named(1, "partition.metadata").unlink()
    result = verdict(brokers)
    assert said(result) == [("TOPIC_ID_MISMATCH", "error", None), ("TOPIC_ID_MISSING", "error", 1)]
    assert result.partitions[0].agreement.kind == "not_compared"


def test_a_segment_that_cannot_be_read_makes_no_identical_replicas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = healthy(tmp_path)
    for refused, segment in enumerate((29, 55), 1):
        refuse(monkeypatch, brokers, segment)
        result = local.scan([str(path) for path in brokers.log_dirs], ScanOptions(jobs=1))
        assert said(result) == []
        assert len(result.incomplete) == refused
        agreement = result.partitions[0].agreement
        assert (agreement.kind, agreement.common_end_offset) == ("not_compared", None)


def refuse(monkeypatch: pytest.MonkeyPatch, brokers: Brokers, segment: int) -> None:
    """Broker 2's segment cannot be opened."""
    opening = LocalSource.open
    refused = brokers.file(2, segment)

    def refusing(self: LocalSource, path: str) -> ByteFile:
        if Path(self.name) / path == refused:
            raise SourceError(path, "input/output error")
        return opening(self, path)

    monkeypatch.setattr(LocalSource, "open", refusing)


def test_a_conflict_is_told_though_a_segment_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = healthy(tmp_path)
    rewritten(brokers, 3, 40)
    refuse(monkeypatch, brokers, 29)
    result = local.scan([str(path) for path in brokers.log_dirs], ScanOptions(jobs=1))
    assert said(result) == [("SAME_EPOCH_DIVERGENCE", "critical", None)]
    assert result.partitions[0].agreement.kind == "conflict"


@pytest.mark.parametrize("deep", [True, False])
def test_a_batch_of_noise_under_a_right_crc_differs_from_the_others(tmp_path: Path, deep: bool) -> None:
    brokers = healthy(tmp_path)
    undecodable(brokers, TARGET, 2)
    result = verdict(brokers, deep=deep)
    own = {kind for kind, _, _ in said(result)} - {"REPLICA_DIFFERS"}
    assert own <= {"RECORD_LENGTH_OUT_OF_BOUNDS", "RECORD_MALFORMED", "RECORD_VARINT_OVERLONG"}
    assert own
    finding = only(result, "REPLICA_DIFFERS")
    assert (offsets(finding), finding.place.broker) == ((39, 42), 2)
    assert (finding.evidence["kind"], finding.evidence["minority"], finding.evidence["majority"]) == ("undecodable", [2], [1, 3])
    assert result.partitions[0].agreement.kind == "content"


def test_noise_on_two_replicas_leaves_the_one_that_can_be_read(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    undecodable(brokers, TARGET, 1, 2)
    differs = [finding for finding in verdict(brokers).findings if finding.kind == "REPLICA_DIFFERS"]
    assert [(finding.place.broker, finding.evidence["held_by"]) for finding in differs] == [(1, [3]), (2, [3])]


def test_what_was_left_unread_between_two_ends_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differences, "RUNS_READ", 1)
    left, right = Log(tag="a"), Log(tag="a")
    for number in range(9):
        for log, tag in ((left, "a"), (right, "a" if number % 2 else "b")):
            log.next_offset = number << 16
            log.tag = tag
            log.plain()
    brokers = histories(tmp_path, {1: left, 2: right}, {1: 0, 2: 0})
    result = verdict(brokers)
    finding = only(result, "SAME_EPOCH_DIVERGENCE")
    assert finding.evidence["ranges_not_compared"] == 3
    assert "3 further ranges" in wording.message(finding)
    monkeypatch.undo()
    assert "ranges_not_compared" not in only(verdict(brokers), "SAME_EPOCH_DIVERGENCE").evidence


@pytest.mark.parametrize(("on", "held_by"), [((2,), [1, 3]), ((1, 2), [3]), ((1, 2, 3), [])])
def test_a_copy_with_the_same_fault_is_no_good_one(tmp_path: Path, on: tuple[int, ...], held_by: list[int]) -> None:
    brokers = healthy(tmp_path)
    with_right_crc(brokers, TARGET, 57, struct.pack(">i", -1), on=on)
    result = verdict(brokers)
    assert said(result) == [("BATCH_COUNT_LIE", "error", broker) for broker in on]
    assert [finding.evidence["held_by"] for finding in result.findings] == [held_by] * len(on)


def test_a_copy_with_another_fault_in_the_batch_is_no_good_one(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    with_right_crc(brokers, TARGET, 57, struct.pack(">i", -1), on=(1,))
    brokers.flip(2, TARGET, 100)
    result = verdict(brokers)
    assert only(result, "BATCH_CRC_MISMATCH").evidence["held_by"] == [3]
    assert only(result, "BATCH_COUNT_LIE").evidence["held_by"] == [3]


def test_a_copy_with_a_fault_in_one_batch_still_holds_a_lost_segment(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    with_right_crc(brokers, TARGET, 57, struct.pack(">i", -1), on=(1,))
    delete_segment(brokers, 2)
    assert only(verdict(brokers), "OFFSET_GAP").evidence["held_by"] == [1, 3]


@pytest.mark.parametrize("delta", [1, 4, 1000])
def test_a_range_that_is_claimed_is_not_asked_of_the_others(tmp_path: Path, delta: int) -> None:
    brokers = healthy(tmp_path)
    with_right_crc(brokers, TARGET, 23, struct.pack(">i", delta))
    assert only(verdict(brokers), "BATCH_RANGE_INCONSISTENT").evidence["held_by"] == [1, 3]
