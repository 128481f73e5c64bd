"""Control records: transaction markers, and KRaft's control records as hexadecimal text made from Kafka's schemas."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from kafka_forensics.parsers.log.control_values import read_control_value, write_control_value
from kafka_forensics.parsers.log.records import ControlRecord, parse_control_record
from tests.support.layouts import control
from tests.support.layouts.control import CONTROL_RECORD_KEY, CONTROL_RECORD_VALUES, value_layout

DIRECTORY = bytes(range(16))


def key(control_type: int, version: int = 0) -> bytes:
    built: bytes = CONTROL_RECORD_KEY.build({"version": version, "type": control_type})
    return built


@pytest.mark.parametrize(("control_type", "name"), [(0, "ABORT"), (1, "COMMIT")])
def test_markers_have_their_coordinator_epoch(control_type: int, name: str) -> None:
    record = parse_control_record(key(control_type), bytes.fromhex("0000 0000002a"))
    assert record == ControlRecord(control_type, name, 0, 42)
    longer = parse_control_record(key(control_type, 3) + b"more", bytes.fromhex("0001 ffffffff 00"))
    assert longer == ControlRecord(control_type, name, 1, -1)


KRAFT = [
    (2, "0000 00000064 02 00000064 00 01 00", {"leader_id": 100, "voters": [{"voter_id": 100}], "granting_voters": []}),
    (
        2,
        "0001 00000064 02 00000064" + DIRECTORY.hex() + "00 01 00",
        {"leader_id": 100, "voters": [{"voter_id": 100, "voter_directory_id": DIRECTORY}], "granting_voters": []},
    ),
    (3, "0000 0000018bcfe56800 00", {"last_contained_log_timestamp": 1_700_000_000_000}),
    (4, "0000 00", {}),
    (5, "0000 0001 00", {"kraft_version": 1}),
    (
        6,
        "0000 02 00000001" + DIRECTORY.hex() + "02 0243 0568656c6c 2384 00 0000 0001 00 00 00",
        {
            "voters": [
                {
                    "voter_id": 1,
                    "voter_directory_id": DIRECTORY,
                    "endpoints": [{"name": "C", "host": "hell", "port": 0x2384}],
                    "kraft_version_feature": {"min_supported_version": 0, "max_supported_version": 1},
                }
            ]
        },
    ),
]


@pytest.mark.parametrize(("control_type", "hexadecimal", "fields"), KRAFT)
def test_kraft_records_are_read_and_their_prefixes_refused(control_type: int, hexadecimal: str, fields: dict[str, Any]) -> None:
    value = bytes.fromhex(hexadecimal)
    record = parse_control_record(key(control_type), value)
    assert (record.type, record.version, record.coordinator_epoch, record.problem) == (control_type, value[1], None, None)
    assert record.fields == fields
    layout = value_layout(control_type, value[1])
    assert layout.build(layout.parse(value)) == write_control_value(control_type, fields | {"version": value[1]}) == value
    for size in range(len(value)):
        assert parse_control_record(key(control_type), value[:size]).problem == "value"


def test_tagged_fields_are_skipped_and_must_be_ascending() -> None:
    layout = CONTROL_RECORD_VALUES[4]
    assert layout.build({"version": 0, "tagged_fields": {7: b"xy", 1: b""}}) == bytes.fromhex("0000 02 01 00 07 02 7879")
    assert parse_control_record(key(4), bytes.fromhex("0000 02 01 00 07 02 7879")).problem is None
    assert parse_control_record(key(4), bytes.fromhex("0000 02 07 00 07 00")).problem == "value"
    assert parse_control_record(key(4), bytes.fromhex("0000 ffffffff0f")).problem == "value"
    assert parse_control_record(key(4), bytes.fromhex("0000 808080808000")).problem == "value"


@pytest.mark.parametrize("bad", ["0000 00000064 ffffffff0f", "0000 00000064 00"])
def test_arrays_of_wrong_length_or_null_are_refused(bad: str) -> None:
    assert parse_control_record(key(2), bytes.fromhex(bad)).problem == "value"


def test_strings_must_be_utf_8() -> None:
    hexadecimal = KRAFT[4][1].replace("0243", "02ff")
    assert parse_control_record(key(6), bytes.fromhex(hexadecimal)).problem == "value"


@pytest.mark.parametrize("bad", [None, b"", b"\0\0\0", b"\xff\xff\0\0"])
def test_unreadable_keys_are_reported(bad: bytes | None) -> None:
    assert parse_control_record(bad, bytes(6)) == ControlRecord(-1, "UNKNOWN", problem="key")


@pytest.mark.parametrize("control_type", [7, 99, -1])
def test_unknown_types_are_ignored(control_type: int) -> None:
    assert parse_control_record(key(control_type), None) == ControlRecord(control_type, "UNKNOWN")


@given(control_type=st.integers(-1, 8), value=st.one_of(st.none(), st.binary(max_size=40)))
def test_any_value_is_read_or_refused(control_type: int, value: bytes | None) -> None:
    assert parse_control_record(key(control_type), value).problem in {None, "value"}


@given(st.sampled_from(KRAFT), st.lists(st.tuples(st.integers(0, 99), st.integers(0, 255)), max_size=4), st.binary(max_size=40))
def test_twins_agree_on_changed_values_and_on_any_bytes(
    row: tuple[int, str, dict[str, Any]], changes: list[tuple[int, int]], data: bytes
) -> None:
    control_type, spelled, _ = row
    changed = bytearray.fromhex(spelled)
    for position, byte in changes:
        changed[position % len(changed)] = byte
    for value in (bytes(changed), data, b"\0\0" + data, b"\0\1" + data):
        assert read_control_value(control_type, value) == control.read_control_value(control_type, value)
