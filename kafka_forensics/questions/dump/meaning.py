"""What a field of a declared layout means, in a few words, for `dump --explain`."""

from datetime import UTC, datetime
from typing import Final

from kafka_forensics.model.constants import (
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    compression_name,
)
from kafka_forensics.model.records import TIMESTAMP_TYPES

_WORDS: Final = {
    "base_offset": "offset of the first record; kept by compaction",
    "batch_length": "bytes behind this field; the whole batch has 12 more",
    "partition_leader_epoch": "epoch of the leader that appended the batch; outside the CRC",
    "magic": "format of the batch; 2 since Kafka 0.11",
    "crc": "CRC-32C of all that follows, CRC-32 before magic 2 and in no index",
    "last_offset_delta": "last offset = base offset + this",
    "base_timestamp": "what record timestamps are counted from, or the delete horizon",
    "max_timestamp": "largest timestamp of the records, or when the broker appended them",
    "producer_id": "idempotent producer",
    "producer_epoch": "raised to fence older instances of the producer",
    "base_sequence": "sequence of the first record; wraps from 2147483647 to 0",
    "records_count": "records present; fewer after compaction",
    "offset": "of the message; of a compressed one that of its last record",
    "size": "bytes of the message behind this field",
    "timestamp": "",
    "key_length": "bytes of the key that follows",
    "value_length": "bytes of the value that follows",
    "relative_offset": "offset = base offset of the segment + this",
    "position": "byte in the .log from which to look",
    "version": "of the layout",
    "first_offset": "of the aborted transaction's data, perhaps in an earlier segment",
    "last_offset": "of the ABORT marker, or of the producer's last data",
    "last_stable_offset": "what read_committed may read up to right after the abort",
    "count": "entries that follow",
    "last_sequence": "of the producer's last batch",
    "offset_delta": "last sequence - first sequence of that batch",
    "coordinator_epoch": "of the transaction coordinator that wrote the last marker",
    "current_txn_first_offset": "where the open transaction begins",
    "record.length": "bytes of the record behind this field",
    "record.attributes": "unused",
    "record.timestamp_delta": "timestamp = base timestamp + this",
    "record.offset_delta": "offset = base offset + this",
}
_TIMES: Final = frozenset({"base_timestamp", "max_timestamp", "timestamp"})
_NO_VALUE: Final = frozenset(
    {
        "partition_leader_epoch",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "last_sequence",
        "last_offset",
        "coordinator_epoch",
        "current_txn_first_offset",
        "key_length",
        "value_length",
        *_TIMES,
    }
)
"""Fields in which -1 is "none"."""
_LAST_TIME_MS: Final = 253_402_300_799_999


def meaning(field: str, value: int) -> str:
    """`field` (a name of `parsers.spec`) and what its `value` says, in words."""
    if field == "attributes":
        return _attributes(value)
    words = [_WORDS[field]] if _WORDS.get(field) else []
    if value == -1 and field in _NO_VALUE:
        words.append("here: none")
    elif field in _TIMES and 0 <= value <= _LAST_TIME_MS:
        moment = datetime.fromtimestamp(value // 1000, UTC)
        words.append(f"{moment:%Y-%m-%dT%H:%M:%S}.{value % 1000:03d}Z")
    return "; ".join(words)


def _attributes(value: int) -> str:
    words = [f"compression {compression_name(value)}", TIMESTAMP_TYPES[bool(value & TIMESTAMP_TYPE_MASK)]]
    flags = {TRANSACTIONAL_MASK: "transactional", CONTROL_MASK: "control batch", DELETE_HORIZON_MASK: "delete horizon set"}
    return ", ".join([*words, *(word for mask, word in flags.items() if value & mask)])
