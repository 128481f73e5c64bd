"""Writes batches of every magic as producers, leaders, coordinators and the cleaner do, or with wrong headers."""

import gzip
import struct
import zlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Final, Required, TypedDict, Unpack

import cramjam
import google_crc32c
import xxhash
from msgspec import Struct

from kafka_forensics.model.constants import (
    COMPRESSION_TYPES,
    CONTROL_ABORT,
    CONTROL_COMMIT,
    CONTROL_MASK,
    CRC_AT,
    CRC_START,
    DELETE_HORIZON_MASK,
    LOG_OVERHEAD,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    RECORD_BATCH_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)
from kafka_forensics.model.coordinators import TRANSACTION_STATES, TransactionMetadata
from kafka_forensics.model.json_objects import Json
from kafka_forensics.parsers.flexible_fields import INT16, INT64, Layout, compact_string, unsigned_varint, write_message
from kafka_forensics.parsers.spec.record_batch import LEGACY_ENTRY_HEADER, LEGACY_MESSAGES, RECORD_BATCH_HEADER, encode_zigzag

XERIAL_HEADER: Final = b"\x82SNAPPY\x00" + (1).to_bytes(4, "big") + (1).to_bytes(4, "big")
XERIAL_BLOCK: Final = 32 << 10
LZ4_MAGIC: Final = bytes.fromhex("04224d18")
LZ4_BLOCK: Final = 64 << 10
_LZ4_DESCRIPTOR: Final = bytes([0x60, 0x40])
"""Version 1, independent blocks, no checksums, no content size; blocks of at most 64 KiB."""
_LZ4_STORED: Final = 1 << 31
_zigzag: Final = lru_cache(maxsize=1 << 12)(encode_zigzag)
_NULL: Final = encode_zigzag(-1)


class RecordToWrite(Struct, frozen=True):
    """A record for a batch; `timestamp_delta` (ms) is from the batch's base timestamp, `offset_delta` None is its index."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_delta: int = 0
    offset_delta: int | None = None


class BatchFields(TypedDict, total=False):
    """Header fields for `write_batch`; the defaults are those of a producer without idempotence, and true to the records."""

    base_offset: Required[int]
    base_timestamp: Required[int]
    partition_leader_epoch: int
    compression_type: str
    timestamp_type: str
    """CreateTime or LogAppendTime."""
    max_timestamp: int | None
    """None: the latest timestamp of the records."""
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    is_control_batch: bool
    delete_horizon_ms: int | None
    """Replaces the base timestamp, and the deltas count from it, as the cleaner writes them."""
    last_offset_delta: int | None
    """None: that of the records; only this field and `records_count` can make the header wrong."""
    records_count: int | None


_DEFAULT_FIELDS: Final[Json] = {
    "partition_leader_epoch": 0,
    "producer_id": NO_PRODUCER_ID,
    "producer_epoch": NO_PRODUCER_EPOCH,
    "base_sequence": NO_SEQUENCE,
}


def write_record(record: RecordToWrite, offset_delta: int, timestamp_delta: int) -> bytes:
    """A record in a magic 2 batch, before compression (DefaultRecord.writeTo)."""
    fields = [field for key, value in record.headers for field in (key.encode(), value)]
    parts = [_NULL if field is None else _zigzag(len(field)) + field for field in fields]
    headers = b"".join((_zigzag(len(record.headers)), *parts))
    return record_bytes(record.key, record.value, offset_delta, timestamp_delta, headers)


def record_bytes(key: bytes | None, value: bytes | None, offset_delta: int, timestamp_delta: int, headers: bytes = b"\0") -> bytes:
    """The same from its parts; `headers` are encoded, with their number in front."""
    body = b"".join(
        (
            b"\0",
            _zigzag(timestamp_delta),
            _zigzag(offset_delta),
            *((_NULL,) if key is None else (_zigzag(len(key)), key)),
            *((_NULL,) if value is None else (_zigzag(len(value)), value)),
            headers,
        )
    )
    return _zigzag(len(body)) + body


def write_batch(records: Iterable[RecordToWrite], **fields: Unpack[BatchFields]) -> bytes:
    """A whole batch of magic 2 with a right CRC-32C."""
    assert fields.keys() <= BatchFields.__annotations__.keys()
    numbered = [(index if it.offset_delta is None else it.offset_delta, it) for index, it in enumerate(records)]
    compression_type, base_timestamp = fields.get("compression_type", "none"), fields["base_timestamp"]
    delete_horizon_ms, max_timestamp = fields.get("delete_horizon_ms"), fields.get("max_timestamp")
    last_offset_delta, records_count = fields.get("last_offset_delta"), fields.get("records_count")
    stored_base = base_timestamp if delete_horizon_ms is None else delete_horizon_ms
    shift = base_timestamp - stored_base
    payload = b"".join(write_record(record, delta, record.timestamp_delta + shift) for delta, record in numbered)
    attributes = _attributes(compression_type, fields.get("timestamp_type", "CreateTime"))
    attributes |= TRANSACTIONAL_MASK * fields.get("is_transactional", False)
    attributes |= CONTROL_MASK * fields.get("is_control_batch", False)
    attributes |= DELETE_HORIZON_MASK * (delete_horizon_ms is not None)
    if max_timestamp is None:
        max_timestamp = max((base_timestamp + record.timestamp_delta for _, record in numbered), default=NO_TIMESTAMP)
    header = {
        **_DEFAULT_FIELDS,
        **fields,
        "attributes": attributes,
        "last_offset_delta": max((delta for delta, _ in numbered), default=0) if last_offset_delta is None else last_offset_delta,
        "base_timestamp": stored_base,
        "max_timestamp": max_timestamp,
        "records_count": len(numbered) if records_count is None else records_count,
    }
    return write_raw_batch(header, compress(compression_type, payload))


def _attributes(compression_type: str, timestamp_type: str) -> int:
    by_broker = ("CreateTime", "LogAppendTime").index(timestamp_type)
    return COMPRESSION_TYPES.index(compression_type) | TIMESTAMP_TYPE_MASK * by_broker


def write_raw_batch(header: Json, payload: bytes) -> bytes:
    """A batch with this `payload` and `header`, whose batch_length, magic and crc are set here; other keys are ignored."""
    batch_length = RECORD_BATCH_OVERHEAD - LOG_OVERHEAD + len(payload)
    head: bytes = RECORD_BATCH_HEADER.build({**header, "batch_length": batch_length, "magic": 2, "crc": 0})
    return fix_crc(head + payload)


def write_control_key(control_record_type: int) -> bytes:
    """The key of a control record, in version 0."""
    return struct.pack(">hh", 0, control_record_type)


def write_marker(
    commit: bool,
    *,
    base_offset: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    partition_leader_epoch: int = 0,
) -> bytes:
    """The control batch that ends a transaction (MemoryRecords.withEndTransactionMarker)."""
    key = write_control_key(CONTROL_COMMIT if commit else CONTROL_ABORT)
    return write_batch(
        [RecordToWrite(key, struct.pack(">hi", 0, coordinator_epoch))],
        base_offset=base_offset,
        base_timestamp=timestamp,
        partition_leader_epoch=partition_leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control_batch=True,
    )


def fix_crc(batch: bytes) -> bytes:
    """`batch` (magic 2) with the right CRC."""
    crc: int = google_crc32c.value(batch[CRC_START:])
    return batch[:CRC_AT] + crc.to_bytes(4, "big") + batch[CRC_START:]


def compress(compression_type: str, payload: bytes, *, magic: int = 2) -> bytes:
    """`payload` as Kafka's writers compress it; LZ4 for `magic` 0 has the wrong header checksum that clients wrote then."""
    if compression_type == "gzip":
        return gzip.compress(payload, mtime=0)
    if compression_type == "snappy":
        return xerial(payload)
    if compression_type == "lz4":
        return lz4_frame(payload, magic=magic)
    if compression_type == "zstd":
        return bytes(cramjam.zstd.compress(payload))
    assert compression_type == "none", compression_type
    return payload


def xerial(payload: bytes) -> bytes:
    """A snappy-java stream: header, then blocks of 32 KiB, each after its compressed length."""
    parts = [XERIAL_HEADER]
    for start in range(0, len(payload), XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(payload[start : start + XERIAL_BLOCK]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def lz4_frame(payload: bytes, *, magic: int = 2) -> bytes:
    """An LZ4 frame as Lz4BlockOutputStream writes it: independent blocks of 64 KiB, and only the header has a checksum."""
    checked = LZ4_MAGIC + _LZ4_DESCRIPTOR if magic == 0 else _LZ4_DESCRIPTOR
    parts = [LZ4_MAGIC, _LZ4_DESCRIPTOR, bytes([xxhash.xxh32_intdigest(checked) >> 8 & 0xFF])]
    for start in range(0, len(payload), LZ4_BLOCK):
        plain = payload[start : start + LZ4_BLOCK]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            parts += (len(block).to_bytes(4, "little"), block)
        else:
            parts += ((len(plain) | _LZ4_STORED).to_bytes(4, "little"), plain)
    parts.append(bytes(4))
    return b"".join(parts)


# Magic 0 and 1 entries: plain messages and compressed wrappers, as brokers and clients before Kafka 0.11 wrote them.


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
    """An entry of `magic` 0, which has no timestamp, or 1, with a right CRC-32; `value` must be compressed already."""
    fields = {
        "crc": 0,
        "magic": magic,
        "attributes": _attributes(compression_type, timestamp_type),
        "timestamp": timestamp,
        "key_length": -1 if key is None else len(key),
        "key": key,
        "value_length": -1 if value is None else len(value),
        "value": value,
    }
    message: bytes = LEGACY_MESSAGES[magic].build(fields)
    head: bytes = LEGACY_ENTRY_HEADER.build({"offset": offset, "size": len(message)})
    return fix_legacy_crc(head + message)


def fix_legacy_crc(entry: bytes) -> bytes:
    """`entry` (magic 0 or 1) with the right CRC."""
    return entry[:12] + zlib.crc32(entry[16:]).to_bytes(4, "big") + entry[16:]


_TRANSACTION_TAGS: Final[Layout] = (
    (),
    {
        0: ("previous_producer_id", INT64, -1),
        1: ("next_producer_id", INT64, -1),
        2: ("client_transaction_version", INT16, 0),
        3: ("next_producer_epoch", INT16, -1),
    },
)
"""Tagged fields of version 1 of the values of `__transaction_state`."""


# Records of `__transaction_state`, as a transaction coordinator writes them (TransactionLog).


def write_transaction_log_key(transactional_id: str) -> bytes:
    """The key of the records of a transactional id."""
    return b"\0\0" + short_string(transactional_id)


def short_string(text: str) -> bytes:
    """A string with its length in 16 bits in front."""
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def write_transaction_log_value(metadata: TransactionMetadata, version: int = 1) -> bytes:
    """The value in `version` 0 or 1; adjacent partitions of a topic are grouped, and in the state Empty there are none (null).

    Version 0 does not have the fields from `previous_producer_id` on.
    """
    is_flexible = version == 1

    def count(number: int) -> bytes:
        return unsigned_varint(number + 1) if is_flexible else struct.pack(">i", number)

    partitions = []
    for topic, group in groupby(metadata.partitions, key=itemgetter(0)):
        numbers = [number for _, number in group]
        name = compact_string(topic) if is_flexible else short_string(topic)
        partitions.append(name + count(len(numbers)) + struct.pack(f">{len(numbers)}i", *numbers) + b"\0" * is_flexible)
    head = struct.pack(
        ">hqhib",
        version,
        metadata.producer_id,
        metadata.producer_epoch,
        metadata.transaction_timeout_ms,
        TRANSACTION_STATES.index(metadata.state),
    )
    times = struct.pack(">qq", metadata.last_update_timestamp, metadata.start_timestamp)
    tags = {name: getattr(metadata, name) for name, _, _ in _TRANSACTION_TAGS[1].values()}
    tagged = write_message(_TRANSACTION_TAGS, tags) if is_flexible else b""
    return b"".join((head, count(len(partitions) if partitions or metadata.state != "Empty" else -1), *partitions, times, tagged))
