"""Records of `__transaction_state` (TransactionLogKey.json, TransactionLogValue.json; TransactionLog). Exact and slow.

Version 0 counts with 32-bit integers, version 1 (transaction.version 1 and up, KIP-890) is flexible: what it adds stands in
tagged fields. A null array is the state Empty's, or what the Complete states leave of their partitions.
"""

from typing import Any, Final

from construct import Construct, Int8sb, Int16sb, Int32sb, Int64sb, Struct, stream_read, stream_write

from kafka_forensics.parsers.spec.flexible import COMPACT_STRING, TAGGED_FIELDS, CompactArray, read_elements, read_text
from kafka_forensics.parsers.spec.record_batch import LengthError


class NonNullString(Construct):
    """A 16-bit length, then UTF-8; a negative length would be null and is an error here."""

    def _parse(self, stream: Any, _context: Any, path: str) -> str:
        length = int.from_bytes(stream_read(stream, 2, path), "big", signed=True)
        if length < 0:
            raise LengthError("null where a string must be", path=path)
        return read_text(stream, length, path)

    def _build(self, obj: str, stream: Any, _context: Any, path: str) -> str:
        data = obj.encode()
        stream_write(stream, len(data).to_bytes(2, "big", signed=True), 2, path)
        stream_write(stream, data, len(data), path)
        return obj


class CountedArray(Construct):
    """A 32-bit count, then as many elements, none of which is empty; a negative count is null, an error unless `nullable`."""

    def __init__(self, element: Any, *, nullable: bool = False) -> None:
        super().__init__()
        self.element = element
        self.nullable = nullable

    def _parse(self, stream: Any, _context: Any, path: str) -> list[Any] | None:
        count = int.from_bytes(stream_read(stream, 4, path), "big", signed=True)
        return read_elements(self.element, count, stream, path, nullable=self.nullable)

    def _build(self, obj: list[Any] | None, stream: Any, _context: Any, path: str) -> list[Any] | None:
        stream_write(stream, (-1 if obj is None else len(obj)).to_bytes(4, "big", signed=True), 4, path)
        for element in obj or ():
            self.element.build_stream(element, stream)
        return obj


SHORT_STRING: Final = NonNullString()

TRANSACTION_LOG_KEY: Final = Struct("version" / Int16sb, "transactional_id" / SHORT_STRING)
"""Key of every record; `version` 0 is the only type there is."""

_PARTITIONS_V0: Final = Struct("topic" / SHORT_STRING, "partition_ids" / CountedArray(Int32sb))
_PARTITIONS_V1: Final = Struct("topic" / COMPACT_STRING, "partition_ids" / CompactArray(Int32sb), "tagged_fields" / TAGGED_FIELDS)
_HEAD: Final = (
    "version" / Int16sb,
    "producer_id" / Int64sb,
    "producer_epoch" / Int16sb,
    "transaction_timeout_ms" / Int32sb,
    "transaction_status" / Int8sb,
)
_TAIL: Final = ("transaction_last_update_timestamp_ms" / Int64sb, "transaction_start_timestamp_ms" / Int64sb)

TRANSACTION_LOG_VALUE_V0: Final = Struct(*_HEAD, "transaction_partitions" / CountedArray(_PARTITIONS_V0, nullable=True), *_TAIL)
TRANSACTION_LOG_VALUE_V1: Final = Struct(
    *_HEAD, "transaction_partitions" / CompactArray(_PARTITIONS_V1, nullable=True), *_TAIL, "tagged_fields" / TAGGED_FIELDS
)
TRANSACTION_LOG_VALUES: Final = (TRANSACTION_LOG_VALUE_V0, TRANSACTION_LOG_VALUE_V1)
"""Layout by version, which is the value's first field."""

TRANSACTION_LOG_TAGS: Final = {
    0: ("previous_producer_id", Int64sb),
    1: ("next_producer_id", Int64sb),
    2: ("client_transaction_version", Int16sb),
    3: ("next_producer_epoch", Int16sb),
}
"""Tagged fields of version 1 by tag: Kafka's name in snake case, and the layout of its bytes."""
