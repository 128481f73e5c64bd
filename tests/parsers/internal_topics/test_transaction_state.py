"""Records of `__transaction_state`: the parser agrees with the declared layouts on any bytes, also with wrong sizes."""

import struct
from typing import Any

import pytest
from construct import ConstructError
from hypothesis import given, strategies as st
from msgspec.structs import replace

from kafka_forensics.model.coordinators import TRANSACTION_STATES, TransactionMetadata
from kafka_forensics.parsers.internal_topics.share_state import parse_transaction_log_key, parse_transaction_log_value
from kafka_forensics.writers.batches import write_transaction_log_key, write_transaction_log_value
from tests.support.layouts.transaction_state import TRANSACTION_LOG_KEY, TRANSACTION_LOG_TAGS, TRANSACTION_LOG_VALUES

ONGOING = TransactionMetadata(1000, 3, 60_000, "Ongoing", (("a", 0), ("a", 7), ("b", 1)), 1_700_000_000_500, 1_700_000_000_000)
TAGGED = replace(ONGOING, previous_producer_id=999, next_producer_id=1001, client_transaction_version=2, next_producer_epoch=0)
EMPTY = TransactionMetadata(1, 0, 600_000, "Empty", (), 1_795_226_411_967, -1, previous_producer_id=1)


def read_with_spec(value: bytes) -> TransactionMetadata | None:
    """The value read with the declared layout; None if the layout cannot read it."""
    version = int.from_bytes(value[:2], "big", signed=True)
    if len(value) < 2 or version not in (0, 1):
        return None
    try:
        fields = TRANSACTION_LOG_VALUES[version].parse(value)
        tags: dict[str, Any] = {}
        for tag, (name, layout) in TRANSACTION_LOG_TAGS.items():
            data = (fields.tagged_fields if version else {}).get(tag)
            if data is not None:
                if len(data) != layout.sizeof():
                    return None
                tags[name] = layout.parse(data)
    except ConstructError:
        return None
    if not 0 <= fields.transaction_status < len(TRANSACTION_STATES):
        return None
    return TransactionMetadata(
        fields.producer_id,
        fields.producer_epoch,
        fields.transaction_timeout_ms,
        TRANSACTION_STATES[fields.transaction_status],
        tuple((topic.topic, number) for topic in fields.transaction_partitions or () for number in topic.partition_ids),
        fields.transaction_last_update_timestamp_ms,
        fields.transaction_start_timestamp_ms,
        **tags,
    )


@pytest.mark.parametrize("version", [0, 1])
def test_written_values_are_read_back(version: int) -> None:
    for state in TRANSACTION_STATES:
        metadata = replace(ONGOING, state=state)
        assert parse_transaction_log_value(write_transaction_log_value(metadata, version)) == (metadata, None)
    assert parse_transaction_log_value(write_transaction_log_value(TAGGED)) == (TAGGED, None)
    assert parse_transaction_log_value(write_transaction_log_value(EMPTY)) == (EMPTY, None)
    assert parse_transaction_log_value(write_transaction_log_value(ONGOING) + b"more") == (ONGOING, None)


def test_written_keys_are_read_back_and_malformed_keys_have_a_reason() -> None:
    assert parse_transaction_log_key(write_transaction_log_key("päy-0")) == ("päy-0", None)
    assert parse_transaction_log_key(write_transaction_log_key("")) == ("", None)
    for key, reason in {
        None: "key_null",
        b"\0": "key_short",
        b"\0\1\0\1a": "key_version",
        b"\0\0\0": "key_short",
        b"\0\0\0\5pay": "key_short",
        b"\0\0\xff\xff": "key_null",
        b"\0\0\0\1\xff": "key_string",
    }.items():
        assert parse_transaction_log_key(key) == (None, reason)


HEAD_0, HEAD_1 = (struct.pack(">hqhib", version, 7, 0, 60_000, 1) for version in (0, 1))
TIMES = struct.pack(">qq", 2, 1)
HUGE_VARINT = b"\xff\xff\xff\xff\x07"
"""2^31 - 1 as an unsigned varint."""
MALFORMED = {
    "unknown version": (struct.pack(">h", 2) + HEAD_1[2:] + TIMES, "version"),
    "negative version": (struct.pack(">h", -1) + HEAD_1[2:] + TIMES, "version"),
    "nothing": (b"", "short"),
    "topics 2^31 - 1 in version 0": (HEAD_0 + struct.pack(">i", 2**31 - 1) + TIMES, "short"),
    "partitions 2^31 - 1 in version 0": (HEAD_0 + struct.pack(">ih1si", 1, 1, b"t", 2**31 - 1) + TIMES, "short"),
    "null partitions in version 0": (HEAD_0 + struct.pack(">ih1si", 1, 1, b"t", -1) + TIMES, "null"),
    "topics 2^31 - 1 in version 1": (HEAD_1 + HUGE_VARINT + b"\x02t\x01\x00" * 9, "short"),
    "partitions 2^31 - 1 in version 1": (HEAD_1 + b"\x02\x02t" + HUGE_VARINT + TIMES, "short"),
    "null topic in version 1": (HEAD_1 + b"\x02\x00" + TIMES + bytes(9), "null"),
    "null partitions in version 1": (HEAD_1 + b"\x02\x02t\x00" + TIMES + bytes(9), "null"),
    "tagged fields 2^31 - 1": (HEAD_1 + b"\x00" + TIMES + HUGE_VARINT, "short"),
    "a tagged field of 2^31 - 1 bytes": (HEAD_1 + b"\x00" + TIMES + b"\x01\x00" + HUGE_VARINT, "short"),
    "tags that do not rise": (HEAD_1 + b"\x00" + TIMES + b"\x02\x09\x00\x09\x00", "tag"),
    "a producer id of two bytes": (HEAD_1 + b"\x00" + TIMES + b"\x01\x00\x02\x00\x00", "tag"),
    "an integer of six bytes": (HEAD_1 + b"\x80\x80\x80\x80\x80\x01" + TIMES, "varint"),
    "state 8": (HEAD_1[:-1] + b"\x08\x00" + TIMES + b"\x00", "state"),
    "state -1": (HEAD_1[:-1] + b"\xff\x00" + TIMES + b"\x00", "state"),
    "a topic that is no text": (HEAD_1 + b"\x02\x02\xff\x01\x00" + TIMES + b"\x00", "string"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_values_have_a_reason(case: str) -> None:
    value, reason = MALFORMED[case]
    assert parse_transaction_log_value(value) == (None, reason)
    assert read_with_spec(value) is None


def test_too_many_partitions_are_refused() -> None:
    value = write_transaction_log_value(replace(ONGOING, partitions=tuple(("t", number) for number in range(1 << 16))))
    assert parse_transaction_log_value(value)[1] is None
    value = write_transaction_log_value(replace(ONGOING, partitions=tuple(("t", number) for number in range((1 << 16) + 1))))
    assert parse_transaction_log_value(value) == (None, "partitions")


@pytest.mark.parametrize("version", [0, 1])
def test_every_prefix_of_a_value_is_too_short(version: int) -> None:
    value = write_transaction_log_value(TAGGED, version)
    for size in range(len(value)):
        assert parse_transaction_log_value(value[:size]) == (None, "short")


MUTATED = st.builds(
    lambda version, at, new: (
        write_transaction_log_value(TAGGED, version)[:at] + new + write_transaction_log_value(TAGGED, version)[at + 1 :]
    ),
    st.sampled_from([0, 1]),
    st.integers(0, 90),
    st.binary(max_size=3),
)


@given(MUTATED | st.binary(max_size=80) | st.binary(max_size=60).map(lambda rest: HEAD_1 + rest))
def test_both_twins_agree_on_any_bytes(value: bytes) -> None:
    metadata, problem = parse_transaction_log_value(value)
    assert (metadata is None) != (problem is None)
    assert metadata == read_with_spec(value)


@given(st.binary(max_size=12) | st.binary(max_size=8).map(lambda rest: b"\0\0" + rest))
def test_both_twins_agree_on_any_key(key: bytes) -> None:
    name, problem = parse_transaction_log_key(key)
    assert (name is None) != (problem is None)
    try:
        fields = TRANSACTION_LOG_KEY.parse(key)
        expected = fields.transactional_id if fields.version == 0 else None
    except ConstructError:
        expected = None
    assert name == expected
