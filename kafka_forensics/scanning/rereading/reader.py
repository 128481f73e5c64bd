"""Reading parts of replicas a second time, for comparing them."""

from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.analysis.producers import offset_after
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas import AcrossFormats, ReplicaBatch
from kafka_forensics.analysis.segments import correct_base_offsets
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import ReplicaPlan, typed_path
from kafka_forensics.evidence.paths import not_read
from kafka_forensics.model.batches import BATCH_COLUMNS, BatchColumn, Damage, Record, has_right_crc
from kafka_forensics.model.constants import TIMESTAMP_TYPE_MASK
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.log import (
    MAX_BATCH_BYTES,
    DecodedBatch,
    HashedRecords,
    HashingReader,
    SegmentReader,
    content_digest,
    damage_inside_batch,
    decode_batch,
    read_batch,
    read_digest,
)
from kafka_forensics.scanning.folding.keys import CollectedHashes, hash_key_of, hasher_of
from kafka_forensics.scanning.rereading.batch_comparison import (
    BatchFacts,
    equal_common_hashes,
    equal_common_records,
    have_same_records,
    is_repeated,
)
from kafka_forensics.scanning.rereading.message_formats import (
    Contents,
    compared_across_formats,
    contents_by_hash,
    contents_of_records,
)
from kafka_forensics.scanning.rereading.seeking import start_position_of
from kafka_forensics.storage.bundles import BundleSource, CollectedLog, needed_records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from kafka_forensics.analysis.producers import EpochBump
    from kafka_forensics.parsers.log_dir import SegmentLog
    from kafka_forensics.scanning.folding.keys import DeferredKeys
    from kafka_forensics.storage.source import ByteFile, ByteSource

    Ints = NDArray[np.int64]

_BATCHES_KEPT: Final = 2


class LogReader:
    """`BatchReader` over the plans of one partition; `key` is the `digest_key`.

    `as_of_ms` is the time that ages count to; None: the newest in the evidence.
    """

    def __init__(self, plans: list[ReplicaPlan], key: "Ints", as_of_ms: int | None = None) -> None:
        self._plans = {id(plan.context): plan for plan in plans}
        self.as_of_ms = as_of_ms
        self.deferred: DeferredKeys | None = None
        """Key questions about large logs; None: all are answered here."""
        self.key = key
        self.incomplete: list[Incomplete] = []
        self._needed: dict[str, tuple[int, int, int]] = {}
        """Path of a collected log → (start, end) of the offsets whose records are needed, and the index in `incomplete`."""
        self.problems: list[tuple[Replica, int, Damage]] = []
        """(replica, segment, damage) of batches that could not be decoded."""
        self._decoded: dict[tuple[int, int, int], Contents] = {}
        """Records of the last batches that were compared across message formats, by (context, segment, position); a batch of one
        log may be compared with thousands of another."""

    def batches(self, replica: Replica, start: int, end: int) -> "Ints":
        """Batches that hold an offset of `[start, end)`, in file order, with their segments in a last row."""
        plan = self._plans[id(replica.context)]
        rows = [np.empty((BATCH_COLUMNS + 1, 0), np.int64)]
        for log in plan.directory.logs():
            if log.base_offset >= end or not log.reaches(start):
                continue
            moved = {batch.position: batch.offset for batch in replica.misplaced if batch.segment == log.base_offset}
            try:
                rows += self._of_segment(plan, log, (start, end), moved)
            except SourceError as error:
                self.incomplete.append(not_read(plan.log_dir.source, error))
        return np.concatenate(rows, axis=1)

    def _of_segment(self, plan: ReplicaPlan, log: "SegmentLog", offsets: tuple[int, int], moved: dict[int, int]) -> list["Ints"]:
        """Rows of a segment; `moved` are the right base offsets of misplaced batches, by byte position."""
        start, end = offsets
        parts = []
        with plan.log_dir.source.open(log.entry.path) as file:
            limit = log.max_plausible_offset
            reader = SegmentReader.with_checks(file, limit, key=self.key)
            for chunk in reader.chunks(start_position_of(plan, log, start)):
                columns = correct_base_offsets(chunk, moved).columns if moved else chunk.columns
                base, last = columns[BatchColumn.BASE_OFFSET], columns[BatchColumn.LAST_OFFSET]
                rows = columns[:, (last >= start) & (base < end)]
                parts.append(np.vstack((rows, np.full(rows.shape[1], log.base_offset, np.int64))))
                if base.size and int(base.min()) >= end:
                    break
        return parts

    def batch_at(self, replica: Replica, place: tuple[int, int]) -> "Ints | None":
        """The batch at (segment, byte position), a column by BatchColumn, as written there; None if none can be read."""
        base_offset, position = place
        segment = self._plans[id(replica.context)].directory.segment(base_offset)
        if segment is None or segment.log is None:
            return None
        try:
            with self._open_segment(replica, base_offset) as file:
                first = SegmentReader(file).first_chunk(position)
                is_batch = first.rows > 0 and int(first.columns[BatchColumn.POSITION, 0]) == position
                return first.columns[:, 0].copy() if is_batch else None
        except SourceError as error:
            self._note_unread(replica, error)
            return None

    def same_records(self, left: ReplicaBatch, right: ReplicaBatch, *, common: bool) -> bool | None:
        """Whether two batches hold equal records, see `BatchReader`."""
        broken = [self._is_known_broken(batch) for batch in (left, right)]  # notes the damage of both
        if any(broken):
            return None
        by_facts = self._same_by_facts(left, right, common=common)
        if by_facts is False and any(self._is_broken_here(batch) for batch in (left, right)):
            return None
        if by_facts is not None:
            return by_facts
        ours, theirs = self._undamaged(left), self._undamaged(right)
        if ours is None or theirs is None:
            return None
        if common and equal_common_records(ours, theirs):
            return True
        left_records, right_records = _records(ours, left.row), _records(theirs, right.row)
        if common:
            return all(left_records[offset] == right_records[offset] for offset in left_records.keys() & right_records.keys())
        return left_records == right_records

    def across_formats(self, left: ReplicaBatch, right: ReplicaBatch, *, common: bool) -> AcrossFormats | None:
        """How two batches of different message formats compare, see `BatchReader`."""
        batches = left, right
        broken = [self._is_known_broken(batch) for batch in batches]  # notes the damage of both
        if any(broken):
            return None
        contents: list[Contents] = []
        if any(isinstance(self._source(batch.replica), BundleSource) for batch in batches):
            hashes = [(self._hashes(batch, batches), batch.row) for batch in batches]
            contents = [
                contents_by_hash(records, row) for records, row in hashes if records is not None and not records.unread.size
            ]
        if len(contents) < 2:
            decoded = [self._contents(batch) for batch in batches]
            contents = [records for records in decoded if records is not None]
        return None if len(contents) < 2 else compared_across_formats(contents, [left.row, right.row], common=common)

    def _contents(self, batch: ReplicaBatch) -> Contents | None:
        """The records of a batch, cached for its next comparison; None if they cannot be read."""
        place = id(batch.replica.context), *batch.place
        contents = self._decoded.pop(place, None)
        if contents is None:
            decoded = self._undamaged(batch)
            contents = None if decoded is None else contents_of_records(decoded.iter_records(), batch.row)
        if contents is not None:
            self._decoded[place] = contents
            if len(self._decoded) > _BATCHES_KEPT:
                del self._decoded[next(iter(self._decoded))]
        return contents

    def first_different_offset(self, left: ReplicaBatch, right: ReplicaBatch) -> int | None:
        """The first offset at which two batches hold different records, see `BatchReader`."""
        ours, theirs = self.decoded(left), self.decoded(right)
        if ours is None or theirs is None:
            return None
        left_records, right_records = _records(ours, left.row), _records(theirs, right.row)
        shared = left_records.keys() & right_records.keys()
        return min((offset for offset in shared if left_records[offset] != right_records[offset]), default=None)

    def _same_by_facts(self, left: ReplicaBatch, right: ReplicaBatch, *, common: bool) -> bool | None:
        """Whether facts of collected logs show two batches equal; None if they do not decide, or no log is a collected one."""
        batches = left, right
        bundles = [source for batch in batches if isinstance(source := self._source(batch.replica), BundleSource)]
        if not bundles or not all(has_right_crc(batch.row) for batch in batches):
            return None
        same = have_same_records(*(BatchFacts(batch.row, self._digest(batch, bundles)) for batch in batches), common=common)
        if same is not None or not common:
            return same
        ours, theirs = (self._hashes(batch, batches) for batch in batches)
        return None if ours is None or theirs is None else equal_common_hashes(ours, theirs)

    def _hashes(self, batch: ReplicaBatch, pair: tuple[ReplicaBatch, ReplicaBatch]) -> HashedRecords | None:
        """The hashed records of a batch, comparable between the replicas of a pair of batches; None if there are none."""
        hash_key = hash_key_of(self._plans[id(of_pair.replica.context)] for of_pair in pair)
        replica, (segment, position) = batch.replica, batch.place
        hasher = hasher_of(hash_key, 0)
        try:
            with self._open_segment(replica, segment) as file:
                if isinstance(file, CollectedLog):
                    agrees = hash_key_of([self._plans[id(replica.context)]]) == hash_key
                    return CollectedHashes(file).hashed_records(np.array([position])) if agrees and file.has_hashes else None
        except SourceError as error:
            self._note_unread(replica, error)
            return None
        decoded = None if hasher is None else self._undamaged(batch)
        if decoded is None or hasher is None:
            return None
        return HashedRecords.together(list(HashingReader(hasher, with_headers=True).opened(decoded, position)))

    def is_repeated_by_facts(self, *batches: ReplicaBatch) -> bool | None:
        """Whether facts of a collected log say that a producer sent one of two batches again; None for any other log."""
        source = self._source(batches[0].replica)
        if not isinstance(source, BundleSource):
            return None
        return is_repeated(*(BatchFacts(batch.row, self._digest(batch, [source])) for batch in batches))

    def _known_damage(self, batch: ReplicaBatch) -> list[Damage] | None:
        """Damage inside a batch of a collected log by its facts; None if it was not checked, and for any other log."""
        replica, (segment, position) = batch.replica, batch.place
        if not isinstance(self._source(replica), BundleSource):
            return None
        try:
            with self._open_segment(replica, segment) as file:
                return damage_inside_batch(file, position) if isinstance(file, CollectedLog) else None
        except SourceError as error:
            self._note_unread(replica, error)
            return None

    def _is_known_broken(self, batch: ReplicaBatch) -> bool:
        """Whether facts say that a batch is damaged inside; notes the damage."""
        damage = self._known_damage(batch) or []
        self.problems += [(batch.replica, batch.place[0], problem) for problem in damage]
        return bool(damage)

    def _is_broken_here(self, batch: ReplicaBatch) -> bool:
        """Whether a batch that is not of a collected log cannot be decoded; notes the damage."""
        return not isinstance(self._source(batch.replica), BundleSource) and self._undamaged(batch) is None

    def _note_needed(self, path: str, log: CollectedLog, offsets: tuple[int, int]) -> None:
        """Note that records of these offsets are needed, in one line with other offsets of their log."""
        start, end, number = self._needed.get(path, (*offsets, len(self.incomplete)))
        start, end = min(start, offsets[0]), max(end, offsets[1])
        self._needed[path] = start, end, number
        error = log.missing_records_error((start, end))
        self.incomplete[number : number + 1] = [Incomplete(path, error.reason, needed=error.needed)]

    def _note_unread(self, replica: Replica, error: SourceError) -> None:
        self.incomplete.append(not_read(self._source(replica), error))

    def _source(self, replica: Replica) -> "ByteSource":
        return self._plans[id(replica.context)].log_dir.source

    def _digest(self, batch: ReplicaBatch, bundles: "Sequence[BundleSource]") -> bytes | None:
        """The digest of a batch's records, as `bundles` have it; None if they use several keys, or it is not known."""
        keys = {bundle.about.redaction for bundle in bundles}
        if len(keys) > 1:
            return None
        replica, (segment, position), size = batch.replica, batch.place, int(batch.row[BatchColumn.SIZE_IN_BYTES])
        try:
            with self._open_segment(replica, segment) as file:
                if isinstance(file, CollectedLog):
                    digest: bytes | None = read_digest(file, position)
                    return digest
                if size > MAX_BATCH_BYTES or keys != {None}:
                    return None
                data = file.read_at(position, size)
                return content_digest(data) if len(data) == size else None
        except SourceError as error:
            self._note_unread(replica, error)
            return None

    def _open_segment(self, replica: Replica, base_offset: int) -> "ByteFile":
        """Open the log of a segment. Raises SourceError."""
        plan = self._plans[id(replica.context)]
        segment = plan.directory.segment(base_offset)
        if segment is None or segment.log is None:
            raise SourceError(plan.directory.path, f"no log of segment {base_offset}")
        return plan.log_dir.source.open(segment.log.path)

    def _undamaged(self, batch: ReplicaBatch) -> DecodedBatch | None:
        """A decoded batch; None if it cannot be read, or is damaged inside, which is noted."""
        decoded = self.decoded(batch)
        if decoded is None or not decoded.problems:
            return decoded
        self.problems += [(batch.replica, batch.place[0], damage) for damage in decoded.problems]
        return None

    def undecodable(self, batch: ReplicaBatch) -> bool:
        """Whether a batch was read and cannot be decoded, see `BatchReader`."""
        damage = self._known_damage(batch)
        if damage is None:
            decoded = self.decoded(batch)
            damage = [] if decoded is None else decoded.problems
        return any(problem.kind not in kinds_with(Trait.HEADER_MISCOUNTS) for problem in damage)

    def decoded(self, batch: ReplicaBatch) -> DecodedBatch | None:
        """A batch, decoded; None if it is too large, or cannot be read."""
        (replica, row), (base_offset, position) = batch, batch.place
        plan = self._plans[id(replica.context)]
        segment, size = plan.directory.segment(base_offset), int(row[BatchColumn.SIZE_IN_BYTES])
        if segment is None or segment.log is None:
            return None
        path = typed_path(plan.log_dir.source, segment.log.path)
        if size > MAX_BATCH_BYTES:
            self.incomplete.append(
                Incomplete(path, f"batch of {size} bytes at byte {position} is too large to compare its records")
            )
            return None
        try:
            with plan.log_dir.source.open(segment.log.path) as file:
                if isinstance(file, CollectedLog) and file.batch(position) is None:
                    self._note_needed(path, file, (int(row[BatchColumn.BASE_OFFSET]), int(row[BatchColumn.LAST_OFFSET]) + 1))
                    return None
                data = read_batch(file, position, size)
        except SourceError as error:
            self.incomplete.append(Incomplete(path, error.reason, needed=needed_records(error)))
            return None
        moved = next((misplaced for misplaced in replica.misplaced if misplaced.place == batch.place), None)
        return decode_batch(data if moved is None else moved.rewritten(data), position=position)


def _records(decoded: DecodedBatch, row: "Ints") -> dict[int, tuple[object, ...]]:
    """Offset → what must be equal on every replica."""
    producer = int(row[BatchColumn.PRODUCER_ID]), int(row[BatchColumn.PRODUCER_EPOCH])
    return {record.offset: (*_content(record), *producer) for record in decoded.iter_records()}


def _content(record: Record) -> tuple[object, ...]:
    """What must be equal; values too large to be held differ by their sizes alone."""
    return record.key, record.value, record.headers, record.timestamp, record.key_length, record.value_length


# Batches that a producer sent again after it raised its epoch.


OFFSETS_SEARCHED_BEFORE: Final = 4096
"""Offsets before a raised epoch in which the repeated batch is searched for."""
IN_FLIGHT: Final = 5
"""Batches that an idempotent producer may have in flight (max.in.flight.requests.per.connection)."""


def repeated_batches(replica: "Replica", reader: "LogReader") -> list[tuple[int, int]]:
    """(offset of a batch, offset of the batch whose records it repeats under a higher producer epoch), in the order of the log."""
    repeated = []
    for bump in replica.state.bumps.kept:
        rows = reader.batches(replica, max(bump.base_offset - OFFSETS_SEARCHED_BEFORE, 0), offset_after(bump.last_offset))
        of_producer = [ReplicaBatch(replica, row) for row in rows.T if int(row[BatchColumn.PRODUCER_ID]) == bump.producer_id]
        batch = next((sent for sent in of_producer if int(sent.row[BatchColumn.BASE_OFFSET]) == bump.base_offset), None)
        if batch is None:
            continue
        before = [sent for sent in of_producer if _is_before(sent.row, bump)][-IN_FLIGHT:]
        earlier = next((sent for sent in before if _is_repeated(reader, batch, sent)), None)
        if earlier is not None:
            repeated.append((bump.base_offset, int(earlier.row[BatchColumn.BASE_OFFSET])))
    return repeated


def _is_before(row: "Ints", bump: "EpochBump") -> bool:
    return int(row[BatchColumn.PRODUCER_EPOCH]) < bump.producer_epoch and int(row[BatchColumn.LAST_OFFSET]) < bump.base_offset


def _is_repeated(reader: "LogReader", batch: ReplicaBatch, earlier: ReplicaBatch) -> bool:
    """Whether two batches hold the same records, with the timestamps that their producer set."""
    if batch.row[BatchColumn.RECORDS_COUNT] != earlier.row[BatchColumn.RECORDS_COUNT]:
        return False
    if (batch.row[BatchColumn.ATTRIBUTES] | earlier.row[BatchColumn.ATTRIBUTES]) & TIMESTAMP_TYPE_MASK:
        return False
    by_facts = reader.is_repeated_by_facts(batch, earlier)
    if by_facts is not None:
        return by_facts
    ours, theirs = reader.decoded(batch), reader.decoded(earlier)
    if ours is None or theirs is None or ours.problems or theirs.problems:
        return False
    return list(map(_content, ours.iter_records())) == list(map(_content, theirs.iter_records()))
