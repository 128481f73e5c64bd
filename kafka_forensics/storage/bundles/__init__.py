"""Bundles: the parts of a broker's log directories that `collect` saves, as a source."""

from kafka_forensics.storage.bundles.layout import (
    CHECKSUMS,
    DESCRIPTION,
    EXCLUSIVE_KINDS,
    FAST_COMPRESSION_LEVEL,
    FORMAT,
    LEVEL,
    LISTING,
    MAX_PART_BYTES,
    MAX_SECTION_BYTES,
    PART_BYTES,
    SUFFIX,
    TRANSACTION_PARTITIONS,
    VERSION,
    BundleSection,
    Frame,
    SectionKind,
    decompressed,
    parse_json,
    part_chunks,
    part_name,
    read_index,
    write_batches_section,
    write_frames,
)
from kafka_forensics.storage.bundles.source import BundleSource, CollectedLog, needed_records
