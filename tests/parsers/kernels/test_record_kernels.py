"""Both forms of the kernels and the spec read the same records from any bytes, and stop at the same position with the same code."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from kafka_forensics.model.batches import RecordColumn
from kafka_forensics.parsers.kernels.records import (
    FULL,
    MALFORMED,
    MORE,
    OK,
    OUT_OF_BOUNDS,
    VARINT_OVERLONG,
    WRONG_COUNT,
    check_batches,
    check_payloads,
    check_records,
    counted,
    read_varint,
    read_varlong,
    readable,
    scan_records,
)
from kafka_forensics.parsers.spec.record_batch import RECORD_BODY, VARINT, VARLONG, encode_zigzag
from kafka_forensics.writers.batches import RecordToWrite, write_marker, write_record
from tests.parsers.exact_readers import body, framed, matrix, spec_records, varint
from tests.support.kernels import FORMS, call_both_forms
from tests.support.segments import log, read
from tests.support.strategies import payloads

Answer = tuple[list[tuple[int, ...]], int, int]


def decoded(form: str, payload: bytes, count: int) -> Answer:
    out = matrix(100)
    buffer = readable(payload, compiled=form == "compiled")
    scanned = getattr(scan_records, form)(buffer, 0, len(payload), True, out, 1)  # noqa: FBT003 - kernels take no names
    records, code, position = counted.interpreted(*scanned, count)
    assert np.all(out[:, records + 1 :] == -77)
    return [tuple(row) for row in out[:, :records].T.tolist()], code, position


def agreed(payload: bytes, count: int) -> tuple[int, int, int]:
    """(records, code, position): both forms, with and without output, agree with the spec."""
    expected = spec_records(payload, count)
    for form in FORMS:
        assert decoded(form, payload, count) == expected
    answer: tuple[int, int, int] = call_both_forms(check_records, payload, 0, len(payload), count, matrix(1))
    assert answer == (len(expected[0]), *expected[1:])
    return answer


@given(payload=payloads(), count=st.integers(-1, 5))
def test_forms_and_spec_agree_on_any_bytes(payload: bytes, count: int) -> None:
    agreed(payload, count)


@given(
    records=st.lists(
        st.tuples(
            st.sampled_from([None, b"", b"k", b"key" * 40]),
            st.sampled_from([None, b"", b"v" * 5, b"v" * 9000]),
            st.integers(-(2**23), 2**23),
            st.integers(-(2**14), 2**14),
            st.booleans(),
        ),
        max_size=6,
    ),
    position=st.integers(0, 400),
    byte=st.none() | st.integers(0, 255),
    count_error=st.sampled_from([0, 0, 0, 1, -1]),
)
def test_forms_and_spec_agree_on_ordinary_records(
    records: list[tuple[bytes | None, bytes | None, int, int, bool]], position: int, byte: int | None, count_error: int
) -> None:
    """Short and long numbers, some headers, and often one wrong byte."""
    data = b"".join(
        write_record(RecordToWrite(key, value, [("h", b"x")] * with_headers), offset, timestamp)
        for key, value, timestamp, offset, with_headers in records
    )
    if byte is not None and position < len(data):
        data = data[:position] + bytes([byte]) + data[position + 1 :]
    agreed(data, len(records) + count_error)


def test_bytes_after_a_payload_are_not_part_of_it() -> None:
    """Payloads are adjacent in the buffer; a short one must not continue in the next."""
    whole = b"".join(write_record(RecordToWrite(b"key", b"value" * 20), number, number) for number in range(4))
    spans = [(start, end) for start in (0, len(whole) // 4) for end in range(start, len(whole) + 1)]
    payloads = np.array([(start, end, 4 - 4 * start // len(whole)) for start, end in spans], np.int64).T.copy()
    wrong = np.zeros(len(spans), np.int64)
    found = call_both_forms(check_payloads, whole, payloads, len(spans), matrix(1), wrong)
    assert wrong[:found].tolist() == [index for index, (_, end) in enumerate(spans) if end != len(whole)]


def test_sound_batches_are_not_reported() -> None:
    """A reported batch is decoded again by slower code."""
    marker = write_marker(commit=True, base_offset=10, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=1000)
    data = b"".join([*log(5), marker])
    columns = read(data).columns
    assert columns.shape[1] == 6
    assert call_both_forms(check_batches, data, 0, columns, 0, 6, matrix(1), np.zeros((4, 6), np.int64)) == 0


@given(data=st.binary(max_size=12))
def test_varints_agree_on_any_bytes(data: bytes) -> None:
    for kernel, spec in ((read_varint, VARINT), (read_varlong, VARLONG)):
        value, position = call_both_forms(kernel, data, 0, len(data))
        if position >= 0:
            assert value == spec.parse(data)
            assert position == next(index for index, byte in enumerate(data) if byte < 0x80) + 1


@pytest.mark.parametrize("value", [0, -1, 1, 63, 64, -64, -65, 8191, 8192, 2**31 - 1, -(2**31), 2**62, 2**63 - 1, -(2**63)])
def test_varints_of_any_size_are_read_back(value: int) -> None:
    data = encode_zigzag(value)
    assert call_both_forms(read_varlong, data, 0, len(data)) == (value, len(data))
    if -(2**31) <= value < 2**31:
        assert call_both_forms(read_varint, data, 0, len(data)) == (value, len(data))


def test_varints_drop_bits_beyond_their_width_and_refuse_too_many_bytes() -> None:
    assert call_both_forms(read_varint, b"\xff\xff\xff\xff\x7f", 0, 5) == (-(2**31), 5)
    assert call_both_forms(read_varlong, b"\xff" * 9 + b"\x7f", 0, 10) == (-(2**63), 10)
    for kernel, size in ((read_varint, 5), (read_varlong, 10)):
        data = b"\x80" * size + b"\0"
        assert call_both_forms(kernel, data, 0, size + 1)[1] == -2
        assert call_both_forms(kernel, data, 0, size - 1)[1] == -1


def test_the_good_record_is_valid() -> None:
    assert RECORD_BODY.parse(body()).headers[0].key == b"h"
    assert agreed(framed(body()) * 3, 3) == (3, OK, 3 * len(framed(body())))


GOOD = framed(body())
HUGE_VARINT = varint(2**31 - 1)
FAULTS = {
    "overlong length": (b"\x80\x80\x80\x80\x80\x01", VARINT_OVERLONG),
    "overlong timestamp delta": (framed(body(timestamp_delta=b"\x80" * 10 + b"\x01")), VARINT_OVERLONG),
    "overlong offset delta": (framed(body(offset_delta=b"\x80" * 5 + b"\x01")), VARINT_OVERLONG),
    "overlong key length": (framed(body(key=b"\x80" * 5 + b"\x01")), VARINT_OVERLONG),
    "overlong count of headers": (framed(body(headers_count=b"\x80" * 5 + b"\x01")), VARINT_OVERLONG),
    "overlong header length": (framed(body(headers=b"\x80" * 5 + b"\x01")), VARINT_OVERLONG),
    "record past the payload": (varint(len(body()) + 1) + body(), OUT_OF_BOUNDS),
    "record of 2 GiB": (HUGE_VARINT + body(), OUT_OF_BOUNDS),
    "record of negative length": (varint(-1) + body(), OUT_OF_BOUNDS),
    "length cut short": (b"\x80", OUT_OF_BOUNDS),
    "key past the record": (framed(body(key=varint(30) + b"k")), OUT_OF_BOUNDS),
    "value of 2 GiB": (framed(body(value=HUGE_VARINT)), OUT_OF_BOUNDS),
    "2^31-1 headers": (framed(body(headers_count=HUGE_VARINT)), OUT_OF_BOUNDS),
    "negative count of headers": (framed(body(headers_count=varint(-1))), OUT_OF_BOUNDS),
    "header key past the record": (framed(body(headers=varint(9) + b"h")), OUT_OF_BOUNDS),
    "header key of negative length": (framed(body(headers=varint(-1) + varint(0))), OUT_OF_BOUNDS),
    "header value past the record": (framed(body(headers=varint(1) + b"h" + varint(9))), OUT_OF_BOUNDS),
    "bytes after the headers": (framed(body(rest=b"!")), MALFORMED),
    "more headers than there are": (framed(body(headers_count=varint(2), headers=varint(1) + b"h" + varint(0))), MALFORMED),
    "empty record": (framed(b""), MALFORMED),
    "record ends in its value length": (framed(body()[:5]), MALFORMED),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_malformed_record_has_a_code(name: str) -> None:
    record, code = FAULTS[name]
    assert agreed(GOOD + record, 2) == (1, code, len(GOOD))
    assert agreed(GOOD + record, 1) == (1, WRONG_COUNT, len(GOOD)), "after the last counted record, the count is wrong"


@pytest.mark.parametrize("count", [-1, 0, 2, 4, 2**31 - 1])
def test_a_wrong_count_has_a_code(count: int) -> None:
    assert agreed(GOOD * 3, count) == (3, WRONG_COUNT, 3 * len(GOOD))


def test_null_and_empty_differ() -> None:
    rows, code, _ = spec_records(
        b"".join(write_record(RecordToWrite(data, data, [("", data)]), 0, 0) for data in (None, b"", b"x")), 3
    )
    assert code == OK
    assert [(row[RecordColumn.KEY_LENGTH], row[RecordColumn.VALUE_LENGTH]) for row in rows] == [(-1, -1), (0, 0), (1, 1)]
    rows, code, _ = decoded("compiled", framed(body(key=varint(-5), value=varint(-(2**31)))), 1)
    assert code == OK
    assert (rows[0][RecordColumn.KEY_LENGTH], rows[0][RecordColumn.VALUE_LENGTH]) == (-1, -1), "any negative length is null"


def test_scanning_continues_after_a_full_matrix() -> None:
    payload = GOOD * 10
    position, starts, codes = 0, [], []
    for _ in range(4):
        out = matrix(3)
        records, code, position = call_both_forms(scan_records, payload, position, len(payload), True, out, 1)  # noqa: FBT003
        starts += out[RecordColumn.POSITION, :records].tolist()
        codes.append(code)
    assert starts == list(range(0, len(payload), len(GOOD)))
    assert codes == [FULL, FULL, FULL, OK]


@given(payload=payloads(), cut=st.integers(0, 200))
def test_scanning_continues_after_any_cut(payload: bytes, cut: int) -> None:
    """The records of a window and those read from where it stopped are the records of the whole payload."""
    many, is_last_window = 10**6, False
    rows, code, position = spec_records(payload, many)
    window = payload[:cut]
    records, stop, at = call_both_forms(scan_records, window, 0, len(window), is_last_window, matrix(100), 1)
    rest, rest_code, rest_position = spec_records(payload[at:], many)
    assert (records + len(rest), rest_code, at + rest_position) == (len(rows), code, position)
    if stop == OK:
        assert at == len(window)
    elif stop != MORE:
        assert (records, stop, at) == (len(rows), code, position)
