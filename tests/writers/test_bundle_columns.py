"""Columns of a bundle: one answer from every form of the loops, whatever the columns hold and whoever chose the producer ids."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_forensics.compiled import use_compiled, using_compiled
from kafka_forensics.model.batches import BATCH_COLUMNS, CHUNK_ROWS, BatchColumn
from kafka_forensics.parsers.log import read_batches
from kafka_forensics.writers.bundle_columns import SLOTS, fill_planes, foretell_sequences
from tests.support.bundle_sections import section_of

FORMS = ("interpreted", "source", "compiled")
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
EDGES = st.sampled_from([0, 255, 256, 2**32 - 1, 2**32, 2**40, 2**63 - 1, -1, -256, -(2**32), -(2**63)])
MAX_SEQUENCE = 2**31 - 1


def no_slots() -> "np.ndarray[tuple[int], np.dtype[np.int16]]":
    return np.full(SLOTS, -1, np.int16)


@pytest.mark.properties
@given(
    st.integers(0, 12).flatmap(lambda rows: st.lists(st.lists(INT64 | EDGES, min_size=rows, max_size=rows), min_size=1, max_size=5))
)
def test_planes_hold_what_lies_above_the_least_value(columns: list[list[int]]) -> None:
    stored = tuple(np.array(values, np.int64) for values in columns)
    expected = b""
    for values in columns:
        least = min(values, default=0)
        width = ((max(values, default=0) - least).bit_length() + 7) // 8
        expected += bytes([width]) + least.to_bytes(8, "little", signed=True)
        expected += b"".join(bytes(((value - least) >> 8 * plane) & 255 for value in values) for plane in range(width))
    for form in FORMS:
        room = np.zeros(len(columns) * (9 + 8 * len(columns[0])), np.uint8)
        size = int(getattr(fill_planes, form)(stored, room))
        assert room[:size].tobytes() == expected
        assert not room[size:].any()


@pytest.mark.properties
@given(
    st.lists(st.tuples(st.integers(0, 3) | INT64, st.integers(-(2**31), MAX_SEQUENCE), st.integers(-5, MAX_SEQUENCE)), max_size=30)
)
def test_the_last_sequence_of_a_producer_foretells_its_next(rows: list[tuple[int, int, int]]) -> None:
    producer_id, sequences, delta = np.array(rows, np.int64).reshape(-1, 3).T.copy()
    expected, following = [], dict[int, int]()
    for producer, sequence, last in rows:
        expected.append(sequence if sequence < 0 else (sequence - following.get(producer, 0)) & MAX_SEQUENCE)
        if sequence >= 0:
            following[producer] = sequence + last + 1
    for form in FORMS:
        stored = sequences.copy()
        assert getattr(foretell_sequences, form)(producer_id, delta, sequences, stored, no_slots())
        assert stored.tolist() == expected


def test_producer_ids_chosen_to_meet_in_the_table_cost_no_more_than_sorting() -> None:
    """All fall to one slot: the table gives up, and sorting answers."""
    columns = np.zeros((BATCH_COLUMNS, CHUNK_ROWS), np.int64)
    spread = (np.arange(1 << 25, dtype=np.int64) * 0x61C88647 & MAX_SEQUENCE) >> 17
    chosen = np.flatnonzero(spread == spread[1])[: CHUNK_ROWS // 8]
    columns[BatchColumn.PRODUCER_ID] = np.resize(chosen, CHUNK_ROWS)
    columns[BatchColumn.BASE_SEQUENCE] = np.arange(CHUNK_ROWS) // len(chosen) * 7
    columns[BatchColumn.LAST_OFFSET_DELTA] = 6
    row = columns[[BatchColumn.PRODUCER_ID, BatchColumn.LAST_OFFSET_DELTA, BatchColumn.BASE_SEQUENCE]]
    assert not foretell_sequences.compiled(*row, row[2].copy(), no_slots())
    before, sections = using_compiled(), []
    for compiled in (True, False):
        use_compiled(compiled)
        sections.append(section_of(columns))
    use_compiled(before)
    assert sections[0] == sections[1]
    assert read_batches(sections[0]).columns.tolist() == columns.tolist()
