"""Decoded batches: fields of their records that depend on the header, and faults inside them."""

import random
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from kafka_forensics.model.batches import BatchColumn, Damage
from kafka_forensics.model.constants import (
    COMPRESSION_TYPES,
    CRC_AT,
    CRC_START,
    HEADER_SIZE_UP_TO_MAGIC,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    RECORD_BATCH_OVERHEAD,
)
from kafka_forensics.parsers.log.records import (
    MAX_BATCH_BYTES,
    check_batch_in_file,
    check_rows,
    decode_batch,
)
from kafka_forensics.parsers.log.segment import SegmentReader
from kafka_forensics.parsers.spec.batch_header import BATCH_HEADER, BatchHeader
from kafka_forensics.parsers.spec.record_batch import RECORD_BATCH_HEADER
from kafka_forensics.writers.batches import RecordToWrite, compress, fix_crc, write_batch, write_marker
from tests.parsers.exact_readers import body, framed, varint
from tests.support.kernels import kernels
from tests.support.memory import MemoryFile
from tests.support.segments import with_payload
from tests.support.strategies import any_segments

RECORDS = (
    RecordToWrite(b"key", b"value", [("h", b"x"), ("h", None), ("", b"")], 5),
    RecordToWrite(None, b"", (), -3),
    RecordToWrite(b"", None),
)


def check_batch(batch: bytes, position: int = 0) -> list[Damage]:
    return decode_batch(batch, position=position).problems


def batch_of(*records: RecordToWrite, **fields: Any) -> bytes:
    return write_batch(records or RECORDS, **({"base_offset": 100, "base_timestamp": 1000} | fields))


def raw(payload: bytes, count: int, codec: int = 0) -> bytes:
    fields = {"base_offset": 100, "base_timestamp": 1000, "max_timestamp": 1005, "last_offset_delta": 9}
    return with_payload(payload, records_count=count, compression_type=COMPRESSION_TYPES[codec], **fields)


def test_the_header_agrees_with_the_spec() -> None:
    batch = batch_of(producer_id=7, producer_epoch=3, base_sequence=9, is_transactional=True)
    header = decode_batch(batch).header
    assert header is not None
    spec = RECORD_BATCH_HEADER.parse(batch)
    assert header._asdict() == {name: spec[name] for name in BatchHeader._fields}
    assert (header.codec, header.timestamp_type, header.is_transactional, header.is_control_batch) == (0, "CreateTime", True, False)
    assert header.last_offset == 102


def test_offsets_timestamps_and_sequences_follow_from_the_header() -> None:
    plain = decode_batch(batch_of())
    records = list(plain.iter_records())
    rows = [(record.offset, record.timestamp, record.timestamp_type, record.sequence) for record in records]
    assert rows == [(100, 1005, "CreateTime", -1), (101, 997, "CreateTime", -1), (102, 1000, "CreateTime", -1)]
    assert sum(record.size_in_bytes for record in records) == len(plain.payload)
    appended = decode_batch(batch_of(timestamp_type="LogAppendTime", max_timestamp=9999)).iter_records()
    assert {(record.timestamp, record.timestamp_type) for record in appended} == {(9999, "LogAppendTime")}
    cleaned = decode_batch(batch_of(delete_horizon_ms=50_000))
    assert cleaned.header is not None
    assert cleaned.header.delete_horizon_ms == 50_000
    assert [record.timestamp for record in cleaned.iter_records()] == [1005, 997, 1000]
    wrapped = decode_batch(batch_of(producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)).iter_records()
    assert [record.sequence for record in wrapped] == [2**31 - 2, 2**31 - 1, 0]


def test_gaps_of_compaction_are_kept() -> None:
    batch = batch_of(
        RecordToWrite(b"a", b"", offset_delta=3), RecordToWrite(b"b", b"", offset_delta=7), last_offset_delta=20, base_sequence=5
    )
    assert [(record.offset, record.sequence) for record in decode_batch(batch).iter_records()] == [(103, 8), (107, 12)]


@pytest.mark.parametrize("codec", range(5))
def test_an_emptied_batch_has_no_problem(codec: int) -> None:
    decoded = decode_batch(raw(b"", 0, codec))
    assert (decoded.problems, decoded.records_count, list(decoded.iter_records())) == ([], 0, [])


def test_offsets_and_timestamps_wrap_at_int64_as_in_java() -> None:
    batch = batch_of(RecordToWrite(b"", b"", timestamp_delta=2**63 - 1, offset_delta=5), base_offset=2**63 - 2, max_timestamp=0)
    record = next(decode_batch(batch).iter_records())
    assert (record.offset, record.timestamp) == (-(2**63) + 3, -(2**63) + 999)


@pytest.mark.parametrize("codec", COMPRESSION_TYPES)
@pytest.mark.parametrize("count", [2**31 - 1, -1, 0, 2, 4])
def test_a_wrong_count_hides_no_record(codec: str, count: int) -> None:
    decoded = decode_batch(batch_of(compression_type=codec, records_count=count), position=77)
    assert [record.offset for record in decoded.iter_records()] == [100, 101, 102]
    size = len(batch_of(compression_type=codec))
    damage = decoded.problems[0]
    assert damage == Damage("BATCH_COUNT_LIE", 77, size, 100, 102, damage.detail)
    assert (damage.detail["records_count"], damage.detail["records_found"]) == (count, 3)


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        (framed(body(value=varint(2**31 - 1))), "RECORD_LENGTH_OUT_OF_BOUNDS"),
        (varint(2**31 - 1) + body(), "RECORD_LENGTH_OUT_OF_BOUNDS"),
        (framed(body(headers_count=varint(2**31 - 1))), "RECORD_LENGTH_OUT_OF_BOUNDS"),
        (framed(body(timestamp_delta=b"\x80" * 10 + b"\x01")), "RECORD_VARINT_OVERLONG"),
        (framed(body(rest=b"?")), "RECORD_MALFORMED"),
    ],
)
def test_damage_of_a_malformed_record_has_its_index(codec: int, bad: bytes, kind: str) -> None:
    good = framed(body())
    batch = raw(compress(COMPRESSION_TYPES[codec], good * 2 + bad), 3, codec)
    decoded = decode_batch(batch, position=5)
    detail: dict[str, Any] = {"records_count": 3, "records_found": 2, "record_index": 2, "payload_position": 2 * len(good)}
    assert decoded.problems == [Damage(kind, 5, len(batch), 100, 109, detail)]
    assert len(list(decoded.iter_records())) == 2
    assert check_batch(batch, 5) == decoded.problems


def test_compression_faults_precede_faults_that_follow_from_them() -> None:
    stored = compress("gzip", b"".join(framed(body(value=varint(40) + random.Random(seed).randbytes(40))) for seed in range(500)))
    for payload, kind, reason in (
        (stored[:-30], "CODEC_MALFORMED", "truncated"),
        (stored + b"junk", "CODEC_MALFORMED", "trailing_bytes"),
    ):
        decoded = decode_batch(raw(payload, 500, 1))
        assert [(damage.kind, damage.detail["reason"]) for damage in decoded.problems] == [(kind, reason)]
        assert decoded.records_count > 0
    (wrong_count,) = check_batch(raw(stored + compress("gzip", framed(body())), 500, 1))
    assert (wrong_count.kind, wrong_count.detail["records_found"]) == ("BATCH_COUNT_LIE", 501)
    assert check_batch(raw(b"\xff\xff\xff\xff\x07", 1, 2))[0].kind == "CODEC_SIZE_LIE"
    assert check_batch(raw(b"", 1, 7 & 3))[0].kind == "CODEC_MALFORMED"


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, bytes(6), "control_key"),
        (b"\0\0\0", bytes(6), "control_key"),
        (b"\xff\xff\0\0", bytes(6), "control_key"),
        (bytes(4), b"\0\0", "control_value"),
        (bytes(4), None, "control_value"),
        (b"\0\0\0\2", b"\0\0", "control_value"),
        (b"\0\0\0\x63", None, None),
    ],
)
def test_control_records_must_be_readable(key: bytes | None, value: bytes | None, reason: str | None) -> None:
    batch = write_batch([RecordToWrite(key, value)], base_offset=0, base_timestamp=0, is_control_batch=True)
    assert [damage.detail["reason"] for damage in decode_batch(batch).problems] == [reason] * (reason is not None)
    assert [damage.kind for damage in inspected_damage(batch)] == ["RECORD_MALFORMED"] * (reason is not None)


@pytest.mark.parametrize("size", range(62))
def test_a_cut_batch_has_one_problem(size: int) -> None:
    decoded = decode_batch(batch_of()[:size], position=3)
    assert [damage.position for damage in decoded.problems] == [3]
    assert list(decoded.iter_records()) == []
    assert check_batch(bytes(size))[0].kind == "RECORD_MALFORMED"


@given(batch=st.binary(min_size=17, max_size=200), magic=st.sampled_from([0, 1, 2, 3, 255]), codec=st.integers(0, 7))
def test_any_bytes_are_decoded_with_at_most_one_problem(batch: bytes, magic: int, codec: int) -> None:
    patched = bytearray(batch)
    patched[16] = magic
    for place in (17, 22):
        if place < len(patched):
            patched[place] = patched[place] & 0xF8 | codec
    decoded = decode_batch(bytes(patched))
    assert len(list(decoded.iter_records())) == decoded.records_count or decoded.problems
    assert len(decoded.problems) <= 1


def inspected_damage(data: bytes) -> list[Damage]:
    return [damage for chunk in SegmentReader(MemoryFile(data), inspect=check_rows).chunks() for damage in chunk.damage]


@pytest.mark.parametrize("compiled", [False, True])
@given(data=any_segments())
def test_checking_a_chunk_agrees_with_checking_each_batch(compiled: bool, data: bytes) -> None:
    with kernels(compiled=compiled):
        plain = list(SegmentReader(MemoryFile(data)).chunks())
        inspected = inspected_damage(data)
    expected = [damage for chunk in plain for damage in chunk.damage]
    damaged_ranges = [range(damage.position, damage.position + damage.size_in_bytes) for damage in expected]
    wanted = [BatchColumn.POSITION, BatchColumn.SIZE_IN_BYTES]
    for position, size in (row for chunk in plain for row in chunk.columns[wanted].T.tolist()):
        if not any(position in damaged for damaged in damaged_ranges):
            expected += check_batch(data[position : position + size], position)
    assert sorted(map(repr, inspected)) == sorted(map(repr, expected))


@pytest.mark.parametrize("compiled", [False, True])
def test_checking_many_batches_together_agrees_with_checking_each(compiled: bool) -> None:
    """More batches than a group has, with faults at the ends of groups, large payloads, and one too large for any group;
    malformed batches have a right CRC."""
    large = RecordToWrite(b"k", b"v" * 200_000)
    batches = [batch_of(base_offset=100 * number, compression_type="lz4") for number in range(2100)]
    for place, batch in {
        0: raw(b"\x1f\x8b", 1, 1),
        5: raw(compress("zstd", framed(body(rest=b"?"))), 1, 4),
        10: raw(framed(body(rest=b"?")), 1),
        11: write_marker(commit=True, base_offset=9, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=0),
        12: raw(framed(body()), -1),
        700: batch_of(large, compression_type="zstd"),
        701: batch_of(large, large, compression_type="snappy"),
        702: batch_of(*[large] * 8, compression_type="gzip"),
        703: batch_of(*[large] * 8, compression_type="lz4", records_count=9),
        1000: batch_of(compression_type="lz4", records_count=4),
        1727: raw(compress("lz4", framed(body()))[:-4], 1, 3),
        1728: raw(b"", 0, 4),
        2099: batch_of(compression_type="gzip", records_count=-1),
    }.items():
        batches[place] = batch
    starts = np.cumsum([0, *map(len, batches)]).tolist()
    with kernels(compiled=compiled):
        found = inspected_damage(b"".join(batches))
    assert found == [damage for batch, start in zip(batches, starts, strict=False) for damage in check_batch(batch, start)]
    assert [damage.position for damage in found] == [starts[place] for place in (0, 5, 10, 12, 703, 1000, 1727, 2099)]


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_batch_is_checked_in_its_file(codec: str) -> None:
    good = batch_of(RecordToWrite(b"k", b"v" * 600_000), RecordToWrite(b"k", b"w" * 600_000), compression_type=codec)
    wrong_count = fix_crc(good[:57] + (3).to_bytes(4, "big") + good[61:])
    file = MemoryFile(b"before" + good + wrong_count)
    assert check_batch_in_file(file, 6, len(good)) == []
    (damage,) = check_batch_in_file(file, 6 + len(good), len(wrong_count))
    assert damage == check_batch(wrong_count, 6 + len(good))[0]
    assert file.furthest_byte <= 6 + len(good) + len(wrong_count)


def test_a_compressed_batch_above_the_limit_is_reported_as_unread() -> None:
    file = MemoryFile(batch_of(compression_type="gzip")[:61], size_in_bytes=MAX_BATCH_BYTES + 1)
    (damage,) = check_batch_in_file(file, 0, MAX_BATCH_BYTES + 1)
    assert (damage.kind, file.bytes_read) == ("BUDGET_EXCEEDED", 61)


def test_the_header_and_its_constants_agree_with_the_declared_layout() -> None:
    sizes = {field.name: field.sizeof() for field in RECORD_BATCH_HEADER.subcons}
    assert tuple(sizes) == BatchHeader._fields
    declared = {name: (end - sizes[name], sizes[name]) for name, end in zip(sizes, accumulate(sizes.values()), strict=True)}
    assert BATCH_HEADER.size == RECORD_BATCH_HEADER.sizeof() == RECORD_BATCH_OVERHEAD
    assert declared["batch_length"] == (LENGTH_AT, LOG_OVERHEAD - LENGTH_AT)
    assert declared["magic"] == (MAGIC_AT, HEADER_SIZE_UP_TO_MAGIC - MAGIC_AT)
    assert declared["crc"] == (CRC_AT, CRC_START - CRC_AT)
    assert declared["attributes"][0] == CRC_START
    assert declared["last_offset_delta"][0] == LAST_OFFSET_DELTA_AT
    data = bytes(range(1, 1 + RECORD_BATCH_OVERHEAD))
    assert BATCH_HEADER.unpack(data) == tuple(RECORD_BATCH_HEADER.parse(data)[name] for name in BatchHeader._fields)
