"""Records for tests: what the spec makes of a payload, strategies for payloads, and payloads spelled by hand."""

from io import BytesIO
from typing import TYPE_CHECKING, Any

import construct
import numpy as np
from hypothesis import strategies as st

from kafka_forensics.model.batches import RECORD_COLUMNS, RecordColumn
from kafka_forensics.parsers.kernels.records import COUNT_LIE, MALFORMED, OK, OUT_OF_BOUNDS, VARINT_OVERLONG
from kafka_forensics.parsers.spec.record_batch import (
    RECORD,
    RECORD_BODY,
    RECORD_HEADER,
    VARINT,
    VARLONG,
    LengthError,
    OverlongVarintError,
    encode_zigzag,
)
from kafka_forensics.writers.batches import RecordToWrite, write_record

if TYPE_CHECKING:
    from numpy.typing import NDArray

Row = tuple[int, ...]


def spec_records(payload: bytes, count: int) -> tuple[list[Row], int, int]:
    """(rows as the kernels write them, code, position) of a payload, as the spec reads it."""
    rows: list[Row] = []
    position = 0
    while position < len(payload):
        try:
            rows.append(_spec_row(payload, position))
        except OverlongVarintError:
            return rows, VARINT_OVERLONG if len(rows) < count else COUNT_LIE, position
        except LengthError:
            return rows, OUT_OF_BOUNDS if len(rows) < count else COUNT_LIE, position
        except construct.ConstructError:
            return rows, MALFORMED if len(rows) < count else COUNT_LIE, position
        position += rows[-1][RecordColumn.SIZE_IN_BYTES]
    return rows, OK if len(rows) == count else COUNT_LIE, position


def _spec_row(payload: bytes, start: int) -> Row:
    stream = BytesIO(payload)
    stream.seek(start)
    RECORD.parse_stream(stream)
    end = stream.tell()
    stream.seek(start)
    length = VARINT.parse_stream(stream)
    body = stream.tell()
    parsed = construct.FocusedSeq("record", "record" / RECORD_BODY, construct.Terminated).parse(payload[body : body + length])
    return (
        start,
        end - start,
        parsed.attributes,
        parsed.timestamp_delta,
        parsed.offset_delta,
        *_places(payload, body),
        len(parsed.headers),
    )


def _places(payload: bytes, body: int) -> tuple[int, int, int, int, int]:
    """Key position and length, value position and length, headers position."""
    stream = BytesIO(payload)
    stream.seek(body + 1)
    VARLONG.parse_stream(stream)
    VARINT.parse_stream(stream)
    places = []
    for _ in range(2):
        length = VARINT.parse_stream(stream)
        places += [stream.tell(), max(length, -1)]
        stream.seek(max(length, 0), 1)
    VARINT.parse_stream(stream)
    key_position, key_length, value_position, value_length = places
    return key_position, key_length, value_position, value_length, stream.tell()


def matrix(rows: int) -> "NDArray[np.int64]":
    """Room for records, filled with a value no record has."""
    return np.full((RECORD_COLUMNS, rows), -77, np.int64)


def varint(value: int) -> bytes:
    return encode_zigzag(value)


def framed(body: bytes) -> bytes:
    """`body` behind its length."""
    return varint(len(body)) + body


def body(**parts: Any) -> bytes:
    """A record's body field by field; any of them may be replaced by other bytes."""
    fields = {
        "attributes": b"\0",
        "timestamp_delta": b"\0",
        "offset_delta": b"\0",
        "key": varint(1) + b"k",
        "value": varint(2) + b"vv",
        "headers_count": varint(1),
        "headers": RECORD_HEADER.build({"key": b"h", "value": None}),
        "rest": b"",
    }
    return b"".join((fields | parts).values())


_DATA = st.one_of(st.none(), st.binary(max_size=6), st.just(bytes(150)))


@st.composite
def records_to_write(draw: st.DrawFn) -> RecordToWrite:
    """A record any producer could send."""
    headers = draw(st.lists(st.tuples(st.text(max_size=3), _DATA), max_size=3))
    return RecordToWrite(
        draw(_DATA), draw(_DATA), headers, draw(st.integers(-(2**63), 2**63 - 1)), draw(st.integers(-(2**31), 2**31 - 1))
    )


@st.composite
def payloads(draw: st.DrawFn) -> bytes:
    """A decompressed payload: records, whole or after up to three accidents; sometimes any bytes at all."""
    if draw(st.integers(0, 5)) == 0:
        return draw(st.binary(max_size=60))
    records = draw(st.lists(records_to_write(), max_size=4))
    data = b"".join(write_record(write, write.offset_delta or 0, write.timestamp_delta) for write in records)
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(data)))
        data = data[:place] + draw(st.binary(max_size=3)) + data[place + draw(st.integers(0, 3)) :]
    return data
