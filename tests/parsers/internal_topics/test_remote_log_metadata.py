"""Records of `__remote_log_metadata`: the parser agrees with the declared layouts, on records by a broker and on malformed ones."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from kafka_forensics.model.controller import MetadataRecord
from kafka_forensics.parsers.internal_topics.remote_log_metadata import (
    REMOTE_LOG_RECORDS,
    decode_remote_log_record,
    write_remote_log_record as write_fast,
)
from tests.parsers.exact_readers import read_remote_log_record
from tests.support.layouts.remote_log_metadata import REMOTE_LOG_MESSAGES, write_remote_log_record
from tests.support.remote_log import copy_started, deleted_partition, segment_id, segment_update

RECORDS_BY_A_BROKER = (
    "01000004617564bb62218128874c15a6168c7da51f14490000000000c20ffc994e9a42558cace6b2bc811795000000000000000000000000000000003b"
    "00000001000001a21c58076e000001a21c5817640200000000000000000000000000000010300000" + "01000101",
    "01010004617564bb62218128874c15a6168c7da51f14490000000000c20ffc994e9a42558cace6b2bc8117950000000001000001a21c58178e000100",
)
"""Records of one segment by Kafka 4.3.1: copy started, copy finished."""
REASONS = {"value", "frame", "kind", "version", "fields", "state", "offsets", "epochs"}


def snapshot(**changes: Any) -> bytes:
    fields = {
        "segment_id": segment_id(3),
        "start_offset": 0,
        "end_offset": 9,
        "broker_id": 2,
        "max_timestamp_ms": -1,
        "event_timestamp_ms": 7,
        "segment_leader_epochs": [{"leader_epoch": 0, "offset": 0}, {"leader_epoch": 4, "offset": 5}],
        "segment_size_in_bytes": 1,
        "custom_metadata": "",
        "remote_log_segment_state": 1,
    }
    return write_remote_log_record(3, fields | changes)


EVERY_KIND = (
    *(copy_started(1, 0, 9), copy_started(2, 10, 2**63 - 1, epochs=((0, 10), (7, 2**40)), txn_index_empty=False, topic="größe")),
    *(segment_update(1, 1, custom_metadata="AAEC"), segment_update(1, 3, topic="")),
    *(deleted_partition(), snapshot()),
    *map(bytes.fromhex, RECORDS_BY_A_BROKER),
)


def assert_twins_agree(value: bytes) -> MetadataRecord:
    fast, exact = decode_remote_log_record(value), read_remote_log_record(value)
    assert (fast.fields is None) == (fast.problem in REASONS)
    if exact is None:
        assert fast.problem in {"frame", "kind", "version", "fields"}
    else:
        assert (fast.api_key, fast.version) == exact[:2]
        assert fast.problem in {"state", "offsets", "epochs"} or fast.fields == exact[2]
    assert fast.size_in_bytes == len(value)
    return fast


def test_every_kind_is_read_and_must_fill_its_value() -> None:
    assert {assert_twins_agree(value).api_key for value in EVERY_KIND} == set(REMOTE_LOG_RECORDS) == set(REMOTE_LOG_MESSAGES)
    for value in EVERY_KIND:
        record = decode_remote_log_record(value)
        assert record.fields is not None
        assert write_fast(record.api_key, record.fields) == value
        assert [assert_twins_agree(value[:size]).fields for size in range(len(value))] == [None] * len(value)
        assert assert_twins_agree(value + b"\0").problem == "fields"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "value"),
        (b"", "frame"),
        (b"\0\0\0", "frame"),
        (b"\1\4\0abc", "kind"),
        (b"\1\0\1abc", "version"),
        (copy_started(1, 0, 9, remote_log_segment_state=4), "state"),
        (segment_update(1, -1), "state"),
        (deleted_partition(3), "state"),
        (copy_started(1, -1, 9), "offsets"),
        (copy_started(1, 9, 8), "offsets"),
        (snapshot(start_offset=10), "offsets"),
        (copy_started(1, 0, 9, segment_leader_epochs=[]), "epochs"),
        (b"\1\2\0\xff\xff\xff\xff\x0f", "fields"),
        (copy_started(1, 0, 9)[:85] + b"\xff\xff\xff\xff\x0f", "fields"),
        (segment_update(1, 1)[:-3] + b"\xff\xff\xff\xff\x0f\1\0", "fields"),
    ],
)
def test_malformed_values_have_a_reason(value: bytes | None, reason: str) -> None:
    record = decode_remote_log_record(value)
    assert (record.problem, record.fields) == (reason, None)


@given(st.sampled_from(EVERY_KIND), st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=4), st.integers(0, 200))
def test_twins_agree_on_changed_values(value: bytes, changes: list[tuple[int, int]], size: int) -> None:
    data = bytearray(value)
    for at, byte in changes:
        data[at % len(data)] = byte
    assert_twins_agree(bytes(data))
    assert_twins_agree(bytes(data[:size]))


@given(st.sampled_from(sorted(REMOTE_LOG_RECORDS)), st.binary(max_size=120))
def test_twins_agree_on_any_bytes(api_key: int, data: bytes) -> None:
    assert_twins_agree(data)
    assert_twins_agree(bytes((1, api_key, 0)) + data)
