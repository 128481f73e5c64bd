"""`.index`, `.timeindex` and `.txnindex` from their entries."""

from collections.abc import Iterable
from dataclasses import asdict

import google_crc32c

from kafka_forensics.model.files import AbortedTxn, ProducerEntry
from kafka_forensics.parsers.spec.indexes import (
    ABORTED_TXN,
    OFFSET_INDEX_ENTRY,
    PRODUCER_ENTRY,
    SNAPSHOT_CRC_START,
    SNAPSHOT_HEADER,
    SNAPSHOT_VERSION,
    TIME_INDEX_ENTRY,
    build_entries,
)


def write_offset_index(entries: Iterable[tuple[int, int]], base_offset: int) -> bytes:
    """A `.index` of (absolute offset, position in the `.log`); any order is written. Raises FormatError for what passes 32 bits."""
    rows = ({"relative_offset": offset - base_offset, "position": position} for offset, position in entries)
    return build_entries(OFFSET_INDEX_ENTRY, rows)


def write_time_index(entries: Iterable[tuple[int, int]], base_offset: int) -> bytes:
    """A `.timeindex` of (timestamp in ms, absolute offset); any order is written. Raises FormatError for an offset out of reach."""
    rows = ({"timestamp": timestamp, "relative_offset": offset - base_offset} for timestamp, offset in entries)
    return build_entries(TIME_INDEX_ENTRY, rows)


def write_transaction_index(entries: Iterable[AbortedTxn]) -> bytes:
    """A `.txnindex`, each entry with the version it carries; where an entry once stood does not matter."""
    rows = (
        {
            "version": entry.version,
            "producer_id": entry.producer_id,
            "first_offset": entry.first_offset,
            "last_offset": entry.last_offset,
            "last_stable_offset": entry.last_stable_offset,
        }
        for entry in entries
    )
    return build_entries(ABORTED_TXN, rows)


# `.snapshot` of producer state from its entries.


def write_producer_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """A `.snapshot` of version 1 with its CRC; without entries the ten bytes of an empty one. Raises FormatError."""
    rows = [asdict(entry) for entry in entries]
    body = build_entries(PRODUCER_ENTRY, rows)
    header = {"version": SNAPSHOT_VERSION, "crc": 0, "count": len(rows)}
    header["crc"] = google_crc32c.value(build_entries(SNAPSHOT_HEADER, [header])[SNAPSHOT_CRC_START:] + body)
    return build_entries(SNAPSHOT_HEADER, [header]) + body
