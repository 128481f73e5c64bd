"""Compressed messages of the old formats."""

from collections.abc import Sequence

from kafka_forensics.model.constants import NO_TIMESTAMP
from kafka_forensics.writers.batches import compress, write_legacy_entry


def write_legacy_wrapper(
    entries: Sequence[bytes],
    *,
    offset: int,
    magic: int,
    compression_type: str,
    timestamp: int = NO_TIMESTAMP,
    timestamp_type: str = "CreateTime",
) -> bytes:
    """A compressed message that holds `entries`; `offset` is that of the last of them, absolute.

    Offsets of the entries are the caller's: absolute for magic 0, counted from the wrapper's first for magic 1. The LZ4 frame of
    magic 0 carries the wrong header checksum that all writers of that time gave it.
    """
    return write_legacy_entry(
        None,
        compress(compression_type, b"".join(entries), magic=magic),
        offset=offset,
        magic=magic,
        timestamp=timestamp,
        timestamp_type=timestamp_type,
        compression_type=compression_type,
    )
