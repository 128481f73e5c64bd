"""What a broker keeps of producers beside a log, worked out from its batches: the state of each, and aborted transactions."""

from collections.abc import Iterable
from dataclasses import replace

from kafka_forensics.model.constants import MAX_SEQUENCE
from kafka_forensics.model.files import AbortedTxn, ProducerEntry
from kafka_forensics.simulation.cluster import ABORT, Batch


def producer_entries(batches: Iterable[Batch]) -> list[ProducerEntry]:
    """The state of every producer at the end of a log, as its snapshot holds it (ProducerStateManager)."""
    return list(_replayed(batches)[0].values())


def aborted_transactions(batches: Iterable[Batch]) -> list[AbortedTxn]:
    """Every aborted transaction of a log, as its transaction index lists them."""
    return _replayed(batches)[1]


def _replayed(batches: Iterable[Batch]) -> tuple[dict[int, ProducerEntry], list[AbortedTxn]]:
    producers: dict[int, ProducerEntry] = {}
    aborted: list[AbortedTxn] = []
    for one in batches:
        if one.producer_id < 0:
            continue
        known = producers.get(one.producer_id)
        if one.marker is None:
            producers[one.producer_id] = _with_data(known, one)
            continue
        first = -1 if known is None else known.current_txn_first_offset
        producers[one.producer_id] = _with_marker(known, one)
        if one.marker == ABORT and first >= 0:
            still_open = [each.current_txn_first_offset for each in producers.values() if each.current_txn_first_offset >= 0]
            stable = min(still_open, default=one.end_offset)
            aborted.append(AbortedTxn(one.producer_id, first, one.base_offset, stable))
    return producers, aborted


def _with_data(known: ProducerEntry | None, one: Batch) -> ProducerEntry:
    first = -1 if known is None else known.current_txn_first_offset
    return ProducerEntry(
        one.producer_id,
        one.producer_epoch,
        (one.base_sequence + len(one.ids) - 1) & MAX_SEQUENCE,
        one.end_offset - 1,
        len(one.ids) - 1,
        one.timestamp_ms,
        -1 if known is None else known.coordinator_epoch,
        one.base_offset if one.is_transactional and first < 0 else first,
    )


def _with_marker(known: ProducerEntry | None, one: Batch) -> ProducerEntry:
    """A marker of a later epoch begins that epoch, in which the producer has written nothing yet."""
    nothing = ProducerEntry(
        one.producer_id, one.producer_epoch, -1, -1, 0, one.timestamp_ms, one.coordinator_epoch, current_txn_first_offset=-1
    )
    if known is None or known.producer_epoch != one.producer_epoch:
        return nothing
    return replace(known, timestamp=one.timestamp_ms, coordinator_epoch=one.coordinator_epoch, current_txn_first_offset=-1)
