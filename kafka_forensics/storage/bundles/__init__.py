"""Bundles of evidence: what `collect` takes of a broker's log directories, as a source like any other."""

from kafka_forensics.storage.bundles.layout import (
    ABOUT,
    FORMAT,
    LISTING,
    MAX_PART_BYTES,
    MAX_SECTION_BYTES,
    PART_BYTES,
    SEAL,
    SUFFIX,
    VERSION,
    Section,
    SectionKind,
    inflated,
    json_of,
    part_name,
    read_index,
    write_held,
    write_part,
)
from kafka_forensics.storage.bundles.source import BundleSource, CollectedLog

__all__ = [
    "ABOUT",
    "FORMAT",
    "LISTING",
    "MAX_PART_BYTES",
    "MAX_SECTION_BYTES",
    "PART_BYTES",
    "SEAL",
    "SUFFIX",
    "VERSION",
    "BundleSource",
    "CollectedLog",
    "Section",
    "SectionKind",
    "inflated",
    "json_of",
    "part_name",
    "read_index",
    "write_held",
    "write_part",
]
