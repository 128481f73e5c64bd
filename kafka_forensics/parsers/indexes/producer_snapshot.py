"""`.snapshot`: what the broker knew of every producer before an offset (ProducerStateManager, ProducerSnapshot.json)."""

import struct
from typing import Final

import google_crc32c
import numpy as np

from kafka_forensics.model.batches import Damage
from kafka_forensics.model.constants import PRODUCER_SNAPSHOT_ENTRY_SIZE
from kafka_forensics.model.files import ProducerEntry, ProducerSnapshot
from kafka_forensics.parsers.bounded import DamageList
from kafka_forensics.storage.source import ByteFile

_HEADER: Final = struct.Struct(">hIi")
_CRC_POSITION: Final = 2
_CRC_START: Final = 6
_VERSION: Final = 1
_ENTRY: Final = np.dtype(
    [
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("last_sequence", ">i4"),
        ("last_offset", ">i8"),
        ("offset_delta", ">i4"),
        ("timestamp", ">i8"),
        ("coordinator_epoch", ">i4"),
        ("current_txn_first_offset", ">i8"),
    ]
)
assert _ENTRY.itemsize == PRODUCER_SNAPSHOT_ENTRY_SIZE

MAX_CHECKED_BYTES: Final = 1 << 30
"""A snapshot of more bytes is not read to its end, and its CRC not computed."""
MAX_DECODED_BYTES: Final = 32 << 20
"""Entries of about 700,000 producers; the rest is under the CRC but not handed out."""
_WINDOW: Final = 1 << 20


def parse_producer_snapshot(file: ByteFile, offset: int) -> ProducerSnapshot:
    """The producers of a `.snapshot` whose name gives `offset`: every entry whose bytes exist, whatever the file counts.

    Damage `PRODUCER_SNAPSHOT_CORRUPT` by reason: `short` (header or counted entries missing), `version` (not 1; entries are read as
    version 1's), `crc`, `count` (fewer counted than there are bytes for, or negative). A header too short leaves -1 in `version`,
    `crc` and `crc_computed`. A file of ten bytes is an ordinary snapshot of nobody.
    """
    size = file.size_in_bytes
    damage = DamageList("PRODUCER_SNAPSHOT_CORRUPT")
    header = file.read_at(0, _HEADER.size)
    if len(header) < _HEADER.size:
        damage.add(0, len(header), "short", declared=-1, present=0)
        return ProducerSnapshot(offset, -1, -1, -1, [], damage.rows())
    version, crc, count = _HEADER.unpack(header)
    if version != _VERSION:
        damage.add(0, _CRC_POSITION, "version", version=version)
    body, crc_computed = _read_body(file, header, size)
    if crc_computed not in (-1, crc):
        damage.add(_CRC_POSITION, _CRC_START - _CRC_POSITION, "crc", stored=crc, computed=crc_computed)
    present, trailing_bytes = divmod(size - _HEADER.size, _ENTRY.itemsize)
    if count > present:
        damage.add(size - trailing_bytes, trailing_bytes, "short", declared=count, present=present)
    elif count < present or trailing_bytes:
        damage.add(_CRC_START, _HEADER.size - _CRC_START, "count", declared=count, present=present, trailing_bytes=trailing_bytes)
    entries = [ProducerEntry(*row) for row in np.frombuffer(body, _ENTRY, len(body) // _ENTRY.itemsize).tolist()]
    rows = damage.rows()
    if len(entries) < present:
        rows.append(_unread(len(entries), size, crc_computed))
    return ProducerSnapshot(offset, version, crc, crc_computed, entries, rows)


def _read_body(file: ByteFile, header: bytes, size: int) -> tuple[bytes, int]:
    """The entries' bytes up to the limit, and the CRC-32C from `count` to the end: -1 where the file is too long to read."""
    crc = google_crc32c.value(header[_CRC_START:])
    parts = []
    for position in range(_HEADER.size, size if size <= MAX_CHECKED_BYTES else MAX_DECODED_BYTES, _WINDOW):
        window = file.read_at(position, min(_WINDOW, size - position))
        crc = google_crc32c.extend(crc, window)
        if position < MAX_DECODED_BYTES:
            parts.append(window)
    return b"".join(parts), crc if size <= MAX_CHECKED_BYTES else -1


def _unread(entries: int, size: int, crc_computed: int) -> Damage:
    """The row for what lies behind the last entry handed out."""
    position = _HEADER.size + entries * _ENTRY.itemsize
    detail: dict[str, int | str | bool | list[int]] = {"reason": "snapshot_too_large", "crc_checked": crc_computed != -1}
    return Damage("BUDGET_EXCEEDED", position, size - position, detail=detail)
