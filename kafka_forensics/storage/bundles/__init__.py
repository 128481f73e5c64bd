"""Bundles: the parts of a broker's log directories that `collect` saves, as a source."""

from kafka_forensics.storage.bundles.layout import (
    ABOUT,
    FORMAT,
    LEVEL,
    LISTING,
    MAX_PART_BYTES,
    MAX_SECTION_BYTES,
    PART_BYTES,
    QUICK_LEVEL,
    SEAL,
    SUFFIX,
    TELLING,
    TRANSACTION_PARTITIONS,
    VERSION,
    Frame,
    Section,
    SectionKind,
    inflated,
    json_of,
    part_name,
    pieces_of_part,
    read_index,
    write_frames,
    write_held,
)
from kafka_forensics.storage.bundles.source import BundleSource, CollectedLog
