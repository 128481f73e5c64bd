"""Batches whose base offset is wrong: replicas folded again put right, and logs read in order without being folded."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kafka_forensics.analysis.misplaced import Misplaced, Witnessed, at_end, by_neighbours, put_right
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.engine.ahead import never
from kafka_forensics.engine.folding import Folded, fold_split, read_indexes
from kafka_forensics.engine.inputs import ReplicaPlan
from kafka_forensics.engine.merging import merge_replica
from kafka_forensics.engine.reader import LogReader
from kafka_forensics.engine.splits import Split, splits_of
from kafka_forensics.model.batches import BatchChunk, BatchColumn
from kafka_forensics.parsers.segment import SegmentReader

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kafka_forensics.engine.scanning import Merged
    from kafka_forensics.parsers.log_dir import SegmentFiles
    from kafka_forensics.storage.source import ByteFile

_OFFSET_BYTES: Final = 8
_PAST_ALL: Final = 2**63
"""No offset, but what follows the largest; nothing stands behind it."""
_ROUNDS: Final = 3
"""Times that a replica is folded again: one that was put right may show what hid behind a wrong offset."""


def with_right_offsets(merged: "Sequence[Merged]", key: "NDArray[np.int64]", *, deep: bool) -> "list[Merged]":
    """The replicas of one partition, each as if all its batches bore the base offsets that belong to their places.

    A replica in which none is wrong is given as it is; any other is read once more. `key` and `deep` are those of the first fold.
    """
    found = list(merged)
    for _ in range(_ROUNDS):
        wrong = [one.in_doubt() for _, one, _ in found]
        found = [_folded_again(one, batches, key, deep=deep) if batches else one for one, batches in zip(found, wrong, strict=True)]
        if not any(wrong):
            break
    for number, one in enumerate(found):
        last = _last(found, number, key)
        if last is not None:
            found[number] = _folded_again(one, [last], key, deep=deep)
    return found


def _folded_again(one: "Merged", batches: list[Misplaced], key: "NDArray[np.int64]", *, deep: bool) -> "Merged":
    """The replica folded with these batches put right as well."""
    plan, replica, snapshot = one
    misplaced = (*replica.misplaced, *batches)

    def refold(split: Split) -> Iterator[Folded]:
        base_offset = split.segment.base_offset
        moved = {batch.position: batch.offset for batch in misplaced if batch.segment == base_offset}
        return fold_split(plan, split, key, read_indexes(plan, split.segment), never, deep=deep, moved=moved)

    stretches = (folded for split in splits_of(0, plan) for folded in refold(split))
    return plan, *merge_replica(plan, snapshot.inputs, stretches, refold, lambda _: None, misplaced)


def _last(found: "Sequence[Merged]", number: int, key: "NDArray[np.int64]") -> Misplaced | None:
    """The last batch of a replica, if its base offset is wrong."""
    plan, replica, _ = found[number]
    last = replica.last_in_doubt()
    if last is None:
        return None
    heard = witnessed_by(plan, last)
    others = [other for index, (_, other, _) in enumerate(found) if index != number]
    reader = LogReader([each for each, _, _ in found], key)
    _hear_replicas(heard, reader, replica, others, last)
    return at_end(last, heard, cleaned=replica.context.compacted)


def witnessed_by(plan: ReplicaPlan, last: Misplaced) -> Witnessed:
    """What a replica's own files say of the end of its log, of which `last` is the last batch."""
    context = plan.context
    known = [(context.high_watermark, "high watermark"), (context.recovery_point, "recovery point")]
    heard = Witnessed([(offset, witness) for offset, witness in known if offset], [])
    heard.ends += [(offset, f"snapshot {offset}") for offset, _ in plan.directory.snapshots]
    heard.starts += [(entry.start_offset, "leader-epoch-checkpoint") for entry in context.epoch_checkpoint or ()]
    if last.position == 0:
        heard.starts.append((last.segment, "segment name"))
    segment = next((one for one in plan.directory.segments if one.base_offset == last.segment), None)
    if segment is not None:
        indexes = read_indexes(plan, segment)
        if indexes.index is not None:
            offsets = indexes.index.offsets[indexes.index.positions == last.position] if last.position else []
            heard.starts += [(int(offset) + 1 - last.offsets, "offset index") for offset in offsets]
        if indexes.time_index is not None:
            heard.ends += [(int(offset) + 1, "time index") for offset in indexes.time_index.offsets[-1:]]
    return heard


def _hear_replicas(heard: Witnessed, reader: LogReader, replica: Replica, others: list[Replica], last: Misplaced) -> None:
    """Add where other replicas hold equal bytes, and where the log itself holds them before: then they were appended twice."""
    this = reader.batch_at(replica, last.place)
    if this is None:
        return
    for other in (replica, *others):
        for offset in (last.offset, last.written):
            rows = reader.batches(other, offset, offset + max(last.offsets, 1))
            equal = (rows[_SAME] == this[_SAME][:, None]).all(axis=0) & (rows[BatchColumn.BASE_OFFSET] == offset)
            if other is replica:
                equal &= (rows[-1] != last.segment) | (rows[BatchColumn.POSITION] != last.position)
            if equal.any():
                heard.starts.append((offset, f"equal bytes on broker {other.broker}"))
    heard.elsewhere += [(other.log_end_offset, f"log end of broker {other.broker}") for other in others if other.end_is_known]


_SAME: Final = [BatchColumn.CRC, BatchColumn.SIZE_IN_BYTES, BatchColumn.MAGIC]


class Placing:
    """Which batches of a `.log` bear a wrong base offset, told chunk by chunk in file order, where nothing is folded.

    `before` is where the log ends in front of the first chunk, `behind` the next segment's first offset; None where that is not
    known. Of a `plan` the last batch of the log is judged by the replica's other files, too.
    """

    def __init__(self, file: "ByteFile", segment: int, before: int | None, behind: int | None, plan: ReplicaPlan | None) -> None:
        self._file = file
        self._segment = segment
        self._before = before
        self._behind = behind
        self._plan = plan

    def misplaced(self, chunk: BatchChunk) -> dict[int, Misplaced]:
        """Those of the next chunk, by byte position. Raises SourceError."""
        if not chunk.rows:
            return {}
        behind = self._behind
        end = int(chunk.columns[BatchColumn.POSITION, -1] + chunk.columns[BatchColumn.SIZE_IN_BYTES, -1])
        if end < self._file.size_in_bytes:
            behind = int.from_bytes(self._file.read_at(end, _OFFSET_BYTES), "big", signed=True)
        found = by_neighbours(chunk.columns, self._segment, self._before, behind)
        if behind is None and self._plan is not None:
            found += self._last(self._plan, put_right(chunk, {one.position: one.offset for one in found}))
        wrong = {one.position: one for one in found}
        last = wrong.get(int(chunk.columns[BatchColumn.POSITION, -1]))
        before = int(chunk.columns[BatchColumn.LAST_OFFSET, -1]) + 1 if last is None else last.end_offset
        self._before = before if before < _PAST_ALL else None
        return wrong

    def _last(self, plan: ReplicaPlan, chunk: BatchChunk) -> list[Misplaced]:
        """The last batch of the log, if the replica's other files say that its base offset is wrong."""
        columns = chunk.columns
        before = self._before if chunk.rows == 1 else int(columns[BatchColumn.LAST_OFFSET, -2]) + 1
        base = int(columns[BatchColumn.BASE_OFFSET, -1])
        sound = columns[BatchColumn.CRC, -1] == columns[BatchColumn.CRC_COMPUTED, -1] and not chunk.damage
        if before is None or before == base or not sound:
            return []
        offsets = int(columns[BatchColumn.LAST_OFFSET, -1]) - base + 1
        doubted = Misplaced(self._segment, int(columns[BatchColumn.POSITION, -1]), offsets, base, before, before)
        wrong = at_end(doubted, witnessed_by(plan, doubted), cleaned=plan.context.compacted)
        return [] if wrong is None else [wrong]


def rightly_placed(
    plan: ReplicaPlan, segment: "SegmentFiles", file: "ByteFile"
) -> Iterator[tuple[BatchChunk, dict[int, Misplaced]]]:
    """The chunks of a replica's `.log` with the base offsets that belong there, and the batches where others are written, by byte
    position. Raises SourceError."""
    later = [one.base_offset for one in plan.directory.segments if one.log is not None and one.base_offset > segment.base_offset]
    placing = Placing(file, segment.base_offset, segment.base_offset, min(later, default=None), plan)
    for chunk in SegmentReader(file).chunks():
        wrong = placing.misplaced(chunk)
        yield put_right(chunk, {position: one.offset for position, one in wrong.items()}) if wrong else chunk, wrong
