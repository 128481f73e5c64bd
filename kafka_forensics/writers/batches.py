"""Magic 2 batches from records: what a producer, a leader, a coordinator or the cleaner would have written, or a liar."""

import gzip
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import cramjam
import google_crc32c
import xxhash

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
from kafka_forensics.parsers.spec.control import CONTROL_RECORD_KEY, END_TXN_MARKER
from kafka_forensics.parsers.spec.record_batch import LEGACY_ENTRY_HEADER, LEGACY_MESSAGES, RECORD_BATCH_HEADER, encode_zigzag
from kafka_forensics.parsers.spec.transaction_state import TRANSACTION_LOG_KEY, TRANSACTION_LOG_TAGS, TRANSACTION_LOG_VALUES

XERIAL_HEADER: Final = b"\x82SNAPPY\x00" + (1).to_bytes(4, "big") + (1).to_bytes(4, "big")
XERIAL_BLOCK: Final = 32 << 10
LZ4_MAGIC: Final = bytes.fromhex("04224d18")
LZ4_BLOCK: Final = 64 << 10
_LZ4_DESCRIPTOR: Final = bytes([0x60, 0x40])
"""Version 1, independent blocks, no checksums, no content size; blocks of at most 64 KiB."""
_LZ4_STORED: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class RecordToWrite:
    """A record for a batch; `timestamp_delta` counts from the batch's base timestamp (ms), `offset_delta` None means its place."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_delta: int = 0
    offset_delta: int | None = None


def write_record(record: RecordToWrite, offset_delta: int, timestamp_delta: int) -> bytes:
    """A record as it stands in a magic 2 batch, before compression (DefaultRecord.writeTo)."""
    parts = [b"\0", encode_zigzag(timestamp_delta), encode_zigzag(offset_delta), _sized(record.key), _sized(record.value)]
    parts.append(encode_zigzag(len(record.headers)))
    for key, value in record.headers:
        parts += (_sized(key.encode()), _sized(value))
    body = b"".join(parts)
    return encode_zigzag(len(body)) + body


def _sized(data: bytes | None) -> bytes:
    return encode_zigzag(-1) if data is None else encode_zigzag(len(data)) + data


def write_batch(
    records: Iterable[RecordToWrite],
    *,
    base_offset: int,
    base_timestamp: int,
    partition_leader_epoch: int = 0,
    compression_type: str = "none",
    timestamp_type: str = "CreateTime",
    max_timestamp: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control_batch: bool = False,
    delete_horizon_ms: int | None = None,
    last_offset_delta: int | None = None,
    records_count: int | None = None,
) -> bytes:
    """A whole batch with a right CRC-32C; only `last_offset_delta` and `records_count` can make its header lie.

    `timestamp_type` is CreateTime or LogAppendTime; the latest record's timestamp is `max_timestamp` unless given. With
    `delete_horizon_ms` the horizon takes the base timestamp's place and the deltas count from it, as the cleaner does.
    """
    numbered = [(index if it.offset_delta is None else it.offset_delta, it) for index, it in enumerate(records)]
    stored_base = base_timestamp if delete_horizon_ms is None else delete_horizon_ms
    shift = base_timestamp - stored_base
    payload = b"".join(write_record(record, delta, record.timestamp_delta + shift) for delta, record in numbered)
    attributes = COMPRESSION_TYPES.index(compression_type)
    attributes |= TIMESTAMP_TYPE_MASK * ("CreateTime", "LogAppendTime").index(timestamp_type)
    attributes |= TRANSACTIONAL_MASK * is_transactional | CONTROL_MASK * is_control_batch
    attributes |= DELETE_HORIZON_MASK * (delete_horizon_ms is not None)
    if max_timestamp is None:
        max_timestamp = max((base_timestamp + record.timestamp_delta for _, record in numbered), default=NO_TIMESTAMP)
    header = {
        "base_offset": base_offset,
        "partition_leader_epoch": partition_leader_epoch,
        "attributes": attributes,
        "last_offset_delta": max((delta for delta, _ in numbered), default=0) if last_offset_delta is None else last_offset_delta,
        "base_timestamp": stored_base,
        "max_timestamp": max_timestamp,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "base_sequence": base_sequence,
        "records_count": len(numbered) if records_count is None else records_count,
    }
    return write_raw_batch(header, compress(compression_type, payload))


def write_raw_batch(header: Json, payload: bytes) -> bytes:
    """A batch of `payload` as it stands behind `header`, whose batch_length, magic and crc are put right here."""
    batch_length = RECORD_BATCH_OVERHEAD - LOG_OVERHEAD + len(payload)
    head: bytes = RECORD_BATCH_HEADER.build({**header, "batch_length": batch_length, "magic": 2, "crc": 0})
    return fix_crc(head + payload)


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
    key = CONTROL_RECORD_KEY.build({"version": 0, "type": CONTROL_COMMIT if commit else CONTROL_ABORT})
    value = END_TXN_MARKER.build({"version": 0, "coordinator_epoch": coordinator_epoch})
    return write_batch(
        [RecordToWrite(key, value)],
        base_offset=base_offset,
        base_timestamp=timestamp,
        partition_leader_epoch=partition_leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control_batch=True,
    )


def fix_crc(batch: bytes) -> bytes:
    """`batch` (magic 2) with the CRC its bytes deserve."""
    crc: int = google_crc32c.value(batch[CRC_START:])
    return batch[:CRC_AT] + crc.to_bytes(4, "big") + batch[CRC_START:]


def compress(compression_type: str, payload: bytes, *, magic: int = 2) -> bytes:
    """`payload` as Kafka's writers frame it; `magic` 0 brings the wrong LZ4 header checksum those messages carry."""
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
    """A snappy-java stream: header, then blocks of 32 KiB, each behind its compressed length."""
    parts = [XERIAL_HEADER]
    for start in range(0, len(payload), XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(payload[start : start + XERIAL_BLOCK]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def lz4_frame(payload: bytes, *, magic: int = 2) -> bytes:
    """An LZ4 frame as Lz4BlockOutputStream writes it: independent blocks of 64 KiB, no checksum but the header's."""
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


def fix_legacy_crc(entry: bytes) -> bytes:
    """`entry` (magic 0 or 1) with the CRC its bytes deserve."""
    return entry[:12] + zlib.crc32(entry[16:]).to_bytes(4, "big") + entry[16:]


# Records of `__transaction_state`, as a transaction coordinator writes them (TransactionLog).


def write_transaction_log_key(transactional_id: str) -> bytes:
    """The key of every record about `transactional_id`."""
    key: bytes = TRANSACTION_LOG_KEY.build({"version": 0, "transactional_id": transactional_id})
    return key


def write_transaction_log_value(metadata: TransactionMetadata, version: int = 1) -> bytes:
    """The value in `version` 0 or 1; partitions are grouped by topic as they stand, and null in the state Empty.

    Version 0 has no place for the fields from `previous_producer_id` on.
    """
    grouped = [
        {"topic": topic, "partition_ids": [number for _, number in group]}
        for topic, group in groupby(metadata.partitions, key=lambda partition: partition[0])
    ]
    usual = TransactionMetadata(0, 0, 0, "", (), 0, 0)
    fields: Json = {
        "version": version,
        "producer_id": metadata.producer_id,
        "producer_epoch": metadata.producer_epoch,
        "transaction_timeout_ms": metadata.transaction_timeout_ms,
        "transaction_status": TRANSACTION_STATES.index(metadata.state),
        "transaction_partitions": grouped if grouped or metadata.state != "Empty" else None,
        "transaction_last_update_timestamp_ms": metadata.last_update_timestamp,
        "transaction_start_timestamp_ms": metadata.start_timestamp,
        "tagged_fields": {
            tag: layout.build(getattr(metadata, name))
            for tag, (name, layout) in TRANSACTION_LOG_TAGS.items()
            if getattr(metadata, name) != getattr(usual, name)
        },
    }
    value: bytes = TRANSACTION_LOG_VALUES[version].build(fields)
    return value
