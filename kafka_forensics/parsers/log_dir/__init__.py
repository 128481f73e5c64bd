"""What lies in a log directory, by its files' names."""

from kafka_forensics.parsers.log_dir.discovery import (
    LOG_DIRECTORY_KINDS,
    OFFSET_CHECKPOINTS,
    Discovery,
    FileKind,
    FileName,
    LogDirectory,
    PartitionDirectory,
    SegmentFiles,
    classify_file,
    directory_key,
    discover,
    parse_file_name,
    parse_partition_name,
)

__all__ = [
    "LOG_DIRECTORY_KINDS",
    "OFFSET_CHECKPOINTS",
    "Discovery",
    "FileKind",
    "FileName",
    "LogDirectory",
    "PartitionDirectory",
    "SegmentFiles",
    "classify_file",
    "directory_key",
    "discover",
    "parse_file_name",
    "parse_partition_name",
]
