"""The remote log of a tiered partition judged: its chain of segments, and the store's objects against `__remote_log_metadata`."""

import json
import logging
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import Finding
from kafka_forensics.replication.remote_segments import metadata_partition
from kafka_forensics.scanning.engine import local
from tests.support.archives import archive_members
from tests.support.brokers import DIRECTORY, OFFSETS_ID_TEXT, TOPIC_ID, put_replica, put_topic_id
from tests.support.controllers import CONTROLLER, ControllerLog, partition, setting, topic
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
from tests.support.segments import flip_bit, log

END = 40
LOCAL_START = 30
KINDS = ("REMOTE_LOG_HOLE", "REMOTE_SEGMENT_UNREADABLE", "REMOTE_OBJECT_UNREFERENCED", "REMOTE_EVENT_REJECTED")
SUFFIXES = ("log", "index", "timeindex", "snapshot", "leader_epoch_checkpoint")
SEGMENTS = {1: (0, 9), 2: (10, 19), 3: (20, 29)}
"""Number → first and last offset; together they cover what the leader deleted locally."""
SIZE = 4096
DAMAGED = {"ev": ("deleted", "cut", "deleted_index"), "late": ("fileset_gone",), "kept": ("orphan",)}
"""Keys of the truth of `tiered-remote-damaged`, by topic."""
Row = tuple[str, str, str | None, int | None, int | None]


def put_brokers(
    folder: Path,
    states: dict[int, int] | None = None,
    segments: dict[int, tuple[int, int]] | None = None,
    *,
    log_start: int = 0,
    local_starts: tuple[int, ...] = (LOCAL_START, LOCAL_START),
    epochs: tuple[tuple[int, int], ...] = ((0, 0),),
    more: Iterable[bytes] = (),
) -> None:
    """Brokers with `t-0`, whose local logs start at `local_starts`, and the events of `segments` up to the state of each (default:
    finished)."""
    segments = segments or SEGMENTS
    for number, start in enumerate(local_starts, 1):
        batches = log((END - start) // 2, start=start, epoch=epochs[-1][0])
        options: dict[str, Any] = {"log_start": log_start, "topic_id": TOPIC_ID, "epochs": epochs, "clean": True}
        path = put_replica(folder, number, {start: batches}, partition=DIRECTORY, high_watermark=END, **options)
        events = [copy_started(segment, *offsets, topic_id=TOPIC_ID) for segment, offsets in segments.items()]
        for segment in segments:
            state = (states or {}).get(segment, COPY_FINISHED)
            steps = {
                COPY_STARTED: (),
                COPY_FINISHED: (COPY_FINISHED,),
                DELETE_STARTED: (COPY_FINISHED, DELETE_STARTED),
                DELETE_FINISHED: (COPY_FINISHED, DELETE_STARTED, DELETE_FINISHED),
            }[state]
            events += [segment_update(segment, step, topic_id=TOPIC_ID) for step in steps]
        put_topic_id(put_remote_log(path, *events, *more).parent, OFFSETS_ID_TEXT)


def put_store(folder: Path, segments: Iterable[int] = SEGMENTS, topic_id: str = TOPIC_ID) -> Path:
    """A store with all objects of these segments; returns the partition's directory."""
    directory = folder / "remote/kafka-tiered-storage" / f"{DIRECTORY}-{topic_id}"
    directory.mkdir(parents=True)
    for number in segments:
        for suffix in SUFFIXES:
            object_of(directory, number, suffix).write_bytes(bytes(SIZE) if suffix == "log" else b"")
    return directory


def object_of(directory: Path, number: int, suffix: str = "log") -> Path:
    start = SEGMENTS[number][0] if number in SEGMENTS else 10 * (number - 1)
    return directory / f"{start:020d}-{segment_id(number)}.{suffix}"


def found(folder: Path, **options: Any) -> list[Finding]:
    return [finding for finding in local.scan([str(folder)], ScanOptions(**options)).findings if finding.kind in KINDS]


def rows(findings: Iterable[Finding]) -> list[Row]:
    """(kind, severity, reason, first and end offset)."""
    return [
        (row.kind, row.severity.value, row.evidence.get("reason"), row.place.offset_start, row.place.offset_end) for row in findings
    ]


def test_a_whole_remote_log_gives_nothing(tmp_path: Path) -> None:
    put_brokers(tmp_path)
    assert found(tmp_path) == []
    put_store(tmp_path)
    assert found(tmp_path) == []


@pytest.mark.parametrize("state", [COPY_STARTED, DELETE_STARTED, DELETE_FINISHED])
def test_a_segment_that_is_not_finished_leaves_a_hole(tmp_path: Path, state: int) -> None:
    put_brokers(tmp_path, {2: state})
    (hole,) = found(tmp_path)
    assert rows([hole]) == [("REMOTE_LOG_HOLE", "critical", None, 10, 20)]
    assert (hole.evidence["held_by"], hole.evidence["leaders"], hole.evidence["segments_count"]) == ([], [1], 1)
    assert hole.evidence["segments"][0]["segment_id"] == segment_id(2)


def test_a_hole_whose_records_a_follower_has_is_an_error(tmp_path: Path) -> None:
    """Broker 1 is taken as the leader, because both logs end alike; broker 2 has not deleted the records."""
    put_brokers(tmp_path, {3: COPY_STARTED}, local_starts=(LOCAL_START, 20))
    (hole,) = found(tmp_path)
    assert (rows([hole]), hole.evidence["held_by"]) == ([("REMOTE_LOG_HOLE", "error", None, 20, 30)], [2])


def test_a_hole_whose_records_an_unfinished_copy_has_is_an_error(tmp_path: Path) -> None:
    put_brokers(tmp_path, {3: COPY_STARTED})
    put_store(tmp_path)
    hole, left = found(tmp_path)
    assert rows([hole, left]) == [
        ("REMOTE_LOG_HOLE", "error", None, 20, 30),
        ("REMOTE_OBJECT_UNREFERENCED", "info", "copy not finished, or deleted", 20, 30),
    ]
    assert hole.evidence["segments"][0]["is_stored"] is True


@pytest.mark.parametrize(
    ("states", "options"),
    [
        ({1: DELETE_STARTED}, {}),
        ({1: DELETE_FINISHED, 2: DELETE_STARTED}, {}),
        ({1: DELETE_FINISHED}, {"log_start": 10}),
        ({}, {"log_start": 15}),
        ({4: COPY_STARTED}, {"segments": {**SEGMENTS, 4: (10, 24)}}),
        ({}, {"segments": {**SEGMENTS, 4: (5, 14), 5: (15, 29)}}),
        ({4: COPY_STARTED}, {"segments": {**SEGMENTS, 4: (30, 35)}}),
        ({}, {"segments": {1: (0, 9)}, "local_starts": (10, 6)}),
        ({}, {"local_starts": (LOCAL_START, 22)}),
    ],
    ids=[
        "retention under way",
        "retention done at the start",
        "log start raised",
        "log start inside a segment",
        "unfinished copy",
        "overlapping segments",
        "copy under way",
        "older segments only local",
        "followers start elsewhere",
    ],
)
def test_legal_states_are_silent(tmp_path: Path, states: dict[int, int], options: dict[str, Any]) -> None:
    put_brokers(tmp_path, states, **options)
    assert found(tmp_path) == []
    put_store(tmp_path, sorted(number for number in options.get("segments", SEGMENTS) if states.get(number) != DELETE_FINISHED))
    assert {row[1] for row in rows(found(tmp_path))} <= {"info"}


def test_what_running_brokers_changed_during_the_copy_is_at_most_info(tmp_path: Path) -> None:
    put_brokers(tmp_path, {2: COPY_STARTED})
    object_of(put_store(tmp_path, (1, 2, 3, 9)), 3).unlink()
    assert len(found(tmp_path)) == 4
    assert {finding.severity.value for finding in found(tmp_path, live=True)} == {"info"}


@pytest.mark.parametrize(
    ("suffixes", "cut", "reason", "severity"),
    [
        (("log",), None, "log missing", "critical"),
        (SUFFIXES, None, "all objects missing", "critical"),
        ((), SIZE // 2, "log cut", "critical"),
        ((), 0, "log cut", "critical"),
        ((), SIZE + 1, "log too large", "critical"),
        (("index",), None, "other objects missing", "error"),
        (("snapshot", "leader_epoch_checkpoint"), None, "other objects missing", "error"),
    ],
)
def test_a_finished_segment_without_its_objects(
    tmp_path: Path, suffixes: tuple[str, ...], cut: int | None, reason: str, severity: str
) -> None:
    put_brokers(tmp_path)
    directory = put_store(tmp_path)
    for suffix in suffixes:
        object_of(directory, 2, suffix).unlink()
    if cut is not None:
        object_of(directory, 2).write_bytes(bytes(cut))
    (unreadable,) = found(tmp_path)
    assert rows([unreadable]) == [("REMOTE_SEGMENT_UNREADABLE", severity, reason, 10, 20)]
    assert unreadable.evidence["lacking"] == [suffix for suffix in SUFFIXES if suffix in suffixes]
    assert unreadable.evidence.get("size_in_bytes") == (cut if cut is not None else SIZE if "log" not in suffixes else None)


def test_segments_that_follow_each_other_are_one_finding(tmp_path: Path) -> None:
    put_brokers(tmp_path)
    directory = put_store(tmp_path)
    for number in (1, 2):
        object_of(directory, number).unlink()
    object_of(directory, 3, "index").unlink()
    assert rows(found(tmp_path)) == [
        ("REMOTE_SEGMENT_UNREADABLE", "critical", "log missing", 0, 20),
        ("REMOTE_SEGMENT_UNREADABLE", "error", "other objects missing", 20, 30),
    ]


def test_a_missing_object_whose_records_others_hold_is_an_error(tmp_path: Path) -> None:
    put_brokers(tmp_path, segments={**SEGMENTS, 4: (10, 19)}, local_starts=(LOCAL_START, 20))
    directory = put_store(tmp_path, (1, 2, 3, 4))
    object_of(directory, 2).unlink()
    object_of(directory, 3).unlink()
    (unreadable,) = found(tmp_path)
    assert rows([unreadable]) == [("REMOTE_SEGMENT_UNREADABLE", "error", "log missing", 10, 30)]
    assert unreadable.evidence["segments_count"] == 2


@pytest.mark.parametrize("state", [COPY_STARTED, DELETE_STARTED, DELETE_FINISHED])
def test_objects_of_other_states_may_be_missing(tmp_path: Path, state: int) -> None:
    put_brokers(tmp_path, {4: state}, segments={**SEGMENTS, 4: (10, 19)})
    put_store(tmp_path)
    assert found(tmp_path) == []


def test_objects_below_the_log_start_may_be_missing(tmp_path: Path) -> None:
    put_brokers(tmp_path, log_start=10)
    put_store(tmp_path, (2, 3))
    assert found(tmp_path) == []


def test_objects_without_an_event(tmp_path: Path) -> None:
    put_brokers(tmp_path)
    put_store(tmp_path, (1, 2, 3, 9))
    put_store(tmp_path, (1,), segment_id(77))
    assert sorted(rows(found(tmp_path))) == [
        ("REMOTE_OBJECT_UNREFERENCED", "warning", "no event", 0, None),
        ("REMOTE_OBJECT_UNREFERENCED", "warning", "no event", 80, None),
    ]


def test_objects_left_after_their_deletion_are_info(tmp_path: Path) -> None:
    put_brokers(tmp_path, {1: DELETE_FINISHED}, log_start=10)
    put_store(tmp_path)
    assert rows(found(tmp_path)) == [("REMOTE_OBJECT_UNREFERENCED", "info", "copy not finished, or deleted", 0, 10)]


def test_a_store_without_the_partition_is_only_suspected(tmp_path: Path) -> None:
    """Its directory may not have been given; that a store holds nothing at all says more."""
    put_brokers(tmp_path)
    put_store(tmp_path, ())
    (unreadable,) = found(tmp_path)
    assert rows([unreadable]) == [("REMOTE_SEGMENT_UNREADABLE", "critical", "all objects missing", 0, 30)]
    assert unreadable.confidence.value == "suspected"


def test_a_store_of_another_cluster_proves_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    put_brokers(tmp_path)
    put_store(tmp_path, (7, 8), segment_id(77))
    with caplog.at_level(logging.WARNING):
        assert found(tmp_path) == []
    assert "another cluster" in caplog.text


def test_segments_of_another_history_are_no_damage_of_the_log(tmp_path: Path) -> None:
    """An unclean election in epoch 2 at offset 20: segment 3 of epoch 0 is lost already, and segment 4 replaced it."""
    segments = {1: (0, 9), 2: (10, 19), 4: (20, 29)}
    other = [
        copy_started(3, 20, 29, topic_id=TOPIC_ID, epochs=((0, 20),)),
        segment_update(3, COPY_FINISHED, topic_id=TOPIC_ID),
    ]
    put_brokers(tmp_path, {4: COPY_STARTED}, segments, epochs=((0, 0), (2, 20)), more=other)
    assert rows(found(tmp_path)) == [("REMOTE_LOG_HOLE", "critical", None, 20, 30)]
    object_of(put_store(tmp_path), 3).unlink()
    assert ("REMOTE_SEGMENT_UNREADABLE", "error", "log missing", 20, 30) in rows(found(tmp_path))


def test_events_that_brokers_drop(tmp_path: Path) -> None:
    put_brokers(
        tmp_path, more=[segment_update(9, COPY_FINISHED, topic_id=TOPIC_ID), segment_update(1, COPY_STARTED, topic_id=TOPIC_ID)]
    )
    (rejected,) = found(tmp_path)
    assert (rejected.kind, rejected.severity.value, rejected.place.topic) == (KINDS[3], "warning", "__remote_log_metadata")
    assert rejected.evidence["events_count"] == 2
    assert [(row["segment_id"], row["state"], row.get("state_before")) for row in rejected.evidence["events"]] == [
        (segment_id(9), "COPY_SEGMENT_FINISHED", None),
        (segment_id(1), "COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED"),
    ]


@pytest.mark.corpora
@pytest.mark.parametrize("name", ["isolated", "quiet-live", "rebuilt", "unclean", "remote-damaged"])
def test_stores_of_real_brokers(archives: Path, name: str) -> None:
    """Every state without damage is silent; of the damaged one each finding is a line of its truth."""
    path = archives / f"tiered/tiered-{name}.tar.xz"
    result = local.scan([str(path)], ScanOptions(live=name == "quiet-live"))
    findings = [finding for finding in result.findings if finding.kind in KINDS and finding.severity.value != "info"]
    if name != "remote-damaged":
        assert rows(findings) == []
        return
    truth = json.loads((archives / "tiered/tiered-remote-damaged.truth.json").read_text())["note"]
    ids = {key: truth[topic][key][21:43] for topic, keys in DAMAGED.items() for key in keys}
    (nosuch,) = [member for member, _ in archive_members(path, r".*/nosuch-0-[^/]*/[^/]*\.log")]
    assert {(row.place.topic, *rows([row])[0][1:], row.evidence["segments"][0]["segment_id"]) for row in findings} == {
        ("ev", "critical", "log missing", 60, 120, ids["deleted"]),
        ("ev", "critical", "log cut", 120, 180, ids["cut"]),
        ("ev", "error", "other objects missing", 180, 240, ids["deleted_index"]),
        ("late", "critical", "all objects missing", 120, 180, ids["fileset_gone"]),
        ("kept", "warning", "no event", 0, None, ids["orphan"]),
        ("nosuch", "warning", "no event", 0, None, nosuch.rpartition("/")[2][21:43]),
    }


def test_a_store_whose_events_are_all_lost(tmp_path: Path) -> None:
    """`__remote_log_metadata` is there, and empty: nothing is finished, and the objects may be the only copy."""
    put_brokers(tmp_path, segments={9: (90, 99)}, states={9: DELETE_FINISHED})
    for log_path in tmp_path.glob("broker-*/__remote_log_metadata-0/*.log"):
        log_path.write_bytes(b"")
    ControllerLog().lead([CONTROLLER]).append(topic(), setting("remote.storage.enable", "true"), partition([1, 2], 1)).put(
        tmp_path / "controller"
    )
    put_store(tmp_path)
    hole, unreferenced = found(tmp_path)
    assert rows([hole, unreferenced]) == [
        ("REMOTE_LOG_HOLE", "error", None, 0, 30),
        ("REMOTE_OBJECT_UNREFERENCED", "warning", "no event", 0, None),
    ]
    assert (hole.evidence["segments_count"], hole.evidence["in_remote_storage"]) == (3, True)


def test_lost_events_make_missing_objects_only_suspected(tmp_path: Path) -> None:
    put_brokers(tmp_path, {3: COPY_STARTED})
    for log_path in tmp_path.glob("broker-*/__remote_log_metadata-0/*.log"):
        log_path.write_bytes(flip_bit(log_path.read_bytes(), log_path.stat().st_size - 20))
    object_of(put_store(tmp_path), 1).unlink()
    assert [(row[0], finding.confidence.value) for row, finding in zip(rows(found(tmp_path)), found(tmp_path), strict=True)] == [
        ("REMOTE_SEGMENT_UNREADABLE", "suspected")
    ]


def test_objects_of_a_partition_without_a_replica(tmp_path: Path) -> None:
    put_brokers(tmp_path)
    object_of(put_store(tmp_path), 2).unlink()
    for directory in tmp_path.glob(f"broker-*/{DIRECTORY}"):
        shutil.rmtree(directory)
    assert rows(found(tmp_path)) == [("REMOTE_SEGMENT_UNREADABLE", "critical", "log missing", 10, 20)]


def test_a_part_of_a_store_is_a_warning(tmp_path: Path) -> None:
    put_brokers(tmp_path, more=[copy_started(7, 0, 9, topic="u", topic_id=segment_id(77))])
    put_store(tmp_path, ())
    put_store(tmp_path, (1,), segment_id(77))
    assert ("REMOTE_SEGMENT_UNREADABLE", "warning", "all objects missing", 0, 30) in rows(found(tmp_path))


def test_very_many_ranges_are_counted(tmp_path: Path) -> None:
    segments = {number: (2 * number - 2, 2 * number - 1) for number in range(1, 401)}
    put_brokers(tmp_path, segments=segments, local_starts=(LOCAL_START, LOCAL_START))
    directory = put_store(tmp_path, ())
    for number, (start, _) in segments.items():
        for suffix in SUFFIXES if number % 2 else ():
            path = directory / f"{start:020d}-{segment_id(number)}.{suffix}"
            path.write_bytes(bytes(SIZE) if suffix == "log" else b"")
    findings = found(tmp_path)
    assert (len(findings), sum(finding.evidence.get("ranges_more", 0) for finding in findings)) == (64, 200 - 64)


def test_events_where_no_broker_looks_for_them(tmp_path: Path) -> None:
    """`__remote_log_metadata` got a second partition, in which brokers now look for the events of `t-0`, or in which they are."""
    put_brokers(tmp_path)
    expected = metadata_partition(TOPIC_ID, 0, 2)
    for log_dir in tmp_path.glob("broker-*"):
        shutil.copytree(log_dir / "__remote_log_metadata-0", log_dir / "__remote_log_metadata-1")
        (next((log_dir / f"__remote_log_metadata-{expected}").glob("*.log"))).write_bytes(b"")
    metadata = (
        topic("__remote_log_metadata", OFFSETS_ID_TEXT),
        *(partition([1, 2], 1, topic_id=OFFSETS_ID_TEXT, partition_id=number) for number in range(2)),
    )
    ControllerLog().lead([CONTROLLER]).append(topic(), partition([1, 2], 1), *metadata).put(tmp_path / "controller")
    (misplaced,) = found(tmp_path)
    assert (misplaced.kind, misplaced.place.partition, misplaced.evidence["events_count"]) == (KINDS[3], 1 - expected, 3)
    assert misplaced.evidence["expected_partition"] == expected
