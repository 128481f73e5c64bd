"""Remote segments as a remote store describes them: by Aiven's manifests, or by names, epochs and batches of the objects."""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from kafka_forensics.errors import SourceError
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import INT64_MAX, MAX_INT32
from kafka_forensics.model.files import EpochEntry, ProducerEntry
from kafka_forensics.model.offset_ranges import Ranges, normalised
from kafka_forensics.model.remote_log import RemoteSegment, RemoteSegmentState, StoredSegment
from kafka_forensics.parsers.checkpoints import parse_leader_epochs
from kafka_forensics.parsers.indexes import parse_producer_snapshot
from kafka_forensics.parsers.log import SegmentReader
from kafka_forensics.replication.epochs import epochs_from
from kafka_forensics.replication.remote_segments import is_in_lineage
from kafka_forensics.scanning.folding.waiting import map_concurrently
from kafka_forensics.scanning.witnesses.remote_stores import StoredPartition
from kafka_forensics.storage.tiered import RemotePart, stem_of

NOWHERE = -1
"""`metadata_partition` and `metadata_offset` of segments without events."""


class StoredLineage(Struct, frozen=True):
    """The remote segments of one lineage, which is that of the last leader."""

    segments: tuple[RemoteSegment, ...]
    """By start offset; never empty."""
    epochs: tuple[EpochEntry, ...]
    """From the log's beginning to `end_offset`."""
    end_offset: int
    """Exclusive."""
    stored: Ranges
    """Offsets of segments whose objects are all in the store."""


def segments_in_store(stored: StoredPartition, broker_id: int) -> list[RemoteSegment]:
    """The segments whose objects are all in the store and can be read, by start offset.

    `broker_id` becomes that of segments of which the store has none.
    """
    complete = [segment for segment in stored.log.segments.values() if is_complete(stored, segment.segment_id)]
    found = map_concurrently(partial(_described, stored, broker_id=broker_id), complete)
    segments = [segment for segment in found if segment is not None]
    return sorted(segments, key=lambda segment: (segment.start_offset, segment.event_timestamp_ms, segment.end_offset))


def _described(stored: StoredPartition, segment: StoredSegment, broker_id: int) -> RemoteSegment | None:
    """A segment by its objects; None if these cannot be read or contradict each other."""
    try:
        if (describe := stored.store.layout.describe) is not None:
            return describe(stored.store.source, stem_of(stored.log, segment))
        return _described_by_batches(stored, segment, broker_id)
    except SourceError:
        return None


def _described_by_batches(stored: StoredPartition, segment: StoredSegment, broker_id: int) -> RemoteSegment | None:
    """A segment by its name, epochs and batches; None if they contradict each other. Raises SourceError."""
    with stored.store.open(stored.log, segment, RemotePart.LOG) as file:
        size_in_bytes, last_offset, max_timestamp_ms = file.size_in_bytes, -1, -1
        for chunk in SegmentReader(file).chunks():
            if chunk.columns.shape[1]:
                last_offset = max(last_offset, int(chunk.columns[BatchColumn.LAST_OFFSET, -1]))
                max_timestamp_ms = max(max_timestamp_ms, int(chunk.columns[BatchColumn.MAX_TIMESTAMP].max()))
    epochs = [entry for entry in epochs_until(stored, segment) if entry.start_offset <= last_offset]
    if not segment.start_offset <= last_offset < INT64_MAX or size_in_bytes > MAX_INT32 or not epochs:
        return None
    return RemoteSegment(
        segment.segment_id,
        segment.start_offset,
        last_offset,
        tuple(epochs_from(epochs, segment.start_offset)),
        size_in_bytes,
        max_timestamp_ms,
        broker_id,
        RemoteSegmentState.COPY_SEGMENT_FINISHED,
        max(max_timestamp_ms, 0),
        NOWHERE,
        NOWHERE,
        RemotePart.TRANSACTION_INDEX not in segment.objects,
        None,
    )


def is_complete(stored: StoredPartition, segment_id: str) -> bool:
    """Whether the store has all objects of a segment that brokers need."""
    segment = stored.log.segments.get(segment_id)
    return segment is not None and segment.objects.keys() >= {*stored.store.layout.needed}


def epochs_until(stored: StoredPartition, segment: StoredSegment) -> list[EpochEntry]:
    """The epochs from the log's beginning to the end of a segment; empty if its object does not show them. Raises SourceError."""
    with stored.store.open(stored.log, segment, RemotePart.LEADER_EPOCHS) as file:
        epochs = parse_leader_epochs(file)
    falls = any(
        entry.leader_epoch >= following.leader_epoch or entry.start_offset >= following.start_offset
        for entry, following in pairwise(epochs.entries)
    )
    return [] if epochs.damage or falls else epochs.entries


def lineage_of(stored: StoredPartition, segments: Sequence[RemoteSegment]) -> StoredLineage | None:
    """The lineage of the segment with the last epoch and offset; None without segments."""
    newest_first = sorted(segments, key=lambda segment: (segment.leader_epochs[-1].leader_epoch, segment.end_offset), reverse=True)
    epochs = _epochs_of_newest(stored, newest_first)
    chain = [segment for segment in segments if is_in_lineage(segment, epochs)]
    if not chain:
        return None
    complete = (segment for segment in chain if is_complete(stored, segment.segment_id))
    return StoredLineage(
        tuple(sorted(chain, key=lambda segment: (segment.start_offset, segment.end_offset))),
        epochs,
        max(segment.end_offset for segment in chain) + 1,
        normalised(segment.offsets for segment in complete),
    )


def lineage_before(
    stored: StoredPartition, segments: Sequence[RemoteSegment], offset: int, leader_epoch: int | None
) -> StoredLineage | None:
    """The remote part of a log whose segments start at `offset`, with this epoch if it is known; None if nothing is before it.

    The epochs are those that start at or before `offset`.
    """
    before = [
        segment
        for segment in segments
        if segment.start_offset < offset and (leader_epoch is None or segment.leader_epochs[-1].leader_epoch <= leader_epoch)
    ]
    lineage = lineage_of(stored, before)
    if lineage is None:
        return None
    return replace(lineage, epochs=tuple([entry for entry in lineage.epochs if entry.start_offset <= offset]))


def _epochs_of_newest(stored: StoredPartition, newest_first: Iterable[RemoteSegment]) -> tuple[EpochEntry, ...]:
    """The epochs up to the newest segment, by its object, or without one by the segment.

    Brokers that ran without `__remote_log_metadata` cut away the older epochs; older segments before the first one show these.
    """
    entries: list[EpochEntry] = []
    for segment in newest_first:
        first = entries[0] if entries else None
        if first is not None and (
            segment.start_offset >= first.start_offset or segment.leader_epochs[-1].leader_epoch > first.leader_epoch
        ):
            continue
        found = _readable_epochs(stored, segment) or sorted(segment.leader_epochs)
        before = [entry for entry in found if first is None or entry.start_offset < first.start_offset]
        if before and first is not None and before[-1].leader_epoch == first.leader_epoch:
            del entries[0]
        entries = before + entries
    return tuple(entries)


def _readable_epochs(stored: StoredPartition, segment: RemoteSegment) -> list[EpochEntry]:
    """The epochs by a segment's object; empty if it cannot be read or contradicts the segment."""
    objects = stored.log.segments.get(segment.segment_id)
    if objects is None:
        return []
    try:
        epochs = epochs_until(stored, objects)
    except SourceError:
        return []
    return epochs if is_in_lineage(segment, epochs) else []


def producers_at_end(stored: StoredPartition, lineage: StoredLineage) -> list[ProducerEntry]:
    """The producers after the last segment of a lineage; empty if its object does not show them."""
    last = max(lineage.segments, key=lambda segment: segment.end_offset)
    objects = stored.log.segments.get(last.segment_id)
    if objects is None:
        return []
    parse = partial(parse_producer_snapshot, offset=lineage.end_offset)
    try:
        with stored.store.open(stored.log, objects, RemotePart.PRODUCER_SNAPSHOT) as file:
            snapshot = parse(file)
    except SourceError:
        return []
    return [] if snapshot.damage else list(snapshot.entries)
