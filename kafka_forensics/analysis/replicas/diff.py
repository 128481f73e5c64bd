"""Where two logs differ: blocks by their digests, then batches by their identities, then records."""

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np

from kafka_forensics.analysis.replica import Replica, differing_blocks
from kafka_forensics.analysis.replicas.damaged_forks import of_two_histories
from kafka_forensics.analysis.segments import Irregularity
from kafka_forensics.model.batches import BLOCK_SUMS, IDENTITY, BatchColumn
from kafka_forensics.model.constants import RECORD_BATCH_OVERHEAD
from kafka_forensics.replication.epochs import epoch_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray


# Whether a partition is compacted, by all of its replicas: each may have another witness, so one may know what others do not.


def is_compacted(*replicas: "Replica") -> bool:
    """Whether any of the replicas is known as compacted: a cleaner lists nothing else, and not to know of one proves nothing."""
    return any(replica.context.compacted for replica in replicas)


def replicas_disagree(replicas: "list[Replica]") -> str | None:
    """Who knows the partition as compacted and who does not, as a premise; None where all say the same."""
    knowing = [replica.broker for replica in replicas if replica.context.compacted]
    others = [replica.broker for replica in replicas if not replica.context.compacted]
    if not knowing or not others:
        return None
    return f"compacted by what is known of {_named(knowing)}; nothing says so of {_named(others)}"


def compaction_premise(replicas: "list[Replica]") -> str:
    """Where the cleanup policy came from, in one short line."""
    reason = "compacted" if is_compacted(*replicas) else "not listed in cleaner-offset-checkpoint"
    return replicas_disagree(replicas) or reason


def _named(brokers: list[int | str]) -> str:
    return f"broker{'s' if len(brokers) > 1 else ''} {', '.join(map(str, brokers))}"


RUNS_READ: Final = 32
"""Runs of differing blocks that are read again from either end of the list; between them only their number is known."""
BLOCK_OFFSETS: Final = 1 << 16
"""Offsets read at a time, so that the batches in hand are few."""
DIFFERENCES_KEPT: Final = 4096
"""Differences kept of each kind; so many contents that differ end the comparison, harmless ones do not hide what follows."""


class BatchReader(Protocol):
    """Reads a replica's log again; what an engine lends to the comparison."""

    as_of_ms: int | None
    """The time that ages count to, None: the newest in the evidence."""

    def batches(self, replica: Replica, start: int, end: int) -> "NDArray[np.int64]":
        """Batches that hold an offset of `[start, end)`, as a (BATCH_COLUMNS + 1, n) matrix; the last row is the segment."""

    def with_blocks(self, replica: Replica, start: int, end: int) -> "BatchesAndBlocks":
        """The same with the blocks of batches that hold one, where only these are known."""

    def need_batches(self, replica: Replica, offsets: tuple[int, int]) -> None:
        """Note that the batches of `[start, end)` are needed of a replica of which only blocks are known there."""

    def same_records(
        self, left: Replica, left_row: "NDArray[np.int64]", right: Replica, right_row: "NDArray[np.int64]", *, common: bool
    ) -> bool | None:
        """Whether two batches hold equal records (`common`: equal wherever both hold the offset); None if one cannot be read."""

    def first_unlike(
        self, left: Replica, left_row: "NDArray[np.int64]", right: Replica, right_row: "NDArray[np.int64]"
    ) -> int | None:
        """The first offset that two batches both hold, with different records; None if there is none or one cannot be read."""

    def undecodable(self, replica: Replica, row: "NDArray[np.int64]") -> bool:
        """Whether a batch was read and holds no records that could be decoded."""


class BatchesAndBlocks(NamedTuple):
    """Rows in file order: a (BATCH_COLUMNS + 1, n) matrix, its last row is the segment; (BLOCK_SUMS, n); and which are blocks."""

    rows: "NDArray[np.int64]"
    sums: "NDArray[np.int64]"
    is_block: "NDArray[np.bool_]"

    def of(self, wanted: "NDArray[np.bool_]") -> "BatchesAndBlocks":
        """Some of the rows."""
        return BatchesAndBlocks(self.rows[:, wanted], self.sums[:, wanted], self.is_block[wanted])


def walked(reader: BatchReader, replica: Replica, start: int, end: int, *, blocks: bool = False) -> "Iterator[BatchesAndBlocks]":
    """Batches that hold an offset of `[start, end)`, some at a time and each once, as `BatchReader.batches` gives them; with
    `blocks` as `BatchReader.with_blocks` does.

    Where none begins, steps grow: one batch may claim 2^31 offsets, and a cleaned log, or a wrong offset, leave any number out.
    """
    position, step = start, BLOCK_OFFSETS
    while position < end:
        stop = min(position + step, end)
        if blocks:
            held = reader.with_blocks(replica, position, stop)
        else:
            held = _by_themselves(reader.batches(replica, position, stop))
        if position > start:
            held = held.of(held.rows[BatchColumn.BASE_OFFSET] >= position)
        if held.rows.shape[1]:
            yield held
        step = BLOCK_OFFSETS if held.rows.shape[1] else 2 * step
        position = stop


def _by_themselves(rows: "NDArray[np.int64]") -> BatchesAndBlocks:
    """Batches of which nobody needs the sums."""
    return BatchesAndBlocks(rows, np.zeros((BLOCK_SUMS, rows.shape[1]), np.int64), np.zeros(rows.shape[1], np.bool_))


@dataclass(frozen=True, slots=True)
class Difference:
    """One pair of batches that overlap and differ: the first offset both hold, and where the last of them ends."""

    kind: str
    """damaged | header | reencoded | content"""
    offset: int
    end_offset: int
    left: "NDArray[np.int64]"
    right: "NDArray[np.int64]"

    @property
    def epochs(self) -> tuple[int, int]:
        """Leader epochs of the two batches."""
        return int(self.left[BatchColumn.PARTITION_LEADER_EPOCH]), int(self.right[BatchColumn.PARTITION_LEADER_EPOCH])


Conflicts = dict[tuple[int, int], list[Difference]]
"""Numbers of two replicas that hold different records → where, in offset order; pairs that agree are left out."""


class Differences(list[Difference]):
    """Differences in offset order, of each kind the first `DIFFERENCES_KEPT` - 1 and the last; `counts` says how many there are,
    `ranges_not_compared` in how many ranges of offsets there must be further ones."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.unlike = False
        """Whether any batch is not in both logs, or not the same."""
        self.ranges_not_compared = 0
        self.blocks_not_compared = False
        """Whether any of these differ in blocks of batches, of which nobody knows how they do."""
        self.by_epochs: list[tuple[int, int]] = []
        """Offsets `[start, end)` that are the same by their leader epochs, and no batches of them could be compared."""

    def add(self, difference: Difference) -> None:
        """Add the next difference, in the place of the last of its kind if too many are kept."""
        self.counts[difference.kind] += 1
        if self.counts[difference.kind] > DIFFERENCES_KEPT:
            del self[next(index for index in range(len(self) - 1, -1, -1) if self[index].kind == difference.kind)]
        self.append(difference)

    @property
    def full(self) -> bool:
        """Whether there is more than enough to speak of a conflict."""
        return self.counts["content"] >= DIFFERENCES_KEPT


def differences(left: Replica, right: Replica, reader: BatchReader) -> Differences:
    """Differences between two logs over the offsets both have, in offset order; empty if they agree.

    Of many runs of differing blocks only the first and last few are read; within a run, everything up to the first content
    difference and the last block.
    """
    start = max(min(replica.first_batch_offset, replica.log_start_offset) for replica in (left, right))
    end = min(left.log_end_offset, right.log_end_offset)
    ranges = differing_blocks(left.state.digests, right.state.digests, start, end)
    differing = Differences()
    if len(ranges) > 2 * RUNS_READ and not is_compacted(left, right):
        differing.ranges_not_compared = len(ranges) - 2 * RUNS_READ
        ranges = ranges[:RUNS_READ] + ranges[-RUNS_READ:]
    for low, high in ranges:
        _read_range(left, right, reader, low, high, differing)
        if differing.full:
            break
    return differing


def _read_range(left: Replica, right: Replica, reader: BatchReader, low: int, high: int, differing: Differences) -> None:
    """Compare `[low, high)` batch by batch, a block at a time; after a content difference only the last block remains.

    Where no batch begins, steps grow: offsets may be apart by what a flipped bit makes of them, and one batch claim 2^31.
    """
    position = low
    read_to = -1
    blocks = 1
    while position < high and not differing.full:
        stop = min((position // BLOCK_OFFSETS + blocks) * BLOCK_OFFSETS, high)
        before = differing.counts["content"]
        proven: list[Difference] = []
        if left.state.in_blocks or right.state.in_blocks:
            ours, theirs = _batches_apart((left, right), reader, (position, stop, high), differing, proven)
        else:
            ours, theirs = reader.batches(left, position, stop), reader.batches(right, position, stop)
        differing.unlike = differing.unlike or not _alike(ours, theirs)
        _walk((left, right), ours, theirs, reader, (position, read_to, stop), differing)
        for difference in proven:
            differing.add(difference)
        if proven:
            differing.sort(key=lambda difference: difference.offset)
        read_to = stop
        begun = any(bool((rows[BatchColumn.BASE_OFFSET] >= position).any()) for rows in (ours, theirs))
        blocks = 1 if begun else 2 * blocks
        position = stop
        if differing.counts["content"] > before and high - stop > BLOCK_OFFSETS:
            position = max(stop, high - BLOCK_OFFSETS)


def _alike(ours: "NDArray[np.int64]", theirs: "NDArray[np.int64]") -> bool:
    """Whether two lists are of the same batches, wrong base offsets put right."""
    return ours.shape == theirs.shape and bool((ours[list(IDENTITY)] == theirs[list(IDENTITY)]).all())


def _walk(
    pair: tuple[Replica, Replica],
    ours: "NDArray[np.int64]",
    theirs: "NDArray[np.int64]",
    reader: BatchReader,
    bounds: tuple[int, int, int],
    differing: Differences,
) -> None:
    """Walk two lists of batches side by side and add every pair that overlaps and differs in `[start, end)`, unless it does so
    already below the end of what was walked before; `bounds` is (start, that end, end)."""
    i = j = 0
    hash_high, hash_low = BatchColumn.HASH_HIGH, BatchColumn.HASH_LOW
    while i < ours.shape[1] and j < theirs.shape[1] and not differing.full:
        a, b = ours[:, i], theirs[:, j]
        a_last, b_last = _last_offset(ours, i), _last_offset(theirs, j)
        if a[hash_high] != b[hash_high] or a[hash_low] != b[hash_low]:
            offset = max(int(a[BatchColumn.BASE_OFFSET]), int(b[BatchColumn.BASE_OFFSET]))
            overlap = max(offset, bounds[0]) <= min(a_last, b_last)
            if overlap and bounds[1] <= max(offset, 0) < bounds[2]:
                kind = _kind(pair[0], a, pair[1], b, reader)
                if kind is not None:
                    differing.add(Difference(kind, max(offset, 0), max(a_last, b_last) + 1, a.copy(), b.copy()))
        i += a_last <= b_last
        j += b_last <= a_last


def _last_offset(batches: "NDArray[np.int64]", row: int) -> int:
    """Last offset of a batch that no later batch claims: where two overlap within a log, a header lies."""
    last = int(batches[BatchColumn.LAST_OFFSET, row])
    if row + 1 == batches.shape[1]:
        return last
    base, following = int(batches[BatchColumn.BASE_OFFSET, row]), int(batches[BatchColumn.BASE_OFFSET, row + 1])
    return min(last, following - 1) if base < following else last


def _kind(left: Replica, a: "NDArray[np.int64]", right: Replica, b: "NDArray[np.int64]", reader: BatchReader) -> str | None:
    """How two batches at one place differ; None if they differ as two cleaned copies may."""
    if any(row[BatchColumn.CRC] != row[BatchColumn.CRC_COMPUTED] for row in (a, b)):
        return "content" if of_two_histories(left, a, right, b) else "damaged"
    same_bytes = a[BatchColumn.CRC] == b[BatchColumn.CRC] and a[BatchColumn.SIZE_IN_BYTES] == b[BatchColumn.SIZE_IN_BYTES]
    if same_bytes and a[BatchColumn.BASE_OFFSET] == b[BatchColumn.BASE_OFFSET]:
        epochs_differ = a[BatchColumn.PARTITION_LEADER_EPOCH] != b[BatchColumn.PARTITION_LEADER_EPOCH]
        return "reencoded" if epochs_differ and _epoch_is_its_own(left, a) and _epoch_is_its_own(right, b) else "header"
    if _out_of_line(left, a) or _out_of_line(right, b):
        return "header" if same_bytes else None
    return _kind_by_records(left, a, right, b, reader)


def _kind_by_records(
    left: Replica, a: "NDArray[np.int64]", right: Replica, b: "NDArray[np.int64]", reader: BatchReader
) -> str | None:
    compacted = is_compacted(left, right)
    same = reader.same_records(left, a, right, b, common=compacted)
    if same is None:
        return "content" if of_two_histories(left, a, right, b) else "damaged"
    if same and not compacted:
        return "reencoded" if _counts_its_offsets(a) == _counts_its_offsets(b) else "header"
    return None if same else "content"


def _epoch_is_its_own(replica: Replica, row: "NDArray[np.int64]") -> bool:
    """Whether the log's batches and its checkpoint both give a batch the leader epoch it carries: a producer's retry, that came
    to two leaders in turn, stands in both logs with equal bytes under either leader's epoch."""
    checkpoint = replica.context.epoch_checkpoint
    if checkpoint is None:
        return False
    offset, epoch = int(row[BatchColumn.BASE_OFFSET]), int(row[BatchColumn.PARTITION_LEADER_EPOCH])
    return epoch == epoch_at(checkpoint, offset) == epoch_at(replica.epochs, offset)


def _out_of_line(replica: Replica, row: "NDArray[np.int64]") -> bool:
    """Whether a batch contradicts both its neighbours, and was not put where it belongs: its base offset is then what is wrong."""
    place = (int(row[-1]), int(row[BatchColumn.POSITION]))
    wrong = [irregularity.run for irregularity in replica.course.irregularities if irregularity.kind == "OFFSET_DISCONTINUITY"]
    known = {misplaced.place for misplaced in replica.misplaced}
    return any((run.segment, run.position) == place for run in wrong if place not in known)


def _counts_its_offsets(row: "NDArray[np.int64]") -> bool:
    """Whether a batch has a record for each offset, as all but cleaned ones have."""
    return bool(row[BatchColumn.RECORDS_COUNT] == row[BatchColumn.LAST_OFFSET_DELTA] + 1)


# How many batches, records and bytes a range of a log's offsets has, where reading them again is cheap.


READ_AGAIN_BYTES: Final = 64 << 20
"""Segments of more bytes in all are not read again to be counted."""


class Counts(NamedTuple):
    """Batches, records and bytes."""

    batches: int
    records: int
    bytes: int


def counted(replica: Replica, reader: BatchReader, start: int, end: int) -> Counts | None:
    """Batches that hold an offset of `[start, end)`, with all their records and bytes; None where they are too many to read."""
    framing, first = replica.state.framing, replica.first_batch_offset
    start, end = max(start, first), min(end, replica.log_end_offset)
    if start >= end:
        return Counts(0, 0, 0)
    if start <= first and end >= replica.log_end_offset:
        return Counts(framing.batches, framing.records, framing.bytes_decoded)
    if replica.state.in_blocks:
        return _counted_in_blocks(replica, reader, start, end)
    reached = (totals.end_position for base, totals in framing.by_segment.items() if base < end and totals.last_offset >= start)
    if sum(reached) > READ_AGAIN_BYTES:
        return None
    batches = records = size = 0
    for rows, *_ in walked(reader, replica, start, end):
        batches += rows.shape[1]
        records += int(rows[BatchColumn.RECORDS_COUNT].clip(0).sum())
        size += int(rows[BatchColumn.SIZE_IN_BYTES].sum())
    return Counts(batches, records, size)


def _counted_in_blocks(replica: Replica, reader: BatchReader, start: int, end: int) -> Counts | None:
    """The same of a log of which blocks are known; None, which is noted, where the range holds only a part of one."""
    held = reader.with_blocks(replica, start, end)
    base, last = held.rows[BatchColumn.BASE_OFFSET], held.rows[BatchColumn.LAST_OFFSET]
    cut = held.is_block & ((base < start) | (last >= end))
    if cut.any():
        reader.need_batches(replica, (start, end))
        return None
    records = int(held.rows[BatchColumn.RECORDS_COUNT].clip(0).sum())
    return Counts(int(held.sums[0].sum()), records, int(held.rows[BatchColumn.SIZE_IN_BYTES].sum()))


# Where of a log only blocks of batches are known: blocks and batches are compared by their sums, from one offset at which both logs
# begin one to the next at which both end one. Of blocks that differ nobody knows which batch it is.


def _batches_apart(
    pair: tuple[Replica, Replica],
    reader: BatchReader,
    bounds: tuple[int, int, int],
    differing: Differences,
    proven: list[Difference],
) -> tuple["NDArray[np.int64]", "NDArray[np.int64]"]:
    """The batches of both logs that are known by themselves and stand where sums differ; `bounds` is (start, stop, end of all).

    Where blocks stand there, they are a difference of content if headers alone prove it, which is added to `proven`, or else their
    batches are needed.
    """
    start, stop, high = bounds
    sides = [reader.with_blocks(replica, start, stop) for replica in pair]
    if stop < high:  # what reaches beyond is looked at with what follows
        sides = [side.of(side.rows[BatchColumn.LAST_OFFSET] < stop) for side in sides]
    stretches = _stretches(*sides)
    count = 1 + max((int(of_side.max(initial=-1)) for of_side in stretches), default=-1)
    apart, with_block, held = np.zeros((count, BLOCK_SUMS), np.int64), np.zeros(count, np.bool_), np.zeros((2, count), np.bool_)
    for number, (side, of_side) in enumerate(zip(sides, stretches, strict=True)):
        np.add.at(apart, of_side, (side.sums if number else -side.sums).T)
        with_block[of_side[side.is_block]] = True
        held[number, of_side] = True
    differ = (apart != 0).any(axis=1)
    differing.unlike = differing.unlike or bool(differ.any())
    for stretch in np.flatnonzero(differ & with_block & held.all(axis=0)).tolist():
        left, right = (side.of(of_side == stretch) for side, of_side in zip(sides, stretches, strict=True))
        parted = _of_two_epochs(pair, left, right)
        if parted is not None:
            proven.append(parted)
            continue
        common = _in_common(left.rows, right.rows)
        if _reaches_beyond(pair, left.rows, right.rows):
            differing.by_epochs.append(common)
        else:
            differing.ranges_not_compared += 1
            differing.blocks_not_compared = True
        for replica in pair:
            reader.need_batches(replica, common)
    ours, theirs = (side.rows[:, differ[of_side] & ~side.is_block] for side, of_side in zip(sides, stretches, strict=True))
    return ours, theirs


def _stretches(ours: BatchesAndBlocks, theirs: BatchesAndBlocks) -> list["NDArray[np.int64]"]:
    """The number of the stretch that each row of either log stands in: the shortest ones that no row of either reaches out of."""
    base, last = (
        np.concatenate([side.rows[column] for side in (ours, theirs)])
        for column in (BatchColumn.BASE_OFFSET, BatchColumn.LAST_OFFSET)
    )
    order = np.argsort(base, kind="stable")
    begins = np.zeros(order.size, np.bool_)
    begins[1:] = base[order][1:] > np.maximum.accumulate(last[order])[:-1]
    number = np.empty(order.size, np.int64)
    number[order] = np.cumsum(begins)
    return np.split(number, [ours.rows.shape[1]])


def _ends(rows: "NDArray[np.int64]") -> tuple[int, int]:
    """First and last offset of all rows."""
    return int(rows[BatchColumn.BASE_OFFSET].min()), int(rows[BatchColumn.LAST_OFFSET].max())


def _in_common(ours: "NDArray[np.int64]", theirs: "NDArray[np.int64]") -> tuple[int, int]:
    """The offsets `[start, end)` that both sides of a stretch reach over."""
    (our_first, our_last), (their_first, their_last) = _ends(ours), _ends(theirs)
    return max(our_first, their_first), min(our_last, their_last) + 1


def _reaches_beyond(pair: tuple[Replica, Replica], ours: "NDArray[np.int64]", theirs: "NDArray[np.int64]") -> bool:
    """Whether sums differ because one log begins or ends within the other's block, and nothing says that their batches do.

    Leaders of the same epochs wrote the offsets that both have: an epoch has one leader, and Kafka itself takes two such logs for
    the same as far as both reach (KIP-101).
    """
    start, end = _in_common(ours, theirs)
    if start >= end or _epochs_of(ours, start, end) != _epochs_of(theirs, start, end):
        return False
    (our_first, our_last), (their_first, their_last) = _ends(ours), _ends(theirs)
    later, shorter = pair[our_first < their_first], pair[our_last > their_last]
    begins = our_first == their_first or start <= max(later.first_batch_offset, later.log_start_offset)
    ends = our_last == their_last or end >= shorter.log_end_offset
    return begins and ends and (our_first, our_last) != (their_first, their_last)


def _epochs_of(rows: "NDArray[np.int64]", start: int, end: int) -> list[tuple[int, int]]:
    """(leader epoch, first offset) of each run of one epoch that rows have in `[start, end)`."""
    inside = rows[:, (rows[BatchColumn.LAST_OFFSET] >= start) & (rows[BatchColumn.BASE_OFFSET] < end)]
    epoch, base = inside[BatchColumn.PARTITION_LEADER_EPOCH], inside[BatchColumn.BASE_OFFSET].clip(start)
    begins = np.ones(epoch.size, np.bool_)
    begins[1:] = epoch[1:] != epoch[:-1]
    return list(zip(epoch[begins].tolist(), base[begins].tolist(), strict=True))


def _of_two_epochs(pair: tuple[Replica, Replica], left: BatchesAndBlocks, right: BatchesAndBlocks) -> Difference | None:
    """That a stretch holds different records because leaders of two epochs wrote some; None where headers do not prove it.

    Equal bytes under two epochs, such as a producer sends to two leaders in turn, are no different records: then all sizes and all
    CRCs have the same sums. Where one side reaches further sums do not tell that; but no producer sends as much again as a block
    has, so that a block under another epoch proves it.
    """
    ours, theirs = left.rows, right.rows
    columns = [BatchColumn.SIZE_IN_BYTES, BatchColumn.CRC]
    same_ends = _ends(ours) == _ends(theirs)
    if same_ends and (ours[columns].sum(axis=1) == theirs[columns].sum(axis=1)).all():
        return None
    first: Difference | None = None
    i = j = 0
    while i < ours.shape[1] and j < theirs.shape[1]:
        a, b = ours[:, i], theirs[:, j]
        a_last, b_last = int(a[BatchColumn.LAST_OFFSET]), int(b[BatchColumn.LAST_OFFSET])
        offset = max(int(a[BatchColumn.BASE_OFFSET]), int(b[BatchColumn.BASE_OFFSET]))
        if offset <= min(a_last, b_last) and of_two_histories(pair[0], a, pair[1], b):
            first = first or Difference("content", offset, max(a_last, b_last) + 1, a.copy(), b.copy())
            if same_ends or left.is_block[i] or right.is_block[j]:
                return first
        i += a_last <= b_last
        j += b_last <= a_last
    return None


# What is missing behind damage: bytes at a segment's end explain the loss of no more than they had room for.


def uncover_gaps(replicas: list[Replica], reader: BatchReader) -> None:
    """Turn into gaps what damage at a segment's end is held to have eaten and cannot have held, where the next segment is missing.

    Fewer bytes than a batch's header held nothing. How many bytes the offsets take is else asked of another replica of the same
    history, of which no more is read than would have fitted.
    """
    for replica in replicas:
        if replica.context.compacted or replica.state.continuity.dropped_runs:
            continue
        for place, (start, end) in list(replica.course.eaten.items()):
            room = _bytes_behind(replica, *place)
            if place[0] >= end or end not in replica.context.segment_base_offsets or room is None:
                continue
            reach = start if room < RECORD_BATCH_OVERHEAD else _reach(replica, replicas, reader, (start, end), room)
            run = next((run for run in replica.state.continuity.runs if run.start_offset == end), None)
            if reach >= end or run is None:
                continue
            del replica.course.eaten[place]
            if reach > start:
                replica.course.eaten[place] = (start, reach)
            replica.course.irregularities.append(Irregularity("OFFSET_GAP", reach, end, run, reach))
            replica.gap_starts |= {reach}


def _bytes_behind(replica: Replica, segment: int, position: int) -> int | None:
    """Damaged bytes of a segment from a byte on; None if batches follow them there, or if not all of it is known."""
    framing = replica.state.framing
    totals = framing.by_segment.get(segment)
    samples = framing.damage.values()
    kept = [damage for sample in samples for at, damage in sample if at == segment and damage.position >= position]
    dropped = any(len(list(sample)) < sample.count for sample in samples)
    if segment in replica.state.unread or dropped or (totals is not None and totals.end_position > position):
        return None
    return sum(damage.size_in_bytes for damage in kept)


def _reach(replica: Replica, replicas: list[Replica], reader: BatchReader, offsets: tuple[int, int], room: int) -> int:
    """Offset behind the last batch from `start` on that fits into `room` bytes, by the first replica that tells; `end` if none."""
    start, end = offsets
    epoch = epoch_at(replica.epochs, end)
    for other in replicas:
        if other is replica or not other.covers(start, end) or epoch_at(other.epochs, end) != epoch:
            continue
        reach, size = start, 0
        for rows, *_ in walked(reader, other, start, end):
            for base, last, bytes_taken in rows[[BatchColumn.BASE_OFFSET, BatchColumn.LAST_OFFSET, BatchColumn.SIZE_IN_BYTES]].T:
                if base < reach:
                    continue  # begins before, and was not eaten whole
                size += int(bytes_taken)
                if size > room:
                    return reach
                reach = int(last) + 1
    return end
