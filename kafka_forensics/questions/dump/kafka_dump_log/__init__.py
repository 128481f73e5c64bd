"""`dump --format kafka-dump-log`: a file as Kafka's own tool reads it."""

from kafka_forensics.questions.dump.kafka_dump_log.decoders import (
    Decoder,
    cluster_metadata,
    consumer_offsets,
    json_line,
    share_group_state,
    transaction_log,
)
from kafka_forensics.questions.dump.kafka_dump_log.indexes import (
    PeerSegment,
    aborted_txns,
    check_offset_index,
    check_time_index,
    is_empty_index,
    offset_entries,
    time_entries,
)
from kafka_forensics.questions.dump.kafka_dump_log.segment import (
    PeerBatch,
    PeerGivesUpError,
    PeerLimitError,
    PeerLog,
    PeerRecord,
    struct_of,
)

__all__ = [
    "Decoder",
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
    "is_empty_index",
    "json_line",
    "offset_entries",
    "share_group_state",
    "struct_of",
    "time_entries",
    "transaction_log",
]
