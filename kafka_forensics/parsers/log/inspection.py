"""Looking inside batches while their bytes are at hand: legacy wrappers always, every record when a scan is deep."""

from typing import TYPE_CHECKING

import numpy as np

from kafka_forensics.model.batches import BatchColumn, Damage
from kafka_forensics.model.constants import COMPRESSION_MASK
from kafka_forensics.parsers.log.legacy import open_wrapper
from kafka_forensics.parsers.log.records import KeySampler, check_rows
from kafka_forensics.parsers.log.segment import Inspector

if TYPE_CHECKING:
    from numpy.typing import NDArray


def inspector(*, deep: bool, keys: KeySampler | None = None) -> Inspector:
    """The function a `SegmentReader` calls with each run of fresh rows; a deep one lets `keys` look at some records' keys."""
    opened = None if keys is None else keys.opened

    def inspect(buffer: "NDArray[np.uint8]", position: int, columns: "NDArray[np.int64]", first: int, end: int) -> list[Damage]:
        damage = check_rows(buffer, position, columns, first, end, opened) if deep else []
        if deep and keys is not None:
            keys.plain(buffer, position, columns, first, end)
        if int(columns[BatchColumn.MAGIC, first:end].min()) < 2:
            _open_wrappers(buffer, position, columns, first, end)
        return damage

    return inspect


def _open_wrappers(buffer: "NDArray[np.uint8]", position: int, columns: "NDArray[np.int64]", first: int, end: int) -> None:
    """Give compressed messages of the old formats the offsets and the number of the messages inside them."""
    good = columns[BatchColumn.CRC, first:end] == columns[BatchColumn.CRC_COMPUTED, first:end]
    compressed = columns[BatchColumn.ATTRIBUTES, first:end] & COMPRESSION_MASK != 0
    for row in np.flatnonzero(good & compressed & (columns[BatchColumn.MAGIC, first:end] < 2)):
        column = columns[:, first + int(row)]
        start = int(column[BatchColumn.POSITION]) - position
        opened = open_wrapper(buffer[start : start + int(column[BatchColumn.SIZE_IN_BYTES])].tobytes())
        if opened.records_count > 0:
            column[BatchColumn.BASE_OFFSET] = opened.base_offset
            column[BatchColumn.LAST_OFFSET] = opened.last_offset
            column[BatchColumn.RECORDS_COUNT] = opened.records_count
