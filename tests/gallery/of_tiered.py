"""Cases of the gallery for tiered topics (KIP-405), whose logs start in remote storage."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from tests.gallery.case import Case
from tests.support.brokers import (
    DIRECTORY,
    OFFSETS_ID_TEXT,
    TOPIC_ID,
    Brokers,
    put_epochs,
    put_replicas,
    put_segment,
    put_topic_id,
    write_checkpoint,
)
from tests.support.controllers import partition, setting, topic, with_controller
from tests.support.logs import Log, history
from tests.support.remote_log import COPY_FINISHED, copy_started, put_object, put_remote_log, segment_id, segment_update
from tests.support.segments import flip_bit, write_offset_index

TIERED: Final = setting("remote.storage.enable", "true")
COMMON: Final = (*[("p", 0)] * 2, ("|", 0), *[("p", 0)] * 2, ("|", 0))
LONG: Final = history(*COMMON, *[("p", 0)] * 2)
OTHER: Final = history(*COMMON, ("q", 1))
"""The log of a leader elected without the last segment of `LONG`."""
SEGMENTS: Final = (0, 1), (2, 3), (4, 5)
"""First and last offset of each remote segment, all of epoch 0."""
SEGMENT_BYTES: Final = 4096
"""Size of each segment by its events; in a store its log has zeros."""


def tiered(
    root: Path,
    logs: Mapping[int, Log],
    local_starts: Mapping[int, int],
    with_events: Iterable[int] = (),
    finished: Iterable[int] = range(len(SEGMENTS)),
) -> Brokers:
    """Replicas whose local retention deleted segments below `local_starts`; brokers `with_events` have `__remote_log_metadata` with
    the end of the copies of segments `finished`."""
    brokers = put_replicas(root, logs)
    for broker, start in local_starts.items():
        for segment in [segment for segment in logs[broker].segments if segment < start]:
            brokers.remove(broker, segment, "log", "index", "timeindex", "snapshot")
        for suffix in () if any(brokers.directory(broker).glob("*.log")) else ("log", "timeindex"):
            brokers.file(broker, start, suffix).touch()
        write_checkpoint(brokers.log_dir(broker), "log-start", 0)
    for broker in with_events:
        started_events = [copy_started(number, *offsets, topic_id=TOPIC_ID) for number, offsets in enumerate(SEGMENTS)]
        finished_events = [segment_update(number, COPY_FINISHED, topic_id=TOPIC_ID) for number in finished]
        directory = put_remote_log(brokers.log_dir(broker), *started_events, *finished_events).parent
        put_topic_id(directory, OFFSETS_ID_TEXT)
        put_epochs(directory, (0, 0))
    return brokers


def with_store(root: Path) -> Path:
    """A remote store with all objects of `SEGMENTS`; returns the partition's directory in it."""
    directory = root / "remote" / "kafka-tiered-storage" / f"t-0-{TOPIC_ID}"
    directory.mkdir(parents=True)
    for number in range(len(SEGMENTS)):
        for suffix in ("log", "index", "timeindex", "snapshot", "leader_epoch_checkpoint"):
            object_of(directory, number, suffix).write_bytes(bytes(SEGMENT_BYTES) if suffix == "log" else b"")
    return directory


def object_of(directory: Path, number: int, suffix: str = "log") -> Path:
    return directory / f"{SEGMENTS[number][0]:020d}-{segment_id(number)}.{suffix}"


def whole_store(root: Path) -> Brokers:
    brokers = by_events(root)
    with_store(root)
    return brokers


def object_deleted(root: Path) -> Brokers:
    brokers = by_events(root)
    object_of(with_store(root), 0).unlink()
    return brokers


def object_without_event(root: Path) -> Brokers:
    brokers = by_events(root)
    object_of(with_store(root), 1).with_name(f"{2:020d}-{segment_id(9)}.log").touch()
    return brokers


def hole(root: Path) -> Brokers:
    """The copy of the second segment was never finished, and the local logs start after it."""
    brokers = tiered(root, dict.fromkeys((1, 2, 3), LONG), {1: 4, 2: 4, 3: 6}, (1, 2, 3), finished=(0, 2))
    with_store(root)
    return brokers


def event_dropped(root: Path) -> Brokers:
    """The end of a copy whose beginning is missing."""
    return tiered(root, dict.fromkeys((1, 2, 3), LONG), {1: 2, 2: 4, 3: 6}, (1, 2, 3), finished=(0, 1, 2, 7))


def sound(root: Path, with_events: Iterable[int] = ()) -> Brokers:
    """Local logs start at 2, at 4 and at the log end."""
    return tiered(root, dict.fromkeys((1, 2, 3), LONG), {1: 2, 2: 4, 3: 6}, with_events)


def with_index_of_deleted_segment(root: Path) -> Brokers:
    """On broker 2 the offset index of a segment that local retention deleted is left."""
    brokers = sound(root)
    put_segment(brokers.directory(2), 0, write_offset_index([(1, 500)], 0), "index")
    return brokers


def by_setting(root: Path) -> Brokers:
    return with_controller(sound(root), topic(), TIERED, partition([1, 2, 3], 1))


def by_events(root: Path) -> Brokers:
    return sound(root, (1, 2, 3))


def lost(root: Path, brokers: tuple[int, ...] = (1, 2, 3), with_events: Iterable[int] = ()) -> Brokers:
    """Broker 1 alone had offsets 4 and 5 and copied them; its local log is empty; broker 3 was elected uncleanly."""
    logs = {1: LONG, 2: OTHER, 3: OTHER}
    return tiered(
        root, {broker: logs[broker] for broker in brokers}, {broker: 6 if broker == 1 else 2 for broker in brokers}, with_events
    )


def with_objects(root: Path, number: int = -1, data: bytes = b"", **fields: int) -> Brokers:
    """Broker 1 has [2, 6) on its disk; the store has `SEGMENTS`, of which segment `number` may have other bytes than the leader's,
    or other fields in its event."""
    brokers, events = sound(root), list[bytes]()
    for segment, (first, last) in enumerate(SEGMENTS):
        batches = [batch for batch in LONG.batches if batch.segment == first]
        whole = b"".join(batch.data for batch in batches)
        stored = data if data and segment == number else whole
        put_object(root / "store", segment, first, [stored], topic_id=TOPIC_ID, partition=DIRECTORY)
        event: dict[str, Any] = {"max_timestamp_ms": batches[-1].max_timestamp, "segment_size_in_bytes": len(stored)}
        event |= fields if segment == number else {}
        events += [copy_started(segment, first, last, topic_id=TOPIC_ID, **event)]
        events += [segment_update(segment, COPY_FINISHED, topic_id=TOPIC_ID)]
    directory = put_remote_log(brokers.log_dir(3), *events).parent
    put_topic_id(directory, OFFSETS_ID_TEXT)
    put_epochs(directory, (0, 0))
    return brokers


def _of_segment(log: Log, segment: int) -> bytes:
    return b"".join(batch.data for batch in log.batches if batch.segment == segment)


VARIANTS: Final = (
    Case("-", "a store with all objects of `t`; some offsets are on disks, too", with_objects, control=True),
    Case(
        "F01",
        "a bit of the object of [4, 6) is flipped, b1 has these offsets on its disk",
        lambda root: with_objects(root, 2, flip_bit(_of_segment(LONG, 4), 100)),
    ),
    Case(
        "F38",
        "the object of [4, 6) has other records than b1 in the same epoch",
        lambda root: with_objects(root, 2, _of_segment(history(*COMMON, *[("q", 0)] * 2), 4)),
    ),
    Case("F38", "the object of [4, 6) is newer than its event", lambda root: with_objects(root, 2, max_timestamp_ms=1)),
)

TIERED_TOPICS: Final = (
    Case("-", "the controller's log says that `t` is tiered; local logs begin at 2, 4 and the log end", by_setting, control=True),
    Case("-", "the same by `__remote_log_metadata`, without the controller's log", by_events, control=True),
    Case("-", "the same by log starts and epochs alone", sound, control=True),
    Case("-", "the same by `__remote_log_metadata`, with the remote store", whole_store, control=True, deep=None),
    Case("-", "the remote store lacks the log of a finished segment", object_deleted, deep=None, shown=("reason", "lacking")),
    Case("-", "the remote store has a segment without an event", object_without_event, deep=None, shown=("reason",)),
    Case("-", "the copy of a segment was not finished, and no broker has it locally", hole, deep=None, shown=("segments_count",)),
    Case("-", "an event finishes a copy that no event started", event_dropped, shown=("events_count",)),
    Case("F37", "b1 alone had [4, 6) and its local log is empty, b2 and b3 took another record", lost),
    Case(
        "F37",
        "the same with `__remote_log_metadata`",
        lambda root: lost(root, with_events=(2, 3)),
        shown=("in_remote_storage", "remote_segments_count"),
    ),
    Case(
        "F37",
        "the same without the copy of b1",
        lambda root: lost(root, (2, 3), (2, 3)),
        shown=("in_remote_storage", "remote_segments_count"),
    ),
)
