"""Indexes and producer snapshots as Kafka's tool reads them: every entry that fills its place, up to the first zero one.

For `dump --format kafka-dump-log`. An index is held against its segment; what the tool would say of a difference is noted, what
ends it with an exception is a `PeerGivesUpError`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kafka_forensics.parsers.spec.index import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY
from kafka_forensics.parsers.spec.transaction_index import ABORTED_TXN
from kafka_forensics.questions.dump.kafka_dump_log.segment import PeerBatch, PeerGivesUpError, PeerLog, struct_of

if TYPE_CHECKING:
    from kafka_forensics.storage.source import ByteFile

SLICE_BYTES: Final = 5 << 20
"""What the tool reads of a segment to look an index entry up: its default of --max-message-size."""
_OFFSET_ENTRY: Final = struct_of(OFFSET_INDEX_ENTRY.subcons)
_TIME_ENTRY: Final = struct_of(TIME_INDEX_ENTRY.subcons)
_ABORTED_TXN: Final = struct_of(ABORTED_TXN.subcons)
_WINDOW_ENTRIES: Final = 4096

Note = Callable[[str, str], None]
"""Called with a heading and a line for standard error."""


@dataclass(frozen=True, slots=True)
class PeerSegment:
    """The index at hand, by its `name`, with the segment's `base_offset`, its log and, for a time index, its offset index."""

    name: str
    base_offset: int
    log: "ByteFile | None"
    log_name: str
    index: "ByteFile | None" = None

    def slice(self, position: int) -> PeerLog:
        """The log from byte `position` on. Raises PeerGivesUpError."""
        if self.log is None:
            raise PeerGivesUpError(f"{self.log_name} (No such file or directory)")
        if not 0 <= position <= self.log.size_in_bytes:
            raise PeerGivesUpError(f"Slice from position {position} exceeds end position of {self.log_name}")
        return PeerLog(self.log, self.log_name, position)


def entries_of(file: "ByteFile", entry: Any) -> Iterator[tuple[int, ...]]:
    """Every whole `entry` (a `struct.Struct`) of `file`, in windows."""
    position = 0
    while window := file.read_at(position, entry.size * _WINDOW_ENTRIES):
        whole = len(window) - len(window) % entry.size
        yield from entry.iter_unpack(window[:whole])
        position += whole
        if whole < entry.size * _WINDOW_ENTRIES:
            return


def offset_entries(file: "ByteFile", segment: PeerSegment, note: Note) -> Iterator[tuple[int, int]]:
    """(offset, position) of each entry of a `.index`, its batch looked up first (DumpLogSegments.dumpIndex)."""
    for row, (relative_offset, position) in enumerate(entries_of(file, _OFFSET_ENTRY)):
        offset = segment.base_offset + relative_offset
        if relative_offset == 0 and row:
            return
        first = next(segment.slice(position).batches(), None)
        if first is None or first.size_in_bytes > SLICE_BYTES:
            raise PeerGivesUpError("java.util.NoSuchElementException")
        if first.last_offset != offset:
            note(f"Mismatches in :{segment.name}", f"  Index offset: {offset}, log offset: {first.last_offset}")
        yield offset, position


def time_entries(file: "ByteFile", segment: PeerSegment, note: Note) -> Iterator[tuple[int, int]]:
    """(timestamp, offset) of each entry of a `.timeindex`, looked up in the segment (DumpLogSegments.dumpTimeIndex).

    For every entry the tool reads all batches to the segment's end, and ends at what it cannot read there.
    """
    looked_up = {0} if segment.index is None else {0, *(position for _, position in entries_of(segment.index, _OFFSET_ENTRY))}
    readable_from: set[int] = set()
    previous = -1
    for row, (timestamp, relative_offset) in enumerate(entries_of(file, _TIME_ENTRY)):
        offset = segment.base_offset + relative_offset
        if relative_offset == 0 and row:
            return
        log = segment.slice(_lookup(segment, offset))
        peer_batch: PeerBatch | None = None
        for batch in log.batches():
            if peer_batch is None and batch.last_offset >= offset:
                peer_batch = batch
            if peer_batch is not None and batch.position in readable_from:
                break
            if batch.position in looked_up:
                readable_from.add(batch.position)
        if peer_batch is None or peer_batch.last_offset != offset:
            words = f"Indexed offset: {offset}, found log offset: {-1 if peer_batch is None else peer_batch.last_offset}"
            note(f"The following indexed offsets are not found in :{segment.name}", words)
        else:
            _check_time(
                timestamp, max((record.timestamp for record in log.records(peer_batch)), default=-1), previous, segment, note
            )
        previous = timestamp
        yield timestamp, offset


def _check_time(timestamp: int, largest: int, previous: int, segment: PeerSegment, note: Note) -> None:
    """Hold an entry's time against the largest of its batch's records and against the entry before."""
    if largest != timestamp:
        words = f"  Index timestamp: {timestamp}, log timestamp: {largest}"
        note(f"Found timestamp mismatch in :{segment.name}", words)
    if timestamp <= previous:
        words = f"  Index timestamp: {timestamp}, Previously indexed timestamp: {previous}"
        note(f"Found out of order timestamp in :{segment.name}", words)


def _lookup(segment: PeerSegment, offset: int) -> int:
    """Position of the last entry of the offset index that is not above `offset`; 0 without one."""
    found = 0
    if segment.index is not None:
        for relative_offset, position in entries_of(segment.index, _OFFSET_ENTRY):
            if segment.base_offset + relative_offset > offset or (relative_offset == 0 and found):
                break
            found = position
    return found


def check_offset_index(file: "ByteFile", segment: PeerSegment) -> None:
    """OffsetIndex.sanityCheck. Raises PeerGivesUpError."""
    last = _last(file, _OFFSET_ENTRY)
    if last is not None and last[0] < 0:
        raise PeerGivesUpError(f"Corrupt index found, index file ({segment.name}) has a last offset below its base offset")
    _check_size(file, segment, _OFFSET_ENTRY.size, "Index file")


def check_time_index(file: "ByteFile", segment: PeerSegment) -> None:
    """TimeIndex.sanityCheck. Raises PeerGivesUpError."""
    last = _last(file, _TIME_ENTRY)
    if last is not None:
        first = next(entries_of(file, _TIME_ENTRY))[0]
        corrupt = f"Corrupt time index found, time index file ({segment.name})"
        if last[0] < first:
            raise PeerGivesUpError(f"{corrupt} has last timestamp {last[0]} which is less than the first timestamp {first}")
        if last[1] < 0:
            raise PeerGivesUpError(f"{corrupt} has a last offset below its base offset")
    _check_size(file, segment, _TIME_ENTRY.size, "Time index file")


def _check_size(file: "ByteFile", segment: PeerSegment, width: int, noun: str) -> None:
    size = file.size_in_bytes
    if size % width:
        raise PeerGivesUpError(f"{noun} {segment.name} is corrupt, found {size} bytes which is no multiple of {width}")


def is_empty_index(file: "ByteFile") -> bool:
    """Whether a `.index` holds no whole entry."""
    return file.size_in_bytes < _OFFSET_ENTRY.size


def _last(file: "ByteFile", entry: Any) -> tuple[int, ...] | None:
    """The last whole entry; None if there is none."""
    whole = file.size_in_bytes // entry.size
    if not whole:
        return None
    data = file.read_at((whole - 1) * entry.size, entry.size)
    return tuple(entry.unpack(data)) if len(data) == entry.size else None


def aborted_txns(file: "ByteFile") -> Iterator[tuple[int, ...]]:
    """(version, producer id, first, last, last stable offset) of each entry; Kafka 4.3 sees the version's high byte alone."""
    for version, *fields in entries_of(file, _ABORTED_TXN):
        if version >> 8 > 0:
            raise PeerGivesUpError(f"Unexpected aborted transaction version {version >> 8}")
        yield version >> 8, *fields
