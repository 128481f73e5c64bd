"""Producers and transactions replayed as a start replays them: checks 26 and 27 of docs/recovery.md.

Nothing of a replicated batch is refused for its sequence or epoch (AppendOrigin.REPLICATION); what is left to throw ends the start
(ProducerAppendInfo, EndTransactionMarker, TransactionIndex.append of Kafka 4).
"""

from dataclasses import dataclass, field
from enum import Enum

from kafka_forensics.replication.recovery_facts import ABORTED_TXN_ORDER, PRODUCER_STATE, ReplayFault


class Marker(Enum):
    """What a control batch of a producer says."""

    ABORT = "abort"
    COMMIT = "commit"
    EMPTY = "empty"
    """No record is left of it."""
    INVALID = "invalid"
    """Key or value cannot be read, or its type ends no transaction."""


@dataclass(frozen=True, slots=True)
class ReplayedBatch:
    """A batch of a producer; `marker` None of data."""

    position: int
    base_offset: int
    producer_id: int
    is_transactional: bool
    marker: Marker | None = None


@dataclass(slots=True)
class ProducerReplay:
    """State: producers with an open transaction; and the last offset in the aborted transactions of the current segment."""

    open_producers: set[int]
    _segment: int = -1
    _last_aborted: int | None = field(default=None)

    def begin(self, segment: int) -> None:
        """A segment's `.txnindex` is built anew."""
        self._segment, self._last_aborted = segment, None

    def step(self, batch: ReplayedBatch) -> ReplayFault | None:
        """Add a batch of the segment; the fault if the start ends at it."""
        if batch.marker is None:
            return self._data(batch)
        if batch.marker is Marker.EMPTY:
            return None
        if batch.marker is Marker.INVALID:
            return self._fault(batch, PRODUCER_STATE)
        if batch.producer_id not in self.open_producers:
            return None
        self.open_producers.discard(batch.producer_id)
        if batch.marker is Marker.COMMIT:
            return None
        if self._last_aborted is not None and self._last_aborted >= batch.base_offset:
            return self._fault(batch, ABORTED_TXN_ORDER)
        self._last_aborted = batch.base_offset
        return None

    def _data(self, batch: ReplayedBatch) -> ReplayFault | None:
        if batch.is_transactional:
            self.open_producers.add(batch.producer_id)
            return None
        if batch.producer_id in self.open_producers:
            return self._fault(batch, PRODUCER_STATE)
        return None

    def _fault(self, batch: ReplayedBatch, check: int) -> ReplayFault:
        return ReplayFault(self._segment, batch.position, batch.base_offset, check)
