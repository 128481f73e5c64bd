"""A payload read in parts, with a window of any size, gives the same records as the whole payload."""

import gzip
from collections.abc import Iterator

import pytest
from hypothesis import given, strategies as st

from kafka_forensics.model.batches import RecordColumn
from kafka_forensics.parsers.kernels.records import MALFORMED, OK, OUT_OF_BOUNDS, VARINT_OVERLONG, WRONG_COUNT
from kafka_forensics.parsers.log.record_stream import MAX_BAD_RECORDS, RecordStream, plain_records
from kafka_forensics.parsers.log.records import decode_batch
from kafka_forensics.parsers.spec.record_batch import RECORD_BATCH_HEADER
from kafka_forensics.writers.batches import RecordToWrite, write_batch, write_raw_batch
from tests.parsers.exact_readers import body, framed, spec_records, varint
from tests.support.peak_memory import traced_memory
from tests.support.segments import BASE_TIMESTAMP, batch, replace_bytes
from tests.support.strategies import payloads

GOOD = framed(body())
COMPARED_COLUMNS = (
    RecordColumn.SIZE_IN_BYTES,
    RecordColumn.ATTRIBUTES,
    RecordColumn.TIMESTAMP_DELTA,
    RecordColumn.OFFSET_DELTA,
    RecordColumn.KEY_LENGTH,
    RecordColumn.VALUE_LENGTH,
    RecordColumn.HEADERS_COUNT,
)
"""Columns that do not depend on whether the record fits the window."""


def cut(payload: bytes, size: int) -> Iterator[bytes]:
    return (payload[start : start + size] for start in range(0, len(payload), size))


def summary(records: RecordStream) -> tuple[int, int, int, int]:
    return records.records, records.code, records.error_index, records.error_position


def rows_of(records: RecordStream) -> list[tuple[int, ...]]:
    return [tuple(row[column] for column in COMPARED_COLUMNS) for _, columns in records.windows() for row in columns.T.tolist()]


@given(payload=payloads(), count=st.integers(-1, 5), piece=st.integers(1, 50), held=st.integers(12, 60))
def test_any_window_gives_the_records_of_the_whole_payload(payload: bytes, count: int, piece: int, held: int) -> None:
    whole = RecordStream(payload, None, count)
    expected = rows_of(whole)
    checked = RecordStream(payload, None, count)
    checked.check()
    assert summary(checked) == summary(whole)
    pieces = RecordStream(b"", cut(payload, piece), count, held_bytes=held)
    assert rows_of(pieces) == expected
    assert summary(pieces) == summary(whole)


@given(payload=payloads(), count=st.integers(-1, 5))
def test_the_first_fault_agrees_with_the_spec(payload: bytes, count: int) -> None:
    rows, code, position = spec_records(payload, count)
    records = RecordStream(payload, None, count)
    records.check()
    assert records.code == code
    if code != OK:
        assert (records.error_index, records.error_position) == (len(rows), position)
    assert records.records >= len(rows)


@pytest.mark.parametrize("held", [12, 40, 1 << 20])
def test_records_after_a_malformed_record_are_read(held: int) -> None:
    for bad, code in (
        (body(rest=b"!"), MALFORMED),
        (body(value=varint(2**31 - 1)), OUT_OF_BOUNDS),
        (b"\0" + b"\x80" * 11, VARINT_OVERLONG),
    ):
        payload = GOOD + framed(bad) + GOOD * 2
        records = RecordStream(b"", cut(payload, 7), 4, held_bytes=held)
        assert len(rows_of(records)) == 3
        assert summary(records) == (3, code, 1, len(GOOD))


def test_reading_stops_after_many_malformed_records() -> None:
    records = RecordStream(framed(b"") * 1000 + GOOD, None, 1001)
    records.check()
    assert summary(records) == (0, MALFORMED, 0, 0)
    within = RecordStream(framed(b"") * (MAX_BAD_RECORDS - 1) + GOOD, None, MAX_BAD_RECORDS)
    within.check()
    assert summary(within) == (1, MALFORMED, 0, 0)


def test_trailing_bytes_are_a_wrong_count() -> None:
    records = RecordStream(GOOD + b"\x80\x80trailing", None, 1)
    records.check()
    assert summary(records) == (1, WRONG_COUNT, 1, len(GOOD))


@pytest.mark.parametrize("held", [64, 4096])
def test_large_headers_are_measured_and_not_kept(held: int) -> None:
    headers = [("a" * 500, b"v" * 700), ("b", None), ("c", b"x" * 5000)]
    batch = write_batch([RecordToWrite(b"k" * 300, None, headers), RecordToWrite(b"k", b"v")], base_offset=0, base_timestamp=0)
    records = RecordStream(b"", cut(batch[61:], 100), 2, held_bytes=held)
    rows = [(window is None, columns[RecordColumn.HEADERS_COUNT, 0]) for window, columns in records.windows()]
    assert (rows, records.code) == ([(True, 3), (False, 0)], OK)


def test_a_value_of_256_mib_is_measured_and_not_kept() -> None:
    """No problem is reported, and memory holds a small part of the value at any time."""
    size = 256 << 20
    head = b"\0\0\0" + varint(1) + b"k" + varint(size)
    parts = [varint(len(head) + size + 1) + head, *[bytes(1 << 20)] * 256, varint(0) + framed(body(offset_delta=varint(1)))]
    stored = b"".join(gzip.compress(part, 1) for part in parts)
    whole = RECORD_BATCH_HEADER.parse(write_batch([], base_offset=0, base_timestamp=0, compression_type="gzip", records_count=2))
    batch = write_raw_batch(whole, stored)
    with traced_memory() as peak_bytes:
        decoded = decode_batch(batch)
        records = [(record.offset, record.key, record.value_length, record.is_oversized) for record in decoded.iter_records()]
    assert decoded.problems == []
    assert records == [(0, None, size, True), (1, b"k", 2, False)]
    assert peak_bytes() < 64 << 20


# Plain records: the fast reader agrees with the general one.


RECORDS = st.lists(
    st.builds(
        RecordToWrite,
        st.none() | st.binary(max_size=9),
        st.none() | st.binary(max_size=200),
        st.just(()) | st.just((("header", b"value"),)),
        st.integers(-5, 10**12),
    ),
    max_size=4,
)


def agrees(data: bytes) -> bool:
    """Whether the fast reader reads the batch; if so, it agrees with the general reader."""
    records = plain_records(data)
    if records is None:
        return False
    decoded = decode_batch(data)
    assert decoded.problems == []
    assert records == [(record.offset, record.timestamp, record.key, record.value) for record in decoded.iter_records()]
    return True


def test_the_fast_reader_refuses_other_batches() -> None:
    assert not agrees(batch(0, 2, compression_type="gzip"))
    assert not agrees(batch(0, 2, is_control_batch=True))
    assert not agrees(batch(0, 2, records_count=3))
    assert not agrees(batch(0, 2)[:-1])
    assert not agrees(b"")


@given(RECORDS, st.sampled_from(["CreateTime", "LogAppendTime"]), st.integers(0, 400), st.binary(max_size=3))
def test_both_readers_agree_on_any_bytes(records: list[RecordToWrite], timestamp_type: str, at: int, new: bytes) -> None:
    data = write_batch(
        records, base_offset=7, base_timestamp=BASE_TIMESTAMP, max_timestamp=BASE_TIMESTAMP - 7, timestamp_type=timestamp_type
    )
    plain = not any(record.headers for record in records)
    assert agrees(data) == plain
    agrees(replace_bytes(data, min(61 + at, max(len(data) - len(new), 0)), new))
