"""`.snapshot` of producer state from its entries."""

from collections.abc import Iterable
from dataclasses import asdict

import google_crc32c

from kafka_forensics.model.files import ProducerEntry
from kafka_forensics.parsers.spec.index import build_entries
from kafka_forensics.parsers.spec.producer_snapshot import PRODUCER_ENTRY, SNAPSHOT_CRC_START, SNAPSHOT_HEADER, SNAPSHOT_VERSION


def write_producer_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """A `.snapshot` of version 1 with its CRC; without entries the ten bytes of an empty one. Raises FormatError."""
    rows = [asdict(entry) for entry in entries]
    body = build_entries(PRODUCER_ENTRY, rows)
    header = {"version": SNAPSHOT_VERSION, "crc": 0, "count": len(rows)}
    header["crc"] = google_crc32c.value(build_entries(SNAPSHOT_HEADER, [header])[SNAPSHOT_CRC_START:] + body)
    return build_entries(SNAPSHOT_HEADER, [header]) + body
