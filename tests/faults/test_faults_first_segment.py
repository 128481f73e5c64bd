"""What is gone at a log's start or everywhere: an empty or unreadable first segment, directories that are not there."""

import shutil
from pathlib import Path

import pytest

from tests.support.controller_log import controlled_by, in_sync, partition, record, topic
from tests.support.faults import HEALTHY, LOG_END, TOPIC_ID, Brokers, healthy, write_checkpoint
from tests.support.faults_verdict import offsets, only, said, verdict
from tests.support.gallery_replicas import OTHER_TOPIC_ID
from tests.support.injections import cut

pytestmark = pytest.mark.faults

FIRST = HEALTHY.of_segment(0)
SECOND = min(batch.segment for batch in HEALTHY.batches if batch.segment)


@pytest.fixture(name="brokers")
def three_equal_replicas(tmp_path: Path) -> Brokers:
    return healthy(tmp_path)


@pytest.mark.parametrize("kept", [0, len(FIRST[0].data) - 1])
def test_nothing_of_the_first_segment_is_left(brokers: Brokers, kept: int) -> None:
    cut(brokers, 0, kept)
    result = verdict(brokers)
    short = [("SEG_SHORT", "error", 2)] if kept else []
    assert [one for one in said(result) if one[0] in ("OFFSET_GAP", "SEG_SHORT")] == [("OFFSET_GAP", "critical", 2), *short]
    finding = only(result, "OFFSET_GAP")
    assert offsets(finding) == (0, SECOND)
    assert (finding.evidence["missing"], finding.evidence["held_by"]) == (SECOND, [1, 3])
    assert "INDEX_MISMATCH" not in {kind for kind, _, _ in said(result)}
    assert result.partitions[0].replicas[1].missing_offsets == SECOND
    assert result.partitions[0].agreement.kind == "missing"


def test_records_deleted_up_to_the_second_segment_are_not_missing(brokers: Brokers) -> None:
    for broker in (1, 2, 3):
        write_checkpoint(brokers.log_dir(broker), "log-start", SECOND)
    cut(brokers, 0, 0)
    assert "OFFSET_GAP" not in {kind for kind, _, _ in said(verdict(brokers))}


def test_an_empty_only_segment_misses_nothing(brokers: Brokers) -> None:
    for segment in {batch.segment for batch in HEALTHY.batches} - {0}:
        for path in brokers.file(2, segment).parent.glob(f"{segment:020d}.*"):
            path.unlink()
    cut(brokers, 0, 0)
    assert "OFFSET_GAP" not in {kind for kind, _, _ in said(verdict(brokers))}


def remove_partition(brokers: Brokers, *on: int) -> None:
    for broker in on:
        shutil.rmtree(brokers.log_dir(broker) / "t-0")


def test_no_directory_is_left_anywhere(brokers: Brokers) -> None:
    remove_partition(brokers, 1, 2, 3)
    result = verdict(brokers)
    assert said(result) == [
        ("COMMITTED_LOST_EVERYWHERE", "critical", None),
        *(("REPLICA_MISSING", "warning", broker) for broker in (1, 2, 3)),
    ]
    finding = only(result, "COMMITTED_LOST_EVERYWHERE")
    assert (finding.confidence.value, offsets(finding)) == ("inferred", (0, LOG_END - 3))
    assert finding.evidence["directories_missing_on"] == [1, 2, 3]
    assert "deleted" in finding.evidence["harmless_if"]


def test_one_directory_left_is_a_copy(brokers: Brokers) -> None:
    remove_partition(brokers, 1, 2)
    told = [("EMPTY_REPLICA_MAY_LEAD", "critical", broker) for broker in (1, 2)]
    assert said(verdict(brokers)) == told + [("REPLICA_MISSING", "warning", broker) for broker in (1, 2)]


def test_of_a_topic_that_was_deleted_nothing_is_missing(brokers: Brokers) -> None:
    remove_partition(brokers, 1, 2, 3)
    other = topic("other", OTHER_TOPIC_ID), partition([1, 2, 3], 1, topic_id=OTHER_TOPIC_ID)
    controlled_by(brokers, *other, *in_sync([1, 2, 3]), record(9, topic_id=TOPIC_ID))
    told = said(verdict(brokers))
    assert [one for one in told if one[0] == "REPLICA_MISSING"] == [("REPLICA_MISSING", "info", broker) for broker in (1, 2, 3)]
    assert "COMMITTED_LOST_EVERYWHERE" not in {kind for kind, _, _ in told}
