"""Batches that a producer wrote again after it had raised its epoch: read again from the log, record by record."""

from typing import TYPE_CHECKING, Final

from kafka_forensics.analysis.producers import offset_behind
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import TIMESTAMP_TYPE_MASK

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kafka_forensics.analysis.producers import EpochBump
    from kafka_forensics.analysis.replica import Replica
    from kafka_forensics.rereading.reader import LogReader

    Batches = NDArray[np.int64]

LOOK_BACK: Final = 4096
"""Offsets before a raised epoch in which its batch is looked for."""
IN_FLIGHT: Final = 5
"""Batches that an idempotent producer may have had on their way (max.in.flight.requests.per.connection)."""


def repeated_batches(replica: "Replica", reader: "LogReader") -> list[tuple[int, int]]:
    """(offset of a batch, offset of the one whose records it repeats under a higher producer epoch), in the order of the log."""
    found = []
    for bump in replica.state.bumps.kept:
        rows = reader.batches(replica, max(bump.base_offset - LOOK_BACK, 0), offset_behind(bump.last_offset))
        own = [row for row in rows.T if int(row[BatchColumn.PRODUCER_ID]) == bump.producer_id]
        earlier = next((row for row in _before(own, bump) if _same(replica, reader, row, own, bump)), None)
        if earlier is not None:
            found.append((bump.base_offset, int(earlier[BatchColumn.BASE_OFFSET])))
    return found


def _before(own: "list[Batches]", bump: "EpochBump") -> "list[Batches]":
    """The producer's last batches of lower epochs before the bump."""
    lower = [row for row in own if int(row[BatchColumn.PRODUCER_EPOCH]) < bump.producer_epoch]
    return [row for row in lower if int(row[BatchColumn.LAST_OFFSET]) < bump.base_offset][-IN_FLIGHT:]


def _same(replica: "Replica", reader: "LogReader", row: "Batches", own: "list[Batches]", bump: "EpochBump") -> bool:
    """Whether a batch has the records of the bump's, with the timestamps that their producer gave them."""
    mine = next((one for one in own if int(one[BatchColumn.BASE_OFFSET]) == bump.base_offset), None)
    if mine is None or int(mine[BatchColumn.RECORDS_COUNT]) != int(row[BatchColumn.RECORDS_COUNT]):
        return False
    if (int(mine[BatchColumn.ATTRIBUTES]) | int(row[BatchColumn.ATTRIBUTES])) & TIMESTAMP_TYPE_MASK:
        return False
    ours, theirs = _records(replica, reader, mine), _records(replica, reader, row)
    return ours is not None and ours == theirs


def _records(replica: "Replica", reader: "LogReader", row: "Batches") -> list[tuple[object, ...]] | None:
    decoded = reader.decoded(replica, row)
    if decoded is None or decoded.problems:
        return None
    return [
        (record.key, record.value, record.headers, record.timestamp, record.key_length, record.value_length)
        for record in decoded.iter_records()
    ]
