"""`__share_group_state` replayed from log directories: the choice of a copy, topics, and offsets that prove no loss."""

from pathlib import Path

import pytest

from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.coordinators import ShareLog, StateBatch
from kafka_forensics.model.findings import Finding
from kafka_forensics.questions.groups import GroupRow, groups
from kafka_forensics.scanning.engine import local
from kafka_forensics.scanning.witnesses.coordinators import read_share_logs
from tests.support.brokers import put_consumer_offsets, put_replica, put_share_state
from tests.support.controllers import put_controller
from tests.support.groups import (
    TOPIC_ID_BYTES,
    TOPIC_ID_TEXT,
    coordinator_batches,
    group_key,
    new_group_value,
    share_key,
    share_value,
)
from tests.support.places import DUMP_INPUTS
from tests.support.segments import BASE_TIMESTAMP, flip_bit, log, segment_file

SNAPSHOT, UPDATE = share_key(), share_key(record_type=1)
SHARED = {"topic_id": TOPIC_ID_TEXT, "topic_name": "orders", "partitions": [0]}


def replayed(*log_dirs: Path) -> tuple[ShareLog, list[Finding]]:
    [share_log], findings = read_share_logs(gather([str(log_dir) for log_dir in log_dirs], ScanOptions(), elsewhere=True))
    return share_log, findings


def test_updates_are_merged_into_the_snapshot(tmp_path: Path) -> None:
    records = coordinator_batches(
        (SNAPSHOT, share_value(-1)),
        (UPDATE, share_value(0, (0, 9, 2, 1), record_type=1)),
        (UPDATE, share_value(4, (5, 5, 0, 2), (6, 6, 4, 3), record_type=1, delivery_complete_count=5)),
        (b"\0\7unknown", b"anything"),
    )
    put_share_state(tmp_path / "b1", records)
    share_log, findings = replayed(tmp_path / "b1")
    [state] = share_log.states
    assert (share_log.complete, share_log.limited, findings) == (True, False, [])
    assert (state.group, state.topic_id, state.partition, state.start_offset) == ("workers", TOPIC_ID_TEXT, 0, 4)
    assert (state.delivery_complete_count, state.record_offset) == (5, 2)
    assert (state.timestamp, state.unknown_after) == (BASE_TIMESTAMP, None)
    assert state.batches == tuple(StateBatch(*row) for row in ((4, 4, 2, 1), (5, 5, 0, 2), (6, 6, 4, 3), (7, 9, 2, 1)))
    assert [state.offsets_in(number) for number in (0, 2, 4)] == [1, 4, 1]


def test_an_undamaged_copy_is_read_before_a_damaged_one(tmp_path: Path) -> None:
    records = coordinator_batches((SNAPSHOT, share_value(1)), (SNAPSHOT, share_value(2)))
    put_share_state(tmp_path / "b1", flip_bit(records, len(records) - 3))
    put_share_state(tmp_path / "b2", records)
    share_log, _ = replayed(tmp_path / "b1", tmp_path / "b2")
    assert (share_log.complete, share_log.broker, share_log.states[0].start_offset) == (True, "b2", 2)
    share_log, _ = replayed(tmp_path / "b1")
    assert (share_log.complete, share_log.states[0].start_offset) == (False, 1)


def rows(*paths: Path) -> list[GroupRow]:
    return [row for row in groups([str(path) for path in paths], ScanOptions()).rows if row.share is not None]


def test_topic_names_come_from_groups_and_the_controllers_log(tmp_path: Path) -> None:
    put_share_state(tmp_path / "b1", coordinator_batches((SNAPSHOT, share_value(1))))
    assert [row.topic for row in rows(tmp_path / "b1")] == [None]
    put_consumer_offsets(
        tmp_path / "b1", coordinator_batches((group_key("workers", 15), new_group_value(15, deleting_topics=[SHARED])))
    )
    [row] = rows(tmp_path / "b1")
    assert (row.topic, row.about.kind if row.about else None) == ("orders", "share")
    put_share_state(tmp_path / "b2", coordinator_batches((SNAPSHOT, share_value(1))))
    put_controller(tmp_path / "b2", isr=[1], replicas=[1], leader=1, topic_id=TOPIC_ID_BYTES, topic_name="bills")
    assert [row.topic for row in rows(tmp_path / "b2")] == ["bills"]


@pytest.mark.parametrize("start_offset", [15, 2**62])
def test_a_start_offset_beyond_every_log_proves_no_lost_records(tmp_path: Path, start_offset: int) -> None:
    """An administrator may have set it; it does not prove that any record existed."""
    for broker in (1, 2):
        log_dir = put_replica(tmp_path, broker, log(5), high_watermark=4)
        put_share_state(log_dir, coordinator_batches((SNAPSHOT, share_value(start_offset, (start_offset, start_offset + 4, 2, 1)))))
        put_consumer_offsets(
            log_dir, coordinator_batches((group_key("workers", 15), new_group_value(15, initialized_topics=[SHARED])))
        )
    answer = groups([str(tmp_path)], ScanOptions())
    [row] = [row for row in answer.rows if row.share is not None]
    assert (row.topic, row.partition, row.beyond_end, row.commit) == ("orders", 0, None, None)
    assert row.ends is not None
    assert answer.result.findings == []
    result = local.scan([str(tmp_path)], ScanOptions())
    assert "GROUP_OFFSET_BEYOND_LOG" not in {finding.kind for finding in result.findings}
    [partition] = [summary for summary in result.partitions if summary.topic == "orders"]
    assert partition.high_watermark_at_least == 4


def test_the_delivery_count_equals_that_of_the_batches(tmp_path: Path) -> None:
    """In Kafka 4.3.0 complete deliveries are records from the start offset on that were acknowledged or archived."""
    for name, directory in {"group-kinds": "__consumer_offsets-0", "share-state": "__share_group_state-0"}.items():
        path = tmp_path / "b1" / directory / segment_file(0)
        path.parent.mkdir(parents=True)
        path.write_bytes((DUMP_INPUTS / name / path.name).read_bytes())
    found = {(row.group, row.topic, row.partition): row for row in rows(tmp_path / "b1")}
    assert set(found) == {("workers", "orders", 0), ("workers", "orders", 1), ("reset", "orders-eu", 1)}
    shares = [row.share for row in found.values() if row.share is not None]
    assert all(share.delivery_complete_count == share.offsets_in(2) + share.offsets_in(4) for share in shares)
    assert {share.start_offset for share in shares if share.group == "reset"} == {4}
    assert sum(share.offsets_in(0) for share in shares if share.group == "workers") > 0
