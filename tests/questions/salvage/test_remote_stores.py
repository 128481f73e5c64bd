"""Salvages with a remote store: local logs and `__remote_log_metadata` that no copy has, and plain logs of remote records."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from kafka_forensics.cli.outputs.salvage import remote_warnings
from kafka_forensics.cli.outputs.salvage_steps import steps_of
from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.ledger import CopyExtent
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.files import EpochEntry, ProducerEntry
from kafka_forensics.model.remote_log import RemoteSegment, RemoteSegmentState
from kafka_forensics.parsers.checkpoints import parse_leader_epochs, parse_offset_checkpoint
from kafka_forensics.parsers.indexes import parse_producer_snapshot
from kafka_forensics.parsers.internal_topics import decode_remote_log_record
from kafka_forensics.parsers.log import decode_batch
from kafka_forensics.questions.salvage import Salvaged, SalvageOptions, document, salvage
from kafka_forensics.questions.salvage.restoring import LEFT_OUT, log_start_of
from kafka_forensics.questions.salvage.stored_segments import StoredLineage
from kafka_forensics.questions.verify import read_promises, verify
from kafka_forensics.questions.verify.checking import ExecutedPlan
from kafka_forensics.replication.remote_segments import metadata_partition
from kafka_forensics.writers.files import write_leader_epochs, write_offset_checkpoint, write_producer_snapshot
from tests.support.brokers import DIRECTORY, OFFSETS_ID_TEXT, TOPIC_ID, put_replica, put_topic_id
from tests.support.controllers import CONTROLLER, ControllerLog, partition, setting, topic
from tests.support.json_schemas import json_schema
from tests.support.memory import MemoryFile
from tests.support.remote_log import COPY_FINISHED, copy_started, put_remote_log, segment_id, segment_update
from tests.support.segments import flip_bit, log, segment_file

METADATA_PARTITIONS = 3
METADATA = metadata_partition(TOPIC_ID, 0, METADATA_PARTITIONS)
"""The partition of `__remote_log_metadata` with the events of `t-0`."""
PRODUCER = ProducerEntry(7, 0, 5, 29, 0, 7, -1, -1)
OTHER_ID = "AAAAAAAAAAAAAAAAAAAAQQ"
SUFFIXES = ("log", "index", "timeindex", "leader_epoch_checkpoint", "snapshot")


@dataclass(frozen=True)
class Part:
    """A remote segment: offsets `[start, end]`, and the epochs of the log until there."""

    number: int
    start: int
    end: int
    epochs: tuple[tuple[int, int], ...] = ((0, 0),)

    @property
    def batches(self) -> bytes:
        return b"".join(log((self.end + 1 - self.start) // 2, start=self.start, epoch=self.epochs[-1][0]))

    @property
    def leader_epochs(self) -> tuple[tuple[int, int], ...]:
        """Those in the segment."""
        before = [entry for entry in self.epochs if entry[1] <= self.start]
        return ((before[-1][0], self.start), *(entry for entry in self.epochs if entry[1] > self.start))


PARTS = Part(1, 0, 9), Part(2, 10, 19), Part(3, 20, 29, ((0, 0), (2, 20)))
EPOCHS = [EpochEntry(0, 0), EpochEntry(2, 20)]


def put_store(
    folder: Path, parts: Sequence[Part] = PARTS, lacking: tuple[int, str] | None = None, topic_id: str = TOPIC_ID
) -> Path:
    """Write LocalTieredStorage's objects of segments of `t-0`, except one object (number of the segment, suffix)."""
    directory = folder / "remote/kafka-tiered-storage" / f"{DIRECTORY}-{topic_id}"
    directory.mkdir(parents=True)
    for part in parts:
        objects = dict.fromkeys(SUFFIXES, b"") | {"log": part.batches}
        objects["leader_epoch_checkpoint"] = write_leader_epochs(EpochEntry(*entry) for entry in part.epochs)
        objects["snapshot"] = write_producer_snapshot([PRODUCER])
        for suffix, data in objects.items():
            if (part.number, suffix) != lacking:
                (directory / f"{part.start:020d}-{segment_id(part.number)}.{suffix}").write_bytes(data)
    return directory


def put_brokers(
    folder: Path,
    local: tuple[int, int] | None,
    *,
    end: int = 30,
    events: Sequence[Part] | None = PARTS,
    epochs: Sequence[tuple[int, int]] = ((0, 0), (2, 20)),
    log_start: int | None = 0,
) -> None:
    """Write a controllers' log, and brokers 1 and 2 whose local logs of `t-0` have offsets `[start, end)`; None: no local log.

    `events` are in `__remote_log_metadata`; None: it is gone.
    """
    settings = setting("remote.storage.enable", "true"), setting("retention.ms", "-1")
    of_metadata = [partition([1, 2], 1, partition_id=number, topic_id=OFFSETS_ID_TEXT) for number in range(METADATA_PARTITIONS)]
    created = topic(), *settings, partition([1, 2], 1), topic("__remote_log_metadata", OFFSETS_ID_TEXT), *of_metadata
    ControllerLog().lead([CONTROLLER]).append(*created).put(folder / "controller")
    for broker in (1, 2):
        start = 30 if local is None else local[0]
        batches = b"".join([] if local is None else log((local[1] - start) // 2, start=start, epoch=epochs[-1][0]))
        files: dict[str, Any] = {"topic_id": TOPIC_ID, "epochs": epochs, "log_start": log_start, "high_watermark": end}
        path = put_replica(folder, broker, {start: [batches]}, partition=DIRECTORY, **files)
        marks = {
            ("t", 0): end,
            **{("__remote_log_metadata", number): 6 * (number == METADATA) for number in range(METADATA_PARTITIONS)},
        }
        (path / "replication-offset-checkpoint").write_bytes(write_offset_checkpoint(marks))
        if local is None:
            shutil.rmtree(path / DIRECTORY)
        values = [
            copy_started(part.number, part.start, part.end, epochs=part.leader_epochs, topic_id=TOPIC_ID) for part in events or ()
        ]
        values += [segment_update(part.number, COPY_FINISHED, topic_id=TOPIC_ID) for part in events or ()]
        for number in range(METADATA_PARTITIONS):
            if number != METADATA:
                put_topic_id(put_remote_log(path, partition=number).parent, OFFSETS_ID_TEXT)
            elif events is not None:
                put_topic_id(put_remote_log(path, *values, partition=number).parent, OFFSETS_ID_TEXT)


def salvaged_of(folder: Path, *, copied: CopyExtent | None = CopyExtent.WHOLE, **options: Any) -> Salvaged:
    """Salvage all that was put below a folder; nothing of it may change."""
    before = contents(folder)
    paths = [str(path) for path in sorted(folder.iterdir())]
    salvaged = salvage(paths, folder.with_name("out"), ScanOptions(copied=copied), SalvageOptions(**options))
    assert contents(folder) == before
    Draft202012Validator(json_schema("salvage")).validate(document(salvaged))
    return salvaged


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def of_broker(folder: Path, name: str, broker: int = 1) -> Path:
    return folder.with_name("out") / f"broker-{broker}/broker-{broker}" / name


def checkpoints(folder: Path, key: tuple[str, int] = ("t", 0)) -> list[int | None]:
    """The partition's lines: high watermark, recovery point, log start."""
    files = [of_broker(folder, f"{name}-offset-checkpoint") for name in ("replication", "recovery-point", "log-start")]
    return [parse_offset_checkpoint(MemoryFile(file.read_bytes())).offsets.get(key) for file in files]


def epochs_of(folder: Path) -> list[EpochEntry]:
    return parse_leader_epochs(MemoryFile(of_broker(folder, f"{DIRECTORY}/leader-epoch-checkpoint").read_bytes())).entries


def logs_of(folder: Path) -> dict[int, bytes]:
    """Base offset → bytes of the segments of `t-0`, which both brokers have."""
    logs = [
        {int(path.stem): path.read_bytes() for path in sorted(of_broker(folder, DIRECTORY, broker).glob("*.log"))}
        for broker in (1, 2)
    ]
    assert logs[0] == logs[1]
    return logs[0]


def events_of(folder: Path) -> list[Mapping[str, Any]]:
    """The records of the rebuilt partition of `__remote_log_metadata`."""
    data = of_broker(folder, f"__remote_log_metadata-{METADATA}/{segment_file(0)}").read_bytes()
    events: list[Mapping[str, Any]] = []
    while data:
        size = int.from_bytes(data[8:12], "big") + 12
        for record in decode_batch(data[:size]).iter_records():
            decoded = decode_remote_log_record(record.value)
            assert decoded.problem is None
            assert decoded.fields is not None
            events.append(decoded.fields)
        data = data[size:]
    return events


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    return tmp_path / "copies"


def test_a_lost_local_log_begins_where_the_remote_log_ends(copies: Path) -> None:
    put_store(copies)
    put_brokers(copies, None)
    salvaged = salvaged_of(copies)
    assert not salvaged.refused
    assert logs_of(copies) == {30: b""}
    assert epochs_of(copies) == EPOCHS
    assert checkpoints(copies) == [30, 30, 0]
    snapshot = parse_producer_snapshot(
        MemoryFile(of_broker(copies, f"{DIRECTORY}/{segment_file(30, 'snapshot')}").read_bytes()), 30
    )
    assert snapshot.entries == [PRODUCER]
    assert TOPIC_ID in of_broker(copies, f"{DIRECTORY}/partition.metadata").read_text()
    (step,) = [step for step in steps_of(salvaged) if step.kind == "remote_storage"]
    assert "The local logs of t-0 begin where their remote logs end." in step.text
    assert remote_warnings(salvaged) == []
    (partition,) = [row for row in salvaged.partitions if row.topic == "t"]
    assert (partition.base_broker, partition.log_start_offset, partition.local_log_start_offset) == ("remote", 0, 30)


def test_committed_offsets_after_the_remote_log_are_a_gap(copies: Path) -> None:
    put_store(copies)
    put_brokers(copies, None, end=36)
    (refused,) = salvaged_of(copies).refused
    assert (refused.kind, refused.offsets, refused.is_tiered) == ("gaps", ((30, 36),), True)
    shutil.rmtree(copies.with_name("out"))
    salvaged = salvaged_of(copies, allow_gaps=True)
    (partition,) = [row for row in salvaged.partitions if row.topic == "t"]
    assert [(gap.start, gap.end) for gap in partition.gaps] == [(30, 36)]
    assert partition.new == []
    assert checkpoints(copies) == [36, 30, 0]
    (batch,) = logs_of(copies).values()
    assert [*decode_batch(batch).iter_records()] == []
    assert (int.from_bytes(batch[:8], "big"), int.from_bytes(batch[23:27], "big")) == (30, 5)


def test_a_hole_in_the_store_is_a_gap_of_a_lost_log(copies: Path) -> None:
    put_store(copies, lacking=(2, "log"))
    put_brokers(copies, None)
    (refused,) = salvaged_of(copies).refused
    assert (refused.kind, refused.offsets) == ("gaps", ((10, 20),))


def test_the_last_epochs_come_from_events_if_their_object_is_gone(copies: Path) -> None:
    put_store(copies, lacking=(3, "leader_epoch_checkpoint"))
    put_brokers(copies, None)
    salvaged_of(copies, allow_gaps=True)
    assert epochs_of(copies) == EPOCHS


def test_lost_metadata_is_rebuilt_from_names_epochs_and_batches(copies: Path) -> None:
    put_store(copies, (*PARTS, Part(4, 30, 39)), lacking=(4, "snapshot"))
    put_brokers(copies, (20, 34), events=None, end=34)
    salvaged = salvaged_of(copies)
    assert not salvaged.refused
    events = events_of(copies)
    assert [event["remote_log_segment_state"] for event in events] == [0, 1] * 3
    started = events[::2]
    assert [(event["start_offset"], event["end_offset"]) for event in started] == [(part.start, part.end) for part in PARTS]
    assert [event["remote_log_segment_id"]["id"] for event in started] == [segment_id(part.number) for part in PARTS]
    assert [event["segment_size_in_bytes"] for event in started] == [len(part.batches) for part in PARTS]
    assert [[(row["leader_epoch"], row["offset"]) for row in event["segment_leader_epochs"]] for event in started] == [
        list(part.leader_epochs) for part in PARTS
    ]
    assert checkpoints(copies, ("__remote_log_metadata", METADATA)) == [6, 0, None]
    assert (epochs_of(copies), checkpoints(copies)) == (EPOCHS, [34, 20, 0])


def test_offsets_that_the_rebuilt_remote_log_lacks_are_named(copies: Path) -> None:
    put_store(copies, lacking=(2, "index"))
    put_brokers(copies, (20, 34), events=None, end=34)
    (refused,) = salvaged_of(copies).refused
    assert (refused.topic, refused.partition, refused.kind) == ("__remote_log_metadata", METADATA, "gaps")
    assert "lacks offsets 10 to 19 of t-0" in refused.reason
    shutil.rmtree(copies.with_name("out"))
    salvaged = salvaged_of(copies, allow_gaps=True)
    (metadata,) = [row for row in salvaged.partitions if row.key == ("__remote_log_metadata", METADATA)]
    assert str(metadata.warning).endswith("lacks offsets 10 to 19 of t-0")
    (row,) = [row for row in salvaged.partitions if row.topic == "t"]
    assert row.warning == "remote storage lacks offsets 10 to 19 of it; readers do not get them"
    assert len(events_of(copies)) == 4


def test_segments_that_brokers_would_delete_are_left_out_of_rebuilt_metadata(copies: Path) -> None:
    """The log start was raised to the local start, and between it and the first segment there is a hole."""
    put_store(copies, lacking=(2, "log"))
    put_brokers(copies, (20, 34), events=None, end=34, log_start=20, epochs=[(2, 20)])
    salvaged = salvaged_of(copies)
    assert not salvaged.refused
    assert LEFT_OUT in [row.warning for row in salvaged.partitions]
    assert checkpoints(copies)[2] == 20
    assert [event["start_offset"] for event in events_of(copies)[::2]] == [20]


def test_local_log_and_metadata_are_restored_together(copies: Path) -> None:
    put_store(copies)
    put_brokers(copies, None, events=None)
    assert not salvaged_of(copies).refused
    assert (len(events_of(copies)), logs_of(copies), epochs_of(copies)) == (6, {30: b""}, EPOCHS)


@pytest.mark.parametrize("local", [(20, 34), None])
@pytest.mark.parametrize("rebuild", [False, True])
def test_metadata_that_would_lack_a_topic_is_not_rebuilt(copies: Path, local: tuple[int, int] | None, *, rebuild: bool) -> None:
    """The store has the objects of `t-1` alone: a part of the store of this cluster."""
    directory = put_store(copies)
    directory.rename(directory.with_name(f"t-1-{TOPIC_ID}"))
    put_brokers(copies, local, events=PARTS if rebuild else None, end=30)
    refusals = {refused.key: refused for refused in salvaged_of(copies, rebuild_metadata=rebuild).refused}
    refused = refusals["__remote_log_metadata", METADATA]
    assert f"lacks offsets 0 to {19 if local else 29} of t-0" in refused.reason
    assert "--allow-gaps" in str(refused.hint)
    assert (("t", 0) in refusals) == (local is None)


@pytest.mark.parametrize("allow_gaps", [False, True])
@pytest.mark.parametrize("local", [(20, 34), None])
def test_a_store_of_another_cluster_is_as_none(copies: Path, local: tuple[int, int] | None, *, allow_gaps: bool) -> None:
    put_store(copies, topic_id=OTHER_ID)
    put_brokers(copies, local, events=None, end=30)
    salvaged = salvaged_of(copies, allow_gaps=allow_gaps)
    lost = {row.key: row for row in (*salvaged.refused, *salvaged.started_empty)}
    key = "__remote_log_metadata", METADATA
    assert lost[key].reason.endswith(" has no topic id of these copies: does the store belong to another cluster?")
    assert key not in [row.key for row in salvaged.partitions]
    assert (("t", 0) in [row.key for row in salvaged.refused]) == (local is None)
    flags: tuple[dict[str, Any], ...] = {"from_store": True}, {"rebuild_metadata": True}
    for options in flags:
        shutil.rmtree(copies.with_name("out"), ignore_errors=True)
        with pytest.raises(UsageError, match="another cluster"):
            salvaged_of(copies, **options)


@pytest.mark.parametrize("events", [(), PARTS, None], ids=["none", "some", "no metadata"])
def test_a_tiered_log_begins_empty_only_if_metadata_lists_nothing(copies: Path, events: Sequence[Part] | None) -> None:
    directory = put_store(copies)
    directory.rename(directory.with_name(f"t-1-{TOPIC_ID}"))
    put_brokers(copies, None, events=events)
    salvaged = salvaged_of(copies, allow_gaps=True)
    assert (("t", 0) in [row.key for row in salvaged.started_empty]) == (events == ())
    assert (("t", 0) in [row.key for row in salvaged.refused]) == (events != ())


def test_epochs_that_reach_the_log_start_are_those_of_the_copy(copies: Path) -> None:
    put_store(copies)
    put_brokers(copies, (20, 34), events=None, end=34, log_start=4, epochs=[(0, 4), (2, 20)])
    assert not salvaged_of(copies).refused
    assert epochs_of(copies) == [EpochEntry(0, 4), EpochEntry(2, 20)]


def test_the_check_of_the_output_finds_holes_of_the_rebuilt_remote_log(copies: Path) -> None:
    directory = put_store(copies)
    directory.rename(directory.with_name(f"t-1-{TOPIC_ID}"))
    put_brokers(copies, (20, 34), events=None, end=34)
    salvaged = salvaged_of(copies, allow_gaps=True)
    (row,) = [row for row in salvaged.partitions if row.topic == "t"]
    (hole,) = row.new
    assert (hole.kind, hole.place.offset_start, hole.place.offset_end) == ("REMOTE_LOG_HOLE", 0, 20)
    assert salvaged.has_new_findings


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("none", ("kept", "segments_known", None)),
        ("empty", ("broken", "segments_unknown", 0)),
        ("gone", ("unknown", "no_remote_log", None)),
    ],
)
def test_a_salvage_promises_that_brokers_know_the_remote_segments(
    copies: Path, change: str, expected: tuple[str, str, int | None]
) -> None:
    put_store(copies)
    put_brokers(copies, (20, 34), events=None, end=34)
    assert not salvaged_of(copies).refused
    output = copies.with_name("out")
    for metadata in output.glob(f"broker-*/*/__remote_log_metadata-{METADATA}"):
        if change == "gone":
            shutil.rmtree(metadata)
        elif change == "empty":
            for file in metadata.glob("0*"):
                file.write_bytes(b"")
    manifest = read_promises(str(output / "manifest.json"))
    paths = [*(str(path) for path in sorted(output.glob("broker-*"))), str(copies / "controller"), str(copies / "remote")]
    options = ScanOptions("t", copied=CopyExtent.WHOLE)
    (promise,) = [row for row in verify(paths, manifest, options, ExecutedPlan()).promises if row.promise == "segments"]
    assert (promise.outcome.value, promise.reason, promise.planned, promise.found) == (*expected[:2], 3, expected[2])


def test_metadata_is_rebuilt_from_manifests(copies: Path) -> None:
    directory = copies / f"aiven/prefix-t-{TOPIC_ID}/0"
    directory.mkdir(parents=True)
    for part in PARTS:
        name = {"topicId": TOPIC_ID, "topicPartition": {"topic": "t", "partition": 0}}
        metadata = {
            "remoteLogSegmentId": {"topicIdPartition": name, "id": segment_id(part.number)},
            "startOffset": part.start,
            "endOffset": part.end,
            "maxTimestampMs": 5,
            "brokerId": 2,
            "eventTimestampMs": 6,
            "segmentLeaderEpochs": dict(part.leader_epochs),
        }
        chunks = {"type": "fixed", "originalChunkSize": 4096, "originalFileSize": 77, "finalTransformedChunkSize": 77}
        place = {"position": 0, "size": 0}
        indexes = dict.fromkeys(("offset", "timestamp", "producerSnapshot", "leaderEpoch"), place)
        manifest = {"version": "1", "chunkIndex": chunks, "segmentIndexes": indexes, "compression": False}
        manifest["remoteLogSegmentMetadata"] = metadata
        stem = f"{part.start:020d}-{segment_id(part.number)}"
        (directory / f"{stem}.rsm-manifest").write_text(json.dumps(manifest))
        for suffix in ("log", "indexes"):
            (directory / f"{stem}.{suffix}").write_bytes(b"")
    put_brokers(copies, (20, 34), events=None, end=34)
    salvaged_of(copies)
    started = events_of(copies)[::2]
    assert [(event["start_offset"], event["end_offset"]) for event in started] == [(part.start, part.end) for part in PARTS]
    assert {event["remote_log_segment_id"]["topic_id_partition"]["name"] for event in started} == {"t"}
    assert {(event["broker_id"], event["max_timestamp_ms"], event["segment_size_in_bytes"]) for event in started} == {(2, 5, 77)}


@pytest.mark.parametrize(("line", "expected"), [(20, 0), (4, 4), (0, 0)], ids=["raised", "records deleted", "as it was"])
def test_a_log_start_that_brokers_raised_without_metadata_is_lowered(copies: Path, line: int, expected: int) -> None:
    put_store(copies)
    put_brokers(copies, (20, 34), events=None, end=34, log_start=line, epochs=[(2, 20)] if line == 20 else [(0, 0), (2, 20)])
    assert not salvaged_of(copies).refused
    assert checkpoints(copies)[2] == expected
    assert epochs_of(copies) == EPOCHS


@pytest.mark.parametrize(
    ("line", "is_rebuilt", "expected"),
    [
        (None, True, 10),
        (5, True, 10),
        (34, True, 34),
        (36, True, 30),
        (50, True, 30),
        (50, False, 50),
        (25, True, 25),
        (60, True, 60),
        (14, True, 14),
    ],
)
def test_a_log_starts_where_segments_reach_its_line(line: int | None, is_rebuilt: bool, expected: int) -> None:
    """Segments are at 10..19, then, after a hole, at 30..34, 35..39 and 40..49; 14 and 34 are in the first ones."""
    segments = [remote_segment(*span) for span in ((10, 19), (30, 34), (35, 39), (40, 49))]
    lineage = StoredLineage(tuple(segments), (EpochEntry(0, 0),), 50, ())
    assert log_start_of(lineage, line, is_rebuilt=is_rebuilt) == expected


def remote_segment(start: int, end: int) -> RemoteSegment:
    epochs = (EpochEntry(0, start),)
    state = RemoteSegmentState.COPY_SEGMENT_FINISHED
    return RemoteSegment("A" * 22, start, end, epochs, 1, 0, 1, state, 0, -1, -1, txn_index_empty=True, custom_metadata=None)


def test_metadata_that_lacks_older_segments_is_rebuilt_on_request(copies: Path) -> None:
    """Brokers ran without `__remote_log_metadata`: it is new, the log start was raised to the local start, and epochs were cut."""
    directory = put_store(copies)
    cut = directory / f"{20:020d}-{segment_id(3)}.leader_epoch_checkpoint"
    cut.write_bytes(write_leader_epochs([EpochEntry(2, 20)]))
    put_brokers(copies, (30, 34), end=34, events=PARTS[2:], log_start=20, epochs=[(2, 20)])
    salvaged_of(copies)
    assert checkpoints(copies)[2] == 20
    shutil.rmtree(copies.with_name("out"))
    assert not salvaged_of(copies, rebuild_metadata=True).refused
    assert (len(events_of(copies)), checkpoints(copies)[2], epochs_of(copies)) == (6, 0, EPOCHS)


def test_a_store_shows_the_epochs_that_no_copy_has(copies: Path) -> None:
    put_store(copies)
    put_brokers(copies, (20, 34), end=34)
    for broker in (1, 2):
        (copies / f"broker-{broker}/{DIRECTORY}/leader-epoch-checkpoint").unlink()
    assert not salvaged_of(copies).refused
    assert epochs_of(copies) == EPOCHS


def test_partial_copies_without_a_tiered_log_are_refused(copies: Path) -> None:
    put_store(copies)
    put_brokers(copies, None)
    salvaged = salvaged_of(copies, copied=CopyExtent.PARTIAL)
    (refused,) = salvaged.refused
    assert (refused.kind, refused.is_tiered) == ("no_copy", True)
    assert [step.kind for step in steps_of(salvaged)] == ["refused"]


@pytest.mark.parametrize("count", [None, METADATA_PARTITIONS])
def test_without_a_controllers_log_the_number_of_metadata_partitions_is_given(copies: Path, count: int | None) -> None:
    put_store(copies)
    put_brokers(copies, (20, 34), events=None, end=34)
    shutil.rmtree(copies / "controller")
    salvaged = salvaged_of(copies, metadata_partitions=count)
    if count is None:
        assert {(row.topic, "--metadata-partitions" in str(row.hint)) for row in salvaged.refused} == {
            ("__remote_log_metadata", True)
        }
    else:
        assert not salvaged.refused
        assert len(events_of(copies)) == 6


def test_a_plain_log_has_remote_records_and_local_ones(copies: Path) -> None:
    put_store(copies)
    put_brokers(copies, (20, 34), end=34)
    salvaged = salvaged_of(copies, from_store=True)
    assert not salvaged.refused
    assert b"".join(logs_of(copies).values()) == b"".join([*(part.batches for part in PARTS[:2]), *log(7, start=20, epoch=2)])
    assert (sorted(logs_of(copies)), epochs_of(copies), checkpoints(copies)) == ([0, 10, 20], EPOCHS, [34, 0, None])
    assert not [*copies.with_name("out").rglob("__remote_log_metadata-*")]
    assert steps_of(salvaged)[0].kind == "create_topics"


@pytest.mark.parametrize("events", [PARTS, None], ids=["metadata", "no metadata"])
def test_a_plain_log_is_made_without_any_copy(copies: Path, events: Sequence[Part] | None) -> None:
    put_store(copies)
    put_brokers(copies, None, events=events)
    assert not salvaged_of(copies, from_store=True).refused
    assert logs_of(copies) == {part.start: part.batches for part in PARTS}
    assert (epochs_of(copies), checkpoints(copies)) == (EPOCHS, [30, 0, None])


def test_damage_of_a_remote_record_is_mended_from_another_segment_or_refused(copies: Path) -> None:
    directory = put_store(copies, (*PARTS, Part(4, 4, 29, PARTS[2].epochs)))
    path = directory / f"{10:020d}-{segment_id(2)}.log"
    path.write_bytes(flip_bit(path.read_bytes(), 100))
    whole = directory / f"{4:020d}-{segment_id(4)}.log"
    whole.write_bytes(b"".join([PARTS[0].batches[4 * len(PARTS[0].batches) // 10 :], *(part.batches for part in PARTS[1:])]))
    put_brokers(copies, None, events=None)
    assert not salvaged_of(copies, from_store=True).refused
    assert b"".join(logs_of(copies).values()) == b"".join(part.batches for part in PARTS)
    for lost in directory.glob(f"*{segment_id(4)}*"):
        lost.unlink()
    shutil.rmtree(copies.with_name("out"))
    (refused,) = salvaged_of(copies, from_store=True).refused
    assert (refused.kind, refused.offsets) == ("gaps", ((12, 14),))


@pytest.mark.parametrize("from_store", [False, True])
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("garbage", [b"", b"\xff" * 200, b"0\n2\n5 5\n1 1\n"], ids=["empty", "ones", "falling"])
def test_garbage_in_a_store_is_refused_or_left_out(copies: Path, suffix: str, garbage: bytes, *, from_store: bool) -> None:
    directory = put_store(copies)
    for path in directory.glob(f"*.{suffix}"):
        path.write_bytes(garbage)
    put_brokers(copies, None, events=None)
    salvaged = salvaged_of(copies, from_store=from_store)
    assert {refused.kind for refused in salvaged.refused} <= {"gaps", "no_copy"}
    if suffix == "log":
        assert [refused.is_tiered for refused in salvaged.refused] == ([True] if from_store else [False, True])
    elif suffix != "leader_epoch_checkpoint":
        assert not salvaged.refused


def test_records_of_a_store_need_a_store(copies: Path) -> None:
    put_brokers(copies, (20, 34), end=34)
    with pytest.raises(UsageError, match="--from-store needs a remote store"):
        salvaged_of(copies, from_store=True)
    with pytest.raises(UsageError, match="--rebuild-metadata needs a remote store"):
        salvaged_of(copies, rebuild_metadata=True)
