"""Looking inside batches while their bytes are at hand: legacy wrappers always, every record when a scan is deep."""

from typing import TYPE_CHECKING

import numpy as np

from kafka_forensics.model.batches import BatchColumn, Damage
from kafka_forensics.model.constants import COMPRESSION_MASK
from kafka_forensics.parsers.legacy import open_wrapper
from kafka_forensics.parsers.records import check_batch
from kafka_forensics.parsers.segment import Inspector

if TYPE_CHECKING:
    from numpy.typing import NDArray


def inspector(*, deep: bool) -> Inspector:
    """The function a `SegmentReader` calls with each run of fresh rows."""

    def inspect(buffer: "NDArray[np.uint8]", position: int, columns: "NDArray[np.int64]", first: int, end: int) -> list[Damage]:
        damage: list[Damage] = []
        magic = columns[BatchColumn.MAGIC, first:end]
        good = columns[BatchColumn.CRC, first:end] == columns[BatchColumn.CRC_COMPUTED, first:end]
        wrappers = good & (magic < 2) & (columns[BatchColumn.ATTRIBUTES, first:end] & COMPRESSION_MASK != 0)
        chosen = good if deep else wrappers
        for row in np.flatnonzero(chosen):
            column = columns[:, first + int(row)]
            start = int(column[BatchColumn.POSITION])
            batch = buffer[start - position : start - position + int(column[BatchColumn.SIZE_IN_BYTES])].tobytes()
            if wrappers[row]:
                opened = open_wrapper(batch)
                if opened.records_count > 0:
                    column[BatchColumn.BASE_OFFSET] = opened.base_offset
                    column[BatchColumn.LAST_OFFSET] = opened.last_offset
                    column[BatchColumn.RECORDS_COUNT] = opened.records_count
            if deep:
                damage.extend(check_batch(batch, start))
        return damage

    return inspect
