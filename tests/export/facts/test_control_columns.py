"""Transaction markers read as columns equal the control records read one by one."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from kafka_forensics.evidence.inputs import ReplicaPlan, gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export.facts import log
from kafka_forensics.export.facts.log import ReplicaReader
from kafka_forensics.export.facts.rows import batch_without_keys, record_batch
from kafka_forensics.model.arrow import plain
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import CONTROL_MASK
from kafka_forensics.model.schemas import FACTS
from kafka_forensics.parsers.log import SegmentReader
from kafka_forensics.scanning.rereading.record_states import LazyRecordStates
from kafka_forensics.writers.batches import RecordToWrite, write_batch, write_marker
from tests.support.brokers import healthy
from tests.support.kernels import kernels
from tests.support.memory import MemoryFile
from tests.support.strategies import LOG

if TYPE_CHECKING:
    from kafka_forensics.model.results import Incomplete

FACT = FACTS["control_records"]
KEYS = (
    st.none()
    | st.sampled_from([b"\0\0\0\0", b"\0\0\0\1", b"\0\1\0\1x", b"\x80\0\0\1", b"\0\0\0\2", b"\0\0\x80\0"])
    | st.binary(max_size=6)
)
VALUES = st.none() | st.sampled_from([b"\0\0\0\0\0\7", b"\0\1\xff\xff\xff\xffx", b"\x80\0\0\0\0\1"]) | st.binary(max_size=8)
MARKERS = st.builds(
    write_marker,
    commit=st.booleans(),
    base_offset=st.integers(0, 2**40),
    timestamp=st.integers(0, 2**41),
    producer_id=st.integers(0, 2**40),
    producer_epoch=st.integers(0, 2**15 - 1),
    coordinator_epoch=st.integers(-(2**31), 2**31 - 1),
)


@st.composite
def control_batches(draw: st.DrawFn) -> bytes:
    records = draw(st.lists(st.builds(RecordToWrite, KEYS, VALUES), min_size=1, max_size=3))
    codec = draw(st.sampled_from(["none", "none", "lz4"]))
    offset = draw(st.integers(0, 2**40))
    return write_batch(records, base_offset=offset, base_timestamp=9, is_control_batch=True, compression_type=codec)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> ReplicaPlan:
    return gather([str(healthy(tmp_path_factory.mktemp("healthy")).log_dir(1))], ScanOptions()).replicas[0]


def both_results(plan: ReplicaPlan, data: bytes) -> tuple[list[dict[str, Any]] | None, list[dict[str, Any]]]:
    """(rows made from columns, or None if records must be read one by one; rows made from records)."""
    missing: list[Incomplete] = []
    reader = ReplicaReader(plan, missing.append)
    file = MemoryFile(data)
    by_columns: list[dict[str, Any]] | None = []
    by_records: list[dict[str, Any]] = []
    for chunk in SegmentReader(file).chunks():
        columns = chunk.columns
        control = (columns[BatchColumn.ATTRIBUTES] & CONTROL_MASK != 0) & (columns[BatchColumn.MAGIC] >= 2)
        log_chunk = log.LogChunk(plan.directory.logs()[0], file, ("dir", "t-0/0.log"), LazyRecordStates(None), chunk)
        rows = np.flatnonzero(log_chunk.rows_with_right_crc() & control)
        markers = log._marker_columns(log_chunk, rows)
        if markers is None:
            by_columns = None
        elif rows.size and by_columns is not None:
            batch = batch_without_keys(FACT, markers)
            batch.validate(full=True)
            by_columns += pa.RecordBatch.from_arrays(list(map(plain, batch.columns)), schema=FACT.file_schema).to_pylist()
        control_rows = list(log._control_rows(reader, log_chunk, rows))
        by_records += record_batch(FACT.file_schema, control_rows).to_pylist() if control_rows else []
    return by_columns, by_records


@given(st.lists(MARKERS | control_batches() | LOG, max_size=6).map(b"".join))
def test_columns_equal_the_control_records(plan: ReplicaPlan, data: bytes) -> None:
    for compiled in (False, True):
        with kernels(compiled=compiled):
            by_columns, by_records = both_results(plan, data)
            assert by_columns is None or by_columns == by_records


@given(st.lists(MARKERS, min_size=1, max_size=6))
def test_a_log_of_markers_is_read_as_columns(plan: ReplicaPlan, markers: list[bytes]) -> None:
    by_columns, by_records = both_results(plan, b"".join(markers))
    assert by_columns == by_records
    assert len(by_records) == len(markers)


def test_a_control_batch_that_is_too_large_is_not_read_as_columns(plan: ReplicaPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "MAX_BATCH_BYTES", 70)
    marker = write_marker(commit=True, base_offset=1, timestamp=2, producer_id=3, producer_epoch=4, coordinator_epoch=5)
    assert both_results(plan, marker) == (None, [])
