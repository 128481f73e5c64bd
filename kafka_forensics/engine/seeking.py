"""Where in a segment to begin reading for an offset: its offset index, believed only as far as the segment bears it out."""

from typing import TYPE_CHECKING

import numpy as np

from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.parsers.offset_index import parse_offset_index
from kafka_forensics.parsers.segment import SegmentReader

if TYPE_CHECKING:
    from kafka_forensics.storage.source import ByteFile


def start_position(log: "ByteFile", index: "ByteFile", base_offset: int, offset: int) -> int:
    """Byte of `log` from which every batch that holds `offset` or a later one is met.

    That is the last `index` entry below `offset` that really begins a batch, 0 where there is none. Raises SourceError.
    """
    entries = parse_offset_index(index, base_offset)
    below = np.flatnonzero((entries.offsets < offset) & (entries.positions > 0))
    if not below.size:
        return 0
    position = int(entries.positions[below[-1]])
    first = next(SegmentReader(log).chunks(position, position + 1))
    sound = first.rows == 1 and not first.damage and int(first.columns[BatchColumn.BASE_OFFSET, 0]) <= offset
    return position if sound else 0
