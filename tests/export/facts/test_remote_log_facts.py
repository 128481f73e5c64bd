"""Facts of `__remote_log_metadata`, read by a scan and by a task: last states of segments, every event, and filters."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kafka_forensics as kf
from kafka_forensics.export.facts.rows import FactQuery
from kafka_forensics.export.facts.scan import read_scan
from kafka_forensics.export.facts.splits import plan_tasks
from kafka_forensics.export.views import finding_text
from kafka_forensics.model.schemas import FACTS
from tests.support.brokers import put_meta_properties, put_partition
from tests.support.groups import TOPIC_ID_TEXT
from tests.support.remote_log import copy_started, deleted_partition, put_remote_log, segment_id, segment_update
from tests.support.segments import BASE_TIMESTAMP, log
from tests.support.times import ms_of

Row = dict[str, Any]
EVENTS = (
    copy_started(2, 10, 19, epochs=((0, 10), (3, 15)), custom_metadata="AAEC"),
    copy_started(1, 0, 9, partition=1),
    segment_update(1, 1, partition=1, broker_id=4, custom_metadata="/w=="),
    segment_update(2, 3),
    deleted_partition(),
    b"\1\1\0\0",
    b"\1\x63\0",
)


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    for broker in (1, 2):
        put_remote_log(tmp_path / f"b{broker}", *EVENTS)
        put_meta_properties(tmp_path / f"b{broker}", broker)
    put_remote_log(tmp_path / "b2", copy_started(9, 0, 4, topic="u", topic_id=segment_id(7)), partition=5)
    for directory in ("t-1", "u-0"):
        put_partition(tmp_path / "b1" / directory, log(3))
    return tmp_path


def rows_of(path: Path, fact: str, **limits: Any) -> list[Row]:
    """The rows of a fact; asserts that a scan and a task of the data source give the same."""
    rows: list[Row] = kf.scan(str(path), **limits).facts(fact, payloads=True).to_pylist()
    topics = (limits["topic"],) if "topic" in limits else ()
    query = FactQuery(fact, tuple(FACTS[fact].schema.names), topics=topics, payloads=True)
    [task] = plan_tasks([str(path)], query)
    assert pa.Table.from_batches(read_scan(task, query, finding_text), FACTS[fact].schema).to_pylist() == rows
    return rows


def test_a_segment_is_in_its_last_state(copies: Path) -> None:
    second, first, other = rows_of(copies, "remote_segments")
    assert list(second.values())[:5] == ["t", 0, TOPIC_ID_TEXT, segment_id(2), "COPY_SEGMENT_STARTED"]
    assert (second["start_offset"], second["last_offset"], second["custom_metadata"]) == (10, 19, b"\0\1\2")
    assert second["leader_epochs"] == [{"leader_epoch": 0, "start_offset": 10}, {"leader_epoch": 3, "start_offset": 15}]
    assert (first["state"], first["broker_id"], first["custom_metadata"]) == ("COPY_SEGMENT_FINISHED", 4, b"\xff")
    assert (ms_of(first["event_timestamp"]), first["metadata_partition"], first["metadata_offset"]) == (BASE_TIMESTAMP + 2001, 0, 2)
    assert (other["topic"], other["metadata_partition"], other["size_in_bytes"]) == ("u", 5, 4096)


def test_events_are_those_of_one_copy(copies: Path) -> None:
    rows = rows_of(copies, "remote_events")
    assert [(row["metadata_partition"], row["metadata_offset"], row["broker"]) for row in rows] == [
        *((0, offset, "1") for offset in range(7)),
        (5, 0, "2"),
    ]
    assert [row["is_dropped"] for row in rows] == [False, False, False, True, False, False, False, False]
    assert [row["problem"] for row in rows] == [None] * 5 + ["fields", "kind", None]
    assert [row["state"] for row in rows[:5]] == [
        *("COPY_SEGMENT_STARTED", "COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_FINISHED"),
        "DELETE_PARTITION_STARTED",
    ]
    started, finished, deleted, damaged = rows[0], rows[2], rows[4], rows[5]
    assert (started["start_offset"], started["last_offset"], started["txn_index_empty"]) == (10, 19, True)
    assert (finished["partition"], finished["broker_id"], finished["custom_metadata"], finished["start_offset"]) == (
        1,
        4,
        b"\xff",
        None,
    )
    assert (deleted["topic"], deleted["topic_id"], deleted["segment_id"]) == ("t", TOPIC_ID_TEXT, None)
    assert (damaged["topic"], damaged["record"]) == (None, "RemoteLogSegmentMetadataUpdateRecord")


def test_filters_apply_to_the_partition_of_the_segment(copies: Path) -> None:
    for fact in ("remote_segments", "remote_events"):
        assert {row["topic"] for row in rows_of(copies, fact, topic="u")} == {"u"}
        assert {row["partition"] for row in kf.scan(str(copies), topic="t", partition=1).facts(fact).to_pylist()} == {1}


def test_a_cluster_without_tiered_topics_has_no_rows(tmp_path: Path) -> None:
    put_meta_properties(tmp_path / "b1", 1)
    assert [kf.scan(str(tmp_path)).facts(fact).num_rows for fact in ("remote_segments", "remote_events")] == [0, 0]
