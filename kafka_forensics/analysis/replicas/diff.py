"""Where two logs differ: blocks of offsets by their digests, then batches by their identities, then records."""

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np
from msgspec import Struct

from kafka_forensics.analysis.replica import Replica, differing_blocks
from kafka_forensics.analysis.replicas.damaged_forks import ReplicaBatch, are_two_histories
from kafka_forensics.analysis.segments import OffsetAnomaly
from kafka_forensics.model.batches import BATCH_COLUMNS, IDENTITY, BatchColumn, has_right_crc
from kafka_forensics.model.constants import CONTROL_MASK, RECORD_BATCH_OVERHEAD
from kafka_forensics.replication.epochs import epoch_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from kafka_forensics.model.offset_ranges import Range


def is_compacted(*replicas: "Replica") -> bool:
    """Whether the cleaner checkpoint of any of the replicas lists the partition: it lists compacted ones only, and a missing entry
    proves nothing."""
    return any(replica.context.compacted for replica in replicas)


def replicas_disagree(replicas: "list[Replica]") -> str | None:
    """Which brokers know the partition as compacted and which do not, as a premise; None if all agree."""
    compacted, others = (
        [str(replica.broker) for replica in replicas if replica.context.compacted == is_compacted] for is_compacted in (True, False)
    )
    if not compacted or not others:
        return None
    by, against = (f"broker{'s' if len(brokers) > 1 else ''} {', '.join(brokers)}" for brokers in (compacted, others))
    return f"compacted according to {by}; nothing shows this for {against}"


def compaction_premise(replicas: "list[Replica]") -> str:
    """Where the cleanup policy came from, in one short line."""
    reason = "compacted" if is_compacted(*replicas) else "not listed in cleaner-offset-checkpoint"
    return replicas_disagree(replicas) or reason


RUNS_READ: Final = 32
"""Runs of differing blocks that are read again at either end of the list; the others are only counted."""
BLOCK_OFFSETS: Final = 1 << 16
"""Offsets read at a time, to hold few batches in memory."""
DIFFERENCES_KEPT: Final = 4096
"""Differences kept of each kind; so many different contents end the comparison, harmless differences do not."""
RANGES_KEPT: Final = 64
"""Ranges of offsets listed for one log."""
IN_REMOTE_STORAGE: Final = -1
"""Segment of a batch that is on no disk."""


class AcrossFormats(NamedTuple):
    """How the records of two batches of different message formats compare at the offsets that both span."""

    differing_range: tuple[int, int] | None
    """The first different offset, and the end of the last; None if there is none."""
    not_held: frozenset[str] = frozenset()
    """What the newer batch has and the older format cannot hold: `timestamps`, `headers`, `transactions`."""


class BatchReader(Protocol):
    """Reads a replica's log again; the engine passes one to the comparison."""

    as_of_ms: int | None
    """The time to which ages count; None: the newest in the evidence."""

    def batches(self, replica: Replica, start: int, end: int) -> "NDArray[np.int64]":
        """Batches with an offset in `[start, end)`, as a (BATCH_COLUMNS + 1, n) matrix; the last row is the segment."""

    def same_records(self, left: ReplicaBatch, right: ReplicaBatch, *, common: bool) -> bool | None:
        """Whether two batches have equal records (`common`: equal at the offsets that both have); None if one cannot be read."""

    def across_formats(self, left: ReplicaBatch, right: ReplicaBatch, *, common: bool) -> AcrossFormats | None:
        """How two batches of different message formats compare (`common`: only at the offsets that both have); None if one cannot
        be read."""

    def first_different_offset(self, left: ReplicaBatch, right: ReplicaBatch) -> int | None:
        """The first offset that two batches both have with different records; None if there is none or one cannot be read."""

    def undecodable(self, batch: ReplicaBatch) -> bool:
        """Whether a batch could be read but none of its records decoded."""


def read_in_steps(reader: BatchReader, replica: Replica, start: int, end: int) -> "Iterator[NDArray[np.int64]]":
    """Batches with an offset in `[start, end)`, some at a time and each once, as `BatchReader.batches` returns them.

    Steps grow where no batch begins: one batch may claim 2^31 offsets, and a cleaned log or a wrong offset may leave out any
    number.
    """
    position, step = start, BLOCK_OFFSETS
    while position < end:
        stop = min(position + step, end)
        rows = reader.batches(replica, position, stop)
        if position > start:
            rows = rows[:, rows[BatchColumn.BASE_OFFSET] >= position]
        if rows.shape[1]:
            yield rows
        step = BLOCK_OFFSETS if rows.shape[1] else 2 * step
        position = stop


class Difference(Struct, frozen=True):
    """Two overlapping batches that differ: the first offset both have, and the end of the last."""

    kind: str
    """damaged | header | reencoded | content"""
    offset: int
    end_offset: int
    left: ReplicaBatch
    right: ReplicaBatch
    formats: tuple[int, int] | None = None
    """Message formats of the two, if records were compared across formats."""
    not_held: frozenset[str] = frozenset()
    """See `AcrossFormats`."""

    @property
    def lacks_content(self) -> bool:
        """Whether records of the older message format lack headers or a transaction that those of the newer have."""
        return bool(self.not_held - {"timestamps"})

    @property
    def epochs(self) -> tuple[int, int]:
        """Leader epochs of the two batches."""
        return int(self.left.row[BatchColumn.PARTITION_LEADER_EPOCH]), int(self.right.row[BatchColumn.PARTITION_LEADER_EPOCH])


Conflicts = dict[tuple[int, int], list[Difference]]
"""Numbers of two replicas with different records → the differences, in offset order; only pairs that differ."""


class Differences(list[Difference]):
    """Differences in offset order, of each kind the first `DIFFERENCES_KEPT` - 1 and the last; `counts` are their numbers,
    `ranges_not_compared` the number of offset ranges with further differences."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.has_differences = False
        """Whether any batch is missing in one of the logs, or not the same."""
        self.ranges_not_compared = 0
        self.formats: set[tuple[int, int]] = set()
        """Pairs of different message formats (left, right) of re-encoded batches."""
        self.not_held: tuple[set[str], set[str]] = set(), set()
        """What re-encoded batches of the left and of the right log cannot hold and the others have, see `AcrossFormats`."""
        self.lacking: tuple[list[Range], list[Range]] = [], []
        """Offsets of those batches that lack headers or a transaction; after `RANGES_KEPT` ranges the last one grows."""

    def add(self, difference: Difference) -> None:
        """Add the next difference; it replaces the last of its kind if too many are kept."""
        self.counts[difference.kind] += 1
        if self.counts[difference.kind] > DIFFERENCES_KEPT:
            del self[next(index for index in range(len(self) - 1, -1, -1) if self[index].kind == difference.kind)]
        self.append(difference)
        if difference.formats is not None and difference.kind == "reencoded":
            left, right = difference.formats
            self.formats.add(difference.formats)
            self.not_held[left > right].update(difference.not_held)
            if difference.lacks_content:
                ranges, start, end = self.lacking[left > right], difference.offset, difference.end_offset
                if ranges and (ranges[-1][1] >= start or len(ranges) >= RANGES_KEPT):
                    start, end = ranges[-1][0], max(ranges.pop()[1], end)
                ranges.append((start, end))

    @property
    def full(self) -> bool:
        """Whether there are enough differences for a conflict."""
        return self.counts["content"] >= DIFFERENCES_KEPT


def differences(left: Replica, right: Replica, reader: BatchReader) -> Differences:
    """Differences between two logs over the offsets both have, in offset order; empty if they agree.

    Of many runs of differing blocks only the first and last few are read; within a run, everything up to the first content
    difference, and the last block.
    """
    start = max(min(replica.first_batch_offset, replica.local_log_start_offset) for replica in (left, right))
    end = min(left.log_end_offset, right.log_end_offset)
    ranges = differing_blocks(left.state.digests, right.state.digests, start, end)
    differing = Differences()
    for difference in _in_remote_storage(left, right):
        differing.add(difference)
    if len(ranges) > 2 * RUNS_READ and not is_compacted(left, right):
        differing.ranges_not_compared = len(ranges) - 2 * RUNS_READ
        ranges = ranges[:RUNS_READ] + ranges[-RUNS_READ:]
    for low, high in ranges:
        _read_range(left, right, reader, low, high, differing)
        if differing.full:
            break
    return differing


def _in_remote_storage(left: Replica, right: Replica) -> "Iterator[Difference]":
    """Ranges where two logs, one of them only in remote storage there, have different leader epochs, and so different records; not
    where either deleted its records."""
    low = max(left.log_start_offset, right.log_start_offset)
    high = min(max(left.local_log_start_offset, right.local_log_start_offset), left.log_end_offset, right.log_end_offset)
    if low >= high or not left.epochs or not right.epochs:
        return
    starts = {entry.start_offset for replica in (left, right) for entry in replica.epochs}
    edges = sorted({low, high, *(offset for offset in starts if low < offset < high)})
    for start, end in itertools.pairwise(edges):
        ours, theirs = epoch_at(left.epochs, start), epoch_at(right.epochs, start)
        if ours is not None and theirs is not None and ours != theirs:
            batches = np.zeros((BATCH_COLUMNS + 1, 2), np.int64)
            batches[BatchColumn.BASE_OFFSET], batches[BatchColumn.LAST_OFFSET] = start, end - 1
            batches[BatchColumn.PARTITION_LEADER_EPOCH], batches[-1] = (ours, theirs), IN_REMOTE_STORAGE
            yield Difference("content", start, end, ReplicaBatch(left, batches[:, 0]), ReplicaBatch(right, batches[:, 1]))


def are_control_batches(replica: Replica, reader: BatchReader, start: int, end: int) -> bool:
    """Whether a replica has only control batches, and at least one, at the offsets `[start, end)`, which it all has."""
    if not replica.covers(start, end):
        return False
    control = [
        bool(((rows[BatchColumn.MAGIC] >= 2) & (rows[BatchColumn.ATTRIBUTES] & CONTROL_MASK != 0)).all())
        for rows in read_in_steps(reader, replica, start, end)
    ]
    return bool(control) and all(control)


def _read_range(left: Replica, right: Replica, reader: BatchReader, low: int, high: int, differing: Differences) -> None:
    """Compare `[low, high)` batch by batch, a block at a time; after a content difference only the last block.

    Steps grow where no batch begins: a flipped bit may leave any number of offsets out, and one batch may claim 2^31.
    """
    position, read_to, blocks = low, -1, 1
    while position < high and not differing.full:
        stop = min((position // BLOCK_OFFSETS + blocks) * BLOCK_OFFSETS, high)
        before = differing.counts["content"]
        ours, theirs = reader.batches(left, position, stop), reader.batches(right, position, stop)
        same = ours.shape == theirs.shape and bool((ours[list(IDENTITY)] == theirs[list(IDENTITY)]).all())
        differing.has_differences = differing.has_differences or not same
        _walk((left, right), ours, theirs, reader, (position, read_to, stop), differing)
        read_to = stop
        begins = any(bool((rows[BatchColumn.BASE_OFFSET] >= position).any()) for rows in (ours, theirs))
        blocks = 1 if begins else 2 * blocks
        position = stop
        if differing.counts["content"] > before and high - stop > BLOCK_OFFSETS:
            position = max(stop, high - BLOCK_OFFSETS)


def _walk(
    pair: tuple[Replica, Replica],
    ours: "NDArray[np.int64]",
    theirs: "NDArray[np.int64]",
    reader: BatchReader,
    bounds: tuple[int, int, int],
    differing: Differences,
) -> None:
    """Walk two lists of batches side by side and add every pair that overlaps and differs in `[start, end)`, unless it does so
    already below the end of the previous walk; `bounds` is (start, that end, end)."""
    i = j = 0
    hash_high, hash_low = BatchColumn.HASH_HIGH, BatchColumn.HASH_LOW
    while i < ours.shape[1] and j < theirs.shape[1] and not differing.full:
        a, b = ours[:, i], theirs[:, j]
        a_last, b_last = _last_offset(ours, i), _last_offset(theirs, j)
        if a[hash_high] != b[hash_high] or a[hash_low] != b[hash_low]:
            offset = max(int(a[BatchColumn.BASE_OFFSET]), int(b[BatchColumn.BASE_OFFSET]))
            overlap = max(offset, bounds[0]) <= min(a_last, b_last)
            if overlap and bounds[1] <= max(offset, 0) < bounds[2]:
                batches = ReplicaBatch(pair[0], a.copy()), ReplicaBatch(pair[1], b.copy())
                difference = _difference(*batches, reader, (max(offset, 0), a_last, b_last))
                if difference is not None:
                    differing.add(difference)
        i += a_last <= b_last
        j += b_last <= a_last


def _last_offset(batches: "NDArray[np.int64]", row: int) -> int:
    """Last offset of a batch that no later batch claims: where two overlap within a log, a header is wrong."""
    last = int(batches[BatchColumn.LAST_OFFSET, row])
    if row + 1 == batches.shape[1]:
        return last
    base, following = int(batches[BatchColumn.BASE_OFFSET, row]), int(batches[BatchColumn.BASE_OFFSET, row + 1])
    return min(last, following - 1) if base < following else last


def _difference(left: ReplicaBatch, right: ReplicaBatch, reader: BatchReader, offsets: tuple[int, int, int]) -> Difference | None:
    """How two batches differ that overlap from the first of `offsets` on, with the last offset of either; None if cleaning explains
    the difference."""
    start, *last = offsets
    if not _in_two_formats(left, right):
        kind = _kind(left, right, reader)
        return None if kind is None else Difference(kind, start, max(last) + 1, left, right)
    compacted = is_compacted(left.replica, right.replica)
    across = reader.across_formats(left, right, common=compacted)
    if across is None:
        return Difference("damaged", start, max(last) + 1, left, right)
    formats = int(left.row[BatchColumn.MAGIC]), int(right.row[BatchColumn.MAGIC])
    if across.differing_range is not None:
        return Difference("content", *across.differing_range, left, right, formats)
    reencoded = Difference("reencoded", start, min(last) + 1, left, right, formats, across.not_held)
    return None if compacted and not reencoded.lacks_content else reencoded


def _in_two_formats(left: ReplicaBatch, right: ReplicaBatch) -> bool:
    """Whether two good batches are of different message formats, one older than 2: then neither bytes nor ends are equal, and the
    older has no leader epoch, producer, headers or transaction (RecordsUtil.downConvert). With equal CRCs a magic byte is wrong,
    which no CRC covers."""
    a, b = left.row, right.row
    formats = {int(a[BatchColumn.MAGIC]), int(b[BatchColumn.MAGIC])}
    return (
        len(formats) > 1
        and min(formats) < 2
        and bool(has_right_crc(a) and has_right_crc(b))
        and bool(a[BatchColumn.CRC] != b[BatchColumn.CRC])
        and not is_misplaced(left)
        and not is_misplaced(right)
    )


def _kind(left: ReplicaBatch, right: ReplicaBatch, reader: BatchReader) -> str | None:
    """How two batches at one place differ; None if cleaning explains the difference."""
    a, b = left.row, right.row
    if not (has_right_crc(a) and has_right_crc(b)):
        return "content" if are_two_histories(left, right) else "damaged"
    same_bytes = a[BatchColumn.CRC] == b[BatchColumn.CRC] and a[BatchColumn.SIZE_IN_BYTES] == b[BatchColumn.SIZE_IN_BYTES]
    if same_bytes and a[BatchColumn.BASE_OFFSET] == b[BatchColumn.BASE_OFFSET]:
        epochs_differ = a[BatchColumn.PARTITION_LEADER_EPOCH] != b[BatchColumn.PARTITION_LEADER_EPOCH]
        return "reencoded" if epochs_differ and _epoch_is_confirmed(left) and _epoch_is_confirmed(right) else "header"
    if is_misplaced(left) or is_misplaced(right):
        return "header" if same_bytes else None
    compacted = is_compacted(left.replica, right.replica)
    same = reader.same_records(left, right, common=compacted)
    if same is None:
        return "content" if are_two_histories(left, right) else "damaged"
    if not same or compacted:
        return None if same else "content"
    return "reencoded" if is_complete(left) == is_complete(right) else "header"


def is_complete(batch: ReplicaBatch) -> bool:
    """Whether a batch has a record for each offset by its header, as all but cleaned batches do."""
    return bool(batch.row[BatchColumn.RECORDS_COUNT] == batch.row[BatchColumn.LAST_OFFSET_DELTA] + 1)


def _epoch_is_confirmed(batch: ReplicaBatch) -> bool:
    """Whether the log's batches and its checkpoint confirm a batch's leader epoch: a producer's retry that reached two leaders in
    turn is in both logs with equal bytes, each with its leader's epoch."""
    replica, row = batch
    checkpoint = replica.context.epoch_checkpoint
    if checkpoint is None:
        return False
    offset, epoch = int(row[BatchColumn.BASE_OFFSET]), int(row[BatchColumn.PARTITION_LEADER_EPOCH])
    return epoch == epoch_at(checkpoint, offset) == epoch_at(replica.epochs, offset)


def is_misplaced(batch: ReplicaBatch) -> bool:
    """Whether the base offset of a batch is wrong: it contradicts both neighbours, and the batch was not moved to its right
    offset."""
    wrong = [anomaly.run for anomaly in batch.replica.offset_sequence.anomalies if anomaly.kind == "OFFSET_DISCONTINUITY"]
    return not was_moved(batch) and any((run.segment, run.position) == batch.place for run in wrong)


def was_moved(batch: ReplicaBatch) -> bool:
    """Whether the base offset of a batch is wrong, and the batch was moved to its right offset."""
    return any(misplaced.place == batch.place for misplaced in batch.replica.misplaced)


READ_AGAIN_BYTES: Final = 64 << 20
"""Larger ranges are not read again to be counted."""


class Counts(NamedTuple):
    """Batches, records and bytes."""

    batches: int
    records: int
    bytes: int


def counted(replica: Replica, reader: BatchReader, start: int, end: int) -> Counts | None:
    """Batches with an offset in `[start, end)`, with all their records and bytes; None if they are too many to read."""
    framing, first = replica.state.framing, replica.first_batch_offset
    start, end = max(start, first), min(end, replica.log_end_offset)
    if start >= end:
        return Counts(0, 0, 0)
    if start <= first and end >= replica.log_end_offset:
        return Counts(framing.batches, framing.records, framing.bytes_decoded)
    reached = (totals.end_position for base, totals in framing.by_segment.items() if base < end and totals.last_offset >= start)
    if sum(reached) > READ_AGAIN_BYTES:
        return None
    batches = records = size = 0
    for rows in read_in_steps(reader, replica, start, end):
        batches += rows.shape[1]
        records += int(rows[BatchColumn.RECORDS_COUNT].clip(0).sum())
        size += int(rows[BatchColumn.SIZE_IN_BYTES].sum())
    return Counts(batches, records, size)


def add_unexplained_gaps(replicas: list[Replica], reader: BatchReader) -> None:
    """Turn missing offsets that damage at a segment's end was assumed to explain, but has too few bytes for, into gaps, if the next
    segment is missing.

    Fewer bytes than a batch header contained nothing. Otherwise another replica of the same history shows how many bytes the
    offsets take; only as much of it is read as fits.
    """
    for replica in replicas:
        if replica.context.compacted or replica.state.continuity.dropped_runs:
            continue
        for place, (start, end) in list(replica.offset_sequence.lost_to_damage.items()):
            room = _damaged_bytes_after(replica, *place)
            if place[0] >= end or end not in replica.context.segment_base_offsets or room is None:
                continue
            fits_to = start if room < RECORD_BATCH_OVERHEAD else _end_within(replica, replicas, reader, (start, end), room)
            run = next((run for run in replica.state.continuity.runs if run.start_offset == end), None)
            if fits_to >= end or run is None:
                continue
            del replica.offset_sequence.lost_to_damage[place]
            if fits_to > start:
                replica.offset_sequence.lost_to_damage[place] = (start, fits_to)
            replica.offset_sequence.anomalies.append(OffsetAnomaly("OFFSET_GAP", fits_to, end, run, fits_to))
            replica.gap_starts |= {fits_to}


def _damaged_bytes_after(replica: Replica, segment: int, position: int) -> int | None:
    """Damaged bytes of a segment from a byte on; None if batches follow there, or if not all of it is known."""
    framing = replica.state.framing
    totals = framing.by_segment.get(segment)
    dropped = any(len(sample) < sample.count for sample in framing.damage.values())
    if segment in replica.state.unread or dropped or (totals is not None and totals.end_position > position):
        return None
    rows = [row for sample in framing.damage.values() for row in sample]
    return sum(damage.size_in_bytes for at, damage in rows if at == segment and damage.position >= position)


def _end_within(replica: Replica, replicas: list[Replica], reader: BatchReader, offsets: tuple[int, int], room: int) -> int:
    """Offset after the last batch from `start` on that fits into `room` bytes, by the first replica that shows it; `end` if none
    does."""
    start, end = offsets
    epoch = epoch_at(replica.epochs, end)
    for other in replicas:
        if other is replica or not other.covers(start, end) or epoch_at(other.epochs, end) != epoch:
            continue
        fits_to, size = start, 0
        for rows in read_in_steps(reader, other, start, end):
            for base, last, bytes_taken in rows[[BatchColumn.BASE_OFFSET, BatchColumn.LAST_OFFSET, BatchColumn.SIZE_IN_BYTES]].T:
                if base < fits_to:
                    continue  # begins earlier
                size += int(bytes_taken)
                if size > room:
                    return fits_to
                fits_to = int(last) + 1
    return end
