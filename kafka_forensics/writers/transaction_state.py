"""Records of `__transaction_state`, as a transaction coordinator writes them (TransactionLog)."""

from itertools import groupby
from typing import Any

from kafka_forensics.model.coordinators import TRANSACTION_STATES, TransactionMetadata
from kafka_forensics.parsers.spec.transaction_state import TRANSACTION_LOG_KEY, TRANSACTION_LOG_TAGS, TRANSACTION_LOG_VALUES


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
        for topic, group in groupby(metadata.partitions, key=lambda one: one[0])
    ]
    usual = TransactionMetadata(0, 0, 0, "", (), 0, 0)
    fields: dict[str, Any] = {
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
