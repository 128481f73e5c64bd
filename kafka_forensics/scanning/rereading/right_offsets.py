"""Replicas with batches whose base offset is wrong, folded again with the right ones."""

from typing import TYPE_CHECKING, Final

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.segments import LogEndWitnesses, MisplacedBatch, misplaced_last_batch
from kafka_forensics.evidence.context import local_and_remote
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.scanning.folding.fold_split import FoldedReplica, FoldOptions, fold_replica
from kafka_forensics.scanning.rereading.logs_in_order import witnessed_by
from kafka_forensics.scanning.rereading.reader import LogReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

_ROUNDS: Final = 3
"""How often a replica is folded again: correcting one offset may reveal another wrong one."""
_CONTENT_COLUMNS: Final = [BatchColumn.CRC, BatchColumn.SIZE_IN_BYTES, BatchColumn.MAGIC]


def with_right_offsets(merged: "Sequence[FoldedReplica]", key: "NDArray[np.int64]", *, deep: bool) -> "list[FoldedReplica]":
    """The replicas of one partition, with all batches at the base offsets that belong to their places.

    Only a replica with wrong base offsets is read again. `key` and `deep` are those of the first fold. Logs in remote stores stay
    as they are: nothing is judged by the order of their offsets.
    """
    folded, remote = local_and_remote(merged, lambda of_log: of_log[0].context)
    options = FoldOptions(key, deep)
    for _ in range(_ROUNDS):
        misplaced = [replica.in_doubt() for _, replica, _ in folded]
        pairs = zip(folded, misplaced, strict=True)
        folded = [_corrected(of_replica, batches, options) if batches else of_replica for of_replica, batches in pairs]
        if not any(misplaced):
            break
    for number, of_replica in enumerate(folded):
        if (last := _misplaced_last_batch(folded, number, key)) is not None:
            folded[number] = _corrected(of_replica, [last], options)
    return [*folded, *remote]


def _corrected(merged: "FoldedReplica", batches: list[MisplacedBatch], options: FoldOptions) -> "FoldedReplica":
    """The replica folded with the offsets of these batches corrected as well."""
    plan, replica, snapshot = merged
    return fold_replica(plan, snapshot.inputs, options, misplaced=(*replica.misplaced, *batches))


def _misplaced_last_batch(folded: "Sequence[FoldedReplica]", number: int, key: "NDArray[np.int64]") -> MisplacedBatch | None:
    """The last batch of a replica, if its base offset is wrong."""
    plan, replica, _ = folded[number]
    last = replica.doubtful_last_batch()
    if last is None:
        return None
    witnessed = witnessed_by(plan, last)
    others = [other for index, (_, other, _) in enumerate(folded) if index != number]
    _add_replicas(witnessed, LogReader([plan for plan, _, _ in folded], key), replica, others, last)
    return misplaced_last_batch(last, witnessed, cleaned=replica.context.compacted)


def _add_replicas(
    witnessed: LogEndWitnesses, reader: LogReader, replica: Replica, others: list[Replica], last: MisplacedBatch
) -> None:
    """Add where other replicas hold a batch of equal bytes, and where the log itself does: such a batch was appended twice."""
    batch = reader.batch_at(replica, last.place)
    if batch is None:
        return
    for other in (replica, *others):
        for offset in (last.offset, last.written):
            rows = reader.batches(other, offset, offset + max(last.offsets, 1))
            equal = (rows[_CONTENT_COLUMNS] == batch[_CONTENT_COLUMNS][:, None]).all(axis=0)
            equal &= rows[BatchColumn.BASE_OFFSET] == offset
            if other is replica:
                equal &= (rows[-1] != last.segment) | (rows[BatchColumn.POSITION] != last.position)
            if equal.any():
                witnessed.starts.append((offset, f"equal bytes on broker {other.broker}"))
    witnessed.elsewhere += [(other.log_end_offset, f"log end of broker {other.broker}") for other in others if other.end_is_known]
