"""Prose about the records of internal topics, which tell of other partitions."""

from typing import Final

PROSE: Final = """
METADATA_RECORD_MALFORMED: internal record that cannot be read
    {batch} holds [a {record_type} record|an internal record] that cannot be read[ ({reason})], so what it changed is unknown[
    after offset {unknown_after_offset}]
"""
