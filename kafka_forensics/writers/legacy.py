"""Magic 0 and 1 entries: plain messages and compressed wrappers, as brokers and clients before Kafka 0.11 wrote them."""

import zlib
from collections.abc import Sequence

from kafka_forensics.model.constants import COMPRESSION_TYPES, NO_TIMESTAMP, TIMESTAMP_TYPE_MASK
from kafka_forensics.parsers.spec.legacy import LEGACY_ENTRY_HEADER, LEGACY_MESSAGES
from kafka_forensics.writers.batches import compress


def write_legacy_entry(
    key: bytes | None,
    value: bytes | None,
    *,
    offset: int,
    magic: int,
    timestamp: int = NO_TIMESTAMP,
    timestamp_type: str = "CreateTime",
    compression_type: str = "none",
) -> bytes:
    """One entry with a right CRC-32; `value` is written as it is, whatever codec the attributes name.

    `magic` is 0 or 1; magic 0 has no timestamp.
    """
    attributes = COMPRESSION_TYPES.index(compression_type)
    attributes |= TIMESTAMP_TYPE_MASK * ("CreateTime", "LogAppendTime").index(timestamp_type)
    fields = {
        "crc": 0,
        "magic": magic,
        "attributes": attributes,
        "timestamp": timestamp,
        "key_length": -1 if key is None else len(key),
        "key": key,
        "value_length": -1 if value is None else len(value),
        "value": value,
    }
    message: bytes = LEGACY_MESSAGES[magic].build(fields)
    head: bytes = LEGACY_ENTRY_HEADER.build({"offset": offset, "size": len(message)})
    return fix_legacy_crc(head + message)


def write_legacy_wrapper(
    entries: Sequence[bytes],
    *,
    offset: int,
    magic: int,
    compression_type: str,
    timestamp: int = NO_TIMESTAMP,
    timestamp_type: str = "CreateTime",
) -> bytes:
    """A compressed message that holds `entries`; `offset` is that of the last of them, absolute.

    Offsets of the entries are the caller's: absolute for magic 0, counted from the wrapper's first for magic 1. The LZ4 frame of
    magic 0 carries the wrong header checksum that all writers of that time gave it.
    """
    return write_legacy_entry(
        None,
        compress(compression_type, b"".join(entries), magic=magic),
        offset=offset,
        magic=magic,
        timestamp=timestamp,
        timestamp_type=timestamp_type,
        compression_type=compression_type,
    )


def fix_legacy_crc(entry: bytes) -> bytes:
    """`entry` (magic 0 or 1) with the CRC its bytes deserve."""
    return entry[:12] + zlib.crc32(entry[16:]).to_bytes(4, "big") + entry[16:]
