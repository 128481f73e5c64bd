"""Records of a small uncompressed batch, read by hand in one walk: the fast twin of `parsers.records` for internal topics.

A coordinator's log holds a million batches of one record, where opening each one costs more than reading it.
"""

from struct import Struct
from typing import Final, NamedTuple

from kafka_forensics.model.constants import (
    COMPRESSION_MASK,
    CONTROL_MASK,
    INT64_MAX,
    LOG_OVERHEAD,
    RECORD_BATCH_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
)

_HEADER: Final = Struct(">qiibIhiqqqhii")
assert _HEADER.size == RECORD_BATCH_OVERHEAD


class PlainRecord(NamedTuple):
    """What a record says; `timestamp` in ms."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def plain_records(batch: bytes) -> list[PlainRecord] | None:
    """The records of a whole magic 2 batch, if it is plain and without fault; None leaves it to `decode_batch`.

    Plain is: not compressed, no control batch, no record headers.
    """
    if len(batch) < RECORD_BATCH_OVERHEAD or batch[16] != 2:
        return None
    base_offset, length, _, _, _, attributes, _, base_timestamp, max_timestamp, _, _, _, count = _HEADER.unpack_from(batch)
    if attributes & (COMPRESSION_MASK | CONTROL_MASK) or length + LOG_OVERHEAD != len(batch) or base_offset < 0:
        return None
    by_broker = attributes & TIMESTAMP_TYPE_MASK
    records: list[PlainRecord] = []
    at = RECORD_BATCH_OVERHEAD
    try:
        while at < len(batch):
            size, at = _varint(batch, at, 5)
            end = at + size
            timestamp_delta, at = _varint(batch, at + 1, 10)
            offset_delta, at = _varint(batch, at, 5)
            key, at = _sized(batch, at)
            value, at = _sized(batch, at)
            headers, at = _varint(batch, at, 5)
            offset, timestamp = base_offset + offset_delta, max_timestamp if by_broker else base_timestamp + timestamp_delta
            if size < 0 or headers or at != end or not 0 <= offset <= INT64_MAX or not -INT64_MAX <= timestamp <= INT64_MAX:
                return None
            records.append(PlainRecord(offset, timestamp, key, value))
    except (IndexError, ValueError):
        return None
    return records if len(records) == count else None


def _varint(data: bytes, at: int, longest: int) -> tuple[int, int]:
    """(zig-zag integer of 32 or 64 bits, position behind it). Raises IndexError behind the end and ValueError if it is too long."""
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    raw = 0
    for index in range(longest):
        byte = data[at + index]
        raw |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            raw &= 0xFFFFFFFF if longest == 5 else 0xFFFFFFFFFFFFFFFF
            return (raw >> 1) ^ -(raw & 1), at + index + 1
    raise ValueError


def _sized(data: bytes, at: int) -> tuple[bytes | None, int]:
    """(bytes behind their length, None for null; position behind them). Raises ValueError if they are not there."""
    size, at = _varint(data, at, 5)
    if size < 0:
        return None, at
    if at + size > len(data):
        raise ValueError
    return data[at : at + size], at + size
