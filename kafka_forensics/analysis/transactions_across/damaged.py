"""What damage hides of a log's transactions, and what a producer snapshot beside it still knows of them.

Where batches cannot be read, transactions may have begun or ended: read_committed readers may have to wait at any of these offsets.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas import damaged_offsets
from kafka_forensics.analysis.transactions import OpenTransaction

SPANS_TOLD: Final = 16
"""Ranges of damaged offsets told of one log."""


@dataclass(frozen=True, slots=True)
class DamagedLog:
    """Bytes of a log that cannot be read, and the offsets they held, ends exclusive: the first ranges; none where they are not
    known."""

    size_in_bytes: int
    spans: tuple[tuple[int, int], ...]


def damage_of(replica: Replica) -> DamagedLog | None:
    """What of a log is damaged, but for a last batch that was cut off and not committed; None if nothing is."""
    size = replica.state.framing.bytes_damaged
    if (replica.context.high_watermark or 0) <= replica.log_end_offset:
        last = max(replica.context.segment_base_offsets, default=-1)
        torn = replica.state.framing.damage.get("SEG_TORN_TAIL", ())
        size -= sum(damage.size_in_bytes for segment, damage in torn if segment == last)
    if size <= 0:
        return None
    spans = damaged_offsets(replica, replica.log_start_offset, replica.log_end_offset)
    return DamagedLog(size, tuple(spans[:SPANS_TOLD]))


def hidden_by_damage(replica: Replica, known: Iterable[OpenTransaction]) -> list[OpenTransaction]:
    """Those of `known`, which snapshots hold open, that begin in damaged offsets and of which the log shows nothing since, by first
    offset. Where the fold forgot producers, nobody can say that."""
    damage = damage_of(replica)
    if damage is None or not replica.end_is_known:
        return []
    fold = replica.state.transactions
    found = {}
    for transaction in known:
        if not any(start <= transaction.first_offset < end for start, end in damage.spans):
            continue
        state = fold.view([transaction.producer_id]).get(transaction.producer_id)
        silent = (
            not fold.knows(transaction.producer_id)
            if state is None
            else state.first_offset < 0 and state.last_offset < transaction.first_offset
        )
        if silent:
            found[transaction.producer_id] = transaction
    return sorted(found.values(), key=lambda transaction: (transaction.first_offset, transaction.producer_id))
