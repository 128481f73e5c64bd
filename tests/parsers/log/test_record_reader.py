"""Plain records read by hand, against the reader of every batch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_forensics.parsers.log.record_stream import plain_records
from kafka_forensics.parsers.log.records import decode_batch
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.support.segments import BASE_TIMESTAMP, batch, changed

RECORDS = st.lists(
    st.builds(
        RecordToWrite,
        st.none() | st.binary(max_size=9),
        st.none() | st.binary(max_size=200),
        st.just(()) | st.just((("header", b"value"),)),
        st.integers(-5, 10**12),
    ),
    max_size=4,
)


def agrees(data: bytes) -> bool:
    """Whether there is an answer; if so, it is that of the other reader."""
    records = plain_records(data)
    if records is None:
        return False
    decoded = decode_batch(data)
    assert decoded.problems == []
    assert records == [(record.offset, record.timestamp, record.key, record.value) for record in decoded.iter_records()]
    return True


def test_what_is_not_plain_is_left_to_the_other() -> None:
    assert not agrees(batch(0, 2, compression_type="gzip"))
    assert not agrees(batch(0, 2, is_control_batch=True))
    assert not agrees(batch(0, 2, records_count=3))
    assert not agrees(batch(0, 2)[:-1])
    assert not agrees(b"")


@pytest.mark.properties
@given(RECORDS, st.sampled_from(["CreateTime", "LogAppendTime"]), st.integers(0, 400), st.binary(max_size=3))
def test_both_readers_agree_on_any_bytes(records: list[RecordToWrite], timestamp_type: str, at: int, new: bytes) -> None:
    data = write_batch(
        records, base_offset=7, base_timestamp=BASE_TIMESTAMP, max_timestamp=BASE_TIMESTAMP - 7, timestamp_type=timestamp_type
    )
    plain = not any(write.headers for write in records)
    assert agrees(data) == plain
    position = min(61 + at, max(len(data) - len(new), 0))
    agrees(changed(data, position, new))
