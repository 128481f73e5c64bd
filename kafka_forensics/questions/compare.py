"""`compare`: the replicas of one partition side by side around their first difference, record by record."""

import hashlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec import Struct, structs

from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas import ReplicaBatch, differences
from kafka_forensics.errors import SourceError, UsageError, is_transient
from kafka_forensics.evidence.inputs import Inputs, gather
from kafka_forensics.evidence.options import ScanOptions, listed, no_match_error
from kafka_forensics.model.batches import NO_TIMESTAMP_TYPE, BatchColumn, Record
from kafka_forensics.model.constants import CONTROL_MASK
from kafka_forensics.model.results import PartitionSummary, ReadExtent, ReplicaSummary, ScanResult
from kafka_forensics.parsers.log import parse_control_record
from kafka_forensics.scanning.engine.local import Progress, scan_inputs
from kafka_forensics.scanning.judging.partitions import PartitionResult, summarise
from kafka_forensics.scanning.rereading.reader import LogReader
from kafka_forensics.scanning.witnesses.remote_chains import fold_remote_logs, take_remote_logs
from kafka_forensics.scanning.witnesses.witnesses import Witnesses, read_witnesses

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_WINDOW: Final = 4096
"""Offsets that the search for the first difference reads at a time."""
_SEARCHED_OFFSETS: Final = 1 << 20
"""Offsets from the start of a finding in which that search looks."""
_MAX_WINDOW: Final = 1 << 16
_WINDOWS_READ: Final = 64
"""Windows read for the records around the difference; where gaps are wide, fewer records are found."""
_FINDINGS_TRIED: Final = 32


class OffsetPresence(StrEnum):
    """What a replica has at an offset."""

    RECORD = "record"
    ABSENT = "absent"
    """Inside its log, but compacted away or missing."""
    BEFORE_LOG_START = "before_log_start"
    IN_REMOTE_STORAGE = "in_remote_storage"
    BEYOND_LOG_END = "beyond_log_end"
    NOT_COPIED = "not_copied"
    """In no remote segment of a log in a remote store."""
    NOT_READ = "not_read"
    """Its log could not be read at this offset."""
    UNREADABLE = "unreadable"
    """Inside a batch that cannot be decoded."""


NOT_HERE: Final = frozenset(
    {
        OffsetPresence.BEFORE_LOG_START,
        OffsetPresence.IN_REMOTE_STORAGE,
        OffsetPresence.NOT_COPIED,
        OffsetPresence.NOT_READ,
    }
)
"""States in which a copy says nothing about an offset that others hold."""


@dataclass(frozen=True, slots=True)
class HeldRecord:
    """A record as one replica holds it; equal where replicas agree. -1 means none in every number, times are milliseconds.

    Digests are SHA-256 in hexadecimal, None for null and for content too large to be held. `is_valid` says whether the batch's CRC
    is right. Keys, values and headers are only present if requested.
    """

    offset: int
    partition_leader_epoch: int
    timestamp: int
    timestamp_type: str
    producer_id: int
    producer_epoch: int
    sequence: int
    control_record_type: str | None
    key_size: int
    key_digest: str | None
    value_size: int
    value_digest: str | None
    headers_count: int
    headers_digest: str | None
    is_valid: bool
    magic: int = field(default=2, compare=False, repr=False)
    """Message format of its batch."""
    key: bytes | None = field(default=None, compare=False, repr=False)
    value: bytes | None = field(default=None, compare=False, repr=False)
    headers: tuple[tuple[bytes, bytes | None], ...] = field(default=(), compare=False, repr=False)

    def in_format(self, magic: int) -> "HeldRecord":
        """The record without the fields that a message format lacks, except headers, which consumers see."""
        record = self
        if magic < 2:
            record = replace(record, partition_leader_epoch=-1, producer_id=-1, producer_epoch=-1, sequence=-1)
        return replace(record, timestamp=-1, timestamp_type=NO_TIMESTAMP_TYPE) if magic < 1 else record


class ReplicaAtOffset(Struct, frozen=True):
    """State of one replica at one offset; `record` is None unless `state` is RECORD."""

    broker: int | str
    state: OffsetPresence
    record: HeldRecord | None = None


class OffsetRow(Struct, frozen=True):
    """One offset on all replicas, in their order; `differs` if they do not all hold the same."""

    offset: int
    differs: bool
    held: list[ReplicaAtOffset]


class SideBySide(Struct):
    """The scan of one partition, the first offset at which its replicas differ (None: nowhere), and the records around it."""

    result: ScanResult
    first_difference: int | None = None
    rows: list[OffsetRow] = msgspec.field(default_factory=list)
    remote: list[ReplicaSummary] = msgspec.field(default_factory=list)
    """The logs in remote stores that were compared, after the replicas in every row."""

    @property
    def replicas(self) -> list[ReplicaSummary]:
        """The replicas, then the logs in remote stores: the columns of `rows`."""
        return [*self.partition.replicas, *self.remote]

    @property
    def partition(self) -> PartitionSummary:
        """The one partition that was compared."""
        return self.result.partitions[0]


def compare(
    paths: list[str], options: ScanOptions, *, context: int = 3, payloads: bool = False, progress: Progress | None = None
) -> SideBySide:
    """Compare the replicas of the one partition that `options` select, with `context` records before and after the difference.

    Raises UsageError for invalid paths, and unless exactly one partition is selected and at least two replicas of it are there.
    """
    inputs, witnesses = _select_partition(paths, options)
    answer: list[tuple[int | None, list[OffsetRow], list[ReplicaSummary]]] = []

    def on_partition(replicas: list[Replica], reader: LogReader, result: PartitionResult) -> None:
        remote = _remote_sides(inputs, replicas, reader, result)
        sides = [_Side(replica, reader, payloads=False) for replica in replicas]
        first = _first_difference(sides, remote, result)
        with_payloads = [structs.replace(side, payloads=payloads) for side in (*sides, *remote)]
        rows = [] if first is None else _rows_around(with_payloads, first, context)
        answer.append((first, rows, [summarise(side.replica) for side in remote]))

    result = scan_inputs(inputs, options, progress, on_partition, witnesses)
    partition = (result.partitions[0].topic, result.partitions[0].partition)
    result.findings = [
        finding
        for finding in result.findings
        if (finding.place.topic, finding.place.partition) == partition
        or (finding.place.topic is None and finding.kind in kinds_with(Trait.AFFECTS_ALL_PARTITIONS))
    ]
    return SideBySide(result, *(answer[0] if answer else (None, [], [])))


def _select_partition(paths: list[str], options: ScanOptions) -> tuple[Inputs, Witnesses]:
    inputs = gather(paths, options)
    witnesses = read_witnesses(inputs)
    take_remote_logs(inputs, options, witnesses.remote_log)
    partitions = _partitions(inputs)
    if len(inputs.logs) < 2 and inputs.incomplete:
        unread = next((unread for unread in inputs.incomplete if is_transient(unread.reason)), inputs.incomplete[0])
        raise SourceError(unread.path, unread.reason)
    if not partitions:
        all_inputs = gather(paths, ScanOptions(broker=options.broker, storage_options=options.storage_options))
        raise no_match_error(_partitions(all_inputs), options)
    if len(partitions) > 1:
        hint = f"choose with --topic and --partition from {listed(f'{topic}-{number}' for topic, number in partitions)}"
        raise UsageError(f"compare needs one partition, but there are {len(partitions)}", hint=hint)
    if len(inputs.logs) < 2:
        (topic, number), broker = partitions[0], inputs.replicas[0].context.broker
        hint = "give the log directories of the other brokers too"
        if options.broker is not None:
            hint = "leave out --broker: with it, only one broker is read"
        raise UsageError(f"there is only one replica of {topic}-{number}, on broker {broker}", hint=hint)
    return inputs, witnesses


def _remote_sides(inputs: Inputs, replicas: list[Replica], reader: LogReader, result: PartitionResult) -> "list[_Side]":
    """The logs of the partition in remote stores, read by one reader with the replicas."""
    folded = fold_remote_logs(inputs, replicas[0].context, reader.key, result.incomplete)
    plans = [plan for plan in inputs.replicas if any(plan.context is replica.context for replica in replicas)]
    both = LogReader([*plans, *(plan for plan, _ in folded)], reader.key)
    return [_Side(replica, both, payloads=False) for _, replica in folded]


def _partitions(inputs: Inputs) -> list[tuple[str, int]]:
    """Every partition with a replica, those of internal topics last."""
    partitions = {plan.context.topic_partition for plan in inputs.replicas}
    return sorted(partitions, key=lambda partition: (partition[0].startswith("__"), partition))


class _RangeRecords(NamedTuple):
    """Records of a range by offset, None in batches that cannot be decoded, and the offsets `[start, end)` of these batches.

    Of such a batch at most as many offsets are listed as it has bytes: its header may claim 2^31.
    """

    by_offset: dict[int, HeldRecord | None]
    unreadable: list[tuple[int, int]]


class _Side(Struct, frozen=True):
    replica: Replica
    reader: LogReader
    payloads: bool

    def read(self, start: int, end: int) -> _RangeRecords:
        """What it holds of `[start, end)`."""
        found = _RangeRecords({}, [])
        if self.replica.read is ReadExtent.NONE:
            return found
        for row in self.reader.batches(self.replica, start, end).T:
            decoded = self.reader.decoded(ReplicaBatch(self.replica, row))
            for record in () if decoded is None else decoded.iter_records():
                if start <= record.offset < end:
                    found.by_offset.setdefault(record.offset, _held_record(record, row, payloads=self.payloads))
            if decoded is None or decoded.problems:
                start_offset, end_offset = (
                    max(int(row[BatchColumn.BASE_OFFSET]), start),
                    min(int(row[BatchColumn.LAST_OFFSET]) + 1, end),
                )
                for offset in range(start_offset, min(end_offset, start_offset + int(row[BatchColumn.SIZE_IN_BYTES]))):
                    found.by_offset.setdefault(offset, None)
                found.unreadable.append((start_offset, end_offset))
        return found

    def held(self, offset: int, found: _RangeRecords) -> ReplicaAtOffset:
        """Its state at an offset of the range in which `found` was read."""
        replica, record = self.replica, found.by_offset.get(offset)
        state = OffsetPresence.BEYOND_LOG_END if offset >= replica.log_end_offset else OffsetPresence.ABSENT
        if record is not None:
            state = OffsetPresence.RECORD
        elif offset in found.by_offset or any(start <= offset < end for start, end in found.unreadable):
            state = OffsetPresence.UNREADABLE
        elif replica.read is ReadExtent.NONE:
            state = OffsetPresence.NOT_READ
        elif replica.context.is_remote:
            state = OffsetPresence.ABSENT if replica.covers(offset, offset + 1) else OffsetPresence.NOT_COPIED
        elif offset < replica.log_start_offset:
            state = OffsetPresence.BEFORE_LOG_START
        elif offset < replica.local_log_start_offset:
            state = OffsetPresence.IN_REMOTE_STORAGE
        elif replica.state.unread:
            state = OffsetPresence.NOT_READ
        return ReplicaAtOffset(replica.broker, state, record)


def _held_record(record: Record, row: "NDArray[np.int64]", *, payloads: bool) -> HeldRecord:
    control = None
    if int(row[BatchColumn.MAGIC]) >= 2 and int(row[BatchColumn.ATTRIBUTES]) & CONTROL_MASK:
        control = parse_control_record(record.key, record.value).name
    parts = [part for header in record.headers for part in header]
    # with the length before each part (-1 for null) only equal headers give equal bytes
    joined_headers = b"".join(b"%d:%b" % (-1 if part is None else len(part), part or b"") for part in parts)
    return HeldRecord(
        record.offset,
        int(row[BatchColumn.PARTITION_LEADER_EPOCH]),
        record.timestamp,
        record.timestamp_type,
        int(row[BatchColumn.PRODUCER_ID]),
        int(row[BatchColumn.PRODUCER_EPOCH]),
        record.sequence,
        control,
        record.key_length,
        _digest(record.key),
        record.value_length,
        _digest(record.value),
        len(record.headers),
        _digest(joined_headers) if record.headers else None,
        bool(row[BatchColumn.CRC] == row[BatchColumn.CRC_COMPUTED]),
        int(row[BatchColumn.MAGIC]),
        *((record.key, record.value, record.headers) if payloads else ()),
    )


def _digest(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()


def _first_difference(sides: list[_Side], remote: list[_Side], result: PartitionResult) -> int | None:
    """The first offset at which the replicas, or remote storage and a replica, hold different records, else where the shortest log
    ends; None if all end at one offset."""
    conflicts = [_first_conflict(sides, result), *(_first_remote_conflict(side, sides) for side in remote)]
    if starts := [offset for offset in conflicts if offset is not None]:
        return min(starts)
    ends = {side.replica.log_end_offset for side in sides if side.replica.end_is_known}
    return min(ends) if len(ends) > 1 else None


def _first_conflict(sides: list[_Side], result: PartitionResult) -> int | None:
    """The first differing record in the ranges of findings, else the lowest offset of a conflict; None without any."""
    compacted = any(side.replica.context.compacted for side in sides)
    # a replica may end earlier, and the cleaner may have removed a record: neither contradicts the others
    ignored = {*NOT_HERE, OffsetPresence.BEYOND_LOG_END, *({OffsetPresence.ABSENT} if compacted else ())}
    for start, end in _suspects(sides, result):
        for offset, held in _read(sides, start, min(end, start + _SEARCHED_OFFSETS), lambda _: _WINDOW):
            if differ_at_offset(held, ignored):
                return offset
    conflicts = [finding.place.offset_start for finding in result.findings if finding.kind in kinds_with(Trait.PARTS_REPLICAS)]
    return min((offset for offset in conflicts if offset is not None), default=None)


def _first_remote_conflict(remote: _Side, sides: list[_Side]) -> int | None:
    """The first offset at which a log in a remote store and a replica have different records."""
    read = [side.replica for side in sides if side.replica.read is not ReadExtent.NONE]
    differing = (difference for replica in read for difference in differences(remote.replica, replica, remote.reader))
    return min((difference.offset for difference in differing if difference.kind == "content"), default=None)


def _suspects(sides: list[_Side], result: PartitionResult) -> list[tuple[int, int]]:
    """Ranges of offsets that may hold a difference, in order; only those of conflicts if there are any."""
    if result.summary.agreement.kind == "not_compared":
        read = [side.replica for side in sides if side.replica.read is not ReadExtent.NONE]
        if len(read) < 2:
            return []
        return [(max(replica.local_log_start_offset for replica in read), min(replica.log_end_offset for replica in read))]
    kinds = kinds_with(Trait.PARTS_REPLICAS)
    placed = [(finding, finding.place.offset_start, finding.place.offset_end) for finding in result.findings]
    placed = [row for row in placed if row[1] is not None]
    chosen = [row for row in placed if row[0].kind in kinds] or [row for row in placed if row[0].severity.rank > 0]
    return sorted({(start or 0, end or (start or 0) + 1) for _, start, end in chosen})[:_FINDINGS_TRIED]


def differ_at_offset(held: list[ReplicaAtOffset], ignored: Collection[OffsetPresence]) -> bool:
    """Whether replicas, except those in states `ignored`, hold different things at an offset, by the fields that all their message
    formats have."""
    states = [here for here in held if here.state not in ignored]
    oldest = min((here.record.magic for here in states if here.record is not None), default=2)
    return len({(here.state, None if here.record is None else here.record.in_format(oldest)) for here in states}) > 1


def _read(
    sides: list[_Side], start: int, end: int, width: Callable[[int], int], *, backwards: bool = False
) -> Iterator[tuple[int, list[ReplicaAtOffset]]]:
    """(offset, states) for offsets in `[start, end)` that some replica holds, read in windows; empty windows double their width."""
    number = empty = 0
    while start < end:
        size = width(number) << empty
        low, high = (max(end - size, start), end) if backwards else (start, min(start + size, end))
        found = [side.read(low, high) for side in sides]
        offsets = set().union(*(records.by_offset for records in found))
        empty = 0 if offsets else empty + 1
        for offset in sorted(offsets, reverse=backwards):
            yield offset, [side.held(offset, records) for side, records in zip(sides, found, strict=True)]
        start, end = (start, low) if backwards else (high, end)
        number += 1


def _rows_around(sides: list[_Side], first: int, context: int) -> list[OffsetRow]:
    """`context` offsets before `first`, that offset or the next one held, and `context` after it."""

    def width(number: int) -> int:
        return min(_MAX_WINDOW, 2 * (context + 1) << min(number, 16))

    reach = sum(map(width, range(_WINDOWS_READ)))
    lowest = max(min(side.replica.first_batch_offset for side in sides), first - reach, 0)
    highest = min(max(side.replica.log_end_offset for side in sides), first + reach)
    before = list(islice(_read(sides, lowest, first, width, backwards=True), context))
    after = islice(_read(sides, first, highest, width), context + 1)
    return [OffsetRow(offset, differ_at_offset(held, NOT_HERE), held) for offset, held in (*reversed(before), *after)]
