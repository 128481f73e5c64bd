"""Decodes Kafka's log segments naively: straight from the layout, all in memory, only sound batches.

It uses struct, google-crc32c and cramjam, and shares no code with the package that it tests.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import cramjam
import google_crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")


class Record(NamedTuple):
    """A record; the timestamp is None if the format has none."""

    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


class Batch(NamedTuple):
    """A batch, or an entry of magic 0 or 1 as a batch: its timestamp is both base and maximum, its offsets are those of its
    messages."""

    position: int
    size_in_bytes: int
    base_offset: int
    last_offset: int
    last_offset_delta: int
    partition_leader_epoch: int
    magic: int
    crc: int
    crc_computed: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int
    records: list[Record]


def batches(data: bytes) -> Iterator[Batch]:
    """The batches of a segment up to its end, zeros, or a torn batch."""
    position = 0
    while position + 17 <= len(data) and any(data[position : position + 17]):
        end = position + 12 + struct.unpack_from(">i", data, position + 8)[0]
        if end > len(data):
            return
        yield (_batch if data[position + 16] == 2 else _entry)(data[position:end], position)
        position = end


def _batch(data: bytes, position: int) -> Batch:
    base, _, epoch, magic, crc, attributes, delta, first, latest, producer, producer_epoch, sequence, count = HEADER.unpack_from(
        data
    )
    computed = google_crc32c.value(data[21:])
    records = []
    payload = decompressed(attributes & 7, data[61:]) if crc == computed else b""
    at = 0
    for _ in range(count if payload else 0):
        _, at = varint(payload, at)
        time, at = varint(payload, at + 1)
        offset, at = varint(payload, at)
        key, at = sized(payload, at)
        value, at = sized(payload, at)
        more, at = varint(payload, at)
        headers = []
        for _ in range(more):
            name, at = sized(payload, at)
            content, at = sized(payload, at)
            headers.append((name or b"", content))
        records.append(Record(base + offset, latest if attributes & 8 else first + time, key, value, tuple(headers)))
    assert at == len(payload)
    fields = (epoch, magic, crc, computed, attributes, first, latest, producer, producer_epoch, sequence, count)
    return Batch(position, len(data), base, base + delta, delta, *fields, records)


def _entry(data: bytes, position: int) -> Batch:
    """An entry of magic 0 or 1; the value of a compressed one holds further entries."""
    offset, _, crc, magic, attributes = struct.unpack_from(">qiIbb", data)
    time = struct.unpack_from(">q", data, 18)[0] if magic else -1
    at = 26 if magic else 18
    parts: list[bytes | None] = []
    for _ in range(2):
        size = struct.unpack_from(">i", data, at)[0]
        parts.append(None if size < 0 else data[at + 4 : at + 4 + size])
        at += 4 + max(size, 0)
    records = [Record(offset, time if magic else None, parts[0], parts[1])]
    if attributes & 7:
        inside = [record for batch in batches(decompressed(attributes & 7, parts[1] or b"")) for record in batch.records]
        shift = offset - inside[-1].offset if magic else 0
        records = [record._replace(offset=record.offset + shift) for record in inside]
        if attributes & 8:
            records = [record._replace(timestamp=time) for record in records]
    fields = (-1, magic, crc, zlib.crc32(data[16:]), attributes, time, time, -1, -1, -1, len(records))
    return Batch(position, len(data), records[0].offset, records[-1].offset, 0, *fields, records)


def decompressed(codec: int, data: bytes) -> bytes:
    """A decompressed payload; snappy in snappy-java's blocks or raw."""
    if codec == 2 and data[:8] == b"\x82SNAPPY\x00":
        plain, at = b"", 16
        while at < len(data):
            size = struct.unpack_from(">i", data, at)[0]
            plain += bytes(cramjam.snappy.decompress_raw(data[at + 4 : at + 4 + size]))
            at += 4 + size
        return plain
    if codec == 2:
        return bytes(cramjam.snappy.decompress_raw(data))
    codecs = {1: cramjam.gzip, 3: cramjam.lz4, 4: cramjam.zstd}
    return bytes(codecs[codec].decompress(data)) if codec else data


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A zig-zag varint and the position after it."""
    raw = shift = 0
    while True:
        raw |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return raw >> 1 ^ -(raw & 1), at


def sized(data: bytes, at: int) -> tuple[bytes | None, int]:
    """Length-prefixed bytes (None for a negative length), and the position after them."""
    size, at = varint(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)
