"""Records of new groups and share partitions: parsers agree with declared layouts on any bytes and on records that Kafka wrote."""

from base64 import b64encode
from typing import Any, cast

import pytest
from hypothesis import given, strategies as st

from kafka_forensics.model.coordinators import RECORD_TYPES
from kafka_forensics.parsers.internal_topics.consumer_offsets import MAX_VALUE_BYTES, read_group_value, write_group_value
from kafka_forensics.parsers.internal_topics.share_state import ShareKey, read_share_key, read_share_value, write_share_value
from kafka_forensics.parsers.log.record_stream import plain_records
from tests.parsers.exact_readers import EARLY_SHARE_STATE_VALUES, parsed, read_value
from tests.support.layouts.consumer_offsets import (
    EARLY_GROUP_VALUES,
    GROUP_VALUES,
    SHARE_STATE_KEY,
    SHARE_STATE_VALUES,
    write_value,
)
from tests.support.layouts.flexible import Flexible, blank
from tests.support.places import DUMP_INPUTS
from tests.support.segments import segment_file

LOG = segment_file(0)
TOPIC_ID = "EXlbp3X-RAGJ5SN0Nx0VKQ"
Record = tuple[bytes, bytes]


def records_of(*names: str) -> list[Record]:
    """Keys and values of golden inputs, without tombstones."""
    found = []
    for name in names:
        data = (DUMP_INPUTS / name / LOG).read_bytes()
        position = 0
        while position < len(data):
            size = int.from_bytes(data[position + 8 : position + 12], "big") + 12
            records = plain_records(data[position : position + size]) or ()
            found += [(record.key, record.value) for record in records if record.key is not None and record.value is not None]
            position += size
    return found


GROUP_RECORDS = records_of("group-kinds", "group-records")
SHARE_RECORDS = records_of("share-state", "share-records")


def exact(layouts: list[Flexible], value: bytes) -> dict[str, Any] | None:
    """What the first layout reads that takes the whole value; else what the first layout reads that takes a part."""
    found = [read for layout in layouts if (read := read_value(layout, value)) is not None]
    return next((fields for fields, rest in found if not rest), found[0][0] if found else None)


def assert_group_values_agree(record_type: int, value: bytes) -> dict[str, Any] | str:
    layouts = [
        layouts_by_type[record_type] for layouts_by_type in (GROUP_VALUES, EARLY_GROUP_VALUES) if record_type in layouts_by_type
    ]
    return assert_agree(read_group_value(record_type, value), exact(layouts, value))


def assert_share_values_agree(record_type: int, value: bytes) -> dict[str, Any] | str:
    layouts = [layouts_by_type[record_type] for layouts_by_type in (SHARE_STATE_VALUES, EARLY_SHARE_STATE_VALUES)]
    return assert_agree(read_share_value(record_type, value), exact(layouts, value))


def assert_agree(fast: dict[str, Any] | str, read: dict[str, Any] | None) -> dict[str, Any] | str:
    assert isinstance(fast, str) == (read is None)
    if read is not None:
        assert fast == _texts(read)
    return fast


def _texts(value: Any) -> Any:
    """`value` with bytes as base64 text, as the fast twin returns them."""
    if isinstance(value, dict):
        return {name: _texts(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_texts(item) for item in value]
    return b64encode(value).decode() if isinstance(value, bytes) else value


def type_of(key: bytes) -> int:
    return int.from_bytes(key[:2], "big", signed=True)


def test_every_record_type_of_a_release_has_a_layout_and_a_record_by_kafka() -> None:
    written = {type_of(key) for key, _ in GROUP_RECORDS}
    assert set(GROUP_VALUES) <= written
    assert set(GROUP_VALUES) | set(EARLY_GROUP_VALUES) == set(RECORD_TYPES) - {0, 1, 2, 18, 24}
    assert set(SHARE_STATE_VALUES) == {type_of(key) for key, _ in SHARE_RECORDS} & {0, 1}
    types_by_brokers = {type_of(key) for key, _ in records_of("group-kinds")}
    assert set(GROUP_VALUES) - types_by_brokers == {4}


def test_twins_agree_on_every_prefix_of_records_by_kafka() -> None:
    for key, value in GROUP_RECORDS:
        for size in range(len(value) + 1) if type_of(key) in GROUP_VALUES else ():
            assert_group_values_agree(type_of(key), value[:size])
    for key, value in SHARE_RECORDS:
        for size in range(len(value) + 1) if type_of(key) in SHARE_STATE_VALUES else ():
            assert_share_values_agree(type_of(key), value[:size])
        for size in range(len(key) + 1):
            assert_share_keys_agree(key[:size])


def test_twins_write_the_same() -> None:
    for write, fast_read, layouts, records in (
        (write_group_value, read_group_value, GROUP_VALUES, GROUP_RECORDS),
        (write_share_value, read_share_value, SHARE_STATE_VALUES, SHARE_RECORDS),
    ):
        written = set()
        for key, value in records:
            layout = layouts.get(type_of(key))
            read = None if layout is None else read_value(layout, value)
            if layout is not None and read is not None and not read[1]:
                fields = fast_read(type_of(key), value)
                assert isinstance(fields, dict)
                assert write(type_of(key), fields) == write_value(layout, read[0])
                assert write(type_of(key), {}) == write_value(layout, cast("dict[str, Any]", blank(layout)))
                written.add(type_of(key))
        assert written == set(layouts)


def assert_share_keys_agree(key: bytes) -> ShareKey | str:
    fast = read_share_key(key)
    if len(key) >= 2 and type_of(key) not in SHARE_STATE_VALUES:
        assert fast == ShareKey(type_of(key), "", "", -1)
        return fast
    read = parsed(SHARE_STATE_KEY, key)
    if isinstance(read, str):
        assert fast == "key"
    else:
        assert isinstance(fast, ShareKey)
        assert fast._asdict() == read
    return fast


BATCH = {"first_offset": 0, "last_offset": 9, "delivery_state": 2, "delivery_count": 1}
SHARED_TOPIC = {"topic_id": TOPIC_ID, "topic_name": "t", "partitions": [0, 1]}
EARLY_SNAPSHOT = {"snapshot_epoch": 65535, "state_epoch": 1, "leader_epoch": 2, "start_offset": 3, "state_batches": [BATCH]}
EARLY_UPDATE = {"snapshot_epoch": 1, "leader_epoch": 2, "start_offset": -1, "state_batches": [BATCH, BATCH]}
EARLY_TOPICS = {"initialized_topics": [SHARED_TOPIC], "deleting_topics": [{"topic_id": TOPIC_ID, "topic_name": "u"}]}


def test_share_groups_of_the_preview_in_kafka_4_0_are_read() -> None:
    groups: dict[int, dict[str, Any]] = {9: {"topics": []}, 11: {"epoch": 5}, 15: EARLY_TOPICS}
    for record_type, fields in groups.items():
        assert assert_group_values_agree(record_type, write_value(EARLY_GROUP_VALUES[record_type], fields)) == fields
    for record_type, fields in enumerate((EARLY_SNAPSHOT, EARLY_UPDATE)):
        assert assert_share_values_agree(record_type, write_value(EARLY_SHARE_STATE_VALUES[record_type], fields)) == fields


@pytest.mark.parametrize(
    ("record_type", "value", "reason"),
    [
        (3, b"", "truncated"),
        (3, b"\0", "truncated"),
        (3, b"\0\1\0\0\0\5\0", "version"),
        (3, b"\0\0\0\0\0\5", "fields"),
        (3, b"\0\0\0\0\0\5\1\0\7" + bytes(7), "fields"),
        (3, b"\0\0\0\0\0\5\2\1\0\0\0", "fields"),
        (7, b"\0\0\xff\xff\xff\xff\x0f", "fields"),
        (7, b"\0\0\xff\xff\xff\xff\xff\x01", "fields"),
        (7, b"\0\0\0\0", "fields"),
        (16, b"\0\0\2\3\xff\xfe" + bytes(17), "fields"),
        (23, b"\0\0\0\0\0\1\xff\xff\xff\x7f", "fields"),
        (18, b"\0\0\0", "kind"),
        (24, b"\0\0\0", "kind"),
        (3, b"\0\0" + bytes(MAX_VALUE_BYTES), "oversized"),
    ],
)
def test_malformed_values_have_a_reason(record_type: int, value: bytes, reason: str) -> None:
    assert read_group_value(record_type, value) == reason


def test_a_value_just_below_the_size_limit_is_read() -> None:
    empty = {"key": "", "value": ""}
    value = write_value(GROUP_VALUES[17], {"epoch": 1, "metadata_hash": 0, "last_assignment_configs": [empty] * 60_000})
    read = read_group_value(17, value)
    assert isinstance(read, dict)
    assert len(read["last_assignment_configs"]) == 60_000


@st.composite
def changed(draw: st.DrawFn, records: list[Record]) -> Record:
    key, value = draw(st.sampled_from(records))
    data = bytearray(value)
    for at, byte in draw(st.lists(st.tuples(st.integers(0, max(len(data) - 1, 0)), st.integers(0, 255)), max_size=4)):
        data[at] = byte
    return key, bytes(data[: draw(st.integers(0, len(data)))]) if draw(st.booleans()) else bytes(data)


@given(changed([record for record in GROUP_RECORDS if type_of(record[0]) in GROUP_VALUES and record[1]]))
def test_twins_agree_on_changed_values(record: Record) -> None:
    assert_group_values_agree(type_of(record[0]), record[1])


@given(st.sampled_from(sorted({**GROUP_VALUES, **EARLY_GROUP_VALUES})), st.binary(max_size=60))
def test_twins_agree_on_any_bytes(record_type: int, rest: bytes) -> None:
    assert_group_values_agree(record_type, b"\0\0" + rest)
    assert_group_values_agree(record_type, rest)


@given(changed([record for record in SHARE_RECORDS if type_of(record[0]) in SHARE_STATE_VALUES]), st.binary(max_size=60))
def test_twins_agree_on_share_records(record: Record, data: bytes) -> None:
    assert_share_values_agree(type_of(record[0]), record[1])
    for record_type in SHARE_STATE_VALUES:
        assert_share_values_agree(record_type, b"\0\0" + data)
        assert_share_keys_agree(bytes((0, record_type)) + data)
    assert_share_keys_agree(data)
