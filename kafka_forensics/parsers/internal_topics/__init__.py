"""Records of the internal topics: controllers, coordinators of transactions, groups and share groups, remote log metadata."""

from kafka_forensics.parsers.flexible_fields import unsigned_varint
from kafka_forensics.parsers.internal_topics.consumer_offsets import (
    MAX_VALUE_BYTES,
    check_value,
    read_group_metadata,
    read_group_value,
    read_key,
    read_offset_commit,
    write_group_value,
)
from kafka_forensics.parsers.internal_topics.internal_records import record_describer
from kafka_forensics.parsers.internal_topics.metadata_log import (
    REPLAYED_FIELDS,
    decode_metadata_record,
    is_no_op_batch,
    write_frame,
    write_metadata_record,
)
from kafka_forensics.parsers.internal_topics.remote_log_metadata import (
    decode_remote_log_record,
    write_copied_segment,
    write_remote_log_record,
)
from kafka_forensics.parsers.internal_topics.share_state import (
    SHARE_RECORDS,
    SNAPSHOT,
    parse_transaction_log_key,
    parse_transaction_log_value,
    read_share_key,
    read_share_value,
    write_share_value,
)
