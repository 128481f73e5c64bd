"""What two batches say together, of which each copy lost one to damage: that one was written twice, that sequence numbers leap or
go back, or epochs. A log of all copies that has both is right.

Both must stand in copies at the same offsets with the same bytes, no copy may have other good ones there, and the two copies must
be of one history: both have batches of one leader epoch at or behind the first of the two, so that their logs were the same up to
there (KIP-101), and the log of whoever has the second had the first. What a salvage brings about that joins the logs of two leaders
is not let pass: a producer sends again to the next leader what the one before had taken. Where it matters that a producer wrote
nothing between the two, all who have anything there must be of the history of the second, as far as they have it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, NamedTuple

import numpy as np

from kafka_forensics.analysis.transactions import FALLEN_TOLD
from kafka_forensics.evidence.inputs import ReplicaPlan
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.findings import Finding
from kafka_forensics.parsers.log import MAX_BATCH_BYTES, SegmentReader
from kafka_forensics.questions.salvage.slices import Source
from kafka_forensics.replication.epochs import epoch_at
from kafka_forensics.replication.offset_ranges import Ranges, clipped, holds
from kafka_forensics.rereading.seeking import chunks_until, start_position

_EARLIER: Final = {
    "DUPLICATE_BATCH": "first_offset",
    "PRODUCER_EPOCH_REGRESSION": "previous_offset",
    "PRODUCER_SEQ_GAP": "previous_offset",
    "PRODUCER_SEQ_REGRESSION": "previous_offset",
    "TXN_COORDINATOR_EPOCH_REGRESSION": "previous_marker_offset",
    "TXN_LATE_WRITE": "later_epoch_offset",
}
"""What in the evidence is an offset of the earlier batch, by kind."""
OF_TWO: Final = frozenset(_EARLIER)
"""Kinds that speak of a batch and an earlier one."""
_FALLEN: Final = "TXN_COORDINATOR_EPOCH_REGRESSION"
"""It always says how many there are; all are told up to a number."""
_IN_A_ROW: Final = frozenset({"PRODUCER_SEQ_GAP", "PRODUCER_SEQ_REGRESSION"})
"""Those that say also that the producer wrote nothing between them."""


class _Batch(NamedTuple):
    """A batch with its bytes; `byte_end` is where it ends in its segment."""

    start_offset: int
    end_offset: int
    segment: int
    byte_start: int
    byte_end: int
    data: bytes


@dataclass(frozen=True, slots=True)
class _Copy:
    """Of a copy what is asked after all partitions were written: its files, and of its good batches the offsets and epochs."""

    plan: ReplicaPlan
    good: Ranges
    searched: Ranges
    """Offsets of batches behind lost framing: the value of a record may hold the bytes of a batch."""
    epochs: tuple[EpochEntry, ...]

    def batch(self, offset: int) -> _Batch | None:
        """Its good batch that begins at an offset. Raises SourceError."""
        found = _batch(self.plan, offset)
        if found is None or found.start_offset != offset or _is_apart(self.good, offset, found.end_offset):
            return None
        return found

    def epochs_from(self, offset: int) -> set[int]:
        """Leader epochs of which it has good batches at or behind an offset."""
        at = next((max(start, offset) for start, end in self.good if end > offset), None)
        first = None if at is None else epoch_at(self.epochs, at)
        begun = {
            entry.leader_epoch for entry in self.epochs if entry.start_offset >= offset and holds(self.good, entry.start_offset)
        }
        return {epoch for epoch in (*begun, *(() if first is None else (first,))) if epoch >= 0}


class WrittenApart:
    """The copies of one partition from which a log was put together; `differing` as in `PlanPartition`, by their numbers.

    Raises SourceError where one cannot be read.
    """

    def __init__(self, sources: Sequence[Source], differing: Mapping[tuple[int, int], Ranges]) -> None:
        self._differing = differing
        self._copies = [_Copy(source.plan, source.good, source.searched(), tuple(source.replica.epochs)) for source in sources]

    def explains(self, finding: Finding, written: ReplicaPlan) -> bool:
        """Whether a finding in the log that was written names two batches that both stand so in the copies taken together.

        A finding that stands for others, which nobody can look at, is none. Raises SourceError.
        """
        earlier, later = finding.evidence.get(_EARLIER.get(finding.kind, "")), finding.place.offset_start
        if not isinstance(earlier, int) or later is None or earlier >= later or _stands_for_others(finding):
            return False
        first, second = _batch(written, earlier), _batch(written, later)
        if first is None or second is None or second.start_offset != later:
            return False
        start, end = first.start_offset, second.end_offset
        between = (first.end_offset, later if finding.kind in _IN_A_ROW else first.end_offset)
        return any(
            self._are_of_one_log(ours, theirs, start, end)
            and all(self._are_of_one_log(number, theirs, last, end) for number, last in self._having(*between))
            for ours, theirs in product(self._holders(first), self._holders(second))
        )

    def _having(self, start: int, end: int) -> list[tuple[int, int]]:
        """Who has good batches of some offsets, each with the last of these that it has."""
        found = [(number, clipped(copy.good, start, end)) for number, copy in enumerate(self._copies)]
        return [(number, ranges[-1][1] - 1) for number, ranges in found if ranges]

    def _holders(self, batch: _Batch) -> list[int]:
        """Whose good batch at its offset has these bytes; nobody if another copy has a good one that has not."""
        found = []
        for number, _ in self._having(batch.start_offset, batch.end_offset):
            copy = self._copies[number]
            theirs = copy.batch(batch.start_offset)
            if theirs is None or theirs.data != batch.data:
                return []
            if not clipped(copy.searched, batch.start_offset, batch.end_offset) or self._is_framed(number, theirs):
                found.append(number)
        return found

    def _is_framed(self, number: int, batch: _Batch) -> bool:
        """Whether a batch ends where one begins that another copy has, too: none that a record holds does."""
        behind = self._copies[number].batch(batch.end_offset)
        if behind is None or (behind.segment, behind.byte_start) != (batch.segment, batch.byte_end):
            return False
        others = (copy.batch(batch.end_offset) for at, copy in enumerate(self._copies) if at != number)
        return any(other is not None and other.data == behind.data for other in others)

    def _are_of_one_log(self, one: int, other: int, start: int, end: int) -> bool:
        """Whether two copies are of one history as far as two batches reach, of which each has one."""
        if one == other:
            return True
        if clipped(self._differing.get((min(one, other), max(one, other)), ()), 0, end):
            return False
        return not self._copies[one].epochs_from(start).isdisjoint(self._copies[other].epochs_from(start))


def _stands_for_others(finding: Finding) -> bool:
    """Whether there are more of its kind than are told."""
    occurrences: int = finding.evidence.get("occurrences", 0)
    return occurrences > (FALLEN_TOLD if finding.kind == _FALLEN else 0)


def _is_apart(ranges: Ranges, start: int, end: int) -> bool:
    """Whether offsets are not all in a set."""
    return clipped(ranges, start, end) != ((start, end),)


def _batch(plan: ReplicaPlan, offset: int) -> _Batch | None:
    """The batch of a log that holds an offset and whose CRC is right. Raises SourceError."""
    segment = plan.directory.segment_of(offset)
    if segment is None or segment.log is None:
        return None
    source = plan.log_dir.source
    with source.open(segment.log.path) as file:
        start = 0
        if segment.index is not None:
            with source.open(segment.index.path) as index:
                start = start_position(file, index, segment.base_offset, offset)
        for chunk in chunks_until(SegmentReader(file), start, file.size_in_bytes, offset + 1):
            columns = chunk.columns
            is_it = (columns[BatchColumn.BASE_OFFSET] <= offset) & (columns[BatchColumn.LAST_OFFSET] >= offset)
            rows = np.flatnonzero(is_it & (columns[BatchColumn.CRC] == columns[BatchColumn.CRC_COMPUTED]))
            if rows.size:
                facts = columns[:, rows[0]]
                position, size = int(facts[BatchColumn.POSITION]), int(facts[BatchColumn.SIZE_IN_BYTES])
                if size > MAX_BATCH_BYTES:
                    return None
                data = file.read_at(position, size)
                start_offset, last_offset = int(facts[BatchColumn.BASE_OFFSET]), int(facts[BatchColumn.LAST_OFFSET])
                return _Batch(start_offset, last_offset + 1, segment.base_offset, position, position + size, data)
    return None
