"""Batches have Kafka's layout: header, CRC, attributes, and the framing of every codec."""

import gzip
from typing import Any

import google_crc32c
import pytest
import xxhash

from kafka_forensics.parsers.spec.record_batch import RECORD, RECORD_BATCH_HEADER, RECORD_BODY
from kafka_forensics.writers.batches import RecordToWrite, compress, write_batch, write_marker


def header_of(batch: bytes) -> Any:
    return RECORD_BATCH_HEADER.parse(batch)


def bodies_of(batch: bytes) -> list[Any]:
    rest, bodies = batch[61:], []
    while rest:
        record = RECORD.parse(rest)
        bodies.append(RECORD_BODY.parse(record.body))
        rest = rest[len(RECORD.build(record)) :]
    return bodies


def test_a_batch_has_its_header_and_records() -> None:
    records = [RecordToWrite(b"k", None, [("h", b"x"), ("h", None)], 7), RecordToWrite(None, b"", (), -1, 4)]
    batch = write_batch(
        records,
        base_offset=100,
        base_timestamp=1000,
        partition_leader_epoch=3,
        producer_id=8,
        producer_epoch=2,
        base_sequence=5,
        is_transactional=True,
    )
    header = header_of(batch)
    assert header.batch_length == len(batch) - 12
    assert header.crc == google_crc32c.value(batch[21:])
    assert dict(header, _io=None, crc=0, batch_length=0) == {
        "_io": None,
        "base_offset": 100,
        "batch_length": 0,
        "partition_leader_epoch": 3,
        "magic": 2,
        "crc": 0,
        "attributes": 0x10,
        "last_offset_delta": 4,
        "base_timestamp": 1000,
        "max_timestamp": 1007,
        "producer_id": 8,
        "producer_epoch": 2,
        "base_sequence": 5,
        "records_count": 2,
    }
    first, second = bodies_of(batch)
    assert (first.timestamp_delta, first.offset_delta, first.key, first.value) == (7, 0, b"k", None)
    assert [(header.key, header.value) for header in first.headers] == [(b"h", b"x"), (b"h", None)]
    assert (second.timestamp_delta, second.offset_delta, second.key, second.value, second.headers) == (-1, 4, None, b"", [])


def test_delete_horizon_replaces_the_base_timestamp() -> None:
    batch = write_batch([RecordToWrite(b"k", None, timestamp_delta=2)], base_offset=0, base_timestamp=1000, delete_horizon_ms=5000)
    header = header_of(batch)
    assert (header.attributes, header.base_timestamp, header.max_timestamp) == (0x40, 5000, 1002)
    assert header.base_timestamp + bodies_of(batch)[0].timestamp_delta == 1002


def test_an_empty_batch_is_only_a_header() -> None:
    batch = write_batch([], base_offset=7, base_timestamp=-1, max_timestamp=99, last_offset_delta=3)
    header = header_of(batch)
    assert len(batch) == 61
    assert (header.records_count, header.last_offset_delta, header.max_timestamp) == (0, 3, 99)


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_has_the_bytes_of_a_broker(commit: bool) -> None:
    batch = write_marker(commit, base_offset=4, producer_id=2, producer_epoch=3, coordinator_epoch=11, timestamp=50)
    header = header_of(batch)
    assert len(batch) == 78
    assert (header.attributes, header.base_sequence, header.records_count, header.max_timestamp) == (0x30, -1, 1, 50)
    body = bodies_of(batch)[0]
    assert body.key == bytes([0, 0, 0, commit])
    assert body.value == bytes([0, 0, 0, 0, 0, 11])


def test_lz4_frames_can_be_read_by_kafka() -> None:
    payload = b"abc" * 50_000
    frame = compress("lz4", payload)
    assert frame[:6] == bytes.fromhex("04224d18 60 40")
    assert frame[6] == xxhash.xxh32_intdigest(frame[4:6]) >> 8 & 0xFF == 0x82
    assert frame[-4:] == bytes(4)
    assert compress("lz4", payload, magic=0)[6] == xxhash.xxh32_intdigest(frame[:6]) >> 8 & 0xFF != frame[6]
    assert compress("lz4", payload, magic=0)[7:] == frame[7:]


def test_snappy_streams_have_the_framing_of_snappy_java_and_gzip_is_reproducible() -> None:
    stream = compress("snappy", bytes(40_000))
    assert stream[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    first = int.from_bytes(stream[16:20])
    second = int.from_bytes(stream[20 + first : 24 + first])
    assert len(stream) == 24 + first + second
    assert gzip.decompress(compress("gzip", b"x")) == b"x"
    assert compress("gzip", b"x") == compress("gzip", b"x")
