"""Kernels that find records in many batches: both forms agree with a plain search over every record."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from kafka_forensics.model.batches import RECORD_COLUMNS, RecordColumn
from kafka_forensics.model.constants import RECORD_BATCH_OVERHEAD
from kafka_forensics.parsers.kernels.crc import LANES, byte_at, lowest_bit, pair_mask
from kafka_forensics.parsers.kernels.matching import (
    COSTLY,
    FAR,
    NOT_FOUND,
    PAYLOAD_ROWS,
    UNDECIDED,
    PayloadRow,
    find_bytes,
    mark_containing,
    match_records,
    move_records,
    small_or_varint,
    small_or_varlong,
)
from kafka_forensics.parsers.kernels.records import (
    FULL,
    OK,
    WRONG_COUNT,
    gather_records,
    read_varint,
    read_varlong,
    readable,
    scan_records,
)
from kafka_forensics.parsers.log.matching import RecordQuery, choose_rare_bytes, record_query
from kafka_forensics.parsers.log.records import decode_batch
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.support.kernels import FORMS, call_both_forms
from tests.support.segments import with_payload

if TYPE_CHECKING:
    from numpy.typing import NDArray


AB = st.text("ab", max_size=120).map(str.encode)


@given(st.binary(min_size=LANES, max_size=120), st.data())
def test_a_pair_of_bytes_is_found_at_every_lane(data: bytes, draw: st.DataObject) -> None:
    distance = draw.draw(st.integers(0, len(data) - LANES))
    position = draw.draw(st.integers(0, len(data) - LANES - distance))
    first, second = draw.draw(st.sampled_from(data)), draw.draw(st.sampled_from(data))
    mask = call_both_forms(pair_mask, data, position, distance, first, second)
    expected = [data[at] == first and data[at + distance] == second for at in range(position, position + LANES)]
    assert [bool(mask >> lane & 1) for lane in range(LANES)] == expected
    assert mask >> LANES == 0
    if mask:
        assert {getattr(lowest_bit, form)(mask) for form in FORMS} == {expected.index(True)}
    assert call_both_forms(byte_at, data, position) == data[position]


@given(st.binary(max_size=14), st.integers(0, 14), st.integers(0, 14))
def test_the_fast_path_for_short_varints_agrees_with_the_general_reader(data: bytes, position: int, end: int) -> None:
    end = min(end, len(data))
    assert call_both_forms(small_or_varint, data, position, end) == read_varint.interpreted(data, position, end)
    assert call_both_forms(small_or_varlong, data, position, end) == read_varlong.interpreted(data, position, end)


@given(AB, AB, st.integers(0, 9), st.booleans(), st.data())
def test_the_first_occurrence_of_bytes_is_found(data: bytes, wanted: bytes, start: int, tuned: bool, draw: st.DataObject) -> None:
    if draw.draw(st.booleans()) and data:
        begin = draw.draw(st.integers(0, len(data) - 1))
        wanted = data[begin : begin + draw.draw(st.integers(1, 60))]
    query = record_query((None, None), (None, None), key=wanted)
    if tuned:
        choose_rare_bytes(query, np.frombuffer(data, np.uint8))
    end = draw.draw(st.integers(0, len(data)))
    position = call_both_forms(find_bytes, data, start, end, query.text, query.spans, 0)
    assert position == (data.find(wanted, start, end) if wanted else start)


@given(st.lists(AB, min_size=1, max_size=5), st.lists(AB, min_size=1, max_size=3))
def test_ranges_that_contain_all_pieces_are_marked(ranges: list[bytes], pieces: list[bytes]) -> None:
    query = record_query((None, None), (None, None), headers=[(piece, None) for piece in pieces])
    sizes = np.array(list(map(len, ranges)), np.int64)
    starts, marks = np.cumsum(sizes) - sizes, [np.full(len(sizes), 7, np.int64) for _ in FORMS]
    for form, marked in zip(FORMS, marks, strict=True):
        data = readable(b"".join(ranges), compiled=form == "compiled")
        getattr(mark_containing, form)(data, starts, sizes, query.text, query.spans, marked)
        assert marked.tolist() == [all(piece in content for piece in pieces) for content in ranges]


def test_a_costly_search_is_refused() -> None:
    data, wanted = b"ab" * 5000, b"ab" * 400 + b"cb" + b"ab" * 400
    query = record_query((None, None), (None, None), value_part=wanted)
    assert call_both_forms(find_bytes, data, 0, len(data), query.text, query.spans, 0) == COSTLY
    choose_rare_bytes(query, np.frombuffer(data, np.uint8))
    assert call_both_forms(find_bytes, data, 0, len(data), query.text, query.spans, 0) == NOT_FOUND
    marks = np.zeros(1, np.int64)
    ordinary = record_query((None, None), (None, None), value_part=wanted)
    mark_containing.compiled(
        readable(data, compiled=True), np.array([0]), np.array([len(data)]), ordinary.text, ordinary.spans, marks
    )
    assert marks.tolist() == [1], "the range may contain them"


# Matching records of many batches.


BASE_OFFSET, BASE_TIMESTAMP = 2**33, 2**41
SMALL = st.none() | st.text("ab", max_size=3).map(str.encode)
HEADERS = st.lists(st.tuples(st.sampled_from(["", "a", "ab"]), SMALL), max_size=2)
SOUND = st.builds(
    lambda records, by_broker: write_batch(
        records,
        base_offset=BASE_OFFSET,
        base_timestamp=BASE_TIMESTAMP,
        timestamp_type="LogAppendTime" if by_broker else "CreateTime",
        max_timestamp=BASE_TIMESTAMP + 5,
        partition_leader_epoch=17,
    ),
    st.lists(st.builds(RecordToWrite, SMALL, SMALL, HEADERS, st.integers(-9, 99)), max_size=4),
    st.booleans(),
)


BROKEN = st.builds(
    with_payload,
    st.binary(max_size=12),
    records_count=st.integers(-1, 3),
    base_offset=st.just(BASE_OFFSET),
    base_timestamp=st.just(BASE_TIMESTAMP),
    max_timestamp=st.just(BASE_TIMESTAMP + 5),
    partition_leader_epoch=st.just(17),
    last_offset_delta=st.just(23),
    producer_id=st.just(2**50),
    producer_epoch=st.just(300),
    base_sequence=st.just(70_000),
)
"""Batches with any payload and any count of records; each header field has a value that no other field has."""
RANGES = st.tuples(st.none() | st.integers(-2, 5), st.none() | st.integers(-2, 7))


@st.composite
def queries(draw: st.DrawFn) -> dict[str, Any]:
    def moved(bounds: tuple[int | None, int | None], base: int) -> tuple[int | None, int | None]:
        start, end = bounds
        return None if start is None else base + start, None if end is None else base + end

    return {
        "offsets": moved(draw(RANGES), BASE_OFFSET),
        "times": moved(draw(RANGES), BASE_TIMESTAMP),
        "key": draw(SMALL),
        "value_part": draw(SMALL),
        "headers": draw(st.lists(st.tuples(st.sampled_from([b"", b"a", b"ab"]), SMALL), max_size=2)),
    }


def payloads_of(batches: list[bytes]) -> "NDArray[np.int64]":
    """The rows that the kernel needs for consecutive batches."""
    ends = np.cumsum([len(batch) for batch in batches], dtype=np.int64)
    payloads = np.zeros((PAYLOAD_ROWS, len(batches)), np.int64)
    payloads[PayloadRow.SEARCH_START] = ends - [len(batch) for batch in batches]
    payloads[PayloadRow.START] = payloads[PayloadRow.SEARCH_START] + RECORD_BATCH_OVERHEAD
    payloads[PayloadRow.END] = ends
    for number, batch in enumerate(batches):
        batch_header = decode_batch(batch).header
        assert batch_header is not None
        by_broker = batch_header.timestamp_type == "LogAppendTime"
        payloads[PayloadRow.RECORDS_COUNT, number] = batch_header.records_count
        payloads[PayloadRow.BASE_OFFSET, number] = batch_header.base_offset
        payloads[PayloadRow.BASE_TIMESTAMP, number] = batch_header.max_timestamp if by_broker else batch_header.base_timestamp
        payloads[PayloadRow.BY_BROKER, number] = by_broker
    return payloads


Walked = tuple[list[tuple[int, list[int]]], list[int]]
"""(batch number, columns of the record with positions relative to its payload) of each record; the batches refused."""
GATHER_ROWS = [PayloadRow.START, PayloadRow.END, PayloadRow.RECORDS_COUNT]
"""Rows of `payloads` that `gather_records` needs."""
POSITIONS = (RecordColumn.POSITION, RecordColumn.KEY_POSITION, RecordColumn.VALUE_POSITION, RecordColumn.HEADERS_POSITION)


def records_and_refusals(
    form: str, kernel: Any, batches: list[bytes], payloads: "NDArray[np.int64]", room: int, *query: RecordQuery
) -> Walked:
    """The records of all batches that the kernel accepts; the batches that it refuses although the output is empty."""
    starts = payloads_of(batches)[PayloadRow.START]
    buffer = readable(b"".join(batches), compiled=form == "compiled")
    out, batch_of = np.full((RECORD_COLUMNS, room), 77, np.int64), np.empty(room, np.int64)
    found: list[tuple[int, list[int]]] = []
    refused: list[int] = []
    index = 0
    while index < len(batches):
        stop, records, code = getattr(kernel, form)(buffer, payloads, index, *query, out, batch_of)
        assert (stop == len(batches)) == (code == OK)
        for record in range(records):
            columns = out[:, record].copy()
            columns[list(POSITIONS)] -= starts[batch_of[record]]
            found.append((int(batch_of[record]), columns.tolist()))
        if not records and code != OK:
            refused.append(int(stop))
            stop += 1
        index = int(stop)
    return found, refused


@given(st.lists(SOUND | BROKEN, max_size=6), st.integers(1, 9))
def test_gathered_records_are_those_of_each_batch(batches: list[bytes], room: int) -> None:
    expected: Walked = ([], [])
    for number, batch in enumerate(batches):
        decoded = decode_batch(batch)
        if decoded.problems or decoded.records_count > room:
            expected[1].append(number)
        else:
            expected[0].extend((number, record) for columns in decoded.iter_columns() for record in columns.T.tolist())
    for form in FORMS:
        assert records_and_refusals(form, gather_records, batches, payloads_of(batches)[GATHER_ROWS], room) == expected


def test_gathering_returns_why_it_stops() -> None:
    two = write_batch([RecordToWrite(b"a", b"1"), RecordToWrite(b"b", b"2")], base_offset=0, base_timestamp=0)
    wrong_count = write_batch([RecordToWrite(b"a", b"1")], base_offset=2, base_timestamp=0, records_count=2)
    data, payloads = two + two + wrong_count, payloads_of([two, two, wrong_count])[GATHER_ROWS]
    out, batch_of = np.empty((RECORD_COLUMNS, 4), np.int64), np.empty(4, np.int64)
    assert call_both_forms(gather_records, data, payloads, 0, out[:, :3].copy(), batch_of) == (1, 2, FULL)
    assert call_both_forms(gather_records, data, payloads[:, :2].copy(), 0, out, batch_of) == (2, 4, OK)
    assert call_both_forms(gather_records, data, payloads, 2, out, batch_of) == (2, 0, WRONG_COUNT)
    assert call_both_forms(gather_records, data, payloads, 3, out, batch_of) == (3, 0, OK)


def naive(batch: bytes, query: dict[str, Any]) -> list[list[int]]:
    """The columns of the matching records, found by comparing every record."""
    decoded = decode_batch(batch)
    columns = np.empty((RECORD_COLUMNS, 9), np.int64)
    payload = readable(decoded.payload, compiled=False)
    records, _, _ = scan_records.interpreted(payload, 0, len(payload), True, columns, 1)  # noqa: FBT003 - kernels take no names

    def inside(number: int, bounds: tuple[int | None, int | None]) -> bool:
        start, end = bounds
        return (start is None or start <= number) and (end is None or number < end)

    def matches(record: Any) -> bool:
        return (
            inside(record.offset, query["offsets"])
            and inside(record.timestamp, query["times"])
            and query["key"] in (None, record.key)
            and (query["value_part"] is None or (record.value is not None and query["value_part"] in record.value))
            and all(
                any(name == key and value in (None, content) for key, content in record.headers) for name, value in query["headers"]
            )
        )

    return [columns[:, number].tolist() for number, record in enumerate(decoded.iter_records()) if matches(record)][:records]


@given(st.lists(SOUND | BROKEN, max_size=6), queries(), st.integers(1, 9), st.booleans())
def test_matching_records_are_those_of_each_batch(batches: list[bytes], query: dict[str, Any], room: int, tuned: bool) -> None:
    prepared = record_query(**query)
    if tuned:
        choose_rare_bytes(prepared, np.frombuffer(b"".join(batches), np.uint8))
    found, refused = records_and_refusals("interpreted", match_records, batches, payloads_of(batches), room, prepared)
    assert records_and_refusals("compiled", match_records, batches, payloads_of(batches), room, prepared) == (found, refused)
    pieces = [
        piece
        for piece in (query["key"], query["value_part"], *(part for pair in query["headers"] for part in pair))
        if piece is not None
    ]
    for number, batch in enumerate(batches):
        of_batch = [columns for batch_number, columns in found if batch_number == number]
        if not all(piece in batch for piece in pieces):
            assert of_batch == []
            assert number not in refused, "the batch cannot match"
        elif number in refused:
            assert of_batch == []
            assert decode_batch(batch).problems or len(naive(batch, query)) > room
        else:
            assert decode_batch(batch).problems == []
            assert of_batch == naive(batch, query)


@pytest.mark.parametrize("row", [PayloadRow.BASE_OFFSET, PayloadRow.BASE_TIMESTAMP])
def test_numbers_too_large_to_be_added_are_refused(row: PayloadRow) -> None:
    batch = write_batch([RecordToWrite(b"a", b"b")], base_offset=5, base_timestamp=7)
    payloads, query = payloads_of([batch]), record_query((None, None), (None, None))
    out, batch_of = np.empty((RECORD_COLUMNS, 2), np.int64), np.empty(2, np.int64)
    for number, code in ((FAR, OK), (-FAR, OK), (FAR + 1, UNDECIDED), (-FAR - 1, UNDECIDED)):
        payloads[row] = number
        assert call_both_forms(match_records, batch, payloads, 0, query, out, batch_of)[2] == code


def test_a_batch_that_does_not_fit_the_output_is_left_out() -> None:
    batches = [write_batch([RecordToWrite(b"a", b"b")] * 3, base_offset=5, base_timestamp=7)] * 2
    payloads, query = payloads_of(batches), record_query((None, None), (None, None), key=b"a")
    for room, answer in ((2, (0, 0, FULL)), (3, (1, 3, FULL)), (5, (1, 3, FULL)), (6, (2, 6, OK))):
        out, batch_of = np.empty((RECORD_COLUMNS, room), np.int64), np.empty(room, np.int64)
        assert call_both_forms(match_records, b"".join(batches), payloads, 0, query, out, batch_of) == answer


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=9), st.integers(0, 3)), max_size=5), st.integers(0, 9))
def test_moved_records_have_all_positions_adjusted(pieces: list[tuple[bytes, int]], at: int) -> None:
    data = b"".join(record + bytes(gap) for record, gap in pieces)
    starts = np.cumsum([0, *(len(record) + gap for record, gap in pieces)])[:-1]
    columns = np.full((RECORD_COLUMNS, len(pieces)), 5, np.int64)
    columns[RecordColumn.POSITION] = starts
    columns[RecordColumn.SIZE_IN_BYTES] = [len(record) for record, _ in pieces]
    for offset, column in enumerate(POSITIONS[1:], 1):
        columns[column] = starts + offset
    for form in FORMS:
        moved, out = columns.copy(), np.zeros(at + len(data), np.uint8)
        end = getattr(move_records, form)(readable(data, compiled=form == "compiled"), moved, out, at)
        assert out[at:end].tobytes() == b"".join(record for record, _ in pieces)
        assert [moved[column].tolist() for column in POSITIONS[1:]] == [
            (moved[RecordColumn.POSITION] + offset).tolist() for offset in range(1, 4)
        ]
        sizes = columns[RecordColumn.SIZE_IN_BYTES]
        assert moved[RecordColumn.POSITION].tolist() == (at + np.cumsum(sizes) - sizes).tolist()


def test_values_of_any_length_are_matched() -> None:
    query = record_query((None, None), (None, None))
    for length in range(200):
        batch = write_batch([RecordToWrite(b"a", bytes(length))], base_offset=5, base_timestamp=7)
        out, batch_of = np.empty((RECORD_COLUMNS, 2), np.int64), np.empty(2, np.int64)
        assert call_both_forms(match_records, batch, payloads_of([batch]), 0, query, out, batch_of) == (1, 1, OK), length
