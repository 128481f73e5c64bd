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
    for batch in batches:
        if batch.producer_id < 0:
            continue
        known = producers.get(batch.producer_id)
        if batch.marker is None:
            producers[batch.producer_id] = _with_data(known, batch)
            continue
        first = -1 if known is None else known.current_txn_first_offset
        producers[batch.producer_id] = _with_marker(known, batch)
        if batch.marker == ABORT and first >= 0:
            still_open = [entry.current_txn_first_offset for entry in producers.values() if entry.current_txn_first_offset >= 0]
            stable = min(still_open, default=batch.end_offset)
            aborted.append(AbortedTxn(batch.producer_id, first, batch.base_offset, stable))
    return producers, aborted


def _with_data(known: ProducerEntry | None, batch: Batch) -> ProducerEntry:
    first = -1 if known is None else known.current_txn_first_offset
    return ProducerEntry(
        batch.producer_id,
        batch.producer_epoch,
        (batch.base_sequence + len(batch.ids) - 1) & MAX_SEQUENCE,
        batch.end_offset - 1,
        len(batch.ids) - 1,
        batch.timestamp_ms,
        -1 if known is None else known.coordinator_epoch,
        batch.base_offset if batch.is_transactional and first < 0 else first,
    )


def _with_marker(known: ProducerEntry | None, batch: Batch) -> ProducerEntry:
    """A marker of a later epoch begins that epoch, in which the producer has written nothing yet."""
    nothing = ProducerEntry(
        batch.producer_id, batch.producer_epoch, -1, -1, 0, batch.timestamp_ms, batch.coordinator_epoch, current_txn_first_offset=-1
    )
    if known is None or known.producer_epoch != batch.producer_epoch:
        return nothing
    return replace(known, timestamp=batch.timestamp_ms, coordinator_epoch=batch.coordinator_epoch, current_txn_first_offset=-1)
