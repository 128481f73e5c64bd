"""The 61-byte header of a magic 2 batch (DefaultRecordBatch), declared once, without construct, which kernels must not load.

`record_batch.RECORD_BATCH_HEADER` is the same declaration for construct.
"""

from itertools import accumulate
from struct import Struct, calcsize
from typing import Annotated, Final, NamedTuple, get_type_hints

from kafka_forensics.model.batches import TIMESTAMP_TYPES
from kafka_forensics.model.constants import (
    COMPRESSION_MASK,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    RECORD_BATCH_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)

Int8 = Annotated[int, "b"]
Int16 = Annotated[int, "h"]
Int32 = Annotated[int, "i"]
UInt32 = Annotated[int, "I"]
Int64 = Annotated[int, "q"]


def as_int64(value: int) -> int:
    """`value` as Java's long would hold it."""
    value = int(value) & 0xFFFFFFFFFFFFFFFF
    return value - ((value >> 63) << 64)


class BatchHeader(NamedTuple):
    """The fields of the header in order, as stored; each type names the field's `struct` format."""

    base_offset: Int64
    batch_length: Int32
    partition_leader_epoch: Int32
    magic: Int8
    crc: UInt32
    """CRC-32C over everything from `attributes` to the end of the batch."""
    attributes: Int16
    last_offset_delta: Int32
    base_timestamp: Int64
    max_timestamp: Int64
    producer_id: Int64
    producer_epoch: Int16
    base_sequence: Int32
    records_count: Int32

    @property
    def last_offset(self) -> int:
        """Inclusive; wraps at the ends of int64, as Kafka's does."""
        return as_int64(self.base_offset + self.last_offset_delta)

    @property
    def codec(self) -> int:
        """Attribute bits 0-2."""
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> str:
        """CreateTime or LogAppendTime."""
        return TIMESTAMP_TYPES[bool(self.attributes & TIMESTAMP_TYPE_MASK)]

    @property
    def is_transactional(self) -> bool:
        """Attribute bit 4."""
        return bool(self.attributes & TRANSACTIONAL_MASK)

    @property
    def is_control_batch(self) -> bool:
        """Attribute bit 5."""
        return bool(self.attributes & CONTROL_MASK)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the cleaner may remove tombstones and markers of the batch; None if it has set no time (attribute bit 6)."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_MASK else None


FORMATS: Final = {name: hint.__metadata__[0] for name, hint in get_type_hints(BatchHeader, include_extras=True).items()}
"""`struct` format by field, in order."""
BATCH_HEADER: Final = Struct(">" + "".join(FORMATS.values()))
assert BATCH_HEADER.size == RECORD_BATCH_OVERHEAD

_positions: Final = accumulate((calcsize(f">{code}") for code in FORMATS.values()), initial=0)
BASE_OFFSET_AT, LENGTH_AT, EPOCH_AT, MAGIC_AT, CRC_AT, ATTRIBUTES_AT, DELTA_AT, BASE_TIMESTAMP_AT, *_later = _positions
MAX_TIMESTAMP_AT, PRODUCER_ID_AT, PRODUCER_EPOCH_AT, BASE_SEQUENCE_AT, RECORDS_COUNT_AT, _size = _later
"""First byte of each field."""
