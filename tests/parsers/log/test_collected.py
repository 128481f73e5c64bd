"""Batches in a bundle: any columns are read back, and any bytes are read or refused."""

from collections.abc import Sequence

import cramjam
import numpy as np
import pytest
from hypothesis import given, strategies as st

from kafka_forensics.errors import FormatError
from kafka_forensics.model.batches import BATCH_COLUMNS, CHUNK_ROWS, BatchColumn, Damage
from kafka_forensics.parsers.log import contradiction, read_batches
from tests.support.bundles import batches_section

INT16 = st.integers(-(1 << 15), (1 << 15) - 1)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
UINT32 = st.integers(0, (1 << 32) - 1)
FEW = st.integers(-2, 6)


def row() -> st.SearchStrategy[Sequence[int]]:
    """The columns of a batch except its identity, plausible or not."""
    fields = [INT64] * 2 + [INT64 | FEW] * 2 + [INT32 | FEW, INT32 | FEW, st.integers(0, 127), UINT32, UINT32, INT16]
    fields += [INT64 | FEW] * 3 + [INT16, INT32 | FEW, INT32 | FEW, INT16, INT32, st.just(0), st.just(0)]
    return st.tuples(*fields)


@given(st.lists(row(), max_size=40))
def test_any_columns_are_read_back(rows: list[Sequence[int]]) -> None:
    columns = np.array(rows, np.int64).reshape(len(rows), BATCH_COLUMNS).T.copy()
    written = columns[BatchColumn.LAST_OFFSET] ^ 5
    digests = np.arange(len(rows) * 2, dtype=np.uint64).reshape(len(rows), 2)
    facts = read_batches(batches_section(columns, written=written, digests=digests))
    assert facts.columns.tolist() == columns.tolist()
    assert facts.stored_offsets.tolist() == [written.tolist()]
    assert facts.digests.tolist() == digests.tolist()
    assert facts.damage == []


def test_ordinary_batches_take_at_most_nine_bytes() -> None:
    columns = ordinary(CHUNK_ROWS)
    section = batches_section(columns)
    assert len(cramjam.zstd.compress(section, level=1)) < CHUNK_ROWS * 9
    assert read_batches(section).columns.tolist() == columns.tolist()


def ordinary(rows: int) -> "np.ndarray[tuple[int, int], np.dtype[np.int64]]":
    """Batches of three idempotent producers that take turns."""
    random = np.random.default_rng(1)
    columns = np.zeros((BATCH_COLUMNS, rows), np.int64)
    counts, sizes = random.integers(1, 9, rows), random.integers(100, 900, rows)
    columns[BatchColumn.SIZE_IN_BYTES] = sizes
    columns[BatchColumn.POSITION] = np.cumsum(sizes) - sizes
    columns[BatchColumn.BASE_OFFSET] = np.cumsum(counts) - counts
    columns[BatchColumn.LAST_OFFSET] = np.cumsum(counts) - 1
    columns[BatchColumn.LAST_OFFSET_DELTA] = counts - 1
    columns[BatchColumn.RECORDS_COUNT] = counts
    columns[BatchColumn.MAGIC] = 2
    columns[BatchColumn.CRC] = columns[BatchColumn.CRC_COMPUTED] = random.integers(0, 1 << 32, rows)
    columns[BatchColumn.PRODUCER_ID] = np.arange(rows) % 3
    for producer in range(3):
        sent = counts[producer::3]
        columns[BatchColumn.BASE_SEQUENCE, producer::3] = (2**31 - 100 + np.cumsum(sent) - sent) & (2**31 - 1)
    columns[BatchColumn.BASE_TIMESTAMP] = 1_700_000_000_000 + np.arange(rows) * 3
    columns[BatchColumn.MAX_TIMESTAMP] = columns[BatchColumn.BASE_TIMESTAMP] + counts
    columns[BatchColumn.CONTROL_RECORD_TYPE] = columns[BatchColumn.COORDINATOR_EPOCH] = -1
    return columns


def test_damage_is_read_back() -> None:
    damage = [
        (Damage("SEG_HOLE", 5, 7, -1, -1, {"zero_bytes": 3, "candidates": 2, "runs_past_end": True}), False),
        (Damage("RECORD_MALFORMED", 20, 90, 3, 4, {"reason": "control_key", "record_index": 0}), True),
    ]
    assert read_batches(batches_section(ordinary(3), damage)).damage == damage


@pytest.mark.parametrize(
    "damage",
    [
        Damage("NO_SUCH_KIND", 0, 1),
        Damage("SEG_HOLE", -1, 1),
        Damage("SEG_HOLE", 0, 1, detail={"reason": "\x1b[31m"}),
        Damage("SEG_HOLE", 0, 1, detail={"Reason": 1}),
        Damage("SEG_HOLE", 0, 1, detail={"magic": "2"}),
        Damage("SEG_HOLE", 0, 1 << 70),
    ],
)
def test_invalid_damage_is_refused(damage: Damage) -> None:
    with pytest.raises(FormatError):
        read_batches(batches_section(ordinary(1), [(damage, False)]))


@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    assert_read_or_refused(data)


@given(st.data())
def test_changed_sections_are_read_or_refused(data: st.DataObject) -> None:
    damage = [(Damage("RECORD_MALFORMED", 20, 90, 3, 4, {"reason": "control_key"}), True)]
    section = bytearray(batches_section(ordinary(20), damage, digests=np.ones((20, 2), np.uint64)))
    for _ in range(data.draw(st.integers(1, 4))):
        section[data.draw(st.integers(0, len(section) - 1))] = data.draw(st.integers(0, 255))
    assert_read_or_refused(bytes(section[: data.draw(st.integers(0, len(section)))]))


def assert_read_or_refused(data: bytes) -> None:
    try:
        facts = read_batches(data)
    except FormatError:
        return
    assert facts.columns.shape[1] <= CHUNK_ROWS
    contradiction(facts, 0, 1 << 20)


def test_rows_that_contradict_the_size_of_the_file_are_found() -> None:
    columns = ordinary(4)
    end = int(columns[BatchColumn.POSITION, -1] + columns[BatchColumn.SIZE_IN_BYTES, -1])
    facts = read_batches(batches_section(columns))
    assert contradiction(facts, 0, end) is None
    assert contradiction(facts, 1, end) is not None
    assert contradiction(facts, 0, end - 1) is not None
    assert contradiction(facts, 0, end + 1) == "some bytes are neither a batch nor damaged"
    assert contradiction(read_batches(batches_section(columns[:, [0, 1, 3]])), 0, end) is not None
    columns[BatchColumn.MAGIC, 2] = 256
    assert contradiction(read_batches(batches_section(columns)), 0, end) == "no batch has such a magic"
