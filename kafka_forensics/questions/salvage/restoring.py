"""Restores from remote stores what no copy has: local logs that begin where the remote log ends, and `__remote_log_metadata`.

Nothing in a store changes. Brokers delete remote segments whose epochs a leader does not know, and those that end below its log
start; so the logs that are written here have the epochs of the whole remote log, and its start.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, NamedTuple

from msgspec.structs import replace

from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.context import ReplicaContext
from kafka_forensics.evidence.inputs import Inputs
from kafka_forensics.evidence.ledger import ExpectedReplica
from kafka_forensics.model.amounts import first_few
from kafka_forensics.model.constants import MAX_RELATIVE_OFFSET, REMOTE_LOG_METADATA_TOPIC
from kafka_forensics.model.controller import PartitionControl
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.findings import TopicPartition
from kafka_forensics.model.offset_ranges import Ranges, normalised, offset_ranges, without
from kafka_forensics.model.remote_log import REMOTE, RemoteLog, RemoteSegment
from kafka_forensics.parsers.internal_topics import write_copied_segment
from kafka_forensics.questions.salvage.lineage import BASE, LogLineage
from kafka_forensics.questions.salvage.manifest import NO_TOPIC_ID, LogGap, Refused, RefusedError, SalvagedPartition
from kafka_forensics.questions.salvage.origins import SegmentOrigin, built_origin
from kafka_forensics.questions.salvage.partition_files import PartitionSettings
from kafka_forensics.questions.salvage.rebuilding import index_interval
from kafka_forensics.questions.salvage.remote_records import remote_slices, store_origins
from kafka_forensics.questions.salvage.slices import SegmentSlice
from kafka_forensics.questions.salvage.stored_segments import (
    StoredLineage,
    lineage_before,
    lineage_of,
    producers_at_end,
    segments_in_store,
)
from kafka_forensics.replication.epochs import epoch_at
from kafka_forensics.replication.recovery import HIGH_WATERMARK_FILE, LOG_START_FILE
from kafka_forensics.replication.remote_segments import metadata_partition
from kafka_forensics.scanning.witnesses.remote_stores import RemoteStores, StoredPartition
from kafka_forensics.scanning.witnesses.witnesses import Witnesses
from kafka_forensics.writers.batches import BatchFields, RecordToWrite, write_batch

DEFAULT_METADATA_PARTITIONS: Final = 50
"""Kafka's default of `remote.log.metadata.topic.num.partitions`."""
CHOSEN_BY: Final = "remote"
REBUILT: Final = "it is built from the remote store"
BEGINS_AFTER: Final = "it has no copy; its local log begins where the remote log ends"
STORE_HINT: Final = (
    "give the whole remote store of this cluster; or --allow-gaps: brokers then know no segment there, and readers get no records"
)
OF_REMOTE_RECORDS: Final = "it has no copy; it gets the records of remote storage"
LEFT_OUT: Final = (
    "remote segments before its log start that are followed by missing ones are not in the rebuilt __remote_log_metadata: otherwise"
    " brokers would delete them"
)
GAPS_HINT: Final = (
    "give further copies: other brokers, other log directories, backups; or --allow-gaps: readers then skip these offsets"
)
COUNT_HINT: Final = "give --metadata-partitions N: the brokers' rlmm.config.remote.log.metadata.topic.num.partitions, by default 50"
_RECORDS_OF_BATCH: Final = 500
_LACKING_NAMED: Final = 8
"""Partitions that a refusal of `__remote_log_metadata` names."""
_NO_BROKER: Final = -1


class Restored(NamedTuple):
    """A partition that is built from a remote store, and how its log is written."""

    partition: SalvagedPartition
    origins: list[SegmentOrigin]
    slices: list[SegmentSlice]
    lineage: LogLineage
    settings: PartitionSettings
    log_start: int | None
    """Its line in `log-start-offset-checkpoint`."""
    remote: tuple[RemoteSegment, ...] | None = None
    """Its remote segments; None for a topic that is not tiered."""


@dataclass(slots=True)
class Restorer:
    """Restores partitions by what remote stores have, and the given copies of `__remote_log_metadata` know."""

    inputs: Inputs
    witnesses: Witnesses
    stores: RemoteStores
    rebuilt: set[int]
    """Partitions of `__remote_log_metadata` that are rebuilt."""
    metadata_partitions: int | None = None
    """Number of partitions of `__remote_log_metadata`, if the user gives it."""
    from_store: bool = False
    """Whether logs get the records of their remote segments, for brokers without remote storage."""
    taken: dict[tuple[str, int], list[RemoteSegment]] = field(init=False, default_factory=dict)
    """Topic id and partition → the segments with events in the rebuilt `__remote_log_metadata`."""
    _lacking: dict[int, dict[TopicPartition, Ranges]] = field(init=False, default_factory=dict)
    """Partition of `__remote_log_metadata` → offsets of remote logs that it would lack if it were rebuilt."""
    _names: dict[str, str] = field(init=False)
    """Topic id → name; objects may have it with a prefix."""
    _count: int | None = field(init=False)
    """Number of partitions of `__remote_log_metadata`: by the controllers' log, or the user; or Kafka's default, if a checkpoint
    names the last one; None: unknown."""
    _segments: dict[tuple[str, int], list[RemoteSegment]] = field(init=False, default_factory=dict)
    """Topic id and partition → the segments that were described."""
    _kept_from: dict[tuple[str, int], tuple[int, int]] = field(init=False, default_factory=dict)
    """Topic id and partition → log start, and leader epoch there."""

    def __post_init__(self) -> None:
        """Read the names of topics, and the number of partitions of `__remote_log_metadata`."""
        controller, contexts = self.witnesses.controller, [plan.context for plan in self.inputs.replicas]
        self._names = {context.topic_id: context.topic for context in contexts if context.topic_id is not None}
        self._names |= {} if controller is None else {topic_id: history.topic for topic_id, history in controller.topics.items()}
        partitions = () if controller is None else controller.partitions
        count = sum(topic == REMOTE_LOG_METADATA_TOPIC for topic, _ in partitions)
        last = (REMOTE_LOG_METADATA_TOPIC, DEFAULT_METADATA_PARTITIONS - 1)
        is_default = any(log_dir.offset(HIGH_WATERMARK_FILE, *last) is not None for log_dir in self.inputs.log_dirs)
        self._count = count or self.metadata_partitions or (DEFAULT_METADATA_PARTITIONS if is_default else None)

    def restore(
        self, lost: Mapping[TopicPartition, Sequence[ExpectedReplica]], *, deep: bool, allow_gaps: bool
    ) -> Iterator[Restored | Refused]:
        """Restore the lost partitions that a store has, or refuse them; nothing for those that it lacks."""
        for key, rows in lost.items():
            stored = self.stored_of(key)
            lineage = None if stored is None else lineage_of(stored, self.segments_of(stored))
            if stored is not None and lineage is not None:
                try:
                    yield self._log_of(stored, lineage, rows, deep=deep, allow_gaps=allow_gaps)
                except RefusedError as error:
                    yield error.refused
        for partition in () if self.from_store else sorted(self.rebuilt):
            if self._count is None:
                key = REMOTE_LOG_METADATA_TOPIC, partition
                yield Refused(*key, "no_copy", "it has no copy, and its number of partitions is unknown", COUNT_HINT)
            else:
                lacking = self._lacking.get(partition, {})
                names = [f"{offset_ranges(gaps)} of {topic}-{number}" for (topic, number), gaps in lacking.items()]
                text = f"{self.stores.names} lacks {first_few(names, _LACKING_NAMED)}"
                if names and not allow_gaps:
                    yield Refused(REMOTE_LOG_METADATA_TOPIC, partition, "gaps", f"{text}, which no reader would get", STORE_HINT)
                    continue
                restored = self._metadata_log(partition, self._count, deep=deep)
                restored.partition.warning = f"{REBUILT}; {text}" if names else REBUILT
                yield restored

    def require(self, key: TopicPartition, topic_id: str | None, gaps: Ranges) -> None:
        """Note offsets of a remote log that the rebuilt `__remote_log_metadata` would lack."""
        for partition in self.rebuilt if topic_id is None else self.rebuilt_for(topic_id, key[1]):
            if gaps:
                self._lacking.setdefault(partition, {})[key] = gaps

    def rebuilt_for(self, topic_id: str, partition: int) -> set[int]:
        """The partition of `__remote_log_metadata` with the events of a partition, if it is rebuilt; empty if not."""
        return set() if self._count is None else self.rebuilt & {metadata_partition(topic_id, partition, self._count)}

    def require_lost(self, key: TopicPartition, rows: Iterable[ExpectedReplica]) -> None:
        """Note which offsets of a lost tiered partition the rebuilt `__remote_log_metadata` would lack."""
        stored, control = self.stored_of(key), self.witnesses.control(*key)
        lineage = None if stored is None else lineage_of(stored, self.segments_of(stored))
        line = max((line for line in self._log_start_lines(key) if line is not None), default=None)
        start, end = line or 0, max((row.high_watermark or 0 for row in rows), default=0)
        if lineage is not None:
            log_start = log_start_of(lineage, line, is_rebuilt=True)
            start = log_start if line is None else min(line, log_start)
        gaps = without([(start, max(start, end))], () if lineage is None else lineage.stored)
        self.require(key, None if control is None else control.topic_id, gaps)

    def set_log_start(self, lineage: StoredLineage, key: tuple[str, int], log_start: int) -> None:
        """Keep segments that brokers would delete out of the rebuilt `__remote_log_metadata`: those that end before this log start
        of a topic id and partition, and those whose epochs are all older than the one there."""
        self._kept_from[key] = log_start, epoch_at(lineage.epochs, log_start) or 0

    def stored_of(self, key: TopicPartition, topic_id: str | None = None) -> StoredPartition | None:
        """What a store has of the present topic of this name; None also if it has several and nothing says which one it is."""
        control = self.witnesses.control(*key)
        topic_id = topic_id or (None if control is None else control.topic_id)
        if topic_id is not None:
            return self.stores.partitions.get((topic_id, key[1]))
        stored = list(self.stores.of_topic(*key))
        return stored[0] if len(stored) == 1 else None

    def has_nothing_remote(self, key: TopicPartition) -> bool:
        """Whether the whole `__remote_log_metadata` lists no remote segment of a lost partition, and no store has any: brokers may
        begin it empty."""
        history, stored = self.witnesses.remote_log, self.stored_of(key)
        if history is None or history.damaged or self._count is None or self.rebuilt:
            return False
        known = history.log_of(*key)
        is_whole = history.partitions_read >= set(range(self._count)) and self.stores.is_complete
        return is_whole and (known is None or not known.finished) and (stored is None or not stored.log.segments)

    def segments_of(self, stored: StoredPartition) -> list[RemoteSegment]:
        """The finished segments that brokers know, or will know by the rebuilt `__remote_log_metadata`."""
        key = stored.log.topic_id, stored.log.partition
        if key not in self._segments:
            known, found = self._known(stored), list[RemoteSegment]()
            if self._is_rebuilt(stored):
                found = segments_in_store(stored, _broker_of(self._control(stored)))
            elif known is not None:
                found = list(known.finished)
            deleted = {segment.segment_id for segment in (() if known is None else known.segments) if segment.is_deleted}
            self._segments[key] = [segment for segment in found if segment.segment_id not in deleted]
        return self._segments[key]

    def is_rebuilt(self, context: ReplicaContext) -> bool:
        """Whether the partition of `__remote_log_metadata` with the events of a replica is rebuilt."""
        stored = self.stored_of(context.topic_partition, context.topic_id)
        return stored is not None and self._is_rebuilt(stored)

    def remote_part(
        self, context: ReplicaContext, local_log_start_offset: int, epochs: Sequence[EpochEntry]
    ) -> StoredLineage | None:
        """The remote part of a replica with these local epochs; None if no store has any of it."""
        stored = self.stored_of(context.topic_partition, context.topic_id)
        if stored is None:
            return None
        leader_epoch = epoch_at(epochs, local_log_start_offset)
        return lineage_before(stored, self.segments_of(stored), local_log_start_offset, leader_epoch)

    def remote_segments(self, context: ReplicaContext) -> list[RemoteSegment]:
        """The segments of a replica's partition that brokers know, or will know; empty if no store has any."""
        stored = self.stored_of(context.topic_partition, context.topic_id)
        return [] if stored is None else self.segments_of(stored)

    def _known(self, stored: StoredPartition) -> RemoteLog | None:
        log, history = stored.log, self.witnesses.remote_log
        return None if history is None else history.log_of(log.topic, log.partition, log.topic_id)

    def _control(self, stored: StoredPartition) -> PartitionControl | None:
        return self.witnesses.control(self._topic(stored), stored.log.partition, stored.log.topic_id)

    def _topic(self, stored: StoredPartition) -> str:
        return self._names.get(stored.log.topic_id, stored.log.topic)

    def _is_rebuilt(self, stored: StoredPartition) -> bool:
        """Whether the partition of `__remote_log_metadata` with the events of a partition is rebuilt."""
        return bool(self.rebuilt_for(stored.log.topic_id, stored.log.partition))

    def _metadata_log(self, partition: int, count: int, *, deep: bool) -> Restored:
        """A partition of `__remote_log_metadata` that says of the segments of the present topics that their copy is finished."""
        events: list[tuple[int, bytes]] = []
        for stored in self.stores.partitions.values():
            is_deleted = self.witnesses.controller is not None and self._control(stored) is None
            if not is_deleted and metadata_partition(stored.log.topic_id, stored.log.partition, count) == partition:
                topic = self._topic(stored)
                log_start, leader_epoch = self._kept_from.get((stored.log.topic_id, stored.log.partition), (0, 0))
                for segment in self.segments_of(stored):
                    if segment.end_offset < log_start or segment.leader_epochs[-1].leader_epoch < leader_epoch:
                        continue
                    records = write_copied_segment(topic, stored.log.topic_id, stored.log.partition, segment)
                    self.taken.setdefault((stored.log.topic_id, stored.log.partition), []).append(segment)
                    events += [(segment.event_timestamp_ms, record) for record in records]
        batches = b"".join(_batches(events))
        key, end = (REMOTE_LOG_METADATA_TOPIC, partition), len(events)
        control = self.witnesses.control(*key)
        topic_ids = (plan.context.topic_id for plan in self.inputs.internal if plan.context.topic == REMOTE_LOG_METADATA_TOPIC)
        topic_id = next(topic_ids, None) if control is None else control.topic_id
        store = self.stores.stores[0].name
        slices = [SegmentSlice(0, 0, 0, len(batches), 0, end, BASE)] if events else []
        row = SalvagedPartition(*key, topic_id, REMOTE, CHOSEN_BY, 0, 0, end, end)
        row.unseen = [] if topic_id is not None else [NO_TOPIC_ID]
        lineage, settings = LogLineage(0, 0, end, (), ()), PartitionSettings(topic_id, index_interval(None), deep)
        return Restored(row, [built_origin(store, batches)], slices, lineage, settings, None)

    def _log_of(
        self, stored: StoredPartition, lineage: StoredLineage, rows: Iterable[ExpectedReplica], *, deep: bool, allow_gaps: bool
    ) -> Restored:
        """A local log that begins where the remote log ends: empty, or with a batch without records for the offsets that were
        committed after it; or with `from_store` one of all remote records. Raises RefusedError if offsets are lost and gaps are
        not allowed."""
        log, unread = stored.log, None
        key = self._topic(stored), log.partition
        line = max((line for line in self._log_start_lines(key) if line is not None), default=None)
        log_start = log_start_of(lineage, line, is_rebuilt=self._is_rebuilt(stored))
        self.set_log_start(lineage, (log.topic_id, log.partition), log_start)
        end = max(lineage.end_offset, log_start, *(row.high_watermark or 0 for row in rows))
        if self.from_store:
            start, origins = log_start, store_origins(stored, lineage)
            slices, unread = remote_slices(origins, 0, start, lineage.end_offset, deep=deep)
            gaps = without([(start, end)], normalised((part.start_offset, part.end_offset) for part in slices))
        else:
            start, gaps = max(lineage.end_offset, log_start), without([(log_start, end)], lineage.stored)
            batches = _without_records(start, end, max(lineage.segments, key=attrgetter("end_offset")))
            origins = [built_origin(stored.store.name, batches, start)]
            slices = [SegmentSlice(0, start, 0, len(batches), start, end, BASE)] if batches else []
        if gaps and (not allow_gaps or end - lineage.end_offset > MAX_RELATIVE_OFFSET):
            raise RefusedError(lacking(key, gaps, unread))
        control = self._control(stored)
        settings = PartitionSettings(
            log.topic_id, index_interval(None if control is None else control.setting("index.interval.bytes")), deep
        )
        if not self.from_store:
            settings = replace(settings, epochs=list(lineage.epochs), producers=producers_at_end(stored, lineage))
        row = SalvagedPartition(*key, log.topic_id, REMOTE, CHOSEN_BY, log_start, start, end, end)
        row.gaps, row.warning = [LogGap(*gap) for gap in gaps], OF_REMOTE_RECORDS if self.from_store else BEGINS_AFTER
        remote, line = (None, log_start or None) if self.from_store else (lineage.segments, log_start)
        return Restored(row, origins, slices, LogLineage(0, start, end, (), gaps), settings, line, remote)

    def _log_start_lines(self, key: TopicPartition) -> Iterator[int | None]:
        return (log_dir.offset(LOG_START_FILE, *key) for log_dir in self.inputs.log_dirs)


def lacking(key: TopicPartition, gaps: Ranges, unread: SourceError | None) -> Refused:
    """The refusal of a partition with offsets that neither a copy nor a remote store has."""
    reason = f"neither a copy nor remote storage has its {offset_ranges(gaps)}" + ("" if unread is None else f": {unread}")
    return Refused(*key, "gaps", reason, GAPS_HINT, gaps, is_tiered=True)


def log_start_of(lineage: StoredLineage, line: int | None, *, is_rebuilt: bool) -> int:
    """Where a log with this remote part begins, by its line in `log-start-offset-checkpoint`.

    Brokers that run without `__remote_log_metadata` raise the line to the local start. With a rebuilt one they would delete all
    segments below; so a line after the first segment of those that reach it without a hole does not count.
    """
    segments = lineage.segments
    if line is None or line < segments[0].start_offset:
        return segments[0].start_offset
    ranges = normalised(segment.offsets for segment in segments)
    start = next((start for start, end in ranges if is_rebuilt and start <= line <= end), line)
    first_end = max((segment.end_offset for segment in segments if segment.start_offset == start), default=line)
    return start if line > first_end else line


def _broker_of(control: PartitionControl | None) -> int:
    """The leader of a partition, or else its first replica."""
    if control is None:
        return _NO_BROKER
    if control.leader is not None and control.leader >= 0:
        return control.leader
    return next(iter(control.replica_assignment or ()), _NO_BROKER)


def _batches(events: Sequence[tuple[int, bytes]]) -> Iterator[bytes]:
    """Batches of events, from offset 0 on."""
    for start in range(0, len(events), _RECORDS_OF_BATCH):
        part = events[start : start + _RECORDS_OF_BATCH]
        first_ms = part[0][0]
        records = [RecordToWrite(None, value, timestamp_delta=time_ms - first_ms) for time_ms, value in part]
        yield write_batch(records, base_offset=start, base_timestamp=first_ms)


def _without_records(start: int, end: int, after: RemoteSegment) -> bytes:
    """A batch without records for offsets `[start, end)`, as the cleaner leaves them, which consumers skip; empty for no offsets.

    Without it consumers would wait at `start` until the next record is written.
    """
    time_ms, end = after.max_timestamp_ms, min(end, start + MAX_RELATIVE_OFFSET)
    fields: BatchFields = {"base_offset": start, "base_timestamp": time_ms, "max_timestamp": time_ms}
    fields |= {"partition_leader_epoch": after.leader_epochs[-1].leader_epoch, "last_offset_delta": end - start - 1}
    return write_batch([], **fields) if start < end else b""
