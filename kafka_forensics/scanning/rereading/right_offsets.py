"""Replicas with batches whose base offset is wrong: folded again, and put right."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.segments import Misplaced, Witnessed, at_end
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.scanning.folding.fold_split import Folded, Folding, Merged, fold_split, merge_replica
from kafka_forensics.scanning.folding.prefetch import never
from kafka_forensics.scanning.folding.segment_indexes import read_indexes
from kafka_forensics.scanning.folding.splits import Split, splits_of
from kafka_forensics.scanning.rereading.logs_in_order import witnessed_by
from kafka_forensics.scanning.rereading.reader import LogReader

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_ROUNDS: Final = 3
"""Times that a replica is folded again: one that was put right may show what hid behind a wrong offset."""


def with_right_offsets(merged: "Sequence[Merged]", key: "NDArray[np.int64]", *, deep: bool) -> "list[Merged]":
    """The replicas of one partition, each as if all its batches bore the base offsets that belong to their places.

    A replica in which none is wrong is given as it is; any other is read once more. `key` and `deep` are those of the first fold.
    """
    folded = list(merged)
    for _ in range(_ROUNDS):
        wrong = [replica.in_doubt() for _, replica, _ in folded]
        folded = [
            _folded_again(merged_replica, batches, key, deep=deep) if batches else merged_replica
            for merged_replica, batches in zip(folded, wrong, strict=True)
        ]
        if not any(wrong):
            break
    for number, merged_replica in enumerate(folded):
        last = _last(folded, number, key)
        if last is not None:
            folded[number] = _folded_again(merged_replica, [last], key, deep=deep)
    return folded


def _folded_again(merged: "Merged", batches: list[Misplaced], key: "NDArray[np.int64]", *, deep: bool) -> "Merged":
    """The replica folded with these batches put right as well."""
    plan, replica, snapshot = merged
    misplaced = (*replica.misplaced, *batches)

    def refold(split: Split) -> Iterator[Folded]:
        base_offset = split.segment.base_offset
        moved = {batch.position: batch.offset for batch in misplaced if batch.segment == base_offset}
        return fold_split(plan, split, Folding(key, deep), read_indexes(plan, split.segment), never, moved)

    stretches = (folded for split in splits_of(0, plan) for folded in refold(split))
    return plan, *merge_replica(plan, snapshot.inputs, stretches, refold, lambda _: None, misplaced)


def _last(folded: "Sequence[Merged]", number: int, key: "NDArray[np.int64]") -> Misplaced | None:
    """The last batch of a replica, if its base offset is wrong."""
    plan, replica, _ = folded[number]
    last = replica.last_in_doubt()
    if last is None:
        return None
    heard = witnessed_by(plan, last)
    others = [other for index, (_, other, _) in enumerate(folded) if index != number]
    reader = LogReader([replica_plan for replica_plan, _, _ in folded], key)
    _hear_replicas(heard, reader, replica, others, last)
    return at_end(last, heard, cleaned=replica.context.compacted)


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
