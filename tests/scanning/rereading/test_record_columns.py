"""Records as columns equal the records of each batch, for any bytes and any read size."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from kafka_forensics.model.arrow import plain
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.schemas import RECORDS
from kafka_forensics.parsers.log import SegmentReader, decode_batch, record_blocks
from kafka_forensics.scanning.rereading.record_columns import record_arrays
from kafka_forensics.scanning.rereading.record_states import STATES, LazyRecordStates, RecordStates, transaction_facts
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.support.kernels import FORMS, kernels
from tests.support.memory import MemoryFile
from tests.support.places import SAMPLES
from tests.support.strategies import LOG
from tests.support.times import time_of

LOGS = sorted((SAMPLES / "healthy" / "broker-1").glob("*/*.log"))
"""Logs of a real broker."""


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> Iterator[str]:
    with kernels(compiled=request.param == "compiled"):
        yield request.param


def one_by_one(data: bytes, *, payloads: bool = True) -> list[tuple[Any, ...]]:
    """The rows of `RECORDS` by decoding each batch."""
    file = MemoryFile(data)
    states = RecordStates(file, log_continues=False)
    rows: list[tuple[Any, ...]] = []
    for chunk in SegmentReader(file).chunks():
        for column in chunk.columns.T:
            if column[BatchColumn.CRC] != column[BatchColumn.CRC_COMPUTED]:
                continue
            position, size = int(column[BatchColumn.POSITION]), int(column[BatchColumn.SIZE_IN_BYTES])
            state = states.state(*transaction_facts(column), position)
            for record in decode_batch(data[position : position + size]).iter_records():
                headers = [{"key": key, "value": value} for key, value in record.headers]
                rows.append(
                    (
                        record.offset,
                        time_of(record.timestamp),
                        record.timestamp_type,
                        record.sequence,
                        *((record.key, record.value, headers) if payloads else (None, None, None)),
                        position,
                        record.size_in_bytes,
                        record.key_length,
                        record.value_length,
                        record.is_oversized,
                        state,
                    )
                )
    return rows


def as_columns(data: bytes, *, payloads: bool = True) -> list[tuple[Any, ...]]:
    """The rows of `RECORDS` by columns, which must be valid Arrow."""
    file = MemoryFile(data)
    states = LazyRecordStates(lambda: RecordStates(file, log_continues=False))
    tables = []
    for chunk in SegmentReader(file).chunks():
        good = np.flatnonzero(chunk.columns[BatchColumn.CRC] == chunk.columns[BatchColumn.CRC_COMPUTED])
        chunk_arrays = record_arrays(file, chunk.columns, good, states, payloads=payloads)
        tables += [pa.RecordBatch.from_arrays(list(map(plain, arrays)), schema=RECORDS) for arrays in chunk_arrays]
    table = pa.Table.from_batches(tables, RECORDS)
    table.validate(full=True)
    return [tuple(row.values()) for row in table.to_pylist()]


@given(LOG, st.sampled_from([1, 100, 1 << 20]), st.integers(3, 9), st.booleans())
def test_columns_are_the_records_of_each_batch(data: bytes, read_bytes: int, block_records: int, payloads: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kafka_forensics.parsers.log.blocks.READ_BYTES", read_bytes)
        patch.setattr("kafka_forensics.parsers.log.blocks.BLOCK_RECORDS", block_records)
        expected = one_by_one(data, payloads=payloads)
        for compiled in (False, True):
            with kernels(compiled=compiled):
                assert as_columns(data, payloads=payloads) == expected


def test_batches_of_real_brokers(form: str) -> None:
    for path in LOGS:
        assert as_columns(path.read_bytes()) == one_by_one(path.read_bytes())


def test_a_record_too_large_to_hold_is_measured(form: str) -> None:
    small, large = RecordToWrite(b"k", b"v", [("h", b"1")]), RecordToWrite(b"k", bytes(40 << 20))
    data = write_batch([small, large, small], base_offset=5, base_timestamp=9, compression_type="zstd")
    rows = as_columns(data)
    assert rows == one_by_one(data)
    assert [row[11] for row in rows] == [False, True, False]
    assert rows[1][4:7] == (None, None, [])


def test_a_file_that_ends_early_gives_the_records_before_its_end(form: str) -> None:
    batches = [write_batch([RecordToWrite(b"k", b"v")] * 3, base_offset=3 * n, base_timestamp=0) for n in range(4)]
    data = b"".join(batches)
    columns = next(SegmentReader(MemoryFile(data)).chunks()).columns
    for end in range(len(data) + 1):
        blocks = record_blocks(columns, np.arange(4), MemoryFile(data[:end]).read_at)
        offsets = [offset for block in blocks for offset in block.offsets.tolist()]
        assert offsets == list(range(len(offsets)))
        assert len(offsets) >= end // len(batches[0]) * 3


def test_states_of_many_batches_equal_those_of_each_one() -> None:
    for data in map(Path.read_bytes, LOGS):
        for log_continues in (False, True):
            states = RecordStates(MemoryFile(data), log_continues=log_continues)
            for chunk in SegmentReader(MemoryFile(data)).chunks():
                state_of_each = [
                    states.state(*transaction_facts(column), int(column[BatchColumn.POSITION])) for column in chunk.columns.T
                ]
                assert [STATES[number] for number in states.of_batches(chunk.columns)] == state_of_each
