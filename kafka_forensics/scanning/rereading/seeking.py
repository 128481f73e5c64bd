"""Where in a segment to begin reading for an offset or a time: its indexes, believed only as far as the segment bears them out."""

from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.parsers.indexes import parse_offset_index, parse_time_index
from kafka_forensics.parsers.kernels.compiling import have_compiled
from kafka_forensics.parsers.log import SegmentReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafka_forensics.model.batches import BatchChunk
    from kafka_forensics.storage.source import ByteFile

_SEARCHED_BYTES: Final = 1 << 20
"""How far behind its offset-index entry the batch that a time-index entry speaks of may begin."""
FIRST_RANGE_BYTES: Final = 64 << 10
SLOW_RANGE_BYTES: Final = 256 << 10
LAST_RANGE_BYTES: Final = 4 << 20
"""The first batches are to be seen at once; later ones come in larger ranges, of which interpreted kernels take long."""


def start_position(log: "ByteFile", index: "ByteFile", base_offset: int, offset: int) -> int:
    """Byte of `log` from which every batch that holds `offset` or a later one is met.

    That is the last `index` entry below `offset` that really begins a batch, 0 where there is none. Raises SourceError.
    """
    entries = parse_offset_index(index, base_offset)
    below = np.flatnonzero((entries.offsets < offset) & (entries.positions > 0))
    if not below.size:
        return 0
    position = int(entries.positions[below[-1]])
    first = SegmentReader(log).first_chunk(position)
    sound = first.rows == 1 and not first.damage and int(first.columns[BatchColumn.BASE_OFFSET, 0]) <= offset
    return position if sound else 0


def start_position_for_time(log: "ByteFile", index: "ByteFile", time_index: "ByteFile", base_offset: int, timestamp_ms: int) -> int:
    """Byte of `log` from which every record of `timestamp_ms` or later is met, whatever the order of timestamps.

    An entry says that no record up to its offset is later than its timestamp. The offset is that of the record, or since Kafka
    3.8 the last of its batch, so reading begins at the batch that holds it. The last entry below the time is believed only if that
    batch has just its timestamp as the maximum; else the answer is 0. Raises SourceError.
    """
    entries = parse_time_index(time_index, base_offset)
    below = np.flatnonzero(entries.timestamps < timestamp_ms)
    if not below.size or (entries.timestamps[below[-1]] < entries.timestamps[: below[-1]]).any():
        return 0
    timestamp, offset = int(entries.timestamps[below[-1]]), int(entries.offsets[below[-1]])
    start = start_position(log, index, base_offset, offset)
    for chunk in SegmentReader.with_checks(log).chunks(start, min(start + _SEARCHED_BYTES, log.size_in_bytes)):
        holding = np.flatnonzero(chunk.columns[BatchColumn.LAST_OFFSET] >= offset)
        if holding.size:
            batch = chunk.columns[:, holding[0]]
            borne_out = batch[BatchColumn.BASE_OFFSET] <= offset and batch[BatchColumn.MAX_TIMESTAMP] == timestamp
            return start if borne_out and not chunk.damage else 0
    return 0


def chunks_until(reader: SegmentReader, position: int, size: int, offset_end: int | None) -> "Iterator[BatchChunk]":
    """Chunks of growing ranges, until two in a row lie behind the offsets asked for: one batch may lie about its offset.

    From byte `position` of a file of `size` bytes; `offset_end` is exclusive, None for no bound.
    """
    length, behind = FIRST_RANGE_BYTES, 0
    while position < size and behind < 2:
        for chunk in reader.chunks(position, min(position + length, size)):
            yield chunk
            if offset_end is not None and chunk.rows:
                behind = behind + 1 if int(chunk.columns[BatchColumn.BASE_OFFSET].min()) >= offset_end else 0
        if reader.landed <= position:
            return  # the file became shorter
        position = reader.landed
        length = min(length * 2, LAST_RANGE_BYTES if have_compiled() else SLOW_RANGE_BYTES)
