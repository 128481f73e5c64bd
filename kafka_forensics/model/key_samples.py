"""Keys of some records, hashed as clients' default partitioners hash them: what tells how a topic's keys are placed."""

from enum import IntEnum
from typing import Final


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
