"""Hashes of keys agree with real clients in both forms; which keys of a log are sampled, on any bytes."""

import itertools
import zlib
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Producer
from hypothesis import given, strategies as st

from kafka_forensics.model.batches import KEY_SAMPLE_COLUMNS, BatchColumn
from kafka_forensics.parsers.kernels import partitioners
from kafka_forensics.parsers.kernels.crc import crc32
from kafka_forensics.parsers.kernels.records import readable
from kafka_forensics.parsers.log.records import (
    BYTES_PER_STEP,
    COMPRESSED_INTERVALS,
    MAX_RECORDS_PER_SAMPLE,
    MIN_SAMPLE_INTERVAL,
    SAMPLED_BATCHES,
    BatchChecks,
    KeySampler,
)
from kafka_forensics.writers.batches import RecordToWrite, write_batch, write_marker, write_record
from tests.parsers.exact_readers import matrix
from tests.support.kernels import FORMS, call_both_forms, kernels
from tests.support.segments import BASE_TIMESTAMP, columns_of, flip_bit, legacy_entry, read
from tests.support.strategies import payloads

JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
    bytes([12, 42, 56, 24, 109, 111]): 274204207,
}
"""Key → the hash in the tests of Kafka's Java client."""
KEYS = [*JAVA, b"order-1", b"\xff\x00\x01", "\u043a\u043b\u044e\u0447".encode(), b"a" * 33, *(b"k%d" % n for n in range(40))]
MOCK_PARTITIONS = 4
"""Partitions of a topic that librdkafka's mock cluster creates."""


def hashed(kernel: Any, key: bytes) -> int:
    return int(call_both_forms(kernel, key, 0, len(key), *((0,) if kernel is crc32 else ())))


def test_murmur2_agrees_with_the_java_client() -> None:
    for key, expected in JAVA.items():
        assert hashed(partitioners.murmur2, key) == expected % 2**32


@pytest.mark.parametrize(
    ("partitioner", "kernel"), [("consistent_random", crc32), ("consistent", crc32), ("murmur2_random", partitioners.murmur2)]
)
def test_hashes_choose_the_partitions_that_librdkafka_chooses(partitioner: str, kernel: Any) -> None:
    chosen: dict[bytes, int] = {}
    producer = Producer({"test.mock.num.brokers": 1, "partitioner": partitioner, "log_level": 0})

    def delivered(_: Any, sent: Any) -> None:
        chosen[sent.key()] = sent.partition()

    for key in KEYS:
        producer.produce("topic", b"value", key=key, on_delivery=delivered)
    assert producer.flush(20) == 0
    for key in KEYS:
        assert (hashed(kernel, key) & (0x7FFFFFFF if kernel is partitioners.murmur2 else -1)) % MOCK_PARTITIONS == chosen[key]


@given(st.binary(max_size=40), st.integers(0, 5), st.integers(0, 5))
def test_both_forms_agree_on_the_hash_of_any_range(data: bytes, before: int, after: int) -> None:
    padded = b"\x81" * before + data + b"\x7e" * after
    assert 0 <= call_both_forms(partitioners.murmur2, padded, before, before + len(data)) < 2**32
    assert call_both_forms(crc32, padded, before, before + len(data), 0) == zlib.crc32(data)


def batch_of(count: int, **fields: int) -> Any:
    columns = {BatchColumn[name.upper()]: value for name, value in fields.items()}
    return columns_of([{BatchColumn.RECORDS_COUNT: count, BatchColumn.BASE_TIMESTAMP: 7, **columns}])


@given(
    payload=payloads(),
    count=st.integers(-5, 2**31 - 1),
    base_offset=st.sampled_from([0, 9, -1, 2**63 - 1]),
    log_append=st.booleans(),
    every=st.sampled_from([1, 32]),
)
def test_both_forms_sample_the_same_keys_of_any_payload(
    payload: bytes, count: int, base_offset: int, log_append: bool, every: int
) -> None:
    batch = batch_of(count, base_offset=base_offset, attributes=8 * log_append, base_timestamp=2**63 - 1 if count % 2 else 5)
    answers = []
    for form in FORMS:
        out = np.full((KEY_SAMPLE_COLUMNS, partitioners.MAX_RECORDS_OF_BATCH + 1), -77, np.int64)
        buffer = readable(payload, compiled=form == "compiled")
        written = getattr(partitioners.sample_payload, form)(buffer, 0, len(payload), batch, 0, every, matrix(1), out, 1)
        assert (out[:, 0] == -77).all()
        assert (out[:, int(written) :] == -77).all()
        answers.append(out[:, 1 : int(written)].tolist())
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("base", "expected_timestamp"), [(2**62 - 1, 2**62 - 1), (2**62, -1), (-(2**62) + 1, -(2**62) + 1), (-(2**62), -1)]
)
def test_timestamps_out_of_range_are_sampled_as_minus_one(base: int, expected_timestamp: int) -> None:
    payload = write_record(RecordToWrite(b"key", b"value"), offset_delta=0, timestamp_delta=0)
    out, batch = matrix(1), batch_of(1, base_offset=9, base_timestamp=base)
    assert call_both_forms(partitioners.sample_payload, payload, 0, len(payload), batch, 0, 1, matrix(1), out, 0) == 1
    assert out[:2, 0].tolist() == [9, expected_timestamp]


@given(st.lists(st.integers(1, 3000), max_size=30), st.integers(1, 5000))
def test_a_batch_is_sampled_if_a_grain_begins_in_it(sizes: list[int], grain: int) -> None:
    position, sampled = 0, 0
    for size in sizes:
        expected = any(at % grain == 0 for at in range(position, position + size))
        assert {bool(getattr(partitioners.is_sampled, form)(position, size, grain)) for form in FORMS} == {expected}
        sampled += expected
        position += size
    assert sampled <= position // grain + 1


@given(
    st.lists(st.tuples(st.integers(61, 4000), st.integers(-(2**31), 2**31 - 1), st.integers(0, 7)), max_size=12),
    st.binary(max_size=64),
    st.sampled_from([1, 32]),
)
def test_hostile_headers_never_overrun_the_output(headers: list[tuple[int, int, int]], noise: bytes, every: int) -> None:
    columns = columns_of(
        [
            {BatchColumn.SIZE_IN_BYTES: size, BatchColumn.RECORDS_COUNT: count, BatchColumn.ATTRIBUTES: attributes}
            for size, count, attributes in headers
        ]
    )
    filler = (noise or b"\x00") + write_record(RecordToWrite(b"k", b""), 0, 0)
    total = int(columns[BatchColumn.SIZE_IN_BYTES].sum())
    data = (filler * (total // len(filler) + 1))[:total]
    answers = []
    for form in FORMS:
        room = partitioners.max_samples(columns, every)
        out = np.zeros((KEY_SAMPLE_COLUMNS, room), np.int64)
        buffer = readable(data, compiled=form == "compiled")
        written = int(getattr(partitioners.sample_batches, form)(buffer, 0, columns, 0, len(headers), 1, every, matrix(1), out))
        assert written <= room <= len(headers) + total // 7 // every
        answers.append(out[:, :written].tolist())
    assert answers[0] == answers[1]


def sampled(data: bytes, log_bytes: int = 0) -> list[tuple[int, ...]]:
    """(offset, timestamp, key length, murmur2, CRC-32) of every key that a deep scan samples."""
    sampler = KeySampler(log_bytes)
    read(data, inspect=BatchChecks(deep=True, keys=sampler))
    rows = [tuple(row) for row in sampler.take().T.tolist()]
    assert sampler.take().shape == (KEY_SAMPLE_COLUMNS, 0)
    return rows


def expected(offset: int, timestamp: int, key: bytes | None) -> tuple[int, ...]:
    if key is None:
        return offset, timestamp, -1, 0, 0
    return offset, timestamp, len(key), hashed(partitioners.murmur2, key), zlib.crc32(key)


def long_batch(base_offset: int, **fields: Any) -> bytes:
    records = [RecordToWrite(b"k%d" % n if n % 3 else None, b"v" * 20, timestamp_delta=n) for n in range(100)]
    return write_batch(records, base_offset=base_offset, base_timestamp=BASE_TIMESTAMP, **fields)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
def test_the_first_records_of_a_batch_are_sampled(compiled: bool, codec: str) -> None:
    with kernels(compiled=compiled):
        for log_bytes, sampled_records in ((0, 64), (4 * BYTES_PER_STEP, 26), (BYTES_PER_STEP * MAX_RECORDS_PER_SAMPLE, 4)):
            rows = sampled(long_batch(7, compression_type=codec), log_bytes)
            assert rows == [expected(7 + n, BASE_TIMESTAMP + n, b"k%d" % n if n % 3 else None) for n in range(sampled_records)]
        appended = long_batch(0, compression_type=codec, timestamp_type="LogAppendTime", max_timestamp=99)
        assert {row[1] for row in sampled(appended)} == {99}


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_the_same_batches_are_sampled_when_many_are_decoded_together(codec: str) -> None:
    """One batch is malformed, and groups of batches end within the log."""

    def numbered(number: int, records_count: int | None = None) -> bytes:
        records = [RecordToWrite(b"key-%d" % number, b"v" * 20)]
        return write_batch(records, base_offset=number, base_timestamp=number, compression_type=codec, records_count=records_count)

    batches = [numbered(number) for number in range(2500)]
    batches[1300] = numbered(1300, records_count=2)
    starts = itertools.accumulate((len(batch) for batch in batches), initial=0)
    grain = MIN_SAMPLE_INTERVAL * (1 if codec == "none" else COMPRESSED_INTERVALS)
    chosen = [number for number, start in zip(range(2500), starts, strict=False) if -start % grain < len(batches[number])]
    assert sampled(b"".join(batches)) == [expected(number, number, b"key-%d" % number) for number in chosen]


def test_old_messages_are_sampled_but_not_markers_or_damaged_batches() -> None:
    assert sampled(legacy_entry(4, 1, timestamp=77)) == [expected(4, 77, b"key")]
    assert sampled(legacy_entry(4, 0)) == [expected(4, -1, b"key")]
    marker = write_marker(base_offset=0, timestamp=5, producer_id=4, producer_epoch=0, commit=True, coordinator_epoch=0)
    assert sampled(marker) == []
    assert sampled(flip_bit(long_batch(0), 200)) == []


def test_few_batches_of_a_long_log_are_sampled_with_any_cut() -> None:
    log = [write_batch([RecordToWrite(b"k", b"v" * 100)], base_offset=n, base_timestamp=5) for n in range(300)]
    data, size = b"".join(log), len(log[0])
    assert len(sampled(data)) == sum(partitioners.is_sampled.interpreted(at * size, size, MIN_SAMPLE_INTERVAL) for at in range(300))
    whole = sampled(data, 4000 * SAMPLED_BATCHES)
    assert len(whole) == -(-len(data) // 4000)
    sampler = KeySampler(4000 * SAMPLED_BATCHES)
    parts = []
    for start, end in ((0, 100 * size), (100 * size, len(data))):
        read(data, start, end, inspect=BatchChecks(deep=True, keys=sampler))
        parts += [tuple(row) for row in sampler.take().T.tolist()]
    assert parts == whole
