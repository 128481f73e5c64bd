"""`.log` files: segments as chunks of batches, records, decompression, and damage as rows."""

from kafka_forensics.parsers.log.blocks import RecordBlock, marker_block, record_blocks, sound_blocks
from kafka_forensics.parsers.log.codecs import HELD_BYTES, decompress, last_entry, read_next_offset
from kafka_forensics.parsers.log.collected import (
    COLUMNS_HEAD,
    PLANES_HEAD,
    SECTION_HEAD,
    by_producer,
    contradiction,
    read_batches,
)
from kafka_forensics.parsers.log.content import ContentDigests, content_digest
from kafka_forensics.parsers.log.damage import Window
from kafka_forensics.parsers.log.hashed_records import (
    KEY_BYTES,
    VALUE_BYTES,
    HashedRecords,
    HashingReader,
    RecordHasher,
    SeededHasher,
    SegmentHashes,
    StrongHasher,
    plain_rows,
    with_records,
)
from kafka_forensics.parsers.log.legacy import LegacyWrapper
from kafka_forensics.parsers.log.matching import FoundBlock, RecordMatcher, Sought, sought
from kafka_forensics.parsers.log.record_stream import PlainRecord, plain_records
from kafka_forensics.parsers.log.records import (
    MARKER_VALUE_SIZE,
    MAX_BATCH_BYTES,
    MIN_CONTROL_KEY_SIZE,
    BatchChecks,
    DecodedBatch,
    KeySampler,
    UnsignedVarintError,
    check_batch_in_file,
    decode_batch,
    parse_control_record,
    read_unsigned,
)
from kafka_forensics.parsers.log.segment import (
    SegmentReader,
    find_batch,
    found_inside,
    read_batch,
    read_digest,
    read_sizes,
)
from kafka_forensics.parsers.spec.batch_header import BatchHeader

__all__ = [
    "COLUMNS_HEAD",
    "HELD_BYTES",
    "KEY_BYTES",
    "MARKER_VALUE_SIZE",
    "MAX_BATCH_BYTES",
    "MIN_CONTROL_KEY_SIZE",
    "PLANES_HEAD",
    "SECTION_HEAD",
    "VALUE_BYTES",
    "BatchChecks",
    "BatchHeader",
    "ContentDigests",
    "DecodedBatch",
    "FoundBlock",
    "HashedRecords",
    "HashingReader",
    "KeySampler",
    "LegacyWrapper",
    "PlainRecord",
    "RecordBlock",
    "RecordHasher",
    "RecordMatcher",
    "SeededHasher",
    "SegmentHashes",
    "SegmentReader",
    "Sought",
    "StrongHasher",
    "UnsignedVarintError",
    "Window",
    "by_producer",
    "check_batch_in_file",
    "content_digest",
    "contradiction",
    "decode_batch",
    "decompress",
    "find_batch",
    "found_inside",
    "last_entry",
    "marker_block",
    "parse_control_record",
    "plain_records",
    "plain_rows",
    "read_batch",
    "read_batches",
    "read_digest",
    "read_next_offset",
    "read_sizes",
    "read_unsigned",
    "record_blocks",
    "sought",
    "sound_blocks",
    "with_records",
]
