"""Reading replicas a second time: only the offsets that the comparison asks for."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.analysis.producers import offset_behind
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas import AcrossFormats
from kafka_forensics.analysis.segments import put_right
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import ReplicaPlan, typed_path
from kafka_forensics.evidence.paths import not_read
from kafka_forensics.model.batches import BATCH_COLUMNS, BatchColumn, Damage, Record, RecordColumn
from kafka_forensics.model.constants import TIMESTAMP_TYPE_MASK
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.log import (
    HELD_BYTES,
    MAX_BATCH_BYTES,
    DecodedBatch,
    HashedRecords,
    HashingReader,
    SegmentReader,
    content_digest,
    decode_batch,
    found_inside,
    read_batch,
    read_digest,
)
from kafka_forensics.parsers.log_dir import SegmentFiles, SegmentLog
from kafka_forensics.scanning.folding.keys import CollectedHashes, hash_key_of, hasher_of
from kafka_forensics.scanning.rereading.facts_alike import (
    BatchFacts,
    hold_the_same,
    hold_the_same_as_written,
    same_hashes_where_both,
)
from kafka_forensics.scanning.rereading.message_formats import Contents, compared_across_formats, contents_by_hash, contents_of
from kafka_forensics.scanning.rereading.seeking import start_position
from kafka_forensics.storage.bundles import BundleSource, CollectedLog

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.analysis.producers import EpochBump
    from kafka_forensics.scanning.folding.keys import KeysApart
    from kafka_forensics.storage.source import ByteFile, ByteSource

    Batches = NDArray[np.int64]


# Two copies of a batch of which a cleaner took records: a quick look whether what both still hold is the same.


def surely_equal_where_both(left: "DecodedBatch", right: "DecodedBatch") -> bool:
    """Whether every record whose offset both hold has equal bytes, timestamp and producer.

    False is no proof of a difference: batches of the old formats, very large ones, and other encodings of equal records are not
    looked at closely. Neither batch may have problems.
    """
    ours, theirs = left.header, right.header
    if ours is None or theirs is None or (ours.producer_id, ours.producer_epoch) != (theirs.producer_id, theirs.producer_epoch):
        return False
    sides = []
    for batch in (left, right):
        if len(batch.payload) >= HELD_BYTES:
            return False
        sides.append(_bodies(batch))
    fewer, more = sorted(sides, key=len)
    return all(offset not in more or more[offset] == body for offset, body in fewer.items())


def _bodies(batch: "DecodedBatch") -> dict[int, tuple[int, int, bytes]]:
    """Offset → timestamp, length of the key, and all bytes from the key on."""
    header = batch.header
    assert header is not None
    payload = bytes(batch.payload)
    stamped = header.timestamp_type == "LogAppendTime"
    bodies = {}
    for columns in batch.iter_columns():
        offsets = (columns[RecordColumn.OFFSET_DELTA] + header.base_offset).tolist()
        times = columns[RecordColumn.TIMESTAMP_DELTA] + header.base_timestamp
        stamps = (np.full_like(times, header.max_timestamp) if stamped else times).tolist()
        ends = (columns[RecordColumn.POSITION] + columns[RecordColumn.SIZE_IN_BYTES]).tolist()
        keys, sizes = columns[RecordColumn.KEY_POSITION].tolist(), columns[RecordColumn.KEY_LENGTH].tolist()
        for offset, stamp, size, key, end in zip(offsets, stamps, sizes, keys, ends, strict=True):
            bodies[offset] = stamp, size, payload[key:end]
    return bodies


_BATCHES_KEPT: Final = 2


class LogReader:
    """`BatchReader` over the plans of one partition; `plans` by the identity of their context.

    `as_of_ms` is the time that ages count to, None: the newest in the evidence.
    """

    def __init__(self, plans: list[ReplicaPlan], key: "NDArray[np.int64]", as_of_ms: int | None = None) -> None:
        self._plans = {id(plan.context): plan for plan in plans}
        self.as_of_ms = as_of_ms
        self.apart: KeysApart | None = None
        """Who has keys of large logs compared, None: they are compared here."""
        self._key = key
        self.incomplete: list[Incomplete] = []
        self._needed: dict[str, tuple[int, int, int]] = {}
        """Of collected logs, by their paths: the offsets of which records are needed, and where in `incomplete` that is said."""
        self.problems: list[tuple[Replica, int, Damage]] = []
        """(replica, segment, damage) of batches that could not be decoded to be compared."""
        self._opened: dict[tuple[int, int, int], Contents] = {}
        """Records of the batches that were compared last with others of another message format, by context, segment and position:
        one of them may span thousands of the other log's."""

    def batches(self, replica: Replica, start: int, end: int) -> "NDArray[np.int64]":
        """Batches that hold an offset of `[start, end)`, with their segment in a last row, in file order."""
        plan = self._plans[id(replica.context)]
        moved = {misplaced.place: misplaced.offset for misplaced in replica.misplaced}
        rows = [np.empty((BATCH_COLUMNS + 1, 0), np.int64)]
        for log in plan.directory.logs():
            if log.base_offset >= end or not log.reaches(start):
                continue
            try:
                rows += self._of_segment(plan, log, (start, end), moved)
            except SourceError as error:
                self.incomplete.append(not_read(plan.log_dir.source, error))
        return np.concatenate(rows, axis=1)

    def _of_segment(
        self,
        plan: ReplicaPlan,
        log: SegmentLog,
        offsets: tuple[int, int],
        moved: Mapping[tuple[int, int], int],
    ) -> list["NDArray[np.int64]"]:
        """Rows of a segment; `moved` are the right base offsets of batches where others are written, by segment and position."""
        segment = log.segment
        start, end = offsets
        here = {position: offset for (base_offset, position), offset in moved.items() if base_offset == segment.base_offset}
        parts = []
        with plan.log_dir.source.open(log.entry.path) as file:
            limit = log.max_plausible_offset
            reader = SegmentReader.with_checks(file, limit, key=self._key)
            for chunk in reader.chunks(self._position(plan, segment, start)):
                columns = put_right(chunk, here).columns if here else chunk.columns
                base, last = columns[BatchColumn.BASE_OFFSET], columns[BatchColumn.LAST_OFFSET]
                wanted = (last >= start) & (base < end)
                rows = np.empty((BATCH_COLUMNS + 1, int(wanted.sum())), np.int64)
                rows[:BATCH_COLUMNS] = columns[:, wanted]
                rows[BATCH_COLUMNS] = segment.base_offset
                parts.append(rows)
                if base.size and int(base.min()) >= end:
                    break
        return parts

    def batch_at(self, replica: Replica, place: tuple[int, int]) -> "NDArray[np.int64] | None":
        """The batch at a byte of a segment, a column by BatchColumn, as it is written there; None if none can be read."""
        plan, (base_offset, position) = self._plans[id(replica.context)], place
        segment = plan.directory.segment(base_offset)
        if segment is None or segment.log is None:
            return None
        try:
            with plan.log_dir.source.open(segment.log.path) as file:
                first = SegmentReader(file).first_chunk(position)
                there = first.rows > 0 and int(first.columns[BatchColumn.POSITION, 0]) == position
                return first.columns[:, 0].copy() if there else None
        except SourceError as error:
            self.incomplete.append(not_read(plan.log_dir.source, error))
            return None

    @staticmethod
    def _position(plan: ReplicaPlan, segment: SegmentFiles, offset: int) -> int:
        """Where to begin reading for `offset`: the last index entry below it that really begins a batch, else 0."""
        if segment.index is None or segment.log is None:
            return 0
        source = plan.log_dir.source
        try:
            with source.open(segment.index.path) as index, source.open(segment.log.path) as log:
                return start_position(log, index, segment.base_offset, offset)
        except SourceError:
            return 0  # the fold says what cannot be read; the log may be readable without its index

    def same_records(
        self, left: Replica, left_row: "NDArray[np.int64]", right: Replica, right_row: "NDArray[np.int64]", *, common: bool
    ) -> bool | None:
        """Whether two batches hold equal records, see `BatchReader`."""
        if any([self._told_broken(left, left_row), self._told_broken(right, right_row)]):
            return None
        told = self._told_alike(left, left_row, right, right_row, common=common)
        if told is False and any(self._is_broken_here(*side) for side in ((left, left_row), (right, right_row))):
            return None
        if told is not None:
            return told
        ours, theirs = self._sound(left, left_row), self._sound(right, right_row)
        if ours is None or theirs is None:
            return None
        if common and surely_equal_where_both(ours, theirs):
            return True
        left_records, right_records = _records(ours, left_row), _records(theirs, right_row)
        if common:
            shared = left_records.keys() & right_records.keys()
            return all(left_records[offset] == right_records[offset] for offset in shared)
        return left_records == right_records

    def across_formats(
        self, left: Replica, left_row: "NDArray[np.int64]", right: Replica, right_row: "NDArray[np.int64]", *, common: bool
    ) -> AcrossFormats | None:
        """How two batches of different message formats compare, see `BatchReader`."""
        sides = ((left, left_row), (right, right_row))
        broken = [self._told_broken(*side) for side in sides]
        if any(broken):
            return None
        bundled = any(isinstance(self._source(replica), BundleSource) for replica in (left, right))
        hashes = [self._hashes(*side, (left, right)) for side in sides] if bundled else [None]
        if all(records is not None and not records.unread.size for records in hashes):
            content = [
                contents_by_hash(records, row) for records, (_, row) in zip(hashes, sides, strict=True) if records is not None
            ]
        else:
            opened = [self._contents(*side) for side in sides]
            content = [records for records in opened if records is not None]
        return None if len(content) < 2 else compared_across_formats(content, [left_row, right_row], common=common)

    def _contents(self, replica: Replica, row: "NDArray[np.int64]") -> Contents | None:
        """The records of a batch, kept for the next ones that it is compared with; None if they cannot be read."""
        place = id(replica.context), int(row[BATCH_COLUMNS]), int(row[BatchColumn.POSITION])
        contents = self._opened.pop(place, None)
        if contents is None:
            decoded = self._sound(replica, row)
            contents = None if decoded is None else contents_of(decoded.iter_records(), row)
        if contents is not None:
            self._opened[place] = contents
            if len(self._opened) > _BATCHES_KEPT:
                del self._opened[next(iter(self._opened))]
        return contents

    def first_unlike(
        self, left: Replica, left_row: "NDArray[np.int64]", right: Replica, right_row: "NDArray[np.int64]"
    ) -> int | None:
        """The first offset at which two batches hold different records, see `BatchReader`."""
        ours, theirs = self.decoded(left, left_row), self.decoded(right, right_row)
        if ours is None or theirs is None:
            return None
        left_records, right_records = _records(ours, left_row), _records(theirs, right_row)
        shared = left_records.keys() & right_records.keys()
        return min((offset for offset in shared if left_records[offset] != right_records[offset]), default=None)

    def _told_alike(
        self, left: Replica, a: "NDArray[np.int64]", right: Replica, b: "NDArray[np.int64]", *, common: bool
    ) -> bool | None:
        """What facts tell of two batches, of which one is of a collected log at least; None if nothing, or both can be opened."""
        bundles = [source for replica in (left, right) if isinstance(source := self._source(replica), BundleSource)]
        if not bundles or any(row[BatchColumn.CRC] != row[BatchColumn.CRC_COMPUTED] for row in (a, b)):
            return None
        facts = [BatchFacts(row, self._digest(replica, row, bundles)) for replica, row in ((left, a), (right, b))]
        told = hold_the_same(facts[0], facts[1], common=common)
        if told is not None or not common:
            return told
        hashes = [self._hashes(replica, row, (left, right)) for replica, row in ((left, a), (right, b))]
        return None if hashes[0] is None or hashes[1] is None else same_hashes_where_both(hashes[0], hashes[1])

    def _hashes(self, replica: Replica, row: "NDArray[np.int64]", pair: tuple[Replica, Replica]) -> HashedRecords | None:
        """The records of a batch, hashed so that they can be compared with those of the other of a pair; None if they cannot."""
        hash_key = hash_key_of(self._plans[id(of_pair.context)] for of_pair in pair)
        hasher, source = hasher_of(hash_key, 0), self._source(replica)
        position = int(row[BatchColumn.POSITION])
        try:
            with self._open_segment(replica, int(row[BATCH_COLUMNS])) as file:
                if isinstance(file, CollectedLog):
                    agrees = hash_key_of([self._plans[id(replica.context)]]) == hash_key
                    return CollectedHashes(file).hashed_records(np.array([position])) if agrees and file.has_hashes else None
        except SourceError as error:
            self.incomplete.append(not_read(source, error))
            return None
        decoded = None if hasher is None else self._sound(replica, row)
        if decoded is None or hasher is None:
            return None
        return HashedRecords.together(list(HashingReader(hasher, with_headers=True).opened(decoded, position)))

    def told_as_written(self, replica: Replica, a: "NDArray[np.int64]", b: "NDArray[np.int64]") -> bool | None:
        """Whether facts tell that a batch of a collected log was written twice; None of a log that can be opened."""
        source = self._source(replica)
        if not isinstance(source, BundleSource):
            return None
        facts = [BatchFacts(row, self._digest(replica, row, [source])) for row in (a, b)]
        return hold_the_same_as_written(facts[0], facts[1])

    def _told_inside(self, replica: Replica, row: "NDArray[np.int64]") -> list[Damage] | None:
        """What facts tell to be wrong inside a batch of a collected log; None if nobody looked, and of a log that can be opened."""
        if not isinstance(self._source(replica), BundleSource):
            return None
        try:
            with self._open_segment(replica, int(row[BATCH_COLUMNS])) as file:
                return found_inside(file, int(row[BatchColumn.POSITION])) if isinstance(file, CollectedLog) else None
        except SourceError as error:
            self.incomplete.append(not_read(self._source(replica), error))
            return None

    def _told_broken(self, replica: Replica, row: "NDArray[np.int64]") -> bool:
        """Whether facts tell that something is wrong inside a batch, which is noted."""
        inside = self._told_inside(replica, row) or []
        self.problems += [(replica, int(row[BATCH_COLUMNS]), damage) for damage in inside]
        return bool(inside)

    def _is_broken_here(self, replica: Replica, row: "NDArray[np.int64]") -> bool:
        """Whether a batch that lies at hand holds no sound records, which is noted; facts told of those that do not."""
        return not isinstance(self._source(replica), BundleSource) and self._sound(replica, row) is None

    def _need(self, path: str, log: CollectedLog, offsets: tuple[int, int]) -> None:
        """Note that records of these offsets are needed, in one line with others of their log."""
        start, end, number = self._needed.get(path, (*offsets, len(self.incomplete)))
        start, end = min(start, offsets[0]), max(end, offsets[1])
        self._needed[path] = start, end, number
        self.incomplete[number : number + 1] = [Incomplete(path, log.needs_records((start, end)).reason)]

    def _source(self, replica: Replica) -> "ByteSource":
        return self._plans[id(replica.context)].log_dir.source

    def _digest(self, replica: Replica, row: "NDArray[np.int64]", bundles: "Sequence[BundleSource]") -> bytes | None:
        """The digest of a batch's content as all of `bundles` have it; None if they have several keys, or it is not known."""
        keys = {bundle.about.redaction for bundle in bundles}
        if len(keys) > 1:
            return None
        position, size = int(row[BatchColumn.POSITION]), int(row[BatchColumn.SIZE_IN_BYTES])
        try:
            with self._open_segment(replica, int(row[BATCH_COLUMNS])) as file:
                if isinstance(file, CollectedLog):
                    digest: bytes | None = read_digest(file, position)
                    return digest
                if size > MAX_BATCH_BYTES or keys != {None}:
                    return None
                data = file.read_at(position, size)
                return content_digest(data) if len(data) == size else None
        except SourceError as error:
            self.incomplete.append(not_read(self._source(replica), error))
            return None

    def _open_segment(self, replica: Replica, base_offset: int) -> "ByteFile":
        """The log of a segment. Raises SourceError."""
        plan = self._plans[id(replica.context)]
        segment = plan.directory.segment(base_offset)
        if segment is None or segment.log is None:
            raise SourceError(plan.directory.path, f"no log of segment {base_offset}")
        return plan.log_dir.source.open(segment.log.path)

    def _sound(self, replica: Replica, row: "NDArray[np.int64]") -> DecodedBatch | None:
        """A batch opened; None if it cannot be, or there is something wrong inside, which is noted."""
        decoded = self.decoded(replica, row)
        if decoded is None or not decoded.problems:
            return decoded
        self.problems += [(replica, int(row[BATCH_COLUMNS]), damage) for damage in decoded.problems]
        return None

    def undecodable(self, replica: Replica, row: "NDArray[np.int64]") -> bool:
        """Whether a batch was read and cannot be decoded, see `BatchReader`."""
        inside = self._told_inside(replica, row)
        if inside is not None:
            return any(damage.kind not in kinds_with(Trait.HEADER_MISCOUNTS) for damage in inside)
        decoded = self.decoded(replica, row)
        return decoded is not None and any(damage.kind not in kinds_with(Trait.HEADER_MISCOUNTS) for damage in decoded.problems)

    def decoded(self, replica: Replica, row: "NDArray[np.int64]") -> DecodedBatch | None:
        """A batch that `batches` gave, opened; None if it is too large to be, or cannot be read."""
        plan = self._plans[id(replica.context)]
        segment = plan.directory.segment(int(row[BATCH_COLUMNS]))
        size = int(row[BatchColumn.SIZE_IN_BYTES])
        source = plan.log_dir.source
        if segment is None or segment.log is None:
            return None
        if size > MAX_BATCH_BYTES:
            reason = f"batch of {size} bytes at byte {int(row[BatchColumn.POSITION])} is too large to compare its records"
            self.incomplete.append(Incomplete(typed_path(source, segment.log.path), reason))
            return None
        try:
            with source.open(segment.log.path) as file:
                position = int(row[BatchColumn.POSITION])
                if isinstance(file, CollectedLog) and file.batch(position) is None:
                    offsets = int(row[BatchColumn.BASE_OFFSET]), int(row[BatchColumn.LAST_OFFSET]) + 1
                    self._need(typed_path(source, segment.log.path), file, offsets)
                    return None
                data = read_batch(file, position, size)
        except SourceError as error:
            self.incomplete.append(Incomplete(typed_path(source, segment.log.path), error.reason))
            return None
        moved = next((misplaced for misplaced in replica.misplaced if misplaced.place == (segment.base_offset, position)), None)
        return decode_batch(data if moved is None else moved.rewritten(data), position=position)


def _records(decoded: DecodedBatch, row: "NDArray[np.int64]") -> dict[int, tuple[object, ...]]:
    """Offset → what must be equal on every replica."""
    producer = tuple(int(row[c]) for c in (BatchColumn.PRODUCER_ID, BatchColumn.PRODUCER_EPOCH))
    return {record.offset: (*_content(record), *producer) for record in decoded.iter_records()}


def _content(record: Record) -> tuple[object, ...]:
    """Values too large to be held are told apart by their sizes alone."""
    return record.key, record.value, record.headers, record.timestamp, record.key_length, record.value_length


# Batches that a producer wrote again after it had raised its epoch: read again from the log, record by record.


LOOK_BACK: Final = 4096
"""Offsets before a raised epoch in which its batch is looked for."""
IN_FLIGHT: Final = 5
"""Batches that an idempotent producer may have had on their way (max.in.flight.requests.per.connection)."""


def repeated_batches(replica: "Replica", reader: "LogReader") -> list[tuple[int, int]]:
    """(offset of a batch, offset of the one whose records it repeats under a higher producer epoch), in the order of the log."""
    bumps = []
    for bump in replica.state.bumps.kept:
        rows = reader.batches(replica, max(bump.base_offset - LOOK_BACK, 0), offset_behind(bump.last_offset))
        own = [row for row in rows.T if int(row[BatchColumn.PRODUCER_ID]) == bump.producer_id]
        earlier = next((row for row in _before(own, bump) if _same(replica, reader, row, own, bump)), None)
        if earlier is not None:
            bumps.append((bump.base_offset, int(earlier[BatchColumn.BASE_OFFSET])))
    return bumps


def _before(own: "list[Batches]", bump: "EpochBump") -> "list[Batches]":
    """The producer's last batches of lower epochs before the bump."""
    lower = [row for row in own if int(row[BatchColumn.PRODUCER_EPOCH]) < bump.producer_epoch]
    return [row for row in lower if int(row[BatchColumn.LAST_OFFSET]) < bump.base_offset][-IN_FLIGHT:]


def _same(replica: "Replica", reader: "LogReader", row: "Batches", own: "list[Batches]", bump: "EpochBump") -> bool:
    """Whether a batch has the records of the bump's, with the timestamps that their producer gave them."""
    mine = next((batch for batch in own if int(batch[BatchColumn.BASE_OFFSET]) == bump.base_offset), None)
    if mine is None or int(mine[BatchColumn.RECORDS_COUNT]) != int(row[BatchColumn.RECORDS_COUNT]):
        return False
    if (int(mine[BatchColumn.ATTRIBUTES]) | int(row[BatchColumn.ATTRIBUTES])) & TIMESTAMP_TYPE_MASK:
        return False
    told = reader.told_as_written(replica, mine, row)
    if told is not None:
        return told
    ours, theirs = _records_written(replica, reader, mine), _records_written(replica, reader, row)
    return ours is not None and ours == theirs


def _records_written(replica: "Replica", reader: "LogReader", row: "Batches") -> list[tuple[object, ...]] | None:
    decoded = reader.decoded(replica, row)
    if decoded is None or decoded.problems:
        return None
    return [
        (record.key, record.value, record.headers, record.timestamp, record.key_length, record.value_length)
        for record in decoded.iter_records()
    ]
