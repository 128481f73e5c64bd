"""Records gathered from many batches are the records of each, in both forms of the kernel, for any bytes in the batches."""

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_forensics.model.batches import RECORD_COLUMNS, RecordColumn
from kafka_forensics.model.constants import RECORD_BATCH_OVERHEAD
from kafka_forensics.parsers.kernels.records import COUNT_LIE, FULL, OK, gather_records, readable
from kafka_forensics.parsers.log.records import decode_batch
from kafka_forensics.writers.batches import RecordToWrite, write_batch, write_raw_batch

if TYPE_CHECKING:
    from numpy.typing import NDArray

pytestmark = pytest.mark.properties

FORMS = ("interpreted", "compiled")
POSITIONS = (RecordColumn.POSITION, RecordColumn.KEY_POSITION, RecordColumn.VALUE_POSITION, RecordColumn.HEADERS_POSITION)

Gathered = list[tuple[int, tuple[int, ...]]]
"""(row of the batch, columns of the record with positions that count in its payload)."""


def header(count: int) -> dict[str, int]:
    """A header that promises so many records; no other field has one of the values of another."""
    return {
        "base_offset": 2**33,
        "partition_leader_epoch": 17,
        "attributes": 0,
        "last_offset_delta": 23,
        "base_timestamp": 2**41,
        "max_timestamp": 2**41 + 5,
        "producer_id": 2**50,
        "producer_epoch": 300,
        "base_sequence": 70_000,
        "records_count": count,
    }


SOUND = st.lists(
    st.builds(
        RecordToWrite,
        st.none() | st.binary(max_size=3),
        st.none() | st.binary(max_size=3),
        st.just([("h", b"1")]),
        st.integers(1, 99),
    ),
    max_size=4,
).map(lambda records: write_batch(records, base_offset=2**33, base_timestamp=2**41, partition_leader_epoch=17))
BATCHES = st.lists(SOUND | st.builds(write_raw_batch, st.integers(-1, 3).map(header), st.binary(max_size=12)), max_size=6)


def payloads_of(batches: list[bytes]) -> "NDArray[np.int64]":
    """What the kernel needs to know of batches that follow each other."""
    ends = np.cumsum([len(batch) for batch in batches], dtype=np.int64)
    starts = ends - [len(batch) for batch in batches] + RECORD_BATCH_OVERHEAD
    return np.array([starts, ends, [int.from_bytes(batch[57:61], "big", signed=True) for batch in batches]], np.int64).reshape(
        3, -1
    )


def gathered(form: str, batches: list[bytes], room: int) -> tuple[Gathered, list[int]]:
    """Every record, and the numbers of the batches that were refused."""
    buffer = readable(b"".join(batches), compiled=form == "compiled")
    payloads, number = payloads_of(batches), 0
    out, batch_of = np.empty((RECORD_COLUMNS, room), np.int64), np.empty(room, np.int64)
    given, refused = [], []
    while number < len(batches):
        stop, records, code = getattr(gather_records, form)(buffer, payloads, number, out, batch_of)
        for index in range(records):
            record = out[:, index].copy()
            record[list(POSITIONS)] -= payloads[0, batch_of[index]]
            given.append((int(batch_of[index]), tuple(record.tolist())))
        if code != OK and not records:
            refused.append(stop)
            stop += 1
        number = stop
    return given, refused


@given(BATCHES, st.integers(1, 9))
def test_what_is_gathered_is_what_each_batch_holds(batches: list[bytes], room: int) -> None:
    expected: Gathered = []
    refused = []
    for number, batch in enumerate(batches):
        decoded = decode_batch(batch)
        if decoded.problems or decoded.records_count > room:
            refused.append(number)
        else:
            expected += [(number, tuple(record)) for columns in decoded.iter_columns() for record in columns.T.tolist()]
    assert gathered("interpreted", batches, room) == (expected, refused)
    assert gathered("compiled", batches, room) == (expected, refused)


@pytest.mark.parametrize("form", FORMS)
def test_it_says_why_it_stops(form: str) -> None:
    two = write_batch([RecordToWrite(b"a", b"1"), RecordToWrite(b"b", b"2")], base_offset=0, base_timestamp=0)
    liar = write_batch([RecordToWrite(b"a", b"1")], base_offset=2, base_timestamp=0, records_count=2)
    data, payloads = [two, two, liar], payloads_of([two, two, liar])
    out, batch_of = np.empty((RECORD_COLUMNS, 4), np.int64), np.empty(4, np.int64)
    buffer = readable(b"".join(data), compiled=form == "compiled")
    gather = getattr(gather_records, form)
    assert tuple(gather(buffer, payloads, 0, out[:, :3].copy(), batch_of)) == (1, 2, FULL)
    assert tuple(gather(buffer, payloads[:, :2].copy(), 0, out, batch_of)) == (2, 4, OK)
    assert tuple(gather(buffer, payloads, 2, out, batch_of)) == (2, 0, COUNT_LIE)
    assert tuple(gather(buffer, payloads, 3, out, batch_of)) == (3, 0, OK)
