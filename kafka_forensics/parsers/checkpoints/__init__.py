"""The small text files of a log directory: offset checkpoints, leader epochs, and whose directory it is."""

from kafka_forensics.parsers.checkpoints.offsets import (
    parse_clean_shutdown,
    parse_leader_epochs,
    parse_meta_properties,
    parse_offset_checkpoint,
    parse_partition_metadata,
)

__all__ = [
    "parse_clean_shutdown",
    "parse_leader_epochs",
    "parse_meta_properties",
    "parse_offset_checkpoint",
    "parse_partition_metadata",
]
