"""`.timeindex`: the largest timestamp so far and where it was met (TimeIndex)."""

from typing import Final

import numpy as np

from kafka_forensics.model.constants import TIME_INDEX_ENTRY_SIZE
from kafka_forensics.model.files import TimeIndex
from kafka_forensics.parsers.bounded import read_index_entries
from kafka_forensics.parsers.indexes.offset_index import absolute_offsets
from kafka_forensics.storage.source import ByteFile

_ENTRY: Final = np.dtype([("timestamp", ">i8"), ("relative_offset", ">i4")])
assert _ENTRY.itemsize == TIME_INDEX_ENTRY_SIZE


def parse_time_index(file: ByteFile, base_offset: int) -> TimeIndex:
    """The entries of a `.timeindex` whose name gives `base_offset` (not negative); order is not judged.

    Timestamps are milliseconds, offsets absolute and held at 2^63 - 1. The all-zero entries at the end are preallocation.
    """
    index = read_index_entries(file, _ENTRY)
    offsets = absolute_offsets(index.entries["relative_offset"], base_offset)
    return TimeIndex(index.entries["timestamp"].astype(np.int64), offsets, index.zero_tail_bytes, index.damage)
