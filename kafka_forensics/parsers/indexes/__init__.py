"""What a broker keeps beside a `.log` file: `.index`, `.timeindex`, `.txnindex` and `.snapshot`."""

from kafka_forensics.parsers.indexes.offset_index import (
    parse_offset_index,
    parse_producer_snapshot,
    parse_time_index,
    parse_transaction_index,
)

__all__ = ["parse_offset_index", "parse_producer_snapshot", "parse_time_index", "parse_transaction_index"]
