"""Where two logs differ: blocks by their digests, then batches by their identities, then records."""

import itertools
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np

from kafka_forensics.analysis.replica import Replica, differing_blocks
from kafka_forensics.analysis.replicas.damaged_forks import of_two_histories
from kafka_forensics.analysis.segments import Irregularity
from kafka_forensics.model.batches import BATCH_COLUMNS, IDENTITY, BatchColumn
from kafka_forensics.model.constants import CONTROL_MASK, RECORD_BATCH_OVERHEAD
from kafka_forensics.model.offset_ranges import Range
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


RANGES_KEPT: Final = 64
"""Ranges of offsets named of one log."""
IN_REMOTE_STORAGE: Final = -1
"""Stands for the segment of a batch that is on no disk."""


class AcrossFormats(NamedTuple):
    """How the records of two batches of different message formats compare at the offsets that both batches span."""

    unlike: tuple[int, int] | None
    """The first offset at which they differ, and the end of the last; None if they do not."""
    not_held: frozenset[str] = frozenset()
    """What the newer batch has and the older format cannot hold: `timestamps`, `headers`, `transactions`."""


class BatchReader(Protocol):
    """Reads a replica's log again; what an engine lends to the comparison."""

    as_of_ms: int | None
    """The time that ages count to, None: the newest in the evidence."""

    def batches(self, replica: Replica, start: int, end: int) -> "NDArray[np.int64]":
        """Batches that hold an offset of `[start, end)`, as a (BATCH_COLUMNS + 1, n) matrix; the last row is the segment."""

    def same_records(
        self, left: Replica, left_row: "NDArray[np.int64]", right: Replica, right_row: "NDArray[np.int64]", *, common: bool
    ) -> bool | None:
        """Whether two batches hold equal records (`common`: equal wherever both hold the offset); None if one cannot be read."""

    def across_formats(
        self, left: Replica, left_row: "NDArray[np.int64]", right: Replica, right_row: "NDArray[np.int64]", *, common: bool
    ) -> AcrossFormats | None:
        """How two batches of different message formats compare (`common`: only where both hold the offset); None if one cannot be
        read."""

    def first_unlike(
        self, left: Replica, left_row: "NDArray[np.int64]", right: Replica, right_row: "NDArray[np.int64]"
    ) -> int | None:
        """The first offset that two batches both hold, with different records; None if there is none or one cannot be read."""

    def undecodable(self, replica: Replica, row: "NDArray[np.int64]") -> bool:
        """Whether a batch was read and holds no records that could be decoded."""


def walked(reader: BatchReader, replica: Replica, start: int, end: int) -> "Iterator[NDArray[np.int64]]":
    """Batches that hold an offset of `[start, end)`, some at a time and each once, as `BatchReader.batches` gives them.

    Where none begins, steps grow: one batch may claim 2^31 offsets, and a cleaned log, or a wrong offset, leave any number out.
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


@dataclass(frozen=True, slots=True)
class Difference:
    """One pair of batches that overlap and differ: the first offset both hold, and where the last of them ends."""

    kind: str
    """damaged | header | reencoded | content"""
    offset: int
    end_offset: int
    left: "NDArray[np.int64]"
    right: "NDArray[np.int64]"
    formats: tuple[int, int] | None = None
    """Message formats of the two, where they were compared across them, record by record."""
    not_held: frozenset[str] = frozenset()
    """See `AcrossFormats`."""

    @property
    def lacks_content(self) -> bool:
        """Whether records of the older message format lack headers or a transaction that those of the newer have."""
        return bool(self.not_held - {"timestamps"})

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
        self.formats: set[tuple[int, int]] = set()
        """Message formats (left, right) of re-encoded batches, where they are two."""
        self.not_held: tuple[set[str], set[str]] = set(), set()
        """What re-encoded batches of the left and of the right log cannot hold and those of the other have, see `AcrossFormats`."""
        self.lacking: tuple[list[Range], list[Range]] = [], []
        """Offsets of those batches that lack headers or a transaction; past `RANGES_KEPT` ranges the last spans what is between."""

    def add(self, difference: Difference) -> None:
        """Add the next difference, in the place of the last of its kind if too many are kept."""
        self.counts[difference.kind] += 1
        if self.counts[difference.kind] > DIFFERENCES_KEPT:
            del self[next(index for index in range(len(self) - 1, -1, -1) if self[index].kind == difference.kind)]
        self.append(difference)
        if difference.formats is not None and difference.kind == "reencoded":
            left, right = difference.formats
            self.formats.add(difference.formats)
            self.not_held[left > right].update(difference.not_held)
            if difference.lacks_content:
                self._note_lacking(self.lacking[left > right], difference)

    def _note_lacking(self, ranges: list[Range], difference: Difference) -> None:
        start, end = difference.offset, difference.end_offset
        if ranges and (ranges[-1][1] >= start or len(ranges) >= RANGES_KEPT):
            start, end = ranges[-1][0], max(ranges.pop()[1], end)
        ranges.append((start, end))

    @property
    def full(self) -> bool:
        """Whether there is more than enough to speak of a conflict."""
        return self.counts["content"] >= DIFFERENCES_KEPT


def differences(left: Replica, right: Replica, reader: BatchReader) -> Differences:
    """Differences between two logs over the offsets both have, in offset order; empty if they agree.

    Of many runs of differing blocks only the first and last few are read; within a run, everything up to the first content
    difference and the last block.
    """
    start = max(min(replica.first_batch_offset, replica.local_log_start_offset) for replica in (left, right))
    end = min(left.log_end_offset, right.log_end_offset)
    ranges = differing_blocks(left.state.digests, right.state.digests, start, end)
    differing = Differences()
    for remote in _in_remote_storage(left, right):
        differing.add(remote)
    if len(ranges) > 2 * RUNS_READ and not is_compacted(left, right):
        differing.ranges_not_compared = len(ranges) - 2 * RUNS_READ
        ranges = ranges[:RUNS_READ] + ranges[-RUNS_READ:]
    for low, high in ranges:
        _read_range(left, right, reader, low, high, differing)
        if differing.full:
            break
    return differing


def _in_remote_storage(left: Replica, right: Replica) -> "Iterator[Difference]":
    """Where two logs, of which one has only remote segments there, are of different leader epochs: then the records differ. Nothing
    is said of what either deleted."""
    low = max(left.log_start_offset, right.log_start_offset)
    high = min(max(left.local_log_start_offset, right.local_log_start_offset), left.log_end_offset, right.log_end_offset)
    if low >= high or not left.epochs or not right.epochs:
        return
    begun = {entry.start_offset for replica in (left, right) for entry in replica.epochs}
    edges = sorted({low, high, *(offset for offset in begun if low < offset < high)})
    for start, end in itertools.pairwise(edges):
        ours, theirs = epoch_at(left.epochs, start), epoch_at(right.epochs, start)
        if ours is not None and theirs is not None and ours != theirs:
            yield Difference("content", start, end, _remote_batch(start, end, ours), _remote_batch(start, end, theirs))


def are_control_batches(replica: Replica, reader: BatchReader, start: int, end: int) -> bool:
    """Whether a replica has control batches, and nothing else, at all offsets of `[start, end)`."""
    if not replica.covers(start, end):
        return False
    read = False
    for rows in walked(reader, replica, start, end):
        control = (rows[BatchColumn.MAGIC] >= 2) & (rows[BatchColumn.ATTRIBUTES] & CONTROL_MASK != 0)
        if not bool(control.all()):
            return False
        read = True
    return read


def _remote_batch(start: int, end: int, leader_epoch: int) -> "NDArray[np.int64]":
    """A row that stands for `[start, end)` of a leader epoch in remote storage; its segment is `IN_REMOTE_STORAGE`."""
    row = np.zeros(BATCH_COLUMNS + 1, np.int64)
    row[BatchColumn.BASE_OFFSET], row[BatchColumn.LAST_OFFSET] = start, end - 1
    row[BatchColumn.PARTITION_LEADER_EPOCH], row[-1] = leader_epoch, IN_REMOTE_STORAGE
    return row


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
        ours, theirs = reader.batches(left, position, stop), reader.batches(right, position, stop)
        differing.unlike = differing.unlike or not _alike(ours, theirs)
        _walk((left, right), ours, theirs, reader, (position, read_to, stop), differing)
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
                difference = _difference(pair, a, b, reader, (max(offset, 0), a_last, b_last))
                if difference is not None:
                    differing.add(difference)
        i += a_last <= b_last
        j += b_last <= a_last


def _last_offset(batches: "NDArray[np.int64]", row: int) -> int:
    """Last offset of a batch that no later batch claims: where two overlap within a log, a header lies."""
    last = int(batches[BatchColumn.LAST_OFFSET, row])
    if row + 1 == batches.shape[1]:
        return last
    base, following = int(batches[BatchColumn.BASE_OFFSET, row]), int(batches[BatchColumn.BASE_OFFSET, row + 1])
    return min(last, following - 1) if base < following else last


def _difference(
    pair: tuple[Replica, Replica],
    a: "NDArray[np.int64]",
    b: "NDArray[np.int64]",
    reader: BatchReader,
    offsets: tuple[int, int, int],
) -> Difference | None:
    """How two batches differ that overlap from the first of `offsets` on, with the last offset of either; None if they differ as
    two cleaned copies may."""
    (left, right), (start, *last) = pair, offsets
    if not _in_two_formats(left, a, right, b):
        kind = _kind(left, a, right, b, reader)
        return None if kind is None else Difference(kind, start, max(last) + 1, a.copy(), b.copy())
    compacted = is_compacted(left, right)
    across = reader.across_formats(left, a, right, b, common=compacted)
    if across is None:
        return Difference("damaged", start, max(last) + 1, a.copy(), b.copy())
    formats = int(a[BatchColumn.MAGIC]), int(b[BatchColumn.MAGIC])
    if across.unlike is not None:
        return Difference("content", *across.unlike, a.copy(), b.copy(), formats)
    reencoded = Difference("reencoded", start, min(last) + 1, a.copy(), b.copy(), formats, across.not_held)
    return None if compacted and not reencoded.lacks_content else reencoded


def _in_two_formats(left: Replica, a: "NDArray[np.int64]", right: Replica, b: "NDArray[np.int64]") -> bool:
    """Whether two sound batches are of different message formats, of which one is older than 2: they have neither equal bytes nor
    equal ends, and the older no leader epoch, producer, headers or transaction (RecordsUtil.downConvert). With equal CRCs a magic
    byte is wrong, which lies outside of them."""
    formats = {int(row[BatchColumn.MAGIC]) for row in (a, b)}
    sound = all(row[BatchColumn.CRC] == row[BatchColumn.CRC_COMPUTED] for row in (a, b))
    if len(formats) == 1 or min(formats) >= 2 or not sound or a[BatchColumn.CRC] == b[BatchColumn.CRC]:
        return False
    return not _out_of_line(left, a) and not _out_of_line(right, b)


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
    reached = (totals.end_position for base, totals in framing.by_segment.items() if base < end and totals.last_offset >= start)
    if sum(reached) > READ_AGAIN_BYTES:
        return None
    batches = records = size = 0
    for rows in walked(reader, replica, start, end):
        batches += rows.shape[1]
        records += int(rows[BatchColumn.RECORDS_COUNT].clip(0).sum())
        size += int(rows[BatchColumn.SIZE_IN_BYTES].sum())
    return Counts(batches, records, size)


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
        for rows in walked(reader, other, start, end):
            for base, last, bytes_taken in rows[[BatchColumn.BASE_OFFSET, BatchColumn.LAST_OFFSET, BatchColumn.SIZE_IN_BYTES]].T:
                if base < reach:
                    continue  # begins before, and was not eaten whole
                size += int(bytes_taken)
                if size > room:
                    return reach
                reach = int(last) + 1
    return end
