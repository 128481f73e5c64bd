"""Where a producer began anew under a higher epoch, outside of transactions: what it may have written before (KIP-360)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import CONTROL_MASK, TRANSACTIONAL_MASK

if TYPE_CHECKING:
    from numpy.typing import NDArray

BUMPS_KEPT: Final = 32
"""Of more than that only the first are looked into."""


@dataclass(frozen=True, slots=True)
class EpochBump:
    """A batch with sequence 0 in a producer epoch above 0; offsets are inclusive."""

    producer_id: int
    producer_epoch: int
    base_offset: int
    last_offset: int


class EpochBumps:
    """State: the first batches of raised producer epochs, in file order."""

    def __init__(self) -> None:
        self.kept: list[EpochBump] = []

    def step(self, columns: "NDArray[np.int64]") -> None:
        """Add batches, (BATCH_COLUMNS, n) int64 in file order. Transactions, which raise epochs in any case, are left out."""
        epoch = columns[BatchColumn.PRODUCER_EPOCH]
        if len(self.kept) >= BUMPS_KEPT or not epoch.size or int(epoch.max()) < 1:
            return
        plain = (columns[BatchColumn.ATTRIBUTES] & (TRANSACTIONAL_MASK | CONTROL_MASK)) == 0
        good = columns[BatchColumn.CRC] == columns[BatchColumn.CRC_COMPUTED]
        rows = np.flatnonzero(plain & good & (epoch > 0) & (columns[BatchColumn.BASE_SEQUENCE] == 0))
        for row in rows[: BUMPS_KEPT - len(self.kept)]:
            producer_id, producer_epoch, base, last = (int(columns[column, row]) for column in _FACTS)
            self.kept.append(EpochBump(producer_id, producer_epoch, base, last))

    def merge(self, right: "EpochBumps") -> None:
        """Add the stretch that stands behind ours."""
        self.kept += right.kept[: BUMPS_KEPT - len(self.kept)]


_FACTS: Final = (BatchColumn.PRODUCER_ID, BatchColumn.PRODUCER_EPOCH, BatchColumn.BASE_OFFSET, BatchColumn.LAST_OFFSET)
