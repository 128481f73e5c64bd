"""Batches and records as columns: one int64 matrix for each chunk; `columns[BatchColumn.BASE_OFFSET]` are all base offsets.

Kernels take one matrix instead of forty arguments, and each of its rows becomes an Arrow array without a copy. `schemas.BATCHES`
has the narrower types of exported columns.
"""

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


CHUNK_ROWS = 16352
"""Rows of one chunk (2.6 MB), and at most of a section of a bundle. Many, because each chunk has a cost under Python's lock; not a
power of two, because the columns of one row would then share a few lines of the first-level cache."""


class BatchColumn(IntEnum):
    """Row of the matrix for each field of a batch."""

    POSITION = 0
    """Byte position of the batch in its file."""
    SIZE_IN_BYTES = 1
    """batch_length + 12."""
    BASE_OFFSET = 2
    LAST_OFFSET = 3
    """Inclusive. Saturated at the ends of int64 when a hostile header would overflow it."""
    LAST_OFFSET_DELTA = 4
    PARTITION_LEADER_EPOCH = 5
    MAGIC = 6
    CRC = 7
    """As stored, unsigned."""
    CRC_COMPUTED = 8
    ATTRIBUTES = 9
    """Signed int16 for magic 2, signed int8 before."""
    BASE_TIMESTAMP = 10
    MAX_TIMESTAMP = 11
    PRODUCER_ID = 12
    PRODUCER_EPOCH = 13
    BASE_SEQUENCE = 14
    RECORDS_COUNT = 15
    """As stored; 1 for a plain legacy entry; -1 for a compressed legacy wrapper until it is opened."""
    CONTROL_RECORD_TYPE = 16
    """Type of the first control record; -1 if there is none or it is unreadable."""
    COORDINATOR_EPOCH = 17
    """Of an ABORT or COMMIT marker, else -1."""
    HASH_HIGH = 18
    HASH_LOW = 19
    """128-bit hash of the batch, keyed per scan, as two bit patterns."""


BATCH_COLUMNS = len(BatchColumn)
IDENTITY: Final = (
    BatchColumn.BASE_OFFSET,
    BatchColumn.LAST_OFFSET,
    BatchColumn.PARTITION_LEADER_EPOCH,
    BatchColumn.MAGIC,
    BatchColumn.SIZE_IN_BYTES,
    BatchColumn.CRC,
    BatchColumn.CRC_COMPUTED,
)
"""Fields that are equal in two copies of a batch; the input of its hash."""


class Damage(Struct, frozen=True):
    """Damaged bytes `[position, position + size_in_bytes)` of a file.

    `kind` is a finding kind (`BATCH_CRC_MISMATCH`, `FRAMING_LOST`, …); `base_offset` and `last_offset` (inclusive) are the offsets
    concerned, -1: unknown; `detail` has numbers and short strings for the evidence, never payload.
    """

    kind: str
    position: int
    size_in_bytes: int
    base_offset: int = -1
    last_offset: int = -1
    detail: dict[str, int | str | bool | list[int]] = field(default_factory=dict)


LOG_DAMAGE: Final = frozenset(
    {
        "BATCH_COUNT_LIE",
        "BATCH_CRC_MISMATCH",
        "BATCH_MAGIC_REGRESSION",
        "BATCH_MAGIC_UNKNOWN",
        "BUDGET_EXCEEDED",
        "CODEC_MALFORMED",
        "CODEC_SIZE_LIE",
        "DECOMP_LIMIT_EXCEEDED",
        "FRAMING_LOST",
        "LEGACY_NESTED_COMPRESSION",
        "RECORD_LENGTH_OUT_OF_BOUNDS",
        "RECORD_MALFORMED",
        "RECORD_VARINT_OVERLONG",
        "SEG_HOLE",
        "SEG_TORN_TAIL",
        "SEG_ZERO_TAIL",
    }
)
"""Kinds of damage found when a log is read."""


class BatchChunk(Struct):
    """Consecutive batches of one file: `columns` is (BATCH_COLUMNS, n) int64, `damage` is in or between them.

    `bytes_decoded + bytes_damaged + bytes_skipped` is the length of the file range of the chunk.
    """

    columns: "NDArray[np.int64]"
    damage: list[Damage]
    bytes_decoded: int
    bytes_damaged: int
    bytes_skipped: int

    @property
    def rows(self) -> int:
        """Number of batches."""
        return int(self.columns.shape[1])


def has_right_crc(columns: "NDArray[np.int64]") -> "NDArray[np.bool_]":
    """Which batches have the right CRC; columns by BatchColumn."""
    answer: NDArray[np.bool_] = columns[BatchColumn.CRC] == columns[BatchColumn.CRC_COMPUTED]
    return answer


# Records: columns for checks of millions, small values for display.


RECORD_ROWS: Final = 8192
"""Records of one matrix: its columns (0.7 MB) stay in a core's second-level cache."""
NO_TIMESTAMP_TYPE: Final = "NoTimestampType"
"""Of magic 0 messages."""
TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")
RECORD_TIMESTAMP_TYPES: Final = (*TIMESTAMP_TYPES, NO_TIMESTAMP_TYPE)
PAYLOAD_COLUMNS: Final = ("key", "value", "headers")
"""Columns of record rows with data of producers."""


class RecordColumn(IntEnum):
    """Row of the int64 matrix for each field of a record; positions are in the decompressed payload."""

    POSITION = 0
    SIZE_IN_BYTES = 1
    """Of the whole record with its length field."""
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
    """Of the first header, after the count."""
    HEADERS_COUNT = 10


RECORD_COLUMNS: Final = len(RecordColumn)


class MarkerColumn(IntEnum):
    """Row of the int64 matrix for each field of a transaction marker."""

    OFFSET_DELTA = 0
    TIMESTAMP_DELTA = 1
    CONTROL_RECORD_TYPE = 2
    """`CONTROL_ABORT` or `CONTROL_COMMIT`."""
    VERSION = 3
    """Of the value."""
    COORDINATOR_EPOCH = 4


MARKER_COLUMNS: Final = len(MarkerColumn)


class Record(Struct, frozen=True):
    """A record with the fields it takes from its batch; -1 means none in every number.

    `is_oversized`: the record is too large for memory, so key, value and headers are left out. `key_length` and `value_length`
    (-1: null) are right even then.
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


# Hashes of some keys by the clients' default partitioners, from which the partitioner of a topic is inferred.


class KeySampleColumn(IntEnum):
    """Row of the int64 matrix for each field of a sampled record."""

    OFFSET = 0
    TIMESTAMP = 1
    """Milliseconds; -1 is none."""
    KEY_LENGTH = 2
    """-1 for null. No hash determines the partition of a record without a key, and CRC32 not that of an empty key."""
    MURMUR2 = 3
    """Unsigned; Java's producer takes its lower 31 bits modulo the number of partitions."""
    CRC32 = 4
    """Unsigned; librdkafka takes it modulo the number of partitions."""


KEY_SAMPLE_COLUMNS: Final = len(KeySampleColumn)
