"""`__remote_log_metadata` replayed from log directories: the choice of a copy, valid events, and objects of real stores."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafka_forensics.analysis.internal_topics import RemoteLogReplay
from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.remote_log import RemoteLogHistory, RemoteSegmentState
from kafka_forensics.parsers.internal_topics import decode_remote_log_record
from kafka_forensics.scanning.judging.whole_scan import Scan
from kafka_forensics.scanning.witnesses.witnesses import read_witnesses
from tests.support.archives import archive_members
from tests.support.brokers import put_replica
from tests.support.controllers import put_controller
from tests.support.groups import TOPIC_ID_TEXT
from tests.support.remote_log import (
    COPY_FINISHED,
    COPY_STARTED,
    DELETE_FINISHED,
    DELETE_STARTED,
    copy_started,
    put_remote_log,
    segment_id,
    segment_update,
)
from tests.support.segments import BASE_TIMESTAMP, flip_bit, log

if TYPE_CHECKING:
    from kafka_forensics.model.findings import Finding

OTHER_ID = segment_id(1 << 100)
REAL = ("isolated", "quiet-live", "rebuilt", "remote-damaged", "salvaged-refused", "unclean")


def history_of(*paths: Path) -> "tuple[RemoteLogHistory, list[Finding]]":
    witnesses = read_witnesses(gather([str(path) for path in paths], ScanOptions(), elsewhere=True))
    assert witnesses.remote_log is not None
    return witnesses.remote_log, witnesses.findings


def test_segments_in_their_last_states(tmp_path: Path) -> None:
    put_remote_log(
        tmp_path / "b1",
        copy_started(2, 10, 19, epochs=((3, 15), (0, 10)), custom_metadata="AAEC"),
        copy_started(1, 0, 9),
        segment_update(1, COPY_FINISHED, broker_id=4, custom_metadata="/w=="),
        copy_started(3, 0, 9, topic_id=OTHER_ID, txn_index_empty=False),
        segment_update(3, DELETE_STARTED),
        segment_update(3, DELETE_FINISHED),
    )
    put_remote_log(tmp_path / "b1", copy_started(5, 20, 29), copy_started(4, 0, 4, partition=1), partition=7)
    history, findings = history_of(tmp_path / "b1")
    assert (findings, history.damaged, history.dropped, history.partitions_read) == ([], False, 0, {0, 7})
    assert history.names == {"t"}
    remote_log = history.log_of("t", 0, TOPIC_ID_TEXT)
    assert remote_log is not None
    first, second, third = remote_log.segments
    assert remote_log.finished == (first,)
    assert (first.segment_id, first.start_offset, first.end_offset, first.broker_id) == (segment_id(1), 0, 9, 4)
    assert (first.custom_metadata, first.event_timestamp_ms, first.metadata_offset) == (b"\xff", BASE_TIMESTAMP + 2001, 2)
    assert (second.leader_epochs, second.custom_metadata) == ((EpochEntry(0, 10), EpochEntry(3, 15)), b"\0\1\2")
    assert (second.state, second.txn_index_empty) == (RemoteSegmentState.COPY_SEGMENT_STARTED, True)
    assert (third.metadata_partition, third.metadata_offset, third.start_offset) == (7, 0, 20)
    other = history.log_of("t", 0, OTHER_ID)
    assert other is not None
    assert [segment.state for segment in other.segments] == [RemoteSegmentState.DELETE_SEGMENT_FINISHED]
    assert history.log_of("t", 1) is history.logs[TOPIC_ID_TEXT, 1]
    assert [history.log_of(*key) for key in (("t", 2), ("u", 0), ("t", 1, OTHER_ID))] == [None] * 3


def test_partitions_of_the_controllers_without_a_copy_are_missing(tmp_path: Path) -> None:
    put_remote_log(tmp_path / "b1", copy_started(1, 0, 9), partition=1)
    put_controller(tmp_path / "b1", isr=[1], replicas=[1], leader=1, topic_id=bytes(16), topic_name="__remote_log_metadata")
    history, _ = history_of(tmp_path / "b1")
    assert (history.partitions_read, history.partitions_missing) == ({1}, {0})


def test_without_a_topic_id_the_newest_topic_of_a_name_counts(tmp_path: Path) -> None:
    put_remote_log(
        tmp_path / "b1", copy_started(1, 0, 9, event_timestamp_ms=7), copy_started(2, 0, 9, event_timestamp_ms=8, topic_id=OTHER_ID)
    )
    history, _ = history_of(tmp_path / "b1")
    assert history.log_of("t", 0) is history.logs[OTHER_ID, 0]


def replayed(*values: bytes, max_deleted: int = 10) -> tuple[list[int], int, int]:
    """(states of the segments, number of dropped events, number of forgotten segments)."""
    replay = RemoteLogReplay(0, max_deleted)
    for offset, value in enumerate(values):
        fields = decode_remote_log_record(value).fields
        assert fields is not None
        replay.take(fields, offset)
    return [int(segment.state) for _, segment in replay.segments()], replay.dropped, replay.forgotten


@pytest.mark.parametrize("after", range(4))
@pytest.mark.parametrize("before", [None, *range(4)])
def test_invalid_transitions_are_dropped(before: int | None, after: int) -> None:
    """RemoteLogSegmentState.isValidTransition; an update cannot create a segment."""
    allowed = {(0, 1), (0, 2), (1, 2), (2, 3), (1, 1), (2, 2), (3, 3)}
    path = {None: [], 0: [], 1: [1], 2: [2], 3: [2, 3]}[before]
    created = [] if before is None else [copy_started(1, 0, 9)]
    states, dropped, _ = replayed(*created, *(segment_update(1, state) for state in path), segment_update(1, after))
    assert dropped == ((before, after) not in allowed)
    assert states == ([] if before is None else [before if dropped else after])


def test_a_segment_starts_once_and_unfinished() -> None:
    assert replayed(copy_started(1, 0, 9), copy_started(1, 0, 19)) == ([COPY_STARTED], 0, 0)
    assert replayed(copy_started(1, 0, 9, remote_log_segment_state=COPY_FINISHED)) == ([], 1, 0)
    assert replayed(copy_started(1, 0, 9), segment_update(1, COPY_FINISHED), copy_started(1, 0, 9)) == ([COPY_FINISHED], 1, 0)


def test_the_oldest_of_many_deleted_segments_are_forgotten() -> None:
    events = [
        event for number in range(5) for event in (copy_started(number, 0, 9), segment_update(number, 2), segment_update(number, 3))
    ]
    assert replayed(*events, segment_update(4, 3), copy_started(9, 0, 9), max_deleted=2) == (
        [DELETE_FINISHED] * 2 + [COPY_STARTED],
        0,
        3,
    )


def test_an_undamaged_copy_is_read_before_a_damaged_one(tmp_path: Path) -> None:
    for broker in ("b1", "b2"):
        path = put_remote_log(tmp_path / broker, copy_started(1, 0, 9), segment_update(1, COPY_FINISHED))
    path.write_bytes(flip_bit(path.read_bytes(), path.stat().st_size - 3))
    history, _ = history_of(tmp_path / "b1", tmp_path / "b2")
    assert (history.damaged, len(history.logs[TOPIC_ID_TEXT, 0].finished)) == (False, 1)
    history, _ = history_of(tmp_path / "b2")
    assert (history.damaged, len(history.logs[TOPIC_ID_TEXT, 0].finished)) == (True, 0)


def test_records_that_cannot_be_read_have_findings(tmp_path: Path) -> None:
    put_remote_log(tmp_path / "b1", copy_started(1, 0, 9), b"\1\1\0\0", None, b"\1\x09\0", copy_started(2, 9, 0), b"\7")
    history, findings = history_of(tmp_path / "b1")
    assert history.damaged
    assert {finding.kind for finding in findings} == {"METADATA_RECORD_MALFORMED"}
    rows = [(finding.place.offset_start, finding.evidence["reason"], finding.evidence.get("record_type")) for finding in findings]
    assert rows == [
        (1, "fields", "RemoteLogSegmentMetadataUpdateRecord"),
        (2, "value", None),
        (4, "offsets", "RemoteLogSegmentMetadataRecord"),
        (5, "frame", None),
    ]
    assert {(finding.place.topic, finding.evidence["unknown_after_offset"]) for finding in findings} == {
        ("__remote_log_metadata", offset) for offset in (0, 1, 3, 4)
    }


def test_selected_replicas_have_their_remote_logs(tmp_path: Path) -> None:
    log_dir = put_replica(tmp_path, 1, log(5), partition="t-0", topic_id=TOPIC_ID_TEXT)
    put_remote_log(log_dir, copy_started(1, 0, 9))
    options = ScanOptions(topic_glob="t")
    inputs = gather([str(tmp_path)], options, elsewhere=True)
    witnesses = read_witnesses(inputs)
    Scan("local", inputs, options, witnesses)
    [plan] = inputs.replicas
    assert plan.context.remote_log is not None
    assert plan.context.remote_log is witnesses.remote_log.log_of("t", 0)  # type: ignore[union-attr]


@pytest.mark.corpora
@pytest.mark.parametrize("name", REAL)
def test_finished_segments_equal_the_objects_of_a_real_store(corpora: Path, name: str) -> None:
    """By id, offset, size in bytes and leader epochs; in `remote-damaged` objects were deleted, truncated and forged."""
    archive = corpora / "tiered" / f"tiered-{name}.tar.xz"
    history, findings = history_of(archive)
    assert (findings, history.damaged, history.dropped) == ([], False, 0)
    finished = {
        (f"{log.topic}-{log.partition}-{log.topic_id}", f"{segment.start_offset:020d}-{segment.segment_id}"): segment
        for log in history.logs.values()
        for segment in log.finished
    }
    objects: dict[tuple[str, str], dict[str, bytes]] = {}
    for path, content in archive_members(archive, r".*/kafka-tiered-storage/.+/.+"):
        *_, directory, file = path.split("/")
        objects.setdefault((directory, file[:43]), {})[file[44:]] = content
    if name != "remote-damaged":
        assert finished.keys() == objects.keys()
    else:
        assert len(finished.keys() & objects.keys()) > 40
    for key in finished.keys() & objects.keys():
        segment, files = finished[key], objects[key]
        epochs = [tuple(map(int, line.split())) for line in files["leader_epoch_checkpoint"].decode().splitlines()[2:]]
        segment_epochs = [(entry.leader_epoch, entry.start_offset) for entry in segment.leader_epochs]
        assert segment_epochs == [(epoch, max(start, segment.start_offset)) for epoch, start in epochs][-len(segment_epochs) :]
        assert segment.txn_index_empty == ("txnindex" not in files)
        assert name == "remote-damaged" or len(files["log"]) == segment.size_in_bytes
