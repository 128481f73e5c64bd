"""All folds of one replica in one pass: the state of a stretch of its log, and the summary when the log is whole."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kafka_forensics.analysis.epochs import EpochsFold, epoch_starts
from kafka_forensics.analysis.placement import KeyPlacementFold
from kafka_forensics.analysis.producers import EpochBumps, ProducersFold
from kafka_forensics.analysis.replica.digests import BlockDigests
from kafka_forensics.analysis.replica.recovery_walk import RecoveryFold
from kafka_forensics.analysis.segments import (
    BadEntry,
    ContinuityFold,
    Course,
    FramingFold,
    IndexFold,
    Irregularity,
    Misplaced,
    Run,
    ZeroTail,
    judge,
    last_in_doubt,
    out_of_line,
    put_right,
    survey,
)
from kafka_forensics.analysis.transactions import OpenTransaction, TransactionsFold
from kafka_forensics.evidence.context import ReplicaContext
from kafka_forensics.model.batches import BatchChunk
from kafka_forensics.model.files import EpochEntry, OffsetIndex, TimeIndex
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.results import Read, RecoveryOutlook

_LOSING = frozenset({"FRAMING_LOST", "SEG_HOLE", "BUDGET_EXCEEDED", "SEG_TORN_TAIL", "BATCH_CRC_MISMATCH"})


class ReplicaState:
    """State of every fold over one stretch of a replica's log; `merge` adds the stretch that follows."""

    def __init__(
        self,
        segment_base_offset: int,
        *,
        compacted: bool,
        index: OffsetIndex | None = None,
        time_index: TimeIndex | None = None,
        moved: Mapping[int, int] | None = None,
    ) -> None:
        """`moved` are the right base offsets of batches where another is written, by byte position."""
        self._segment = segment_base_offset
        self._moved = moved or {}
        self.framing = FramingFold(segment_base_offset)
        self.recovery = RecoveryFold(segment_base_offset)
        self.continuity = ContinuityFold(segment_base_offset, compacted=compacted)
        self.epochs = EpochsFold(segment_base_offset)
        self.digests = BlockDigests()
        self.producers = ProducersFold(segment_base_offset)
        self.transactions = TransactionsFold(segment_base_offset)
        self.keys = KeyPlacementFold()
        self.index: IndexFold | None = IndexFold(segment_base_offset, index, time_index)
        self.bad_entries: list[BadEntry] = []
        self.zero_tails: list[ZeroTail] = []
        self.bumps = EpochBumps()
        self.unread: set[int] = set()
        """Segments that could not be read to their end: nothing may be concluded from what is missing behind."""

    def give_up(self, position: int) -> None:
        """The segment could not be read from byte `position` on."""
        self.unread.add(self._segment)
        self.continuity.damage_at_end = self.continuity.damage_at_end or (self._segment, position)
        self.producers.damage()
        self.transactions.damage()
        self.index = None

    def step(self, chunk: BatchChunk) -> None:
        """Add the batches and the damage of a chunk."""
        written, chunk = chunk, put_right(chunk, self._moved) if self._moved else chunk
        seen = survey(chunk.columns) if chunk.rows else None
        self.framing.step(chunk, seen)
        self.recovery.step(written, seen if written is chunk else None)
        self.continuity.step(chunk.columns, chunk.damage, seen)
        if any(damage.kind in _LOSING for damage in chunk.damage):
            self.producers.damage()
            self.transactions.damage()
        if chunk.rows == 0:
            return
        self.epochs.step(chunk.columns, seen)
        self.digests.step(chunk.columns, seen)
        self.producers.step(chunk.columns, seen)
        if seen is None or seen.producers:
            self.transactions.step(chunk.columns)
            self.bumps.step(chunk.columns)
        if self.index is not None:
            self.index.step(chunk.columns, seen)

    @property
    def filled(self) -> bool:
        """Whether another state should take what follows, so that none holds too much."""
        return self.producers.filled or self.transactions.filled

    @property
    def size_in_bytes(self) -> int:
        """Memory that grows with the number of producers and aborted transactions."""
        return self.producers.size_in_bytes + self.transactions.size_in_bytes

    def make_room(self, right: "ReplicaState") -> None:
        """Before `right` is merged, nothing standing left of us: forget what would be too much together."""
        self.producers.make_room(right.producers)
        self.transactions.make_room(right.transactions)

    def close(self) -> None:
        """The log is whole: let go of what is not asked for any more."""
        self.producers.close()
        self.transactions.close()

    def merge(self, right: "ReplicaState") -> None:
        """Add the stretch that follows ours; a segment's indexes are judged when the next segment begins."""
        if right._segment != self._segment:
            self.close_segment()
            self.index = right.index
        elif self.index is not None and right.index is not None:
            self.index.merge(right.index)
        self.bad_entries.extend(right.bad_entries)
        self.zero_tails.extend(right.zero_tails)
        self.unread |= right.unread
        self.framing.merge(right.framing)
        self.recovery.merge(right.recovery)
        self.continuity.merge(right.continuity)
        self.epochs.merge(right.epochs)
        self.digests.merge(right.digests)
        self.producers.merge(right.producers)
        self.transactions.merge(right.transactions)
        self.bumps.merge(right.bumps)
        self.keys.merge(right.keys)
        self._segment = right._segment

    def close_segment(self) -> None:
        """Judge the indexes of the segment that ends here and let go of them."""
        if self.index is not None:
            self.bad_entries.extend(self.index.finish())
            self.zero_tails.extend(self.index.zero_tails())
            self.index = None


@dataclass(slots=True)
class Replica:
    """One replica, whole: what is known beside the log, the folded log, and what follows from both."""

    context: ReplicaContext
    state: ReplicaState
    course: Course
    log_start_offset: int
    log_end_offset: int
    epochs: list[EpochEntry]
    """As the batches show them; where none are, as the checkpoint says."""
    findings: list[Finding] = field(default_factory=list)
    recovery: RecoveryOutlook | None = None
    """What a start on this copy would make of it, once that is judged."""
    forgotten: list[OpenTransaction] = field(default_factory=list)
    """Transactions that the newest snapshot holds open and whose records retention removed; without a place in the log."""
    misplaced: tuple[Misplaced, ...] = ()
    """Batches whose base offset is wrong; the folded state has them where they belong."""
    snapshot_open: list[OpenTransaction] = field(default_factory=list)
    """Transactions that the newest snapshot holds open; without a place in the log."""
    entries_beyond: Counter[tuple[int, str]] = field(init=False)
    """(segment, `index` or `timeindex`) → entries that point beyond the segment's log."""
    gap_starts: frozenset[int] = field(init=False)
    """First missing offsets."""

    def __post_init__(self) -> None:
        """Look up once what rules ask for every segment, gap and entry."""
        bad = self.state.bad_entries
        self.entries_beyond = Counter((entry.segment, entry.file_kind) for entry in bad if entry.reason == "beyond_log")
        self.gap_starts = frozenset(
            irregularity.start for irregularity in self.course.irregularities if irregularity.kind == "OFFSET_GAP"
        )

    @property
    def broker(self) -> int | str:
        """Who holds it."""
        return self.context.broker

    @property
    def end_is_known(self) -> bool:
        """Whether the last segment was read to its end, so that `log_end_offset` is the log's and not the reader's."""
        return max(self.context.segment_base_offsets, default=-1) not in self.state.unread

    @property
    def read(self) -> Read:
        """How much of the log was read; nothing where no batch and no damage was found and a segment not read."""
        if not self.state.unread:
            return Read.WHOLE
        return Read.PART if self.state.framing.batches or self.state.framing.bytes_damaged else Read.NONE

    @property
    def first_batch_offset(self) -> int:
        """First offset of the bytes that are there, which may lie below the log start."""
        runs = self.state.continuity.runs
        return min((run.start_offset for run in runs), default=self.log_start_offset)

    def in_doubt(self) -> list[Misplaced]:
        """Batches whose base offset contradicts both their neighbours, as the log was folded."""
        runs = self.state.continuity.runs
        misplaceds = [
            Misplaced(
                *irregularity.run.last_place,
                irregularity.end - irregularity.start,
                irregularity.run.start_offset,
                irregularity.start,
                irregularity.start,
            )
            for irregularity in self.course.irregularities
            if irregularity.kind == "OFFSET_DISCONTINUITY" and irregularity.run.batches == 1
        ]
        if self.context.compacted:
            misplaceds += out_of_line(runs)
        known = {misplaced.place for misplaced in self.misplaced}
        return [
            misplaced
            for misplaced in {misplaced.place: misplaced for misplaced in misplaceds}.values()
            if misplaced.place not in known
        ]

    def last_in_doubt(self) -> Misplaced | None:
        """The last batch of the log, if it does not begin where the one before it ends, nor where its own end was put right."""
        if not self.end_is_known or self.state.continuity.damage_at_end or self.state.continuity.bad_tail:
            return None
        last = last_in_doubt(self.state.continuity.runs)
        return None if last is None or last.place in {misplaced.place for misplaced in self.misplaced} else last

    def written_end(self, segment: int, end: int) -> int:
        """Offset that Kafka reads behind the last batch of a segment, whose batches end at `end`."""
        last = next(
            (misplaced for misplaced in self.misplaced if misplaced.segment == segment and misplaced.end_offset == end), None
        )
        return end if last is None else last.written + last.offsets

    def covers(self, start: int, end: int) -> bool:
        """Whether good batches join over all of `[start, end)`; on compacted logs, over its surroundings."""
        runs: list[Run] = self.state.continuity.runs
        return any(run.start_offset <= start and end <= run.end_offset for run in runs)


def kept_from(start: int, holders: Sequence[Replica]) -> int:
    """First offset from `start` on that a log of `holders`, which are not none, still has to give: what lies below the log start of
    all of them was deleted."""
    return max(start, min(replica.log_start_offset for replica in holders))


def whole(context: ReplicaContext, state: ReplicaState, misplaced: tuple[Misplaced, ...] = ()) -> Replica:
    """The replica from its context and merged state: where its log starts and ends. `misplaced` are batches that the state has
    where they belong, and not where their base offsets say."""
    state.close_segment()
    if context.unlisted:
        state.unread.add(-1)
    runs = state.continuity.runs
    course = judge([*_named_start(context, state), *runs, *_named_end(context, state)])
    for batch in misplaced:
        there = Run(batch.written, batch.written + batch.offsets, batch.segment, batch.position, 1)
        irregular = Irregularity("OFFSET_DISCONTINUITY", batch.offset, batch.end_offset, there, batch.offset)
        course.irregularities.append(irregular)
    first = runs[0].start_offset if runs else None
    named = context.segment_base_offsets[0] if context.segment_base_offsets else 0
    start = named if first is None else min(max(first, 0), max(named, 0)) if first < named else named
    start = max(start, context.log_start_checkpoint or 0)
    end = course.end_offset if runs else max(context.segment_base_offsets, default=0)
    tail = state.continuity.bad_tail
    if tail is not None and tail.start_offset <= end < tail.end_offset:
        end = tail.end_offset
    if not state.framing.batches:
        end = max(end, start)
    epochs = epoch_starts(state.epochs, context.epoch_checkpoint, start)
    return Replica(context, state, course, start, end, epochs, misplaced=misplaced)


def _named_start(context: ReplicaContext, state: ReplicaState) -> list[Run]:
    """A run of nothing where the first segment holds no batch: its name says that the log went on from there."""
    runs, named = state.continuity.runs, min(context.segment_base_offsets, default=0)
    if not runs or named in state.framing.by_segment or named in state.unread or context.compacted:
        return []
    if context.control is not None and context.control.was_compacted:
        return []
    start = max(named, context.log_start_checkpoint or 0)
    return [Run(start, start, named, 0, 0)] if start < runs[0].start_offset else []


def _named_end(context: ReplicaContext, state: ReplicaState) -> list[Run]:
    """A run of nothing where the last segment holds no batch: its name alone says that the log went on up to there."""
    runs = state.continuity.runs
    named = max((base_offset for base_offset in context.segment_base_offsets if base_offset not in context.not_followed), default=0)
    if not runs or named in state.framing.by_segment or named <= max(run.end_offset for run in runs):
        return []
    if context.compacted:
        return [Run(runs[-1].end_offset, named, named, 0, 0)]
    damage = state.continuity.damage_at_end
    return [Run(named, named, named, 0, 0, damage if damage is not None and damage[0] < named else None)]
