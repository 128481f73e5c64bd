"""Reading many batches at once gives the content of each, and reads every batch once."""

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, strategies as st

from kafka_forensics.model.batches import BATCH_COLUMNS, MARKER_COLUMNS, RECORD_COLUMNS, BatchColumn
from kafka_forensics.parsers.kernels.records import read_markers, readable
from kafka_forensics.parsers.log import MARKER_VALUE_SIZE, MIN_CONTROL_KEY_SIZE, blocks, decode_batch, parse_control_record
from kafka_forensics.writers.batches import RecordToWrite, write_batch, write_marker
from tests.support.segments import with_payload

if TYPE_CHECKING:
    from numpy.typing import NDArray


MARKERS = st.builds(
    write_marker,
    commit=st.booleans(),
    base_offset=st.just(2**33),
    timestamp=st.just(2**41),
    producer_id=st.just(7),
    producer_epoch=st.just(0),
    coordinator_epoch=st.integers(-(2**31), 2**31 - 1),
)
KEYS = st.none() | st.sampled_from([b"\0\0\0\0", b"\0\0\0\1x", b"\x80\0\0\1", b"\0\0\0\2"]) | st.binary(max_size=5)
VALUES = st.none() | st.sampled_from([b"\0\0\0\0\0\7", b"\0\1\xff\xff\xff\xffx", b"\x80\0\0\0\0\1"]) | st.binary(max_size=8)
RECORDS = st.builds(RecordToWrite, KEYS, VALUES, st.sampled_from([[], [], [("h", b"1")]]), st.integers(-9, 2**33))
CONTROL_BATCHES = st.lists(RECORDS, min_size=1, max_size=2).map(
    lambda records: write_batch(records, base_offset=2**33, base_timestamp=2**41, is_control_batch=True)
)
MARKER_FIELDS = {"base_offset": 2**33, "base_timestamp": 2**41, "producer_id": 7, "records_count": 1}
ANY_PAYLOADS = st.binary(max_size=20).map(
    lambda payload: with_payload(payload, **MARKER_FIELDS, is_control_batch=True, is_transactional=True)
)


def marker_fields(batch: bytes) -> list[int] | None:
    """[offset delta, timestamp delta, type, version, coordinator epoch] of a batch of one marker; None for other batches."""
    decoded = decode_batch(batch)
    records = list(decoded.iter_records())
    if decoded.problems or len(records) != 1 or records[0].headers:
        return None
    control = parse_control_record(records[0].key, records[0].value)
    if control.type not in (0, 1) or control.problem or control.version is None or control.coordinator_epoch is None:
        return None
    deltas = records[0].offset - 2**33, records[0].timestamp - 2**41
    return [*deltas, control.type, control.version, control.coordinator_epoch]


@given(st.lists(MARKERS | CONTROL_BATCHES | ANY_PAYLOADS, max_size=6))
def test_markers_are_the_records_of_their_batches(batches: list[bytes]) -> None:
    expected = []
    for batch in batches:
        marker = marker_fields(batch)
        if marker is None:
            break
        expected.append(marker)
    ends = np.cumsum([len(batch) for batch in batches], dtype=np.int64)
    payloads = np.array([ends - [len(batch) - 61 for batch in batches], ends], np.int64).reshape(2, -1)
    for form in ("interpreted", "compiled"):
        buffer = readable(b"".join(batches), compiled=form == "compiled")
        out, scratch = np.empty((MARKER_COLUMNS, len(batches)), np.int64), np.empty((RECORD_COLUMNS, 1), np.int64)
        read = getattr(read_markers, form)(buffer, payloads, MIN_CONTROL_KEY_SIZE, MARKER_VALUE_SIZE, scratch, out)
        assert out[:, :read].T.tolist() == expected


def expected_groups(columns: "NDArray[np.int64]", rows: list[int]) -> list[list[int]]:
    """`rows` in groups: a group spans at most 40 bytes, with gaps of at most 5 bytes."""
    groups: list[list[int]] = []
    for row in rows:
        start = int(columns[BatchColumn.POSITION, row])
        end = start + int(columns[BatchColumn.SIZE_IN_BYTES, row])
        if groups:
            first, last = (int(columns[BatchColumn.POSITION, edge]) for edge in (groups[-1][0], groups[-1][-1]))
            end_of_last = last + int(columns[BatchColumn.SIZE_IN_BYTES, groups[-1][-1]])
            if end - first <= 40 and start - end_of_last <= 5:
                groups[-1].append(row)
                continue
        groups.append([row])
    return groups


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(1, 50), st.booleans()), max_size=30))
def test_adjacent_batches_are_read_together(places: list[tuple[int, int, bool]]) -> None:
    columns = np.zeros((BATCH_COLUMNS, len(places)), np.int64)
    position = 0
    for row, (gap, size, _) in enumerate(places):
        position += gap
        columns[BatchColumn.POSITION, row], columns[BatchColumn.SIZE_IN_BYTES, row] = position, size
        position += size
    rows = [row for row, (*_, wanted) in enumerate(places) if wanted]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "READ_BYTES", 40)
        patch.setattr(blocks, "_GAP_BYTES", 5)
        read_groups = [
            group.tolist() for group, _ in blocks._read_groups(columns, np.array(rows, np.int64), lambda _, size: bytes(size))
        ]
    assert read_groups == expected_groups(columns, rows)
