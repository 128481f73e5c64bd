"""Records: as columns while they are checked by the million, as small values where one is shown."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

RECORD_ROWS: Final = 8192
"""Records of one matrix: its columns (0.7 MB) stay in a core's second-level cache."""
NO_TIMESTAMP_TYPE: Final = "NoTimestampType"
"""Of magic 0 messages, which carry no timestamp."""
TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")


class RecordColumn(IntEnum):
    """Row of the int64 matrix that holds each fact about a record; positions count in the payload after decompression."""

    POSITION = 0
    SIZE_IN_BYTES = 1
    """Of the whole record: its length field and what that counts."""
    ATTRIBUTES = 2
    """Unused (0) in magic 2; those of the inner message before."""
    TIMESTAMP_DELTA = 3
    """From the batch's base timestamp; before magic 2 the message's own timestamp, -1 for magic 0."""
    OFFSET_DELTA = 4
    """From the base offset; before magic 2 the offset as stored."""
    KEY_POSITION = 5
    KEY_LENGTH = 6
    """-1 for null."""
    VALUE_POSITION = 7
    VALUE_LENGTH = 8
    """-1 for null."""
    HEADERS_POSITION = 9
    """Of the first header, behind their count."""
    HEADERS_COUNT = 10


RECORD_COLUMNS: Final = len(RecordColumn)


@dataclass(frozen=True, slots=True)
class Record:
    """One record with everything its batch says about it; -1 is "none" in every number.

    `key_length` and `value_length` are true sizes (-1 null) even where `is_oversized`: such a record is too large to hold, so its
    key, value and headers are left out.
    """

    offset: int
    timestamp: int
    timestamp_type: str
    """CreateTime, LogAppendTime or NoTimestampType."""
    sequence: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]
    size_in_bytes: int
    """After decompression."""
    key_length: int
    value_length: int
    is_oversized: bool = False


# Keys of some records, hashed as clients' default partitioners hash them: what tells how a topic's keys are placed.


class KeySampleColumn(IntEnum):
    """Row of the int64 matrix that holds each fact about a record that was looked at."""

    OFFSET = 0
    TIMESTAMP = 1
    """Milliseconds; -1 is none."""
    KEY_LENGTH = 2
    """-1 for null. Neither hash says where a record without a key goes, nor librdkafka's where one with an empty key does."""
    MURMUR2 = 3
    """Unsigned; Java's producer takes its lower 31 bits modulo the number of partitions."""
    CRC32 = 4
    """Unsigned; librdkafka takes it modulo the number of partitions."""


KEY_SAMPLE_COLUMNS: Final = len(KeySampleColumn)
