"""`dump`: what is in a file of Kafka's, as batches, records or annotated bytes."""

from kafka_forensics.questions.dump.explain import EXPLAIN_COLUMNS, explained_rows
from kafka_forensics.questions.dump.inputs import LOG_KINDS, DumpFile, DumpInputs, DumpOptions, find_files
from kafka_forensics.questions.dump.kafka_dump_log import (
    Decoder,
    PeerBatch,
    PeerGivesUpError,
    PeerLimitError,
    PeerLog,
    PeerRecord,
    PeerSegment,
    aborted_txns,
    check_offset_index,
    check_time_index,
    cluster_metadata,
    consumer_offsets,
    is_empty_index,
    json_line,
    offset_entries,
    share_group_state,
    time_entries,
    transaction_log,
)
from kafka_forensics.questions.dump.log import log_columns, log_rows, portions
from kafka_forensics.questions.dump.small_files import small_columns, small_rows

__all__ = [
    "EXPLAIN_COLUMNS",
    "LOG_KINDS",
    "Decoder",
    "DumpFile",
    "DumpInputs",
    "DumpOptions",
    "PeerBatch",
    "PeerGivesUpError",
    "PeerLimitError",
    "PeerLog",
    "PeerRecord",
    "PeerSegment",
    "aborted_txns",
    "check_offset_index",
    "check_time_index",
    "cluster_metadata",
    "consumer_offsets",
    "explained_rows",
    "find_files",
    "is_empty_index",
    "json_line",
    "log_columns",
    "log_rows",
    "offset_entries",
    "portions",
    "share_group_state",
    "small_columns",
    "small_rows",
    "time_entries",
    "transaction_log",
]
