"""Records of `__cluster_metadata`: the parser agrees with the declared layouts, also on malformed records."""

import math
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from kafka_forensics.model.controller import MetadataRecord
from kafka_forensics.parsers.flexible_fields import uuid_text
from kafka_forensics.parsers.internal_topics.metadata_log import (
    NAMES,
    decode_metadata_record,
    is_no_op_batch,
    write_metadata_record as write_fast,
)
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.parsers.exact_readers import read_metadata_record
from tests.parsers.metadata_records import FIELDS_BY_API_KEY, FULL, ID
from tests.support.layouts.flexible import blank
from tests.support.layouts.metadata_records import MESSAGES, write_metadata_record

KINDS = [(api_key, version) for api_key, versions in MESSAGES.items() for version in range(len(versions))]
CHANGE = write_metadata_record(5, 2, FULL)


def plain(value: Any) -> Any:
    """`value` of the exact twin with ids as text, as the fast twin returns them."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return uuid_text(value) if isinstance(value, bytes) else value


def assert_twins_agree(value: bytes) -> MetadataRecord:
    fast, exact = decode_metadata_record(value), read_metadata_record(value)
    if exact is None:
        assert fast.fields is None
        assert fast.problem
    else:
        assert (fast.api_key, fast.version, fast.fields, fast.problem) == (exact[0], exact[1], plain(exact[2]), None)
    assert fast.size_in_bytes == len(value)
    return fast


@pytest.mark.parametrize(("api_key", "version"), KINDS)
@pytest.mark.parametrize("with_tags", [True, False])
def test_every_kind_and_version_is_read_as_written(api_key: int, version: int, with_tags: bool) -> None:
    message = MESSAGES[api_key][version]
    tagged = {tag.name for tag in message.tags}
    full = FULL | FIELDS_BY_API_KEY.get(api_key, {})
    fields = {name: value for name, value in full.items() if with_tags or name not in tagged}
    value = write_metadata_record(api_key, version, fields)
    fast = assert_twins_agree(value)
    assert (fast.api_key, fast.version, fast.name, fast.problem) == (api_key, version, NAMES[api_key], None)
    assert fast.fields is not None
    assert write_fast(api_key, version, fast.fields) == value
    for name, read in fast.fields.items():
        default = {tag.name: tag.default for tag in message.tags}.get(name)
        assert read == (plain(full[name]) if with_tags or name not in tagged else default)
    for size in range(len(value)):
        assert assert_twins_agree(value[:size]).problem in {"frame", "fields"}
    assert assert_twins_agree(value + b"\0").problem == "fields"
    value = write_metadata_record(api_key, version, blank(message.body))
    assert assert_twins_agree(value).problem is None
    assert write_fast(api_key, version, {}) == value


def test_a_batch_of_one_no_op_record_is_recognised() -> None:
    value = write_metadata_record(20, 0, {})
    batch = write_batch([RecordToWrite(None, value)], base_offset=7, base_timestamp=1)
    assert is_no_op_batch(memoryview(batch), 0)
    assert not is_no_op_batch(batch, 1)
    assert not is_no_op_batch(write_batch([RecordToWrite(b"k", value)], base_offset=7, base_timestamp=1), 0)
    assert not is_no_op_batch(write_batch([RecordToWrite(None, b"\1\x14\0\1")], base_offset=7, base_timestamp=1), 0)


def test_tagged_fields_are_read_by_number_and_unknown_tags_are_skipped() -> None:
    head = bytes([1, 5, 2]) + (5).to_bytes(4, "big") + ID
    leader = bytes([1, 4, 0, 0, 0, 9])
    record = decode_metadata_record(head + bytes([3]) + leader + bytes([8, 1, 0, 90, 2, 7, 7]))
    assert record.fields is not None
    assert (record.fields["leader"], record.fields["isr"], record.fields["directories"]) == (9, None, None)
    assert record.fields["leader_recovery_state"] == -1
    for bad in (bytes([2]) + leader + leader, bytes([1, 1, 5, 0, 0, 0, 9, 0]), bytes([1, 0, 1, 5])):
        assert assert_twins_agree(head + bad).problem == "fields"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "value"),
        (b"", "frame"),
        (b"\0\5\0" + CHANGE[3:], "frame"),
        (b"\x80\x80\x80\x80\x80\1", "frame"),
        (b"\1\5\3" + CHANGE[3:], "version"),
        (b"\1\5\xff\xff\xff\xff\x0f" + CHANGE[3:], "version"),
        (b"\1\6\0\0", "kind"),
        (b"\1\xff\xff\xff\xff\x0f\0\0", "kind"),
        (CHANGE[:23] + b"\xff\xff\xff\xff\x0f", "fields"),
        (b"\1\3\0" + bytes(4) + ID + b"\xff\xff\xff\xff\x0f" + bytes(40), "fields"),
        (b"\1\0\0" + bytes(28) + b"\xff\xff\xff\xff\x07" + bytes(40), "fields"),
        (b"\1\2\0\3\xff\xff" + ID + b"\0", "fields"),
        (b"\1\2\0\0" + ID + b"\0", "fields"),
    ],
)
def test_malformed_values_have_a_problem(value: bytes | None, problem: str) -> None:
    record = decode_metadata_record(value) if value is None else assert_twins_agree(value)
    assert (record.fields, record.problem) == (None, problem)


def test_every_named_kind_has_a_layout_and_unknown_kinds_have_a_size() -> None:
    assert NAMES.keys() == MESSAGES.keys()
    assert {*range(30)} - NAMES.keys() == {6, 13, 16}  # these were in no release
    record = decode_metadata_record(b"\1\x1e\0any bytes")
    assert (record.name, record.size_in_bytes, record.fields, record.problem) == ("UNKNOWN", 12, None, "kind")


@pytest.mark.parametrize(("raw", "read"), [(b"\x7f\xf8" + bytes(6), "nan"), (b"\xff\xf0" + bytes(6), "-inf"), (bytes(8), 0.0)])
def test_a_quota_that_is_not_finite_is_text(raw: bytes, read: float | str) -> None:
    record = assert_twins_agree(b"\1\x0e\0\1\2k" + raw + b"\1\0")
    assert record.fields == {"entity": [], "key": "k", "value": read, "remove": True}


@given(value=st.binary(max_size=80))
@example(value=b"\1\5\2")
def test_twins_agree_on_any_bytes(value: bytes) -> None:
    assert_twins_agree(value)


@given(st.sampled_from(KINDS), st.data())
def test_twins_agree_on_any_change_of_a_record(kind: tuple[int, int], data: st.DataObject) -> None:
    value = bytearray(write_metadata_record(*kind, FULL | FIELDS_BY_API_KEY.get(kind[0], {})))
    for _ in range(data.draw(st.integers(1, 3))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    assert_twins_agree(bytes(value))
