"""Where in a segment to begin reading for an offset or a time, by index entries that the segment confirms."""

from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.errors import SourceError
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.parsers.indexes import parse_offset_index, parse_time_index
from kafka_forensics.parsers.kernels.compiling import have_compiled
from kafka_forensics.parsers.log import SegmentReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafka_forensics.evidence.inputs import ReplicaPlan
    from kafka_forensics.model.batches import BatchChunk
    from kafka_forensics.parsers.log_dir import SegmentLog
    from kafka_forensics.storage.source import ByteFile

_SEARCHED_BYTES: Final = 1 << 20
"""How far after its offset-index entry the batch of a time-index entry is searched for."""
FIRST_RANGE_BYTES: Final = 64 << 10
SLOW_RANGE_BYTES: Final = 256 << 10
LAST_RANGE_BYTES: Final = 4 << 20
"""Ranges grow, and the first batches appear at once; up to `SLOW_RANGE_BYTES` where kernels are interpreted."""


def start_position_of(plan: "ReplicaPlan", log: "SegmentLog", offset: int) -> int:
    """`start_position` in a segment of a replica; 0 without an index, or if a file cannot be read: reading the log reports that."""
    index = log.segment.index
    if index is None:
        return 0
    source = plan.log_dir.source
    try:
        with source.open(index.path) as index_file, source.open(log.entry.path) as log_file:
            return start_position(log_file, index_file, log.base_offset, offset)
    except SourceError:
        return 0


def start_position(log: "ByteFile", index: "ByteFile", base_offset: int, offset: int) -> int:
    """The byte of `log` before which no batch holds `offset` or a later one.

    It is the position of the last `index` entry below `offset` if a batch begins there whose base offset is not above `offset`,
    else 0. Raises SourceError.
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
    """The byte of `log` before which no record has `timestamp_ms` or a later timestamp, whatever the order of timestamps.

    A time-index entry says that no record up to its offset is later than its timestamp; the offset is that of the record, or since
    Kafka 3.8 the last of its batch. So reading begins at the batch of the last entry below the time, if the batch's max_timestamp
    is that of the entry; else the answer is 0. Raises SourceError.
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
            is_confirmed = batch[BatchColumn.BASE_OFFSET] <= offset and batch[BatchColumn.MAX_TIMESTAMP] == timestamp
            return start if is_confirmed and not chunk.damage else 0
    return 0


def chunks_until(reader: SegmentReader, position: int, size: int, offset_end: int | None) -> "Iterator[BatchChunk]":
    """Chunks from byte `position` of a file of `size` bytes, until two in a row have no offset below `offset_end`.

    One such chunk is not enough, because a batch may bear a wrong offset.
    """
    length, chunks_after_end = FIRST_RANGE_BYTES, 0
    while position < size and chunks_after_end < 2:
        for chunk in reader.chunks(position, min(position + length, size)):
            yield chunk
            if offset_end is not None and chunk.rows:
                is_after_end = int(chunk.columns[BatchColumn.BASE_OFFSET].min()) >= offset_end
                chunks_after_end = chunks_after_end + 1 if is_after_end else 0
        if reader.end_position <= position:
            return  # the file became shorter
        position = reader.end_position
        length = min(length * 2, LAST_RANGE_BYTES if have_compiled() else SLOW_RANGE_BYTES)
