"""Faults F17 and F47: files on their way in or out, directories that wait to be removed, and indexes whose log is gone."""

import shutil
from pathlib import Path

import pytest

from kafka_forensics.wording import advice, message
from kafka_forensics.writers.files import write_partition_metadata
from tests.support.faults import HEALTHY, LOG_END, Brokers, healthy, write_checkpoint
from tests.support.faults_verdict import offsets, only, said, scan, verdict
from tests.support.gallery_leftovers import (
    ASIDE,
    deleted_elsewhere,
    directory_aside,
    future_copy,
    remove,
    set_aside,
    truncated_tail,
)
from tests.support.injections import LOG_FILES

pytestmark = pytest.mark.faults


@pytest.fixture(name="brokers")
def three_equal_replicas(tmp_path: Path) -> Brokers:
    return healthy(tmp_path)


def test_f47_deleted_segment_in_the_middle_would_fill_the_gap(brokers: Brokers) -> None:
    set_aside(brokers, 2, 29, "deleted")
    result = verdict(brokers)
    assert said(result) == [
        ("LEFTOVER_HOLDS_DATA", "info", 2),
        ("OFFSET_GAP", "critical", 2),
        ("SEGMENT_MISSING", "error", 2),
    ]
    file = f"t-0/{29:020d}.log.deleted"
    for kind in ("OFFSET_GAP", "SEGMENT_MISSING"):
        assert only(result, kind).evidence["also_in"] == [file]
    finding = only(result, "LEFTOVER_HOLDS_DATA")
    assert (finding.place.file, offsets(finding)) == (file, (29, 55))
    assert finding.evidence == {
        "files": [file],
        "suffix": "deleted",
        "batches": len(HEALTHY.of_segment(29)),
        "offsets": [[29, 55]],
        "expired": False,
        "behind_log_end": False,
        "fills": ["OFFSET_GAP on broker 2", "SEGMENT_MISSING on broker 2"],
    }


def test_f47_deleted_segment_may_fill_the_gap_of_another_broker(brokers: Brokers) -> None:
    deleted_elsewhere(brokers)
    result = verdict(brokers)
    file = f"t-0/{29:020d}.log.deleted"
    assert only(result, "COMMITTED_LOST_EVERYWHERE").evidence["also_in"] == [f"broker 3: {file}"]
    gaps = {finding.place.broker: finding.evidence["also_in"] for finding in result.findings if finding.kind == "OFFSET_GAP"}
    assert gaps == {1: [f"broker 3: {file}"], 2: [f"broker 3: {file}"], 3: [file]}


def test_f47_segments_that_retention_takes_are_expired(brokers: Brokers) -> None:
    set_aside(brokers, 2, 0, "deleted")
    result = verdict(brokers)
    assert said(result) == [("LEFTOVER_HOLDS_DATA", "info", 2)]
    finding = only(result, "LEFTOVER_HOLDS_DATA")
    assert (offsets(finding), finding.evidence["expired"], finding.evidence["fills"]) == ((0, 29), True, [])


def test_f47_truncated_tail_waits_behind_the_log_end(brokers: Brokers) -> None:
    truncated_tail(brokers)
    result = verdict(brokers)
    assert said(result) == [("LEFTOVER_HOLDS_DATA", "info", 2), ("REPLICA_LAGS", "info", 2)]
    finding = only(result, "LEFTOVER_HOLDS_DATA")
    assert (offsets(finding), finding.evidence["behind_log_end"]) == ((55, LOG_END), True)


def test_f47_what_no_log_reaches_to_any_more_may_be_the_last_of_it(brokers: Brokers) -> None:
    """As a follower leaves it that cut its log for a leader that lost its disks."""
    for broker in (1, 3):
        remove(brokers, broker, 55)
    truncated_tail(brokers)
    for broker in (1, 2, 3):
        write_checkpoint(brokers.log_dir(broker), "replication", 29)
    finding = only(verdict(brokers), "LEFTOVER_HOLDS_DATA")
    assert (finding.severity.value, finding.confidence.value, offsets(finding)) == ("warning", "suspected", (55, LOG_END))
    assert "none of it was ever committed" in message(finding)
    assert (advice(finding) or "").startswith(f"Copy t-0/{55:020d}.log.deleted elsewhere before this broker starts")


def test_f47_leftovers_of_what_the_log_has_say_nothing(brokers: Brokers) -> None:
    for ending in ("deleted", "cleaned"):
        path = brokers.file(2, 29)
        shutil.copy(path, path.with_name(f"{path.name}.{ending}"))
    path = brokers.file(1, 29)
    shutil.copy(path, path.with_name(f"{path.name}.deleted"))
    assert said(verdict(brokers)) == [("INTERRUPTED_SWAP", "info", 2)]


def test_f47_what_the_cleaner_took_is_no_loss(brokers: Brokers) -> None:
    for broker in (1, 2, 3):
        set_aside(brokers, broker, 29, "deleted")
        write_checkpoint(brokers.log_dir(broker), "cleaner", 55)
    assert "LEFTOVER_HOLDS_DATA" not in {kind for kind, _, _ in said(verdict(brokers))}


@pytest.mark.parametrize("suffix", ["delete", "stray"])
def test_f47_directory_on_its_way_out(brokers: Brokers, suffix: str) -> None:
    directory_aside(brokers, suffix)
    result = verdict(brokers)
    assert said(result) == [("LEFTOVER_HOLDS_DATA", "info", 2)]
    finding = only(result, "LEFTOVER_HOLDS_DATA")
    assert (finding.evidence["suffix"], offsets(finding), len(finding.evidence["files"])) == (suffix, (0, LOG_END), 3)
    assert ("is served by no broker" if suffix == "stray" else "will be removed by Kafka") in message(finding)
    assert finding.place.topic == "t"


def test_f47_directory_on_its_way_out_is_all_that_is_left(brokers: Brokers) -> None:
    directory_aside(brokers, "delete")
    result = scan([brokers.log_dir(2)])
    assert said(result) == [("LEFTOVER_HOLDS_DATA", "info", 2)]
    assert result.partitions == []


def test_f47_missing_replica_lies_stray_in_the_other_log_directory(brokers: Brokers) -> None:
    directory = brokers.log_dir(2) / "t-0"
    other = brokers.log_dir(2).with_name("b2-more")
    shutil.copytree(directory, other / f"{ASIDE}-stray")
    shutil.copy(brokers.log_dir(2) / "meta.properties", other)
    shutil.rmtree(directory)
    result = verdict(brokers)
    assert said(result) == [("LEFTOVER_HOLDS_DATA", "info", 2), ("REPLICA_MISSING", "warning", 2)]
    assert only(result, "REPLICA_MISSING").evidence["also_in"] == [f"{other}/{ASIDE}-stray"]


def test_f47_directory_of_an_earlier_topic_fills_nothing(brokers: Brokers) -> None:
    remove(brokers, 2, 29)
    directory = brokers.log_dir(2) / f"{ASIDE}-delete"
    shutil.copytree(brokers.log_dir(1) / "t-0", directory)
    (directory / "partition.metadata").write_bytes(write_partition_metadata("AAAAAAAAAAAAAAAAAAAAAQ"))
    result = verdict(brokers)
    finding = only(result, "LEFTOVER_HOLDS_DATA")
    assert (finding.evidence["topic_id"], finding.evidence["fills"]) == ("AAAAAAAAAAAAAAAAAAAAAQ", [])
    assert "also_in" not in only(result, "OFFSET_GAP").evidence


def test_f47_directory_of_an_earlier_topic_that_another_broker_still_has(brokers: Brokers) -> None:
    """As brokers leave it where one was down while its topic was created anew (`tests/broker`)."""
    for broker in (1, 2):
        shutil.copytree(brokers.log_dir(broker) / "t-0", brokers.log_dir(broker) / f"{ASIDE}-delete")
        brokers.named(broker, "partition.metadata").write_bytes(write_partition_metadata("AAAAAAAAAAAAAAAAAAAAAQ"))
    result = verdict(brokers)
    leftover = "LEFTOVER_HOLDS_DATA"
    assert said(result) == [(leftover, "info", 1), (leftover, "info", 2), ("TOPIC_ID_MISMATCH", "error", None)]
    for finding in result.findings:
        if finding.kind == leftover:
            assert (offsets(finding), finding.evidence["behind_log_end"]) == ((0, LOG_END), False)


def test_f47_future_copy_of_a_log_that_is_there_says_nothing(brokers: Brokers) -> None:
    future_copy(brokers)
    assert said(verdict(brokers)) == []


def test_f17_indexes_left_behind_prove_the_segment(brokers: Brokers) -> None:
    remove(brokers, 1, 29, "log")
    result = verdict(brokers)
    assert said(result) == [("OFFSET_GAP", "critical", 1), ("SEGMENT_MISSING", "error", 1)]
    finding = only(result, "SEGMENT_MISSING")
    assert finding.evidence["index_files"] == [f"{29:020d}.{suffix}" for suffix in LOG_FILES[1:]]
    assert (offsets(finding), finding.confidence.value) == ((29, 55), "proven")


def test_f17_first_segment_missing_is_no_retention_where_its_index_is_left(brokers: Brokers) -> None:
    remove(brokers, 1, 0, "log")
    result = verdict(brokers)
    assert said(result) == [("SEGMENT_MISSING", "error", 1)]
    finding = only(result, "SEGMENT_MISSING")
    assert (offsets(finding), finding.evidence["missing"], finding.evidence["held_by"]) == ((0, 29), 29, [2, 3])
    write_checkpoint(brokers.log_dir(1), "log-start", 29)
    assert said(verdict(brokers)) == []


def test_f17_last_segment_missing_is_named_by_its_index(brokers: Brokers) -> None:
    remove(brokers, 1, 55, "log")
    brokers.file(1, LOG_END, "snapshot").unlink()
    result = verdict(brokers)
    assert ("SEGMENT_MISSING", "error", 1) in said(result)
    finding = only(result, "SEGMENT_MISSING")
    assert (offsets(finding), finding.evidence["held_by"]) == ((55, LOG_END), [2, 3])


def test_f17_index_beside_its_deleted_log_proves_nothing(brokers: Brokers) -> None:
    path = brokers.file(1, 0)
    path.rename(path.with_name(f"{path.name}.deleted"))
    assert said(verdict(brokers)) == [("LEFTOVER_HOLDS_DATA", "info", 1)]
