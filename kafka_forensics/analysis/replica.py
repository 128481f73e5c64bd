"""One replica: all folds over its log in one pass, and the summary of the log and of the files beside it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kafka_forensics.analysis.epochs import EpochsFold, add_remote_epochs, epoch_starts
from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.analysis.placement import KeyPlacementFold
from kafka_forensics.analysis.producers import EpochBumps, ProducersFold
from kafka_forensics.analysis.segments import (
    BadEntry,
    ChunkFacts,
    ContinuityFold,
    FramingFold,
    IndexFold,
    MisplacedBatch,
    OffsetAnomaly,
    OffsetSequence,
    Run,
    ZeroTail,
    chunk_facts,
    correct_base_offsets,
    doubtful_last_batch,
    judge,
    misplaced_in_cleaned_log,
)
from kafka_forensics.analysis.transactions import OpenTransaction, TransactionsFold
from kafka_forensics.evidence.context import ReplicaContext
from kafka_forensics.model.batches import BatchChunk, BatchColumn, Damage
from kafka_forensics.model.constants import HEADER_SIZE_UP_TO_MAGIC, LEGACY_V0_OVERHEAD, MAX_RELATIVE_OFFSET
from kafka_forensics.model.files import EpochEntry, OffsetIndex, ProducerEntry, TimeIndex
from kafka_forensics.model.findings import Place
from kafka_forensics.model.offset_ranges import Ranges, normalised
from kafka_forensics.model.results import ReadExtent, RecoveryOutlook
from kafka_forensics.replication.recovery import (
    BATCH_BEYOND_FILE,
    BATCH_INVALID,
    HEADER_CUT,
    LENGTH_TOO_SMALL,
    OFFSET_OVERFLOW,
    RecoveryStop,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ENDS_RECOVERY: Final = kinds_with(Trait.RECORDS_IN_DOUBT) | {"SEG_ZERO_TAIL"}
OPEN_KEPT: Final = 1 << 10
"""Open transactions taken from a producer snapshot, the oldest first."""


class WalkEnd(Struct, frozen=True):
    """The first byte of a segment that recovery cuts off, and the number of the check that fails there.

    `last_offset` is that of the batch before it, None if the folded bytes hold none; `batches` counts the segment's batches that
    begin at or before it.
    """

    position: int
    check: int
    last_offset: int | None
    batches: int


class RecoveryFold:
    """State: where Kafka's recovery (LogSegment.recover) would cut each segment, and the last offset of the current segment."""

    def __init__(self, segment_base_offset: int) -> None:
        self._segment = segment_base_offset
        self._last_offset: int | None = None
        self._batches = 0
        self.ends: dict[int, WalkEnd] = {}

    def stop(self, segment: int) -> RecoveryStop | None:
        """Where recovery stops in a segment that was folded whole; None if it reaches the segment's end."""
        end = self.ends.get(segment)
        return (
            None
            if end is None
            else RecoveryStop(end.position, segment if end.last_offset is None else end.last_offset + 1, end.check)
        )

    def step(self, chunk: BatchChunk, facts: ChunkFacts) -> None:
        """Add the batches and the damage of a chunk."""
        last = chunk.columns[BatchColumn.LAST_OFFSET]
        plain = facts.joined and not chunk.damage
        inside = plain and self._segment <= int(last[0]) and int(last[-1]) - self._segment <= MAX_RELATIVE_OFFSET
        if self._segment not in self.ends and not inside:
            self._find_end(chunk)
        if last.size:
            self._last_offset = int(last[-1])
            self._batches += last.size

    def _find_end(self, chunk: BatchChunk) -> None:
        """Record the first place in the chunk at which recovery ends, if there is one."""
        ends = [(damage.position, _failed_check(damage)) for damage in chunk.damage if _ends_recovery(damage)]
        columns = chunk.columns
        relative = columns[BatchColumn.LAST_OFFSET] - self._segment
        if relative.size and (int(relative.max()) > MAX_RELATIVE_OFFSET or int(relative.min()) < 0):
            row = int(((relative > MAX_RELATIVE_OFFSET) | (relative < 0)).argmax())
            ends.append((int(columns[BatchColumn.POSITION, row]), OFFSET_OVERFLOW))
        if not ends:
            return
        position, check = min(ends)
        before = int((columns[BatchColumn.POSITION] < position).sum())
        last_offset = int(columns[BatchColumn.LAST_OFFSET, before - 1]) if before else self._last_offset
        through = int((columns[BatchColumn.POSITION] <= position).sum())
        self.ends[self._segment] = WalkEnd(position, check, last_offset, self._batches + through)

    def merge(self, right: "RecoveryFold") -> None:
        """Add the state of the bytes that follow ours."""
        for segment, end in right.ends.items():
            if segment == self._segment:
                before = self._last_offset if end.last_offset is None else end.last_offset
                end = replace(end, last_offset=before, batches=self._batches + end.batches)
            self.ends.setdefault(segment, end)
        if right._segment != self._segment:
            self._last_offset = None
            self._batches = 0
        self._segment = right._segment
        self._batches += right._batches
        self._last_offset = self._last_offset if right._last_offset is None else right._last_offset


def _ends_recovery(damage: Damage) -> bool:
    """Whether Kafka's recovery stops at this damage: it reads any magic byte from 2 to 127 as 2, all others as legacy."""
    if damage.kind == "BATCH_MAGIC_REGRESSION":
        return "crc_is_right_as_magic" in damage.detail
    if damage.kind == "BATCH_MAGIC_UNKNOWN":
        return int(str(damage.detail.get("magic", 0))) > 127
    return damage.kind in _ENDS_RECOVERY


def _failed_check(damage: Damage) -> int:
    """The number of the check of LogSegment.recover that fails at this damage."""
    detail = damage.detail
    if damage.kind == "SEG_ZERO_TAIL":
        return LENGTH_TOO_SMALL if damage.size_in_bytes > HEADER_SIZE_UP_TO_MAGIC else HEADER_CUT
    if damage.kind == "SEG_TORN_TAIL" and detail.get("reason") == "header":
        return HEADER_CUT
    if damage.kind == "SEG_TORN_TAIL" or detail.get("runs_past_end"):
        return BATCH_BEYOND_FILE
    declared = detail.get("declared_length")
    if isinstance(declared, int) and declared < LEGACY_V0_OVERHEAD:
        return LENGTH_TOO_SMALL
    return BATCH_INVALID


# Digests of a log in blocks of offsets, for comparing replicas without moving their data.
#
# A block is a range of 2^shift offsets; a batch belongs to the block of its last offset. A digest is the number of batches and the
# sums of the four 32-bit parts of their keyed hashes, so the digests of the parts of a log add up. The sums need no carries: those
# of 2^31 batches fit an int64.

FIRST_SHIFT: Final = 16
MAX_BLOCKS: Final = 1 << 18
_LAST_OFFSET: Final = int(BatchColumn.LAST_OFFSET)
_HIGH: Final = int(BatchColumn.HASH_HIGH)
_LOW: Final = int(BatchColumn.HASH_LOW)
_PARTS: Final = 5


def add_batches(columns: "NDArray[np.int64]", first_block: int, shift: int, sums: "NDArray[np.int64]") -> None:
    """Add every batch to its block's row of `sums` (blocks, 5), which must have rows for all blocks."""
    blocks = (columns[_LAST_OFFSET] >> shift) - first_block
    starts = np.flatnonzero(np.concatenate((blocks[:1] == blocks[:1], blocks[1:] != blocks[:-1])))  # most batches share a block
    added = np.empty((_PARTS, starts.size), np.int64)
    added[0] = np.diff(starts, append=blocks.size)
    for part, half in ((1, columns[_HIGH]), (3, columns[_LOW])):
        added[part] = np.add.reduceat(half & 0xFFFFFFFF, starts)
        added[part + 1] = np.add.reduceat((half >> 32) & 0xFFFFFFFF, starts)
    np.add.at(sums, blocks[starts], added.T)


class BlockDigests:
    """State: `sums` (blocks, 5) int64 for the blocks from `first_block` on, each of 2^`shift` offsets."""

    def __init__(self) -> None:
        self.shift = FIRST_SHIFT
        self.first_block = 0
        self.sums: NDArray[np.int64] = np.zeros((0, _PARTS), np.int64)

    def step(self, columns: "NDArray[np.int64]", facts: ChunkFacts) -> None:
        """Add the batches of a chunk. Negative (hostile) offsets count in block 0."""
        if columns.shape[1] == 0:
            return
        last = columns[_LAST_OFFSET]
        if facts.joined:
            low, high = int(last[0]), int(last[-1])
        else:
            low, high = int(last.min()), int(last.max())
        if low < 0:
            columns = columns.copy()
            np.maximum(columns[_LAST_OFFSET], 0, out=columns[_LAST_OFFSET])
            low, high = max(low, 0), max(high, 0)
        self._cover(low, high)
        add_batches(columns, self.first_block, self.shift, self.sums)

    def _cover(self, low: int, high: int) -> None:
        """Add rows for the blocks of offsets `low` to `high`; coarsen the blocks while there are too many."""
        while True:
            first, end = low >> self.shift, (high >> self.shift) + 1
            if len(self.sums):
                first, end = min(first, self.first_block), max(end, self.first_block + len(self.sums))
            if end - first <= MAX_BLOCKS:
                break
            self.coarsen(self.shift + 1)
        if len(self.sums) and first == self.first_block and end == self.first_block + len(self.sums):
            return
        grown = np.zeros((end - first, _PARTS), np.int64)
        if len(self.sums):
            start = self.first_block - first
            grown[start : start + len(self.sums)] = self.sums
        self.first_block, self.sums = first, grown

    def coarsen(self, shift: int) -> None:
        """Add up neighbouring blocks until a block has 2^`shift` offsets."""
        while self.shift < shift:
            lead = self.first_block & 1
            padded = np.zeros(((len(self.sums) + lead + 1) // 2 * 2, _PARTS), np.int64)
            padded[lead : lead + len(self.sums)] = self.sums
            self.sums = padded[0::2] + padded[1::2]
            self.first_block >>= 1
            self.shift += 1

    def merge(self, right: "BlockDigests") -> None:
        """Add the digests of another part of the same log."""
        if not len(right.sums):
            return
        shift = max(self.shift, right.shift)
        self.coarsen(shift)
        right.coarsen(shift)
        start = right.first_block << shift
        self._cover(start, ((right.first_block + len(right.sums)) << shift) - 1)
        right.coarsen(self.shift)
        row = right.first_block - self.first_block
        self.sums[row : row + len(right.sums)] += right.sums


def differing_blocks(left: BlockDigests, right: BlockDigests, start: int, end: int) -> list[tuple[int, int]]:
    """Ranges of offsets in `[start, end)` to read again: runs of blocks whose digests differ.

    Equal digests prove equal batches, even of a block that the range covers only in part; different digests of such a block prove
    nothing. Both states must have been hashed with the same scan's key.
    """
    if start >= end or equal_digests(left, right):
        return []
    shift = max(left.shift, right.shift)
    while (end - 1 >> shift) - (start >> shift) >= MAX_BLOCKS:
        shift += 1
    left.coarsen(shift)
    right.coarsen(shift)
    first, last = start >> shift, (end - 1) >> shift
    differs = np.any(_rows(left, first, last) != _rows(right, first, last), axis=1)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], differs, [False])).astype(np.int8)))
    ranges = zip(edges[0::2].tolist(), edges[1::2].tolist(), strict=True)
    return [(max((first + a) << shift, start), min((first + b) << shift, end)) for a, b in ranges]


def equal_digests(left: BlockDigests, right: BlockDigests) -> bool:
    """Whether all digests are equal: then the logs hold equal batches. Most replicas do."""
    places = (left.shift, left.first_block, left.sums.shape) == (right.shift, right.first_block, right.sums.shape)
    return places and bool((left.sums == right.sums).all())


def _rows(digests: BlockDigests, first: int, last: int) -> "NDArray[np.int64]":
    """Sums of blocks `first` to `last`, inclusive; zeros for blocks without batches."""
    rows = np.zeros((last - first + 1, _PARTS), np.int64)
    low, high = max(first, digests.first_block), min(last + 1, digests.first_block + len(digests.sums))
    if low < high:
        rows[low - first : high - first] = digests.sums[low - digests.first_block : high - digests.first_block]
    return rows


class ReplicaState:
    """State of every fold over a part of a replica's log; `merge` adds the part that follows."""

    def __init__(
        self,
        segment_base_offset: int,
        *,
        compacted: bool,
        index: OffsetIndex | None = None,
        time_index: TimeIndex | None = None,
        moved: Mapping[int, int] | None = None,
    ) -> None:
        """`moved`: byte position of a batch with a wrong base offset → its right base offset."""
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
        """Base offsets of segments not read to their end: what is missing there proves nothing."""

    def note_unread(self, position: int) -> None:
        """Record that the segment could not be read from byte `position` on."""
        self.unread.add(self._segment)
        self.continuity.damage_at_end = self.continuity.damage_at_end or (self._segment, position)
        self.producers.damage()
        self.transactions.damage()
        self.index = None

    def step(self, chunk: BatchChunk) -> None:
        """Add the batches and the damage of a chunk."""
        facts = chunk_facts(chunk.columns)
        self.recovery.step(chunk, facts)
        if self._moved:
            chunk = correct_base_offsets(chunk, self._moved)
            facts = chunk_facts(chunk.columns)
        self.framing.step(chunk, facts)
        self.continuity.step(chunk.columns, chunk.damage, facts)
        if any(damage.kind in kinds_with(Trait.RECORDS_IN_DOUBT) for damage in chunk.damage):
            self.producers.damage()
            self.transactions.damage()
        if chunk.rows == 0:
            return
        self.epochs.step(chunk.columns, facts)
        self.digests.step(chunk.columns, facts)
        self.producers.step(chunk.columns, facts)
        if facts.producers:
            self.transactions.step(chunk.columns)
            self.bumps.step(chunk.columns)
        if self.index is not None:
            self.index.step(chunk.columns, facts)

    @property
    def filled(self) -> bool:
        """Whether this state is full: a new state takes the batches that follow, to bound the memory."""
        return self.producers.filled or self.transactions.filled

    @property
    def size_in_bytes(self) -> int:
        """Memory that grows with the producers and aborted transactions."""
        return self.producers.size_in_bytes + self.transactions.size_in_bytes

    def make_room(self, right: "ReplicaState") -> None:
        """Before `right` is merged into this state, which begins with the log: forget what exceeds the limits together."""
        self.producers.make_room(right.producers)
        self.transactions.make_room(right.transactions)

    def close(self) -> None:
        """Drop what is no longer needed once the whole log was merged."""
        self.producers.close()
        self.transactions.close()

    def merge(self, right: "ReplicaState") -> None:
        """Add the state of the part that follows ours; a segment's indexes are judged when the next segment begins."""
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
        """Judge and drop the indexes of the segment that ends here."""
        if self.index is not None:
            self.bad_entries.extend(self.index.finish())
            self.zero_tails.extend(self.index.zero_tails())
            self.index = None


@dataclass(slots=True)
class Replica:
    """One replica: its context, the state of its folded log, and what follows from both."""

    context: ReplicaContext
    state: ReplicaState
    offset_sequence: OffsetSequence
    log_start_offset: int
    """First readable offset; in a tiered topic the records before `local_log_start_offset` are in remote storage."""
    log_end_offset: int
    epochs: list[EpochEntry]
    """From the batches and, where these are missing, from the checkpoint."""
    local_log_start_offset: int
    """Where the segments on the disk begin: equals the log start, except in tiered topics."""
    is_tiered: bool = False
    recovery: RecoveryOutlook | None = None
    """What a broker that starts on this copy makes of the log; None until that is computed."""
    recovery_once_repaired: RecoveryOutlook | None = None
    """The same after small files that prevent the start were moved away or rewritten."""
    forgotten: list[OpenTransaction] = field(default_factory=list)
    """Transactions open in the newest snapshot whose records retention removed; without a place in the log."""
    misplaced: tuple[MisplacedBatch, ...] = ()
    """Batches with a wrong base offset; the folded state has them at the right one."""
    snapshot_open: list[OpenTransaction] = field(default_factory=list)
    """Transactions open in the newest snapshot; without a place in the log."""
    index_entries_beyond_log: Counter[tuple[int, str]] = field(init=False)
    """(segment, `index` or `timeindex`) → entries that point beyond the segment's log."""
    gap_starts: frozenset[int] = field(init=False)
    """First missing offsets."""

    def __post_init__(self) -> None:
        """Compute once what rules look up for every segment, gap and entry."""
        bad = self.state.bad_entries
        self.index_entries_beyond_log = Counter((entry.segment, entry.file_kind) for entry in bad if entry.reason == "beyond_log")
        self.gap_starts = frozenset(start for start, _ in self.offset_sequence.gaps())

    @property
    def broker(self) -> int | str:
        """The broker of this copy."""
        return self.context.broker

    @property
    def end_is_known(self) -> bool:
        """Whether the last segment was read to its end; else the log may go on after `log_end_offset`."""
        return max(self.context.segment_base_offsets, default=-1) not in self.state.unread

    @property
    def read(self) -> ReadExtent:
        """How much of the log was read; NONE if a segment was not read and no batch and no damage was found."""
        if not self.state.unread:
            return ReadExtent.WHOLE
        return ReadExtent.PART if self.state.framing.batches or self.state.framing.bytes_damaged else ReadExtent.NONE

    @property
    def good_ranges(self) -> Ranges:
        """Offsets of the good batches on the disk."""
        return normalised((run.start_offset, run.end_offset) for run in self.state.continuity.runs)

    @property
    def first_batch_offset(self) -> int:
        """First offset of the batches on the disk, which may lie below the log start."""
        runs = self.state.continuity.runs
        return min((run.start_offset for run in runs), default=self.log_start_offset)

    @property
    def first_held_offset(self) -> int:
        """First offset that it holds, on its disk or in remote storage."""
        return self.log_start_offset if self.is_tiered else self.first_batch_offset

    @property
    def remote(self) -> Ranges:
        """Offsets `[start, end)` of its log that are only in remote storage: at most one range."""
        start, end = self.log_start_offset, self.local_log_start_offset
        return ((start, end),) if start < end else ()

    def in_doubt(self) -> list[MisplacedBatch]:
        """Batches of the folded log whose base offset contradicts both neighbours, each once, without those in `misplaced`."""
        found = [
            MisplacedBatch(*wrong.run.last_place, wrong.end - wrong.start, wrong.run.start_offset, wrong.start, wrong.start)
            for wrong in self.offset_sequence.anomalies
            if wrong.kind == "OFFSET_DISCONTINUITY" and wrong.run.batches == 1
        ]
        if self.context.compacted:
            found += misplaced_in_cleaned_log(self.state.continuity.runs)
        moved = {batch.place for batch in self.misplaced}
        return [batch for batch in {batch.place: batch for batch in found}.values() if batch.place not in moved]

    def doubtful_last_batch(self) -> MisplacedBatch | None:
        """The last batch of the log, unless it begins where the batch before it ends or is in `misplaced`."""
        if not self.end_is_known or self.state.continuity.damage_at_end or self.state.continuity.bad_tail:
            return None
        last = doubtful_last_batch(self.state.continuity.runs)
        return None if last is None or last.place in {batch.place for batch in self.misplaced} else last

    def written_end(self, segment: int, end: int) -> int:
        """The offset after a segment's last batch as its bytes have it; `end`: the offset where the segment's batches end."""
        last = [batch for batch in self.misplaced if batch.segment == segment and batch.end_offset == end]
        return last[0].written + last[0].offsets if last else end

    def covers(self, start: int, end: int) -> bool:
        """Whether `[start, end)` lies within good batches without gaps, as the log's cleanup policy counts gaps."""
        return any(run.start_offset <= start and end <= run.end_offset for run in self.state.continuity.runs)


def first_kept_offset(start: int, holders: Sequence[Replica]) -> int:
    """First offset from `start` on that one of `holders` (at least one) keeps: what is below all their log starts was deleted."""
    return max(start, min(replica.log_start_offset for replica in holders))


def whole(context: ReplicaContext, state: ReplicaState, misplaced: tuple[MisplacedBatch, ...] = ()) -> Replica:
    """The replica from its context and the merged state of its whole log.

    `misplaced` are batches with a wrong base offset, which the state has at the right one.
    """
    state.close_segment()
    if context.log_unknown:
        state.unread.add(-1)
    runs = state.continuity.runs
    offset_sequence = judge([*_empty_first_segment(context, state), *runs, *_empty_last_segment(context, state)])
    for batch in misplaced:
        written = Run(batch.written, batch.written + batch.offsets, batch.segment, batch.position, 1)
        anomaly = OffsetAnomaly("OFFSET_DISCONTINUITY", batch.offset, batch.end_offset, written, batch.offset)
        offset_sequence.anomalies.append(anomaly)
    start = context.segment_base_offsets[0] if context.segment_base_offsets else 0
    if runs and runs[0].start_offset < start:
        start = max(runs[0].start_offset, 0)
    start = local_start = max(start, context.log_start_checkpoint or 0)
    end = offset_sequence.end_offset if runs else max(context.segment_base_offsets, default=0)
    tail = state.continuity.bad_tail
    if tail is not None and tail.start_offset <= end < tail.end_offset:
        end = tail.end_offset
    if not state.framing.batches:
        end = max(end, start)
    epochs = epoch_starts(state.epochs, context.epoch_checkpoint, start)
    if context.is_tiered:
        # brokers take the log start of a tiered topic from the checkpoint alone (LogLoader); a copy of a running broker may have
        # no entry yet, while the log starts with its first epoch
        start = min((entry.start_offset for entry in context.epoch_checkpoint or ()), default=0)
        start = min(start if context.log_start_checkpoint is None else context.log_start_checkpoint, local_start)
        epochs = add_remote_epochs(epochs, context.epoch_checkpoint or (), local_start)
    return Replica(context, state, offset_sequence, start, end, epochs, local_start, context.is_tiered, misplaced=misplaced)


def _empty_first_segment(context: ReplicaContext, state: ReplicaState) -> list[Run]:
    """An empty run at the base offset of a first segment without batches, where the log continues by that segment's name."""
    runs, base_offset = state.continuity.runs, min(context.segment_base_offsets, default=0)
    if not runs or base_offset in state.framing.by_segment or base_offset in state.unread or context.compacted:
        return []
    if context.control is not None and context.control.was_compacted:
        return []
    start = max(base_offset, context.log_start_checkpoint or 0)
    return [Run(start, start, base_offset, 0, 0)] if start < runs[0].start_offset else []


def _empty_last_segment(context: ReplicaContext, state: ReplicaState) -> list[Run]:
    """An empty run at the base offset of a last segment without batches, up to where the log goes by that segment's name."""
    runs = state.continuity.runs
    last = max((base_offset for base_offset in context.segment_base_offsets if base_offset not in context.not_followed), default=0)
    if not runs or last in state.framing.by_segment or last <= max(run.end_offset for run in runs):
        return []
    if context.compacted:
        return [Run(runs[-1].end_offset, last, last, 0, 0)]
    damage = state.continuity.damage_at_end
    return [Run(last, last, last, 0, 0, damage if damage is not None and damage[0] < last else None)]


def snapshot_open(entries: Sequence[ProducerEntry]) -> list[OpenTransaction]:
    """The transactions open in a producer snapshot, without a place in the log."""
    oldest = sorted(entries, key=lambda entry: entry.current_txn_first_offset)[:OPEN_KEPT]
    return [OpenTransaction.of_snapshot(entry) for entry in oldest]


def expired_open_transactions(replica: Replica, entries: Sequence[ProducerEntry], snapshot_offset: int) -> list[OpenTransaction]:
    """Transactions open in a snapshot at `snapshot_offset` without a batch in the log, which begins before that offset.

    A broker that starts on this copy believes the snapshot: the last stable offset stays at the log start (UnifiedLog). A producer
    that the fold forgot counts as one with batches.
    """
    if snapshot_offset < replica.log_start_offset or not replica.end_is_known:
        return []
    deleted = [entry for entry in entries if entry.current_txn_first_offset < replica.log_start_offset][:OPEN_KEPT]
    return [OpenTransaction.of_snapshot(entry) for entry in deleted if not replica.state.transactions.knows(entry.producer_id)]


def place_of(replicas: "Sequence[Replica]", start: int, end: int) -> Place:
    """Offsets `[start, end)` of these replicas' partition, on no particular broker."""
    context = replicas[0].context
    return Place(context.topic, context.partition, offset_start=start, offset_end=end)
