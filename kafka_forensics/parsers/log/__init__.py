"""`.log` files: segments as chunks of batches, records, decompression, and damage as rows."""

from kafka_forensics.parsers.log.blocks import RecordBlock, marker_block, record_blocks, valid_blocks
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
from kafka_forensics.parsers.log.control_values import write_control_value
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
    data_batches,
    split_plain_rows,
)
from kafka_forensics.parsers.log.legacy import LegacyWrapper
from kafka_forensics.parsers.log.matching import FoundBlock, RecordMatcher, RecordQuery, record_query
from kafka_forensics.parsers.log.record_stream import PlainRecord, plain_records
from kafka_forensics.parsers.log.records import (
    MARKER_VALUE_SIZE,
    MAX_BATCH_BYTES,
    MIN_CONTROL_KEY_SIZE,
    BatchChecks,
    DecodedBatch,
    KeySampler,
    RecordFilter,
    check_batch_in_file,
    decode_batch,
    parse_control_record,
)
from kafka_forensics.parsers.log.segment import (
    SegmentReader,
    damage_inside_batch,
    find_batch,
    read_batch,
    read_digest,
    read_offset_and_length,
)
from kafka_forensics.parsers.spec.batch_header import BatchHeader
