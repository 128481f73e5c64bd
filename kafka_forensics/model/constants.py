"""Kafka's fixed numbers and values for "none" (RecordBatch, DefaultRecordBatch, LegacyRecord)."""

from typing import Final

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1
NO_PARTITION_LEADER_EPOCH: Final = -1
NO_OFFSET: Final = -1

INT64_MAX: Final = 2**63 - 1
"""The largest offset, timestamp or size of a field; also an end that is unknown."""
MAX_INT32: Final = 2**31 - 1
MAX_SEQUENCE: Final = MAX_INT32

LOG_OVERHEAD: Final = 12
"""Size of base_offset and batch_length, which `batch_length` does not count."""
RECORD_BATCH_OVERHEAD: Final = 61
"""Size of a magic 2 batch header, and so of the smallest batch."""
LENGTH_AT: Final = 8
MAGIC_AT: Final = 16
"""These positions are the same for every magic."""
HEADER_SIZE_UP_TO_MAGIC: Final = 17
"""`FileLogInputStream` adds it to a position before it compares that with the end of the file, once as an int."""
CRC_AT: Final = 17
CRC_START: Final = 21
"""First byte of a magic 2 batch that its CRC-32C covers: the attributes."""
LAST_OFFSET_DELTA_AT: Final = 23
CURRENT_MAGIC: Final = 2
MAX_RELATIVE_OFFSET: Final = MAX_INT32
"""The largest distance of an offset from the segment's base offset (`LogSegment.canConvertToRelativeOffset`)."""
LEGACY_V0_OVERHEAD: Final = 14
"""The smallest length of a batch of any magic; Kafka's readers throw below it."""
LEGACY_V1_OVERHEAD: Final = 22
MIN_RECORD_SIZE: Final = 7
"""A magic 2 record has at least seven bytes: length, attributes, two deltas, two lengths, header count."""
MAX_SEGMENT_SIZE: Final = MAX_INT32

COMPRESSION_MASK: Final = 0x07
TIMESTAMP_TYPE_MASK: Final = 0x08
TRANSACTIONAL_MASK: Final = 0x10
CONTROL_MASK: Final = 0x20
DELETE_HORIZON_MASK: Final = 0x40

COMPRESSION_TYPES: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""By attribute bits 0-2; 5 to 7 are illegal."""
CODEC_BACK_ENDS: Final = {"gzip": "zlib", "snappy": "cramjam", "lz4": "cramjam", "zstd": "cramjam and pyarrow"}
"""Codec → library that decompresses it."""

CONTROL_ABORT: Final = 0
CONTROL_COMMIT: Final = 1
CONTROL_RECORD_TYPES: Final = (
    "ABORT",
    "COMMIT",
    "LEADER_CHANGE",
    "SNAPSHOT_HEADER",
    "SNAPSHOT_FOOTER",
    "KRAFT_VERSION",
    "KRAFT_VOTERS",
)

INDEX_ENTRY_SIZE: Final = 8
TIME_INDEX_ENTRY_SIZE: Final = 12
TXN_INDEX_ENTRY_SIZE: Final = 34
PRODUCER_SNAPSHOT_HEADER_SIZE: Final = 10
PRODUCER_SNAPSHOT_ENTRY_SIZE: Final = 46

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics that brokers always compact."""
COORDINATOR_TOPICS: Final = INTERNAL_TOPICS
"""Topics whose batches coordinators write always with base sequence 0: no sequence rule applies."""
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
CONSUMER_OFFSETS_TOPIC: Final = "__consumer_offsets"
SHARE_GROUP_STATE_TOPIC: Final = "__share_group_state"
REMOTE_LOG_METADATA_TOPIC: Final = "__remote_log_metadata"
"""Lists the segments in the remote store of tiered topics (KIP-405). Brokers neither compact nor tier it."""
WITNESS_TOPICS: Final = frozenset(
    {CLUSTER_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC, REMOTE_LOG_METADATA_TOPIC}
)
"""Topics whose records are about other partitions."""


def compression_name(attributes: int) -> str:
    """Name of the codec in attribute bits 0-2, or `unknown(n)` for the three illegal values."""
    codec = attributes & COMPRESSION_MASK
    return COMPRESSION_TYPES[codec] if codec < len(COMPRESSION_TYPES) else f"unknown({codec})"


def control_record_name(control_record_type: int) -> str:
    """Kafka's name of a control record type; `UNKNOWN` for types that readers ignore."""
    is_known = 0 <= control_record_type < len(CONTROL_RECORD_TYPES)
    return CONTROL_RECORD_TYPES[control_record_type] if is_known else "UNKNOWN"


DELIVERY_STATES: Final = {0: "available", 1: "acquired", 2: "acknowledged", 3: "archiving", 4: "archived"}
"""Kafka's names by number; `acquired` is never written, `archived` records were rejected or delivered too often."""


def delivery_state_name(number: int) -> str | int:
    """Kafka's name of a delivery state, the number itself if it has none."""
    return DELIVERY_STATES.get(number, number)


TRANSACTION_STATES: Final = ("committed", "aborted", "open", "hanging", "torn", "empty", "unknown", "lost", "damaged")
"""`empty`: a marker without data in this copy; `unknown`: the marker is unreadable; `torn`: the coordinator decided otherwise;
`lost`: committed and on no copy of the partition; `damaged`: unreadable offsets."""
