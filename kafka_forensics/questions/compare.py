"""`compare`: replicas of one partition side by side around their first difference, record by record."""

import hashlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.errors import SourceError, UsageError, may_pass
from kafka_forensics.evidence.inputs import Inputs, gather
from kafka_forensics.evidence.options import ScanOptions, listed, nothing_there
from kafka_forensics.model.batches import NO_TIMESTAMP_TYPE, BatchColumn, Record
from kafka_forensics.model.constants import CONTROL_MASK
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.results import PartitionSummary, Read, ScanResult
from kafka_forensics.parsers.log import parse_control_record
from kafka_forensics.scanning.engine.local import Progress, scan_inputs
from kafka_forensics.scanning.judging.partitions import PartitionResult
from kafka_forensics.scanning.rereading.reader import LogReader

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_WINDOW: Final = 4096
"""Offsets read at a time while searching."""
_SEARCHED_OFFSETS: Final = 1 << 20
"""Offsets after a finding's first within which the first differing record is looked for."""
_WIDEST_WINDOW: Final = 1 << 16
_WINDOWS_READ: Final = 64
"""Windows read for the records around the difference; a log with wider gaps shows fewer."""
_FINDINGS_TRIED: Final = 32


class OffsetState(StrEnum):
    """What a replica has at an offset."""

    RECORD = "record"
    ABSENT = "absent"
    """Within its log, and not there: compacted away, or missing."""
    BEFORE_LOG_START = "before_log_start"
    IN_REMOTE_STORAGE = "in_remote_storage"
    BEYOND_LOG_END = "beyond_log_end"
    NOT_READ = "not_read"
    """Its log could not be read there."""
    UNREADABLE = "unreadable"
    """Inside a batch that cannot be decoded."""


NOT_HERE: Final = frozenset({OffsetState.BEFORE_LOG_START, OffsetState.IN_REMOTE_STORAGE, OffsetState.NOT_READ})
"""Where a replica's copy tells nothing of an offset that others have."""


@dataclass(frozen=True, slots=True)
class HeldRecord:
    """A record as one replica holds it; equal where replicas agree. -1 is "none" in every number, times are milliseconds.

    Digests are SHA-256 in hexadecimal, None for null and for what is too large to be held. `is_valid` is whether the batch's CRC is
    right. Keys, values and headers themselves are there only if asked for.
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
        """The record without what a message format does not have; headers stay, since a consumer sees them."""
        record = self
        if magic < 2:
            record = replace(record, partition_leader_epoch=-1, producer_id=-1, producer_epoch=-1, sequence=-1)
        return replace(record, timestamp=-1, timestamp_type=NO_TIMESTAMP_TYPE) if magic < 1 else record


@dataclass(frozen=True, slots=True)
class Held:
    """What one replica has at one offset; `record` is None unless `state` is RECORD."""

    broker: int | str
    state: OffsetState
    record: HeldRecord | None = None


@dataclass(frozen=True, slots=True)
class OffsetRow:
    """One offset on all replicas, in their order; `differs` where they do not all hold the same."""

    offset: int
    differs: bool
    held: list[Held]


@dataclass(slots=True)
class SideBySide:
    """The scan of one partition, the first offset at which its replicas differ (None: they do not), and what lies around it."""

    result: ScanResult
    first_difference: int | None = None
    rows: list[OffsetRow] = field(default_factory=list)

    @property
    def partition(self) -> PartitionSummary:
        """The one partition that was compared."""
        return self.result.partitions[0]


def compare(
    paths: list[str], options: ScanOptions, *, context: int = 3, payloads: bool = False, progress: Progress | None = None
) -> SideBySide:
    """Compare the replicas of the one partition that `options` leave, with `context` records before and after the difference.

    Raises UsageError for paths that make no sense, if not exactly one partition is left, and if only one replica of it is there.
    """
    inputs = _chosen(paths, options)
    first: list[int | None] = [None]
    rows: list[OffsetRow] = []

    def look(replicas: list[Replica], reader: LogReader, result: PartitionResult) -> None:
        sides = [_Side(replica, reader, payloads=False) for replica in replicas]
        first[0] = _first_difference(sides, result)
        if first[0] is not None:
            rows.extend(_around([replace(side, payloads=payloads) for side in sides], first[0], context))

    result = scan_inputs(inputs, options, progress, look)
    ours = (result.partitions[0].topic, result.partitions[0].partition)
    result.findings = [finding for finding in result.findings if _bears_on(finding, ours)]
    return SideBySide(result, first[0], rows)


def _bears_on(finding: Finding, partition: tuple[str, int]) -> bool:
    place = finding.place
    return (place.topic, place.partition) == partition or (
        place.topic is None and finding.kind in kinds_with(Trait.BEARS_ON_ALL_PARTITIONS)
    )


def _chosen(paths: list[str], options: ScanOptions) -> Inputs:
    """The inputs with the replicas of one partition, at least two of them."""
    inputs = gather(paths, options)
    partitions = _partitions(inputs)
    if len(inputs.replicas) < 2 and inputs.incomplete:
        gap = next((gap for gap in inputs.incomplete if may_pass(gap.reason)), inputs.incomplete[0])
        raise SourceError(gap.path, gap.reason)
    if not partitions:
        raise nothing_there(
            _partitions(gather(paths, ScanOptions(broker=options.broker, storage_options=options.storage_options))), options
        )
    if len(partitions) > 1:
        hint = f"choose with --topic and --partition from {listed(f'{topic}-{number}' for topic, number in partitions)}"
        raise UsageError(f"compare takes one partition, {len(partitions)} are there", hint=hint)
    if len(inputs.replicas) < 2:
        (topic, number), broker = partitions[0], inputs.replicas[0].context.broker
        more = "give the log directories of the other brokers too"
        if options.broker is not None:
            more = "leave out --broker, with which no other broker is looked at"
        raise UsageError(f"there is one replica of {topic}-{number} only, that of broker {broker}", hint=more)
    return inputs


def _partitions(inputs: Inputs) -> list[tuple[str, int]]:
    """Every partition that is there, those of internal topics last."""
    every = {(plan.context.topic, plan.context.partition) for plan in inputs.replicas}
    return sorted(every, key=lambda partition: (partition[0].startswith("__"), partition))


@dataclass(frozen=True, slots=True)
class _Between:
    """Records of a range by their offsets, None in batches that cannot be decoded, and the offsets `[start, end)` of these.

    Of such a batch no more offsets are listed than it has bytes: it may claim 2^31.
    """

    records: dict[int, HeldRecord | None]
    unreadable: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class _Side:
    """One replica and its log, to be read again."""

    replica: Replica
    reader: LogReader
    payloads: bool

    def between(self, start: int, end: int) -> "_Between":
        """What it holds of `[start, end)`."""
        records: dict[int, HeldRecord | None] = {}
        unreadable: list[tuple[int, int]] = []
        if self.replica.read is Read.NONE:
            return _Between(records, unreadable)
        for row in self.reader.batches(self.replica, start, end).T:
            decoded = self.reader.decoded(self.replica, row)
            for record in () if decoded is None else decoded.iter_records():
                if start <= record.offset < end:
                    records.setdefault(record.offset, _held_record(record, row, payloads=self.payloads))
            if decoded is None or decoded.problems:
                claimed = max(int(row[BatchColumn.BASE_OFFSET]), start), min(int(row[BatchColumn.LAST_OFFSET]) + 1, end)
                for offset in range(claimed[0], min(claimed[1], claimed[0] + int(row[BatchColumn.SIZE_IN_BYTES]))):
                    records.setdefault(offset, None)
                unreadable.append(claimed)
        return _Between(records, unreadable)

    def held(self, offset: int, between: "_Between") -> Held:
        """What is at `offset`, by what `between` gave."""
        broker, records = self.replica.broker, between.records
        if offset in records:
            record = records[offset]
            return Held(broker, OffsetState.UNREADABLE if record is None else OffsetState.RECORD, record)
        if any(start <= offset < end for start, end in between.unreadable):
            return Held(broker, OffsetState.UNREADABLE)
        if self.replica.read is Read.NONE:
            return Held(broker, OffsetState.NOT_READ)
        if offset < self.replica.log_start_offset:
            return Held(broker, OffsetState.BEFORE_LOG_START)
        if offset < self.replica.local_log_start_offset:
            return Held(broker, OffsetState.IN_REMOTE_STORAGE)
        if self.replica.state.unread:
            return Held(broker, OffsetState.NOT_READ)
        return Held(broker, OffsetState.BEYOND_LOG_END if offset >= self.replica.log_end_offset else OffsetState.ABSENT)


def _held_record(record: Record, row: "NDArray[np.int64]", *, payloads: bool) -> HeldRecord:
    control = None
    if int(row[BatchColumn.MAGIC]) >= 2 and int(row[BatchColumn.ATTRIBUTES]) & CONTROL_MASK:
        control = parse_control_record(record.key, record.value).name
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
        _digest(_joined(record.headers)) if record.headers else None,
        bool(row[BatchColumn.CRC] == row[BatchColumn.CRC_COMPUTED]),
        int(row[BatchColumn.MAGIC]),
        *((record.key, record.value, record.headers) if payloads else ()),
    )


def _digest(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()


def _joined(headers: tuple[tuple[bytes, bytes | None], ...]) -> bytes:
    """Headers as bytes that are equal only for equal headers: every part behind its length, -1 for null."""
    parts = [part for header in headers for part in header]
    return b"".join(b"%d:%b" % (-1 if part is None else len(part), part or b"") for part in parts)


def _first_difference(sides: list[_Side], result: PartitionResult) -> int | None:
    """The first differing record behind the places that findings name, else where the shortest log ends, None if all end alike."""
    compacted = any(side.replica.context.compacted for side in sides)
    for start, end in _suspects(sides, result):
        for offset, held in _read(sides, start, min(end, start + _SEARCHED_OFFSETS), lambda _: _WINDOW):
            if _contradict(held, compacted=compacted):
                return offset
    conflicts = [finding.place.offset_start for finding in result.findings if finding.kind in kinds_with(Trait.PARTS_REPLICAS)]
    if known := [offset for offset in conflicts if offset is not None]:
        return min(known)
    ends = {side.replica.log_end_offset for side in sides if side.replica.end_is_known}
    return min(ends) if len(ends) > 1 else None


def _suspects(sides: list[_Side], result: PartitionResult) -> list[tuple[int, int]]:
    """Ranges of offsets that may hold a difference, in order; conflicts alone if there is one."""
    if result.summary.agreement.kind == "not_compared":
        read = [side.replica for side in sides if side.replica.read is not Read.NONE]
        return (
            [(max(replica.local_log_start_offset for replica in read), min(replica.log_end_offset for replica in read))]
            if len(read) > 1
            else []
        )
    placed = [finding for finding in result.findings if finding.place.offset_start is not None]
    chosen = [finding for finding in placed if finding.kind in kinds_with(Trait.PARTS_REPLICAS)] or [
        finding for finding in placed if finding.severity.rank > 0
    ]
    ranges = {
        (finding.place.offset_start or 0, finding.place.offset_end or (finding.place.offset_start or 0) + 1) for finding in chosen
    }
    return sorted(ranges)[:_FINDINGS_TRIED]


def _contradict(held: list[Held], *, compacted: bool) -> bool:
    """Whether replicas that should hold an offset hold different things; what the cleaner may have removed is no difference."""
    cleaned = {OffsetState.ABSENT} if compacted else set()
    return are_several(held, {*NOT_HERE, OffsetState.BEYOND_LOG_END} | cleaned)


def are_several(held: list[Held], beside: Collection[OffsetState]) -> bool:
    """Whether replicas, but for those in states `beside`, hold different things at an offset, as far as all their message formats
    can hold them."""
    states = [here for here in held if here.state not in beside]
    oldest = min((here.record.magic for here in states if here.record is not None), default=2)
    return len({(here.state, None if here.record is None else here.record.in_format(oldest)) for here in states}) > 1


def _read(
    sides: list[_Side], start: int, end: int, width: Callable[[int], int], *, backwards: bool = False
) -> Iterator[tuple[int, list[Held]]]:
    """Every offset of `[start, end)` that some replica holds, window by window: `width` of the n-th, wider behind empty ones."""
    number = empty = 0
    while start < end:
        size = width(number) << empty
        low, high = (max(end - size, start), end) if backwards else (start, min(start + size, end))
        betweens = [side.between(low, high) for side in sides]
        empty = 0 if any(between.records for between in betweens) else empty + 1
        for offset in sorted(set().union(*(between.records for between in betweens)), reverse=backwards):
            yield offset, [side.held(offset, between) for side, between in zip(sides, betweens, strict=True)]
        start, end = (start, low) if backwards else (high, end)
        number += 1


def _around(sides: list[_Side], first: int, context: int) -> list[OffsetRow]:
    """`context` offsets before `first`, those from it on, and `context` behind it."""

    def width(number: int) -> int:
        return min(_WIDEST_WINDOW, 2 * (context + 1) << min(number, 16))

    reach = sum(map(width, range(_WINDOWS_READ)))
    lowest = max(min(side.replica.first_batch_offset for side in sides), first - reach, 0)
    highest = min(max(side.replica.log_end_offset for side in sides), first + reach)
    before = _some(_read(sides, lowest, first, width, backwards=True), context)
    after = _some(_read(sides, first, highest, width), context + 1)
    rows = [*reversed(before), *after]
    return [OffsetRow(offset, _differs(held), held) for offset, held in rows]


def _some(rows: Iterator[tuple[int, list[Held]]], count: int) -> list[tuple[int, list[Held]]]:
    return [row for _, row in zip(range(count), rows, strict=False)]


def _differs(held: list[Held]) -> bool:
    return are_several(held, NOT_HERE)
