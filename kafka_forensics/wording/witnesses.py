"""Prose about the records of internal topics, which tell of other partitions."""

from typing import Final

PROSE: Final = """
METADATA_RECORD_MALFORMED: internal record that cannot be read
    {batch} holds [a {record_type} record|an internal record] that cannot be read[ ({reason})], so what it changed is unknown[
    after offset {unknown_after_offset}][; {records_more:further record} cannot be read either]
METADATA_RECORD_UNKNOWN: record kind of a newer Kafka
    the controller's log holds [{records:record} ({record_bytes:byte})|records] of a kind this tool does not know[ (number
    {api_key})]; they were passed over, and what else the log says was taken as it stands
    > Where a newer release of this tool knows the kind, scan again with it before trusting ISR and leaders to the last detail.
"""
