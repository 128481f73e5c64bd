"""The reader of unsigned varints agrees with its declaration; parsers report varints that do not end."""

import pytest
from construct import ConstructError
from hypothesis import example, given, strategies as st

from kafka_forensics.parsers.flexible_fields import UnsignedVarintError, read_unsigned
from kafka_forensics.parsers.internal_topics.consumer_offsets import read_offset_commit
from kafka_forensics.parsers.internal_topics.metadata_log import decode_metadata_record
from kafka_forensics.parsers.internal_topics.share_state import parse_transaction_log_value
from tests.support.layouts.flexible import UNSIGNED_VARINT


@given(st.binary(max_size=8), st.integers(0, 3))
@example(b"\xff\xff\xff\xff\x0frest", 0)
@example(b"\xff\xff\xff\xff\x7frest", 0)
@example(b"\x80\x00rest", 0)
@example(b"\xff" * 4, 0)
@example(b"\x80" * 5, 0)
def test_it_agrees_with_the_declaration_on_any_bytes(data: bytes, position: int) -> None:
    try:
        expected = UNSIGNED_VARINT.parse(data[position:])
    except ConstructError:
        with pytest.raises((IndexError, UnsignedVarintError)):
            read_unsigned(data, position)
        return
    value, end = read_unsigned(data, position)
    assert value == expected
    assert UNSIGNED_VARINT.parse(data[position:end]) == value
    assert end - position <= 5


@pytest.mark.parametrize(("varint", "commit", "transaction"), [(b"\x80", "truncated", "short"), (b"\x80" * 5, "varint", "varint")])
def test_parsers_report_cut_and_overlong_varints(varint: bytes, commit: str, transaction: str) -> None:
    assert read_offset_commit(b"\0\4" + bytes(12) + varint) == commit
    assert parse_transaction_log_value(b"\0\1" + bytes(15) + varint) == (None, transaction)
    assert decode_metadata_record(b"\1" + varint).problem == "frame"
    assert decode_metadata_record(b"\1\2\0" + varint).problem == "fields"
